import struct
from pathlib import Path

from smgopt.lab import train
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


def test_without_being_asked_for_there_are_none(make: Make, tmp_path: Path) -> None:
    assert not (train.run(make(), tmp_path / "run").folder / "tensorboard").exists()
