"""Tables, for people and as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from smgopt.lab.errors import InputError
from smgopt.lab.files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        title: above it.
        key: of the rows, which are mappings.
        form: how numbers are written, as in ``".2%"``.
    """

    title: str
    key: str
    form: str = ""


def show(console: Console, title: str, columns: Sequence[Column], rows: Sequence[dict[str, Any]]) -> None:
    """Print a table; numbers to the right, text to the left."""
    from rich.table import Table

    table = Table(title=title or None, title_justify="left", box=None, header_style="bold", pad_edge=False)
    for column in columns:
        number = all(isinstance(row[column.key], int | float) for row in rows)
        table.add_column(column.title, justify="right" if number else "left", no_wrap=number)
    for row in rows:
        table.add_row(*(format(row[column.key], column.form) for column in columns))
    console.print(table, highlight=False)


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """Lines of texts as a Markdown table; the first is the head.

    Example:
        >>> print(markdown([["a", "b"], ["1", "2"]]))
        | a | b |
        | --- | ---: |
        | 1 | 2 |
    """
    head, *rows = lines
    marks = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, marks, *rows))


def refuse_unwritable(path: Path | None) -> None:
    """Whether a file can be written later, asked before hours are spent on what shall be in it.

    Raises:
        InputError: it cannot.
    """
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        why = "is a folder" if path.is_dir() else "its folder does not exist"
        raise InputError(f"{path} cannot be written: {why}")


def write_json(path: Path | None, content: Any) -> None:
    """Write a table as JSON, if there is a file to write to.

    Raises:
        RunError: it cannot be written.
    """
    if path is not None:
        write_atomically(path, json.dumps(content, indent=2, ensure_ascii=False).encode() + b"\n")
