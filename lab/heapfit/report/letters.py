"""Letters: who differs from whom, laid out once for the page, the terminal and Markdown.

Letters are read from the verdicts on the allocators in a setting: those that share a letter are not
shown to differ. Beside them stand the same medians as in every other table.

The letters of a paper's own analysis (Tukey's) are laid out in the notation of "Comparison of
user-level memory allocators" (the stock trading middleware): each mean is followed by letters in
brackets, upper case for the comparison along its row, lower case for the one down its column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

from heapfit.findings import Analysis, LetterCell, LettersTable
from heapfit.records import ALLOCATOR, CORES, Estimate, Metric, Setting
from heapfit.report.results import Results
from heapfit.report.settings import (
    factor_label,
    factor_title,
    level_text,
    levels_label,
    setting_levels,
    varied,
)
from heapfit.statistics.letters import letters
from heapfit.text import Scale, capitalised, visible

LEGEND = (
    "Each cell is the median of its trials, followed by letters, which compare down a column: two "
    "{}s that share a letter there cannot be told apart; with no letter in common they differ."
)  # to be filled with what a study compares


@dataclass(frozen=True)
class LettersEntry:
    """A cell as it is shown. `leads`: no cell of its column is better beyond doubt."""

    figure: str
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


def grids(results: Results, metric: Metric, scale: Scale) -> list[LettersGrid]:
    """Return the tables of a metric: allocators by the levels of the first factor that varies, one
    for each setting of the others. None where no verdict tells anything."""
    factors = varied(results.study)
    across = factors[0].name if factors else CORES
    tables: dict[tuple[tuple[str, str], ...], dict[str, Setting]] = {}
    for setting in results.settings:
        if results.standing(setting, metric) is not None:
            levels = setting_levels(setting)
            at = tuple((f.name, levels[f.name]) for f in factors if f.name != across)
            tables.setdefault(at, {})[levels[across]] = setting
    return [
        _of_verdicts(results, metric, scale, levels_label(at), across, columns)
        for at, columns in tables.items()
    ]


def _of_verdicts(
    results: Results,
    metric: Metric,
    scale: Scale,
    title: str,
    across: str,
    columns: dict[str, Setting],
) -> LettersGrid:
    marks = {level: _marks(results, metric, setting) for level, setting in columns.items()}

    def cell(name: str, level: str) -> LettersEntry | None:
        estimate = results.estimate(columns[level], metric, name)
        if estimate is None:
            return None
        mark, leads = marks[level].get(name, ("", False))
        return _entry(estimate, estimate.median, scale, mark, leads=leads)

    names = [name for name in results.allocators if any(name in own for own in marks.values())]
    corner = f"{capitalised(results.study.noun)} / {factor_label(across)}"
    return _laid_out(title, corner, names, list(columns), cell)


def _marks(results: Results, metric: Metric, setting: Setting) -> dict[str, tuple[str, bool]]:
    """The letters of each allocator that is compared, the worst first, and whether no other is
    shown to be better."""
    standing = results.standing(setting, metric)
    if standing is None:
        return {}
    names = [
        name
        for name in reversed(results.ranked(setting, metric))
        if name in (standing.best, *standing.tied, *standing.behind, *standing.ahead)
    ]
    different = [
        (first, second)
        for first, second in combinations(range(len(names)), 2)
        if (each := results.verdict(setting, metric, names[first], names[second])) and each.shown
    ]
    found = letters(range(len(names)), different)
    return {
        name: (mark, name not in standing.beaten) for name, mark in zip(names, found, strict=True)
    }


def paper_grids(analysis: Analysis, metric: Metric, scale: Scale) -> list[LettersGrid]:
    """Return the tables of a paper's own analysis laid out."""
    return [_of_paper(table, metric, scale) for table in analysis.letters if table.cells]


def _of_paper(table: LettersTable, metric: Metric, scale: Scale) -> LettersGrid:
    """A paper's `table`, its rows and columns in the order of its cells."""
    cells = {(cell.row, cell.column): cell for cell in table.cells}
    columns = list(dict.fromkeys(cell.column for cell in table.cells))
    leading = {column: _leading_letters(table.cells, column, metric) for column in columns}

    def cell(row: str, column: str) -> LettersEntry | None:
        own = cells.get((row, column))
        if own is None:
            return None
        leads = bool(leading[column] & set(own.lower))
        return _entry(own, own.mean, scale, own.upper + own.lower, leads=leads)

    corner = " / ".join(filter(None, (factor_title(table.rows), factor_label(table.columns))))
    rows = list(dict.fromkeys(cell.row for cell in table.cells))
    return _laid_out(levels_label(table.at.items()), corner, rows, columns, cell)


def _laid_out(
    title: str,
    corner: str,
    rows: Sequence[str],
    columns: Sequence[str],
    cell: Callable[[str, str], LettersEntry | None],
) -> LettersGrid:
    return LettersGrid(
        title=title,
        corner=corner,
        columns=list(map(level_text, columns)),
        rows=[(visible(row), [cell(row, column) for column in columns]) for row in rows],
    )


def _entry(
    known: Estimate | LetterCell, middle: float, scale: Scale, mark: str, *, leads: bool
) -> LettersEntry:
    return LettersEntry(
        figure=scale.number(middle),
        letters=f"({mark})" if mark else "",
        interval=f"{scale.number(known.low)} to {scale.text(known.high)}, {known.n} trials",
        leads=leads,
    )


def legend(analysis: Analysis) -> str:
    """Say how a paper's letters are read, in words for somebody who never saw such a table."""
    table = next(each for each in analysis.letters if each.cells)
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


def _leading_letters(cells: Sequence[LetterCell], column: str, metric: Metric) -> set[str]:
    """The lower-case letters of the best mean of a column."""
    own = [cell for cell in cells if cell.column == column]
    sign = 1 if metric.better == "lower" else -1
    return set(min(own, key=lambda cell: sign * cell.mean).lower)
