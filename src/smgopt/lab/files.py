"""Writing files so that a crash at any moment leaves the old contents or the new, never half of them."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from smgopt.lab.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def reported(what: str) -> Iterator[None]:
    """Turn what the operating system refuses into a sentence.

    Args:
        what: what was attempted, as in "runs/a/config.toml cannot be written".

    Raises:
        RunError: instead of an ``OSError`` from the block.

    Example:
        >>> with reported("the diary cannot be written"):
        ...     raise OSError(28, "No space left on device")
        Traceback (most recent call last):
        smgopt.lab.errors.RunError: the diary cannot be written: No space left on device
    """
    try:
        yield
    except OSError as error:
        raise RunError(f"{what}: {error.strerror or error}") from error


def write_all(descriptor: int, content: bytes) -> None:
    """Write all of it: ``os.write`` may stop early. Everything that a run writes passes here."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def write_atomically(path: Path, content: bytes) -> None:
    """Give a file new contents, at once or not at all, even if the machine loses power.

    A link stays one, and its target gets the contents; a device or pipe, as ``/dev/stdout``, is written to.

    Args:
        path: the file.
        content: all of it.

    Raises:
        RunError: the disk is full, or the folder cannot be written. The old contents are untouched.
    """
    with reported(f"{path} cannot be written"):
        if path.exists() and not path.is_file():
            _write(path, content, os.O_WRONLY, lasting=False)
            return
        path = path.resolve()
        # In the same folder, because a rename is atomic only within one file system; always under the same
        # name, so that what a killed process left behind is overwritten and does not pile up.
        temporary = path.with_name(f".{path.name}.part")
        try:
            _write(temporary, content, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, lasting=True)
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)


def _write(path: Path, content: bytes, flags: int, *, lasting: bool) -> None:
    descriptor = os.open(path, flags, 0o666)
    try:
        write_all(descriptor, content)
        if lasting:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Make a rename last: the name is the folder's content, not the file's."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
