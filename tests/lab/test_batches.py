import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from smgopt.lab.batches import Schedule
from smgopt.lab.errors import InputError


@given(
    samples=st.integers(1, 60), batch=st.integers(1, 60), seed=st.integers(0, 2**32 - 1), keep=st.booleans()
)
def test_an_epoch_is_a_permutation(samples: int, batch: int, seed: int, keep: bool) -> None:
    if batch > samples and not keep:
        with pytest.raises(InputError, match="is more than the"):
            Schedule(samples, batch, seed)
        return
    schedule = Schedule(samples, batch, seed, drop_last=not keep)
    n = schedule.per_epoch
    for epoch in (0, 1):
        parts = [schedule[cycle] for cycle in range(epoch * n, (epoch + 1) * n)]
        seen = torch.cat(parts).tolist()
        assert len(set(seen)) == len(seen) == (samples if keep else samples - samples % batch)
        assert all(len(part) == batch for part in parts[: -1 if keep else None])
    assert schedule.seen(2 * n) == 2 * len(seen)


def test_any_cycle_can_be_asked_for_at_any_time() -> None:
    one, other = Schedule(10, 3, seed=5), Schedule(10, 3, seed=5)
    forwards = [one[cycle].tolist() for cycle in range(12)]
    assert [other[cycle].tolist() for cycle in reversed(range(12))] == forwards[::-1]
    assert forwards[:3] != forwards[3:6]


def test_the_whole_seed_counts() -> None:
    orders = {tuple(Schedule(50, 50, seed)[0].tolist()) for seed in (0, 1, 2**31, 2**32 - 1)}
    assert len(orders) == 4


def test_sixty_cycles_are_an_epoch_of_mnist() -> None:
    schedule = Schedule(60_000, 1_000, seed=0)
    assert schedule.per_epoch == 60
    assert schedule.limit(cycles=None, epochs=5) == 300
    assert schedule.limit(cycles=None, epochs=None) is None
