"""Contests: equal cost, steps chosen without the test data, and what is told of them."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from smgopt import cli
from smgopt.lab.compare import contest as contests
from smgopt.lab.compare.contest import Contest, Entry
from smgopt.lab.compare.hold import hold
from smgopt.lab.compare.outcome import Outcome
from smgopt.lab.errors import InputError
from smgopt.lab.runs import Run

TEXT = """
title = "Two on a tiny network"
note = "The samples are made up."
gradients = 20
levels = 2
evaluations = 4
network = {{ depth = 4, width = 3 }}
data = {{ name = "{samples}", batch = 20 }}

[[contestants]]
name = "sMG/OPT"
optimizer = {{ name = "smgopt" }}
steps = [0.01, 0.3]

[[contestants]]
name = "SGD"
optimizer = {{ name = "sgd", momentum = 0.9 }}
steps = [0.001, 0.1, 1e30]
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory, samples: Path) -> Path:
    file = tmp_path_factory.mktemp("contest") / "tiny.toml"
    file.write_text(TEXT.format(samples=samples))
    return file


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compare") / "tiny" / "runs"


@pytest.fixture(scope="module")
def outcome(file: Path, runs: Path) -> Outcome:
    return hold(contests.read(file), runs, 2, 1, _silent)


def _silent(todo: int) -> Callable[[Entry], None]:  # noqa: ARG001
    return lambda _: None


def test_all_spend_the_same(outcome: Outcome) -> None:
    ours, theirs = outcome.results
    assert theirs.spent("work") == 20
    # A search may try more often than once, and whole cycles do not fill the budget.
    assert ours.spent("work") == pytest.approx(20, rel=0.2)
    assert outcome.common("work") == min(ours.spent("work"), 20)
    assert [row["optimizer"] for row in outcome.rows()] == ["sMG/OPT", "SGD"]


def test_a_step_is_chosen_on_what_was_held_out_of_the_training_data(outcome: Outcome, runs: Path) -> None:
    theirs = outcome.results[1]
    assert set(theirs.scores) == {0.001, 0.1, 1e30}
    assert theirs.scores[1e30] == 0, "it diverges"
    assert theirs.step == max(theirs.scores, key=lambda step: theirs.scores[step])
    tuning = [Run(run) for run in runs.iterdir() if run.name.startswith("tuning")]
    assert {run.config.data.holdout for run in tuning} == {0.1}
    assert {run.config.run.seed for run in tuning} == {1}
    assert {run.config.data.holdout for run in theirs.runs} == {0.0}
    assert [run.config.run.seed for run in theirs.runs] == [1, 2]


def test_what_is_there_is_not_done_again(outcome: Outcome, file: Path, runs: Path) -> None:
    def refuse(todo: int) -> Callable[[Entry], None]:
        raise AssertionError(f"{todo} runs done again")

    again = hold(contests.read(file), runs, 2, 1, refuse)
    assert [row["equal_work"] for row in again.rows()] == [row["equal_work"] for row in outcome.rows()]


def test_levels_are_networks_of_their_own(outcome: Outcome) -> None:
    ours, theirs = outcome.results
    assert list(ours.by_level) == [4, 2]
    assert ours.by_level[2] == [run.metrics[-1]["test_accuracy"][0] for run in ours.runs]
    assert list(theirs.by_level) == [4]


def test_accuracies_are_read_off_between_evaluations(outcome: Outcome) -> None:
    result = outcome.results[1]
    run = result.runs[0].metrics
    samples, accuracy = run.column("samples"), run.column("test_accuracy", -1)
    between = (samples[0] + samples[1]) / 2
    assert result.at("samples", between)[0] == pytest.approx(np.mean(accuracy[:2]))


def test_the_command_publishes_a_page(file: Path, runs: Path, outcome: Outcome, tmp_path: Path) -> None:
    del outcome  # its runs are there
    options = ["--seeds", "2", "--jobs", "1", "--out", str(runs.parents[1]), "--publish", str(tmp_path)]
    shown = CliRunner().invoke(
        cli.app, ["compare", str(file), *options, "--json", str(tmp_path / "all.json")]
    )
    assert shown.exit_code == 0, shown.output
    page = (tmp_path / "docs" / "comparison.md").read_text()
    assert "## Two on a tiny network" in page
    assert "The samples are made up.\n" in page
    assert "| | 4 blocks | 2 blocks |" in page.replace("|  |", "| |")
    assert "1e+30: –" in page, "a step that diverged"
    for key in ("samples", "time", "work"):
        assert f"- For equal {key} sMG/OPT is **" in page
    assert (tmp_path / "results" / "comparison" / "tiny.png").read_bytes().startswith(b"\x89PNG")
    recorded = (tmp_path / "results" / "comparison" / "results.json").read_text()
    assert json.loads(recorded) == json.loads((tmp_path / "all.json").read_text())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("gradients = 20", "gradients = 0", r"tiny.toml, line 4: gradients: .* greater than or equal to 1"),
        ("gradients = 20", "gradient = 20", "gradient"),
        ('name = "SGD"', 'name = "sMG/OPT"', "two contestants have the same name"),
        ("momentum = 0.9", "momentun = 0.9", "Two on a tiny network, SGD: .*momentun"),
        ("levels = 2", "levels = 5", "Two on a tiny network, sMG/OPT: .*levels"),
        ("steps = [0.01, 0.3]", "steps = []", "steps"),
        ("title", "title = = ", "not valid TOML"),
    ],
)
def test_what_is_wrong_is_named_before_anything_starts(
    samples: Path, tmp_path: Path, old: str, new: str, message: str
) -> None:
    file = tmp_path / "tiny.toml"
    file.write_text(TEXT.format(samples=samples).replace(old, new))
    with pytest.raises(InputError, match=message):
        contests.read(file)


def test_all_have_diverged(samples: Path, tmp_path: Path) -> None:
    file = tmp_path / "lost.toml"
    text = TEXT.replace("[0.01, 0.3]", "[1e30]").replace("[0.001, 0.1, 1e30]", "[1e30]")
    file.write_text(text.format(samples=samples))
    options = ["--seeds", "1", "--jobs", "1", "--out", str(tmp_path), "--json", str(tmp_path / "all.json")]
    shown = CliRunner().invoke(cli.app, ["compare", str(file), *options])
    assert shown.exit_code == 1
    assert "all runs have diverged of: Two on a tiny network" in shown.output
    found = json.loads((tmp_path / "all.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    assert [row["diverged"] for row in found["lost"]["results"]] == [[1], [1]]


def test_the_contests_of_the_repository_can_be_read() -> None:
    for file in (Path(__file__).parents[2] / "benchmarks").glob("*.toml"):
        contest = contests.read(file)
        assert isinstance(contest, Contest)
        multilevel, *others = contest.contestants
        assert multilevel.optimizer["name"] == "smgopt"
        assert others
