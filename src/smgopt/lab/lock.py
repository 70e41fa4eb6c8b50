"""One process at a time writes to a run."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from smgopt.lab.errors import RunError
from smgopt.lab.files import reported

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a run's folder, which must exist.

    The operating system lets go of the lock when the process ends, however it ends: a killed run leaves
    a file behind, but no lock.

    Raises:
        RunError: another process holds it, or the folder cannot be written.
    """
    with reported(f"{folder} cannot be locked"):
        descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise RunError(f"{folder} is being trained by another process at this moment") from None
        except OSError:
            os.close(descriptor)
            raise
    try:
        yield
    finally:
        os.close(descriptor)
