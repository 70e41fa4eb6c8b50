"""Ctrl-C, SIGTERM and a closed terminal: acted on between two cycles, when there is something to save."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType, TracebackType

_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


class StopRequests:
    """Notes the first signal; the second one stops the program at once.

    Signals that the process ignores, as those of a program under ``nohup``, stay ignored. In another thread
    than the main one this does nothing, because Python gives signals to that one only.

    Attributes:
        number: of the signal that was noted; None as long as none was.

    Example:
        >>> with StopRequests() as requests:
        ...     signal.raise_signal(signal.SIGINT)
        ...     requests.number == signal.SIGINT
        True
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopRequests:
        if threading.current_thread() is threading.main_thread():
            for name in _SIGNALS:
                number = getattr(signal, name, None)
                if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self.number is not None:
            raise KeyboardInterrupt
        self.number = number
