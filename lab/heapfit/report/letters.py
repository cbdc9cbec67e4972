"""Tukey's letters, laid out once for the page, the terminal and Markdown.

The notation is that of "Comparison of user-level memory allocators" (the stock trading middleware):
each mean is followed by letters in brackets, upper case for the comparison along its row, lower
case for the one down its column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from heapfit.findings import LetterCell, LettersTable
from heapfit.records import ALLOCATOR, CORES, Metric
from heapfit.report.settings import factor_label, factor_title, level_text, levels_label
from heapfit.report.units import Scale
from heapfit.text import visible


@dataclass(frozen=True)
class LettersEntry:
    """A cell as it is shown. `leads`: no cell of its column is better beyond doubt."""

    mean: str
    letters: str
    interval: str
    leads: bool


@dataclass(frozen=True)
class LettersGrid:
    """A table as it is shown; a cell is None where no trial gave a figure."""

    title: str
    corner: str
    columns: list[str]
    rows: list[tuple[str, list[LettersEntry | None]]]


def grid(table: LettersTable, metric: Metric, scale: Scale) -> LettersGrid:
    """Return `table` laid out, its rows and columns in the order of its cells."""
    rows = list(dict.fromkeys(cell.row for cell in table.cells))
    columns = list(dict.fromkeys(cell.column for cell in table.cells))
    cells = {(cell.row, cell.column): cell for cell in table.cells}
    leading = {column: _leading_letters(table.cells, column, metric) for column in columns}
    return LettersGrid(
        title=levels_label(table.at.items()),
        corner=_corner(table),
        columns=[level_text(column) for column in columns],
        rows=[
            (
                visible(row),
                [
                    _entry(cells[row, column], scale, leading[column])
                    if (row, column) in cells
                    else None
                    for column in columns
                ],
            )
            for row in rows
        ],
    )


def legend(table: LettersTable) -> str:
    """Say how the letters are read, in words for somebody who never saw such a table."""
    one = ALLOCATOR if table.rows == ALLOCATOR else f"level of {factor_label(table.rows)}"
    words = (
        "Each cell is the mean of its trials, followed by letters. Lower-case letters compare down "
        f"a column: two {_plural(one)} that share a lower-case letter there cannot be told apart; "
        "with no letter in common they differ (Tukey, p < 0.05)."
    )
    if not any(cell.upper for cell in table.cells):
        return words
    across = (
        "numbers of cores" if table.columns == CORES else f"levels of {factor_label(table.columns)}"
    )
    return (
        f"{words} Upper-case letters compare along a row in the same way: one {one} at different "
        f"{across}."
    )


def _plural(one: str) -> str:
    return f"{one}s" if one == ALLOCATOR else one.replace("level", "levels", 1)


def _corner(table: LettersTable) -> str:
    return " / ".join(filter(None, (factor_title(table.rows), factor_label(table.columns))))


def _leading_letters(cells: Sequence[LetterCell], column: str, metric: Metric) -> set[str]:
    """The lower-case letters of the best mean of a column."""
    own = [cell for cell in cells if cell.column == column]
    sign = 1 if metric.better == "lower" else -1
    return set(min(own, key=lambda cell: sign * cell.mean).lower)


def _entry(cell: LetterCell, scale: Scale, leading: set[str]) -> LettersEntry:
    letters = cell.upper + cell.lower
    return LettersEntry(
        mean=scale.number(cell.mean),
        letters=f"({letters})" if letters else "",
        interval=f"{scale.number(cell.low)} to {scale.text(cell.high)}, {cell.n} trials",
        leads=bool(leading & set(cell.lower)),
    )
