"""The reproduction end to end, on 60 samples of 6 numbers and at most 128 blocks."""

import io
import json
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from smgopt import cli
from smgopt.lab import pool
from smgopt.lab.errors import InputError, Interrupted, RunError
from smgopt.lab.reproduce import command, cost, jobs, reproduction, series, tables
from smgopt.lab.reproduce.claims import CLAIMS
from smgopt.lab.reproduce.items import ITEMS, named
from smgopt.lab.reproduce.jobs import Job
from smgopt.lab.reproduce.reproduction import Reproduction
from smgopt.lab.reproduce.setups import Scale, Setup, folder_name

FEW = ("cycles", "linesearch")


@pytest.fixture(scope="module")
def scale(samples: Path) -> Scale:
    sets = (("mnist", str(samples)), ("mnist1d", str(samples)))
    return Scale(seeds=2, depth=128, cycles=8, batch=20, evaluate=1, sets=sets)


def quiet(todo: object, there: object) -> Callable[[Job], None]:  # noqa: ARG001
    return lambda _: None


def reproduced(scale: Scale, out: Path, at_a_time: int, items: tuple[str, ...] = FEW) -> Reproduction:
    return reproduction.reproduce(named(items), scale, out, at_a_time, quiet)


def numbers(found: Reproduction) -> dict[str, Any]:
    """All that was found but the clock, and how many runs there were at a time."""

    def without_clock(part: Any) -> Any:
        if isinstance(part, dict):
            return {k: without_clock(v) for k, v in part.items() if k not in ("seconds", "jobs", "notes")}
        return [without_clock(value) for value in part] if isinstance(part, list) else part

    content: dict[str, Any] = without_clock(found.as_dict())
    content["claims"] = [c for c in content["claims"] if "wall time" not in c["claim"]]
    return content


@pytest.fixture(scope="module")
def alone(scale: Scale, tmp_path_factory: pytest.TempPathFactory) -> Reproduction:
    """Some items, one run at a time."""
    return reproduced(scale, tmp_path_factory.mktemp("alone"), 1)


def test_everything(scale: Scale, tmp_path: Path) -> None:
    """From the runs to a report whose links lead somewhere, also where it is published."""
    text = io.StringIO()
    one = Scale(**{**scale.__dict__, "seeds": 1})
    out, repository = tmp_path / "out", tmp_path / "repository"
    command.run(
        named([]), one, 2, out, False, repository, tmp_path / "all.json", Console(file=text, width=200)
    )
    shown = text.getvalue()
    assert "out/reproduction.md" in shown
    for name in ITEMS:
        assert name in shown
    for report in (out / "reproduction.md", repository / "docs" / "reproduction.md"):
        content = report.read_text()
        assert "nan" not in re.findall(r"\w+", content)
        for item in ITEMS.values():
            assert f"## {item.title}" in content
            assert all(f"{picture.name}.png" in content for picture in item.pictures)
        links = re.findall(r"\]\(([^)]+)\)", content)
        assert links
        assert all((report.parent / link).is_file() for link in links)
    written = json.loads((repository / "results" / "reproduction" / "results.json").read_text())
    assert written == json.loads((tmp_path / "all.json").read_text())
    assert [one["claim"] for one in written["claims"]] == [claim.claim for claim in CLAIMS]
    assert not list(repository.rglob("*.safetensors"))

    text.truncate(0)
    before = {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*") if path.is_file()}
    command.run(named([]), one, 1, out, False, None, None, Console(file=text, width=200))
    assert "runs to do" not in text.getvalue()
    assert before == {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*") if path.is_file()}


def test_two_jobs_give_the_same_bits(scale: Scale, alone: Reproduction, tmp_path: Path) -> None:
    assert numbers(reproduced(scale, tmp_path, 2)) == numbers(alone)


def test_an_interrupted_reproduction_goes_on(scale: Scale, alone: Reproduction, tmp_path: Path) -> None:
    counts: list[int] = []

    def impatient(todo: list[Job], there: int) -> Callable[[Job], None]:  # noqa: ARG001
        counts.append(there)
        return lambda _: signal.raise_signal(signal.SIGINT) if len(counts) == 1 else None

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(Interrupted, match="the same command goes on"):
        reproduction.reproduce(named(FEW), scale, tmp_path, 2, impatient)
    assert signal.getsignal(signal.SIGINT) is before
    found = reproduction.reproduce(named(FEW), scale, tmp_path, 2, impatient)
    assert counts[0] == 0
    assert counts[1] >= 1
    assert numbers(found) == numbers(alone)


def test_runs_are_shared() -> None:
    """SGD is one run for both tables, and levels-2048 with 8 levels is a column of the pruning table."""
    rate, scale = cost.Rate(1e-5), Scale()

    def runs(*names: str) -> int:
        return cost.of(cost.runs(named(names), scale), rate).runs

    assert runs("levels-2048") == runs("cycles") == runs("pruning") == 20
    assert runs("levels-2048", "cycles") == 35
    assert runs("levels-2048", "pruning") == 35
    assert runs("levels-2048", "cycles", "smoothing") == 35


def test_a_diverged_run_is_a_result(scale: Scale, tmp_path: Path) -> None:
    setup = scale.setup(levels=1, lr=1e30)
    job = Job(setup, 1)
    jobs.perform(tmp_path, job)
    assert jobs.done(tmp_path, job)
    found = series.collect(tmp_path, setup, [1])
    assert found.diverged[1] < setup.cycles
    assert str(tables.cell(found.at(setup.cycles, found.accuracy))) == "–"
    assert np.isnan(found.levels).all()


def test_a_run_that_cannot_be_done_stops_the_others(scale: Scale, tmp_path: Path) -> None:
    lost = Setup(data=str(tmp_path / "nothing.npz"), depth=2, levels=1)
    todo = [Job(scale.setup(levels=2, lr=0.01, cycles=100_000), 1), Job(lost, 1)]
    with pytest.raises(Exception, match=r"nothing\.npz"):
        pool.run_all(tmp_path, todo, 2, jobs.perform, lambda _: None)


def test_a_process_that_dies_is_reported(
    scale: Scale, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_serve", _die)
    with pytest.raises(RunError, match="ended with code 3"):
        pool.run_all(tmp_path, [Job(scale.setup(levels=1), 1)], 1, jobs.perform, lambda _: None)


def _die(*_: object) -> None:
    raise SystemExit(3)


def test_the_configuration_is_the_papers() -> None:
    config = Setup(table=1).config(seed=3)
    assert config.network.model_dump() == {
        "kind": "resnet",
        "width": 10,
        "depth": 2048,
        "T": 1.0,
        "activation": "relu",
        "closing_relu": True,
    }
    assert config.optimizer.model_dump() == {
        "name": "smgopt",
        "lr": 0.1,
        "smoothing": [[2, 0], [2, 2], [2, 2], [2, 2], [1, 1], [1, 1], [1, 1], [1, 0]],
        "weight_decay": 0.0,
        "coupling": "paper",
        "gradient_restriction": "injection",
        "boundary": "zero",
        "line_search": True,
        "initial_step": 1.0,
        "shrink": 0.5,
        "sufficient_decrease": 0.5,
        "max_trials": 10,
    }
    assert (config.data.name, config.data.batch, config.data.holdout) == ("mnist", 1000, 0.0)
    assert (config.run.seed, config.run.cycles, config.run.threads) == (3, 300, 1)


def test_the_work_of_a_setup_is_what_a_run_counts(alone: Reproduction) -> None:
    """Unless corrections are rejected, which saves gradients."""
    for setup, found in alone.known.items():
        if not (found.alpha == 0).any():
            assert (found.work[:, -1] == setup.work).all()
        assert (found.work[:, -1] <= setup.work).all()


def test_folders_tell_configurations_apart(scale: Scale) -> None:
    setups = [scale.setup(levels=l, table=t) for l in (2, 4) for t in (1, 2)]
    names = {folder_name(setup, seed) for setup in setups for seed in (1, 2)}
    assert len(names) == 8


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["smoothign"], "there is no item 'smoothign'"),
        (["--seeds", "0"], "--seeds must be at least 1"),
        (["--jobs", "-1"], "--jobs must be at least 1"),
    ],
)
def test_what_is_wrong_is_said(arguments: list[str], sentence: str) -> None:
    result = CliRunner().invoke(cli.app, ["reproduce", *arguments])
    assert result.exit_code == InputError.exit_code
    assert sentence in result.output


def test_the_list_tells_what_it_costs(tmp_path: Path) -> None:
    file = tmp_path / "costs.json"
    result = CliRunner().invoke(cli.app, ["reproduce", "--list", "--json", str(file)])
    assert result.exit_code == 0, result.output
    rows = {row["item"]: row for row in json.loads(file.read_text())}
    assert rows["levels-2048"]["runs"] == 20
    assert rows["all of these"]["runs"] < sum(rows[name]["runs"] for name in ITEMS)
    assert all(row["minutes"] >= 0 for row in rows.values())
