"""The one error of the data sets, and the sentences that several of them share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smgopt.lab.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path


class DataError(InputError):
    """A data set is missing, damaged or not what it should be; the message says which file and what to do."""


def damaged(path: Path, why: str) -> DataError:
    """The error for one of a public data set's files that is there and cannot be what it claims."""
    return DataError(f"{path} is damaged ({why}): delete it and load again with download=True")


def unreadable(path: Path, error: OSError) -> DataError:
    """The error for a file that the system does not let us read."""
    return DataError(f"{path} cannot be read: {error.strerror or error}")
