"""Records, one JSON object a line, that can be cut back to where a checkpoint was made."""

from __future__ import annotations

import hashlib
import json
import math
import os
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from smgopt.lab.errors import RunError
from smgopt.lab.files import reported, write_all

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from types import TracebackType

    from numpy.typing import NDArray


class Mark(NamedTuple):
    """A place in a journal: how long it was, and what was in it."""

    length: int
    digest: str


START = Mark(0, hashlib.sha256().hexdigest())


class Journal:
    r"""A file to which records are appended.

    Args:
        path: the file; it is made if it does not exist.
        mark: everything behind it is cut off.

    Raises:
        RunError: the file cannot be written, or is not what it was at the mark.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "metrics.jsonl")
        >>> with Journal(path, START) as journal:
        ...     journal.append({"cycle": 1, "loss": float("nan")})
        >>> path.read_text()
        '{"cycle": 1, "loss": null}\n'
    """

    def __init__(self, path: Path, mark: Mark) -> None:
        content = check(path, mark)
        self.path = path
        with reported(f"{path} cannot be written"):
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            os.ftruncate(self._descriptor, mark.length)
            os.lseek(self._descriptor, mark.length, os.SEEK_SET)
        self._digest, self._length = hashlib.sha256(content), mark.length

    def append(self, record: dict[str, Any]) -> None:
        """Write one more line.

        Raises:
            RunError: it cannot be written.
        """
        line = json.dumps(_without_nan(record), allow_nan=False).encode() + b"\n"
        with reported(f"{self.path} cannot be written"):
            write_all(self._descriptor, line)
        self._digest.update(line)
        self._length += len(line)

    def mark(self) -> Mark:
        """This place; what comes before it is on the disk now.

        Raises:
            RunError: it cannot be written.
        """
        with reported(f"{self.path} cannot be written"):
            os.fsync(self._descriptor)
        return Mark(self._length, self._digest.hexdigest())

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)


class Records(list[dict[str, Any]]):
    """The records of a journal: a list of dicts that can be read by columns.

    Example:
        >>> Records([{"alpha": [None, 1.0]}, {"alpha": [None, 0.5]}]).column("alpha", level=1)
        array([1. , 0.5])

    Attributes:
        path: of the journal, if they come from one.
    """

    path: Path | None = None

    def part(self, records: Iterable[dict[str, Any]]) -> Records:
        """Some of these records."""
        found = Records(records)
        found.path = self.path
        return found

    def column(self, key: str, level: int | None = None) -> NDArray[np.float64]:
        """One number of every record, or one a level; NaN where there is none.

        Args:
            key: which one.
            level: for what is recorded by level, coarsest first; -1 is the finest. Left out, it is all of
                them: a row for every record.

        Raises:
            RunError: a record has no such number.
        """
        try:
            found = [record[key] if level is None else record[key][level] for record in self]
            return np.array([np.nan if value is None else value for value in found], dtype=np.float64)
        except (LookupError, TypeError, ValueError) as error:
            where = "" if level is None else f" on level {level}"
            what = "a record" if self.path is None else f"a record of {self.path}"
            raise RunError(f"{what} has no number {key!r}{where}") from error


def read(path: Path) -> Records:
    """The records of a journal. A last line that was not written to its end does not count.

    Raises:
        RunError: another line is damaged, or the file cannot be read.
    """
    with reported(f"{path} cannot be read"):
        lines = path.read_bytes().split(b"\n") if path.exists() else [b""]
    records = Records()
    records.path = path
    for number, line in enumerate(lines[:-1], start=1):
        try:
            record = json.loads(line)
            whole = isinstance(record, dict) and isinstance(record.get("cycle"), int)
        except (ValueError, RecursionError):
            whole = False
        if not whole:
            raise RunError(f"{path}, line {number} is damaged: it is no record")
        records.append(record)
    return records


def check(path: Path, mark: Mark) -> bytes:
    """What was in a journal at a mark, if it still begins so.

    Raises:
        RunError: it does not.
    """
    with reported(f"{path} cannot be read"):
        content = path.read_bytes()[: mark.length] if path.exists() else b""
    if Mark(len(content), hashlib.sha256(content).hexdigest()) != mark:
        raise RunError(f"{path} is damaged: records from before the checkpoint were changed or lost")
    return content


def _without_nan(value: Any) -> Any:
    """The same with None for what JSON has no number for."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _without_nan(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(part) for part in value]
    return value
