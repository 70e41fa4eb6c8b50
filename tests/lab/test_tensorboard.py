import struct
from pathlib import Path

import pytest

from smgopt.lab import train
from smgopt.lab.errors import Interrupted
from smgopt.lab.tensorboard import _masked
from tests.lab.support import Make, Signal


def events(file: Path) -> list[bytes]:
    """The messages of an event file, their checksums checked."""
    content, found = file.read_bytes(), []
    while content:
        (size,) = struct.unpack_from("<Q", content)
        message = content[12 : 12 + size]
        assert struct.unpack_from("<I", content, 8) == (_masked(content[:8]),)
        assert struct.unpack_from("<I", content, 12 + size) == (_masked(message),)
        found.append(message)
        content = content[16 + size :]
    return found


def test_evaluations_are_written_for_tensorboard(make: Make, tmp_path: Path) -> None:
    run = train.run(make(tensorboard=True), tmp_path / "run", progress=Signal())
    (file,) = (run.folder / "tensorboard").iterdir()
    first, *others = events(file)
    assert first.endswith(b"\x1a\x0dbrain.Event:2")
    assert len(others) == len(run.metrics)
    for message, record in zip(others, run.metrics, strict=True):
        # After the time the step, then the values: a tag (field 1), a float (field 2).
        assert message[9:11] == bytes([0x10, record["cycle"]])
        tag = b"accuracy/test/level 1"
        value = struct.pack("<f", record["test_accuracy"][1])
        assert b"\x0a" + bytes([len(tag)]) + tag + b"\x15" + value in message


def test_a_run_that_goes_on_says_from_where(make: Make, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(Interrupted):
        train.run(make(tensorboard=True), folder, progress=Signal(5))
    first = next((folder / "tensorboard").iterdir())
    first.rename(first.with_name("events.out.tfevents.0"))
    train.run(make(tensorboard=True), folder, resume=True)
    _, start, *_ = events(sorted((folder / "tensorboard").iterdir())[-1])
    # Step 6 (field 2), and a session log (field 7) that says START (field 1 is 1).
    assert start[9:] == bytes([0x10, 6, 0x3A, 2, 0x08, 1])


def test_a_run_that_begins_again_says_so(make: Make, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    (folder / "tensorboard").mkdir(parents=True)
    (folder / "tensorboard" / "events.out.tfevents.0").write_bytes(b"")
    train.run(make(tensorboard=True), folder)
    _, start, *_ = events(sorted((folder / "tensorboard").iterdir())[-1])
    assert start[9:] == bytes([0x10, 0, 0x3A, 2, 0x08, 1])


def test_without_being_asked_for_there_are_none(make: Make, tmp_path: Path) -> None:
    assert not (train.run(make(), tmp_path / "run").folder / "tensorboard").exists()
