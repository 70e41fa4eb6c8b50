from pathlib import Path

import numpy as np
import pytest

from smgopt.lab import journal
from smgopt.lab.errors import RunError
from smgopt.lab.journal import START, Journal, Records


def test_a_journal_can_be_cut_back_and_continued(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    with Journal(path, START) as log:
        log.append({"cycle": 1})
        mark = log.mark()
        log.append({"cycle": 2})
    with Journal(path, mark) as log:
        assert journal.read(path) == [{"cycle": 1}]
        log.append({"cycle": 3, "x": [1.5, None, float("inf")]})
        last = log.mark()
    assert journal.read(path) == [{"cycle": 1}, {"cycle": 3, "x": [1.5, None, None]}]
    journal.check(path, last)
    path.write_bytes(path.read_bytes().replace(b"1.5", b"1.6"))
    journal.check(path, mark)
    with pytest.raises(RunError, match="changed or lost"):
        journal.check(path, last)


def test_an_unfinished_line_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    path.write_text('{"cycle": 1}\n{"cycle": 2')
    assert journal.read(path) == [{"cycle": 1}]
    assert journal.read(tmp_path / "none.jsonl") == []


@pytest.mark.parametrize("line", [b"{", b"3", b"{}", b'{"cycle": "1"}', b"\xff", b"[" * 100_000, b""])
def test_a_damaged_line_is_named(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "j.jsonl"
    path.write_bytes(b'{"cycle": 1}\n' + line + b'\n{"cycle": 2}\n')
    with pytest.raises(RunError, match=r"j.jsonl, line 2 is damaged"):
        journal.read(path)


def test_columns() -> None:
    records = Records([{"a": 1, "b": [None, 2.0]}, {"a": 3, "b": [None, 4.0]}])
    np.testing.assert_array_equal(records.column("a"), [1, 3])
    np.testing.assert_array_equal(records.column("b", level=-1), [2, 4])
    assert np.isnan(records.column("b", level=0)).all()
    np.testing.assert_array_equal(records.column("b"), [[np.nan, 2], [np.nan, 4]])
    for key, level in [("c", None), ("b", 5), ("a", 0)]:
        with pytest.raises(RunError, match="a record has no number"):
            records.column(key, level)
