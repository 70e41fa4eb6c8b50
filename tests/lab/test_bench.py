"""The benchmark's machinery; what it measures is no test."""

import json
import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

from smgopt.cli import app
from smgopt.lab import bench


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"DEPTH": 16, "BATCH": 8, "LEVELS": 4, "CYCLES": 3, "PRODUCT": 16}.items():
        monkeypatch.setattr(bench, name, value)
    monkeypatch.setattr(bench, "_race", lambda runners: [0.5 * runners] * runners)
    monkeypatch.setattr(bench, "peak", lambda: 100.0)
    monkeypatch.setattr(bench, "gradients", bench.gradients_here)


@pytest.mark.usefixtures("small")
def test_every_key_is_there_with_the_times_that_it_came_from(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["bench", "--rounds", "2", "--json", str(tmp_path / "bench.json")])
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "bench.json").read_text())
    assert set(found) == {*bench.BARS, "raw", "machine"}
    assert all(math.isfinite(found[key]) and found[key] > 0 for key in bench.BARS)
    assert {name: len(times) for name, times in found["raw"]["gradient"].items()} == dict.fromkeys(
        ["eager", "fused", "checkpoint", "deep", "product"], 2
    )
    assert found["cycle.evaluation_fraction"] < 1
    assert found["neighbours.slowdown"] == 2.0
    for key in bench.BARS:
        assert key in result.output


def test_a_ratio_is_that_of_the_rounds() -> None:
    # The machine was slow in the second round, for both.
    assert bench.ratio([2.0, 20.0, 2.0], [1.0, 10.0, 1.0]) == 2.0


def test_bars() -> None:
    assert bench.Bar(2, at_least=True).holds(2)
    assert not bench.Bar(2, at_least=True).holds(1.9)
    assert bench.Bar(2, at_least=False).holds(1.9)
    assert str(bench.Bar(2.5, at_least=False)) == "≤ 2.5"
