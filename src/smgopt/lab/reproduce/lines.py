"""A series as an item shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from smgopt.lab.reproduce.setups import Setup


@dataclass(frozen=True)
class Line:
    """One configuration over several seeds, and what it is called where it is shown.

    Attributes:
        label: its name in tables and legends.
        setup: the configuration.
        seeds: of its runs.
        hidden: it is needed to choose other lines, and not shown itself.
    """

    label: str
    setup: Setup
    seeds: tuple[int, ...]
    hidden: bool = False
