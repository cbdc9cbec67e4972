"""What a profile shows, before it is laid out: facts, sections, tables, advice.

The terminal and the page lay the same content out, so that both say the same. A section is one
question about the program's heap: its answer in a sentence or two, one table, one figure on the
page (`figures.py` makes it), and one sentence of advice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from heapfit.profile.advice import Advice


@dataclass(frozen=True)
class Fact:
    """One of the figures that a profile begins with; `note` says more about it in a few words."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Cell:
    """What a cell of a table shows. `value` sorts it, where that is not the text."""

    text: str
    value: float | str | None = None
    detail: str = ""  # a second, quieter line

    @property
    def sorted_by(self) -> float | str:
        return self.text if self.value is None else self.value


@dataclass(frozen=True)
class Table:
    """Rows under their columns' names, the most important first; the first column is a label's.

    The terminal shows `brief` rows, and of the columns those that fit, from the left.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    brief: int = 5


@dataclass(frozen=True)
class Drawing:
    """A figure of the page: what Plotly draws, and what it shows for somebody who cannot see it."""

    figure: dict[str, Any]
    alternative: str


@dataclass(frozen=True)
class Section:
    """A question about the heap and its answer. `course` is drawn as a line in a terminal."""

    name: str
    title: str
    sentences: Sequence[str]
    advice: Advice
    table: Table | None = None
    drawing: Drawing | None = None
    note: str = ""  # how to read the figure, for the page
    course: Sequence[float] = field(default=())
