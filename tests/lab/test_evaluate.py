import pytest
import torch

from smgopt.lab import build, trainers
from smgopt.lab.evaluate import SHARE, interval, measure
from tests.lab.support import Make


def test_measure_is_the_mean_over_all_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = torch.randn(25, 3, dtype=torch.float64), torch.randint(3, (25,))
    whole = measure(torch.nn.Identity(), x, y)
    assert whole[0] == pytest.approx(float(torch.nn.functional.cross_entropy(x, y)))
    monkeypatch.setattr("smgopt.lab.evaluate._at_once", lambda _: 10)
    assert measure(torch.nn.Identity(), x, y) == pytest.approx(whole)


def test_measure_leaves_the_mode_of_the_network() -> None:
    network = torch.nn.Dropout(0.9)
    x, y = torch.eye(3), torch.arange(3)
    assert measure(network, x, y)[1] == 1.0
    assert network.training


@pytest.mark.parametrize("samples", [1, 10, 1000])
def test_evaluations_cost_at_most_their_share(samples: int) -> None:
    every = interval([64, 128], samples, cycle=500.0)
    assert 192 / 3 * samples <= SHARE * every * 500
    assert every == 1 or 192 / 3 * samples > SHARE * (every - 1) * 500


@pytest.mark.parametrize(
    "changes",
    [{}, {"levels": 1}, {"smoothing": [[2, 0], [1, 1], [0, 1]], "levels": 3}, {"optimizer": "adam"}],
)
def test_a_cycle_costs_what_was_estimated_at_least(make: Make, changes: dict[str, object]) -> None:
    config = make(depth=8, **changes)
    trainer = trainers.make(config, build.hierarchy(config, (6,), 3))
    for _ in range(5):
        trainer.step(torch.randn(20, 6), torch.randint(3, (20,)))
    cost = (trainer.work.gradients + trainer.work.forwards / 3) / 5
    assert trainer.estimate() == pytest.approx(cost, rel=0.35)
