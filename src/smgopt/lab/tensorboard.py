"""Event files for TensorBoard, written without it.

TensorBoard and its relatives would bring a dozen packages for a format that fits on a page: a file of framed
messages, each a protocol buffer with a time, a step and named numbers.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from typing import TYPE_CHECKING, Any

from smgopt.lab.files import reported, write_all

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

# What is shown, by the name it has there; the lists have one number a level.
_SHOWN = {
    "loss/train": "train_loss",
    "loss/test": "test_loss",
    "accuracy/test": "test_accuracy",
    "work/gradients": "gradients",
    "work/forwards": "forwards",
    "alpha": "alpha",
}


class EventWriter:
    """An event file of the evaluations of one session.

    Args:
        folder: where; it is made if need be.
        first: the cycle of the first evaluation to come. TensorBoard forgets what older files have from there
            on.

    Raises:
        RunError: the file cannot be written.
    """

    def __init__(self, folder: Path, first: int) -> None:
        # Files are read in the order of their names, so the time comes first; the process tells apart those
        # of one second.
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}"
        self._what = f"{folder / name} cannot be written"
        with reported(self._what):
            folder.mkdir(exist_ok=True)
            older = any(folder.iterdir())
            self._descriptor = os.open(
                folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666
            )
        self._write(_bytes(3, b"brain.Event:2"))
        if older:
            self._write(_integer(2, first) + _bytes(7, _integer(1, 1)))  # a session starts with this step

    def add(self, record: dict[str, Any]) -> None:
        """Show the numbers of an evaluation.

        Raises:
            RunError: the file cannot be written.
        """
        values = b""
        for tag, key in _SHOWN.items():
            found = record[key]
            named = (
                {tag: found}
                if not isinstance(found, list)
                else {f"{tag}/level {l}": v for l, v in enumerate(found)}
            )
            for name, value in named.items():
                if value is not None:
                    values += _bytes(1, _bytes(1, name.encode()) + b"\x15" + struct.pack("<f", value))
        self._write(_integer(2, record["cycle"]) + _bytes(5, values))

    def __enter__(self) -> EventWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def _write(self, event: bytes) -> None:
        event = b"\x09" + struct.pack("<d", time.time()) + event
        length = struct.pack("<Q", len(event))
        frame = length + struct.pack("<I", _masked(length)) + event + struct.pack("<I", _masked(event))
        with reported(self._what):
            write_all(self._descriptor, frame)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _integer(field: int, number: int) -> bytes:
    return _varint(field << 3) + _varint(number)


def _bytes(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _table()


def crc32c(content: bytes) -> int:
    """Castagnoli's checksum.

    Example:
        >>> hex(crc32c(b"123456789"))
        '0xe3069283'
    """
    crc = 0xFFFFFFFF
    for byte in content:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _masked(content: bytes) -> int:
    crc = crc32c(content)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
