import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import smgopt
from smgopt import cli
from smgopt.lab import demo, evaluate, toml, train
from tests.lab.support import Make, numbers


def smg(*arguments: object) -> Result:
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


@pytest.fixture
def config(make: Make, tmp_path: Path) -> Path:
    file = tmp_path / "config.toml"
    file.write_text(toml.write(make().tree()))
    return file


def test_train_resume_evaluate(config: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    result = smg(
        "train",
        config,
        "seed=3",
        "--set",
        "lr=0.2",
        "smoothing=table-1",
        "--out",
        run,
        "--json",
        tmp_path / "a",
    )
    assert result.exit_code == 0, result.output
    assert "cycle 8  epoch 2.67" in result.output
    assert json.loads((tmp_path / "a").read_text())["finished"] == "8 cycles done"
    result = smg("train", "--resume", run, "--set", "cycles=10")
    assert result.exit_code == 0, result.output
    assert "until 10 cycles, from cycle 8" in result.output
    result = smg("evaluate", run, "--json", tmp_path / "b")
    assert result.exit_code == 0, result.output
    assert "after 10 cycles" in result.output
    levels = json.loads((tmp_path / "b").read_text())["levels"]
    assert [level["blocks"] for level in levels] == [2, 4]
    assert all(level["ms_per_1000"] > 0 for level in levels)


def test_evaluate_agrees_with_the_run(make: Make, tmp_path: Path) -> None:
    run = train.run(make(), tmp_path / "run")
    found = evaluate.evaluate(run)
    assert [level.accuracy for level in found.levels] == run.metrics[-1]["test_accuracy"]
    assert [level.loss for level in found.levels] == run.metrics[-1]["test_loss"]


def test_the_command_and_the_function_do_the_same(make: Make, config: Path, tmp_path: Path) -> None:
    assert smg("train", config, "--out", tmp_path / "a", "--quiet").output == ""
    assert numbers(train.run(make(), tmp_path / "b").folder) == numbers(tmp_path / "a")


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["train", "detph=3"], 2, "did you mean 'depth'?"),
        (["train", "nowhere.toml"], 2, "nowhere.toml cannot be read"),
        (["train", "a.toml", "b.toml"], 2, "one configuration file, please, not 2"),
        (["train", "data=minst"], 2, "unknown data set 'minst', did you mean 'mnist'?"),
        (["train", "--resume", "nowhere"], 2, "nowhere is no run"),
        (["train", "--resume", "nowhere", "--out", "b"], 2, "leave out --out b"),
        (["train", "--json", "no/where.json"], 2, "its folder does not exist"),
        (["train", "--json", "."], 2, "is a folder"),
        (["evaluate", "nowhere"], 2, "nowhere is no run"),
        (["evaluate"], 2, "Missing argument"),
        (["evaluate", "x" * 300], 1, "File name too long"),
        (["settings", "--json", "x" * 300], 1, "File name too long"),
        (["fly"], 2, "No such command"),
    ],
)
def test_what_is_wrong_is_said(
    arguments: list[str], code: int, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = smg(*arguments)
    assert result.exit_code == code
    assert sentence in result.output
    assert "Traceback" not in result.output


def test_a_failed_run_ends_with_1(config: Path, tmp_path: Path) -> None:
    result = smg("train", config, "lr=1e30", "cycles=50", "--out", tmp_path / "run")
    assert result.exit_code == 1
    assert "cycle 1 of" in result.output
    assert "the loss nan" in result.output


def test_links_and_pipes_take_the_json(tmp_path: Path) -> None:
    (tmp_path / "link.json").symlink_to(tmp_path / "target.json")
    assert smg("settings", "--json", tmp_path / "link.json").exit_code == 0
    assert (tmp_path / "link.json").is_symlink()
    expected = json.loads((tmp_path / "target.json").read_text())
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "smgopt.cli", "settings", "--json", str(pipe)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        assert json.loads(pipe.read_text()) == expected
    assert process.returncode == 0
    assert pipe.is_fifo()


def test_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "DEPTH", 16)
    monkeypatch.setattr(demo, "CYCLES", 3)
    result = smg("demo", "--out", tmp_path, "--json", tmp_path / "demo.json")
    assert result.exit_code == 0, result.output
    assert f"The curves: {tmp_path / 'demo.png'}" in result.output
    rows = json.loads((tmp_path / "demo.json").read_text())
    assert [row["batches"] for row in rows][:2] == [3, 3]
    assert rows[0]["gradients"] == pytest.approx(rows[2]["gradients"], abs=1)
    assert rows[0]["forwards"] > rows[1]["forwards"] == 0


def test_settings_are_listed(tmp_path: Path) -> None:
    result = smg("settings", "--json", tmp_path / "s.json")
    assert result.exit_code == 0
    assert "optimizer.lr" in result.output
    assert {"name": "network.depth", "short": "depth", "default": 256}.items() <= json.loads(
        (tmp_path / "s.json").read_text()
    )[1 + 1].items()


def test_help_and_version_do_not_wait_for_torch() -> None:
    code = (
        "import sys, os; from smgopt import cli; assert 'torch' not in sys.modules; "
        "sys.argv = ['smgopt', '--version']; cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"smgopt {smgopt.__version__}"
    assert "Train a network" in smg("--help").output


@pytest.mark.parametrize(
    ("given", "waiting"),
    [
        ({}, ["PASSIVE", "5000"]),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, ["ACTIVE", None]),
        ({"GOMP_SPINCOUNT": "7"}, [None, "7"]),
    ],
)
def test_threads_wait_as_the_user_says_or_shortly(given: dict[str, str], waiting: list[str | None]) -> None:
    names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    code = f"import json, os; from smgopt import cli; print(json.dumps([os.environ.get(n) for n in {names}]))"
    env = {name: value for name, value in os.environ.items() if name not in names} | given
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == waiting
