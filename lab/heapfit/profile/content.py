"""What a profile shows, before it is laid out: facts, sections, tables, advice.

The terminal and the page lay the same content out, so that both say the same. A section is one
question about the program's heap: its answer in a sentence or two, one table (`tables.py`), one
sentence of advice (`advice/`), and on the page a figure (`figures.py`, `figures_of_time.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from heapfit.profile.advice import Advice


@dataclass(frozen=True)
class Fact:
    """One of the figures that a profile begins with; `note` says more about it in a few words.

    `always`: it is also shown where there is room for a few lines only.
    """

    label: str
    value: str
    note: str = ""
    always: bool = False


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
    brief: int = 3


@dataclass(frozen=True)
class Drawing:
    """A figure of the page: what Plotly draws, and what it shows for somebody who cannot see it."""

    figure: dict[str, Any]
    alternative: str


@dataclass(frozen=True)
class Section:
    """A question about the heap and its answer.

    `course` is drawn as a line in a terminal. `note` says how to read the page's figure and the
    table, which stands `beside` the figure where there is room, or `folds` away below it.
    """

    name: str
    title: str
    sentences: Sequence[str]
    advice: Advice
    table: Table | None = None
    note: str = ""
    course: Sequence[float] = ()
    beside: bool = False
    folds: bool = False


@dataclass(frozen=True)
class Content:
    """All of it, in the order in which it is shown."""

    title: str
    command: str
    circumstances: Sequence[str]
    headline: str
    facts: Sequence[Fact]
    problems: Sequence[str]
    sections: Sequence[Section]
    commands: Sequence[tuple[str, str]]  # what for, and the line to type
    nothing_proposed: str  # what to say where no section asks for anything

    @property
    def proposals(self) -> list[Section]:
        """The sections whose advice asks for something to be done, whatever the program is."""
        return [each for each in self.sections if each.advice.act and not each.advice.if_lasting]

    @property
    def if_lasting(self) -> list[Section]:
        """The sections whose advice asks for it only of a program that runs on."""
        return [each for each in self.sections if each.advice.act and each.advice.if_lasting]
