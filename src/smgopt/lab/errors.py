"""What can go wrong that is the user's to know, said in a sentence instead of a traceback."""

from __future__ import annotations

import signal


class UserError(Exception):
    """A sentence for the person at the terminal; the command prints it and ends with ``exit_code``.

    Example:
        >>> raise UserError("the disk is full")
        Traceback (most recent call last):
        smgopt.lab.errors.UserError: the disk is full
    """

    #: What the command line ends with: 1, because something failed on the way.
    exit_code = 1


class InputError(UserError):
    """What was typed, or the file that was named, is not what it should be."""

    exit_code = 2


class RunError(UserError):
    """A run's folder is damaged, in use, or cannot be written."""


class TrainingError(UserError):
    """The training itself cannot go on."""


class Interrupted(KeyboardInterrupt):
    """The run was asked to stop, and has saved where it is.

    Not a ``UserError``: a program that does many runs should stop as well.

    Args:
        message: the sentence to print.
        number: the signal that asked for it.
    """

    def __init__(self, message: str, number: int = signal.SIGINT) -> None:
        super().__init__(message)
        #: What shells expect of a program that a signal ended.
        self.exit_code = 128 + number
