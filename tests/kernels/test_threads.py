"""Work that is shared among threads is done once, by no more threads than allowed, and fails aloud."""

from __future__ import annotations

import threading

import pytest

from smgopt.kernels.threads import share


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize("pieces", [0, 1, 2, 50])
def test_every_piece_is_done_once(threads: int, pieces: int) -> None:
    done: list[int] = []
    workers: set[int] = set()

    def work(worker: int, piece: int) -> None:
        workers.add(worker)
        done.append(piece)

    share(work, pieces, threads)
    assert sorted(done) == list(range(pieces))
    assert workers <= set(range(threads))


def test_helpers_take_part() -> None:
    together = threading.Barrier(2, timeout=10)

    def wait(_worker: int, _piece: int) -> None:
        together.wait()

    share(wait, pieces=2, threads=2)


@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_in_any_piece_is_raised(threads: int) -> None:
    def work(_worker: int, piece: int) -> None:
        if piece == 3:
            raise ZeroDivisionError("piece 3")

    with pytest.raises(ZeroDivisionError, match="piece 3"):
        share(work, pieces=5, threads=threads)
