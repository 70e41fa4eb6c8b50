"""Killed, cut short, tampered with, out of space: what a run survives, and what it says when it cannot."""

import errno
import itertools
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from typer.testing import CliRunner

from smgopt import cli
from smgopt.lab import evaluate, toml, train
from smgopt.lab.errors import Interrupted, RunError
from smgopt.lab.runs import Run
from tests.lab.support import Make, Signal, numbers

FILES = (
    "config.toml",
    "environment.json",
    "metrics.jsonl",
    "cycles.jsonl",
    "checkpoints/cycle-00000004.json",
    "checkpoints/cycle-00000004.safetensors",
    "checkpoints/cycle-00000005.json",
    "checkpoints/cycle-00000005.safetensors",
)


@pytest.fixture
def stopped(make: Make, tmp_path: Path) -> Path:
    """A run that was stopped after 5 of 8 cycles."""
    with pytest.raises(Interrupted):
        train.run(make(), tmp_path / "stopped", progress=Signal(5))
    return tmp_path / "stopped"


@pytest.fixture
def whole(make: Make, tmp_path: Path) -> dict[str, Any]:
    """What the same run computes if it is not stopped."""
    return numbers(train.run(make(), tmp_path / "whole").folder)


def test_a_run_can_be_killed_at_any_moment(make: Make, tmp_path: Path) -> None:
    # The processes are forked from one that has loaded everything, so that kills fall into the training.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.lab.preloaded"])
    config, moments = make(cycles=40, checkpoint=0.01), random.Random(0)

    def started(folder: Path) -> Any:
        process = context.Process(target=train.run, args=(config, folder), kwargs={"resume": True})
        process.start()
        return process

    for name in ("first", "second"):  # the first one waits until all is loaded
        began = time.perf_counter()
        started(tmp_path / name).join()
        length = time.perf_counter() - began
    expected = numbers(tmp_path / "first")
    assert numbers(tmp_path / "second") == expected

    kills, reached = 0, set()
    for number in itertools.count():
        folder = tmp_path / f"run-{number}"
        while True:
            process = started(folder)
            if kills >= 20:
                process.join()
            elif kills % 4 == 0:  # at any time
                process.join(moments.uniform(0, length))
            else:  # in a certain cycle, or what follows it
                wait_for(folder, done(folder) + moments.randrange(12), process)
                process.join(moments.uniform(0, 0.005))
            if process.exitcode is not None:
                break
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            kills += 1
            reached.add(done(folder))
        assert process.exitcode == 0
        assert numbers(folder) == expected
        if kills >= 20:
            break
    assert len(reached) > 4, f"the kills have not fallen into the training, but after {reached} cycles"


def done(folder: Path) -> int:
    """How many cycles a run has recorded."""
    file = folder / "cycles.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


def wait_for(folder: Path, cycles: int, process: Any) -> None:
    """Wait until the process has recorded so many cycles, or has ended."""
    while done(folder) < cycles and process.is_alive():
        time.sleep(0.001)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_stops(make: Make, tmp_path: Path, number: int, code: int) -> None:
    folder = tmp_path / "run"
    train.run(make(cycles=1000, checkpoint=1000.0), tmp_path / "whole")
    file = tmp_path / "config.toml"
    file.write_text(toml.write(make(cycles=1000, checkpoint=1000.0).tree()))
    command = [sys.executable, "-m", "smgopt.cli", "train"]
    with subprocess.Popen(
        [*command, file, "--out", folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        while not (folder / "config.toml").exists() or len(Run(folder).cycles) < 3:
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert f"which is saved; go on with: smgopt train --resume {folder}" in err
    assert "Traceback" not in out + err
    finished = subprocess.run([*command, "--resume", folder], capture_output=True, text=True, check=True)
    assert "finished: 1000 cycles done" in finished.stdout
    assert numbers(folder) == numbers(tmp_path / "whole")


def damages(content: bytes, count: int) -> Iterator[bytes]:
    """The contents cut short and with one byte changed, in many places."""
    places, size = random.Random(0), len(content)
    for length in {0, 1, size // 2, size - 1, *(places.randrange(size) for _ in range(count))}:
        yield content[:length]
    for _ in range(2 * count):
        i = places.randrange(size)
        yield content[:i] + bytes([content[i] ^ places.randrange(1, 256)]) + content[i + 1 :]


@pytest.mark.parametrize("name", FILES)
def test_damaged_files_are_noticed(
    stopped: Path, whole: dict[str, Any], tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluate, "_ms_per_1000", lambda *_: 0.0)
    content = (stopped / name).read_bytes()
    for i, damaged in enumerate(damages(content, 6)):
        folder = copytree(stopped, tmp_path / f"{i}")
        (folder / name).write_bytes(damaged)
        # A picture takes as long as all others together.
        plot = (
            [["plot", str(folder), "--quantity", "loss", "--x", "cycle", "--format", "svg"]] if i < 6 else []
        )
        commands = [
            ["evaluate", str(folder)],
            *plot,
            ["export", str(folder), "--to", f"{folder}/x.safetensors"],
        ]
        for arguments in (*commands, ["train", "--resume", str(folder)]):
            result = CliRunner().invoke(cli.app, arguments)
            assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
            assert result.exit_code in (0, 1, 2)
            assert "Traceback" not in result.output
            if result.exit_code:
                assert str(folder) in result.output
        # Whatever was wrong: a run that could be finished is the run that was asked for. Its configuration is
        # the user's to change, within what the checkpoint allows.
        if result.exit_code == 0 and name != "config.toml":
            assert numbers(folder) == whole
        elif name.startswith("checkpoints"):
            pytest.fail(f"the other checkpoint is good: {result.output}")


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(stopped: Path, make: Make) -> None:
    file = stopped / "checkpoints/cycle-00000005.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    watch = Signal()
    train.run(make(), stopped, resume=True, progress=watch)
    assert watch.said[:2] == [
        f"{file} is damaged: its checksum is wrong",
        "going on from the last good checkpoint, that of cycle 4",
    ]


def test_without_a_good_checkpoint_nothing_is_done(stopped: Path, make: Make) -> None:
    before = (stopped / "cycles.jsonl").read_bytes()
    for file in (stopped / "checkpoints").glob("*.json"):
        file.write_text("{}")
    with pytest.raises(RunError, match="has no good checkpoint"):
        train.run(make(), stopped, resume=True)
    for file in (stopped / "checkpoints").glob("*"):
        file.unlink()
    with pytest.raises(RunError, match="has done 5 cycles, but there are no checkpoints in it"):
        train.run(make(), stopped, resume=True)
    assert (stopped / "cycles.jsonl").read_bytes() == before


def test_records_from_before_the_checkpoint_must_be_whole(stopped: Path, make: Make) -> None:
    file = stopped / "cycles.jsonl"
    file.write_text(file.read_text().replace('"cycle": 2', '"cycle": 3'))
    with pytest.raises(RunError, match=r"cycles.jsonl is damaged: records from before the checkpoint"):
        train.run(make(), stopped, resume=True)


def test_a_damaged_environment_is_put_aside(stopped: Path, make: Make, whole: dict[str, Any]) -> None:
    (stopped / "environment.json").write_text("[")
    watch = Signal()
    train.run(make(), stopped, resume=True, progress=watch)
    assert "it is environment.json.damaged now" in watch.said[0]
    assert (stopped / "environment.json.damaged").read_text() == "["
    assert numbers(stopped) == whole


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_full_disk(
    make: Make, whole: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    real, config = getattr(os, call), make(tensorboard=True)
    left = 0

    def full(descriptor: int, *content: bytes) -> Any:
        nonlocal left
        left -= 1
        if left >= 0:
            return real(descriptor, *content)
        for part in content:  # a disk that is full takes what fits
            real(descriptor, part[: len(part) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for calls in range(200):
        folder, left = tmp_path / f"{calls}", calls
        message = ""
        with monkeypatch.context() as patch:
            patch.setattr(os, call, full)
            try:
                train.run(config, folder)
            except RunError as error:
                message = str(error)
        if left >= 0:
            break
        assert "cannot be written: No space left on device" in message
        train.run(config, folder, resume=True)
        assert numbers(folder) == whole
    assert calls > 10
