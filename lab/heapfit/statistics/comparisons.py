"""Which means differ: letters tables, and the differences behind them.

Within each level of every other factor, the levels of one factor are one family of comparisons, as
in the paper that the notation is from: T. B. Ferreira, R. Matias, A. Macedo and L. B. Araujo, "An
experimental study on memory allocators in multicore and multithreaded applications" (PDCAT 2011;
the SBESC 2011 slides show the tables). Letters run from the largest mean, as there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.special import stdtrit

from heapfit.findings import Difference, LetterCell, LettersTable
from heapfit.records import ALLOCATOR, CORES
from heapfit.statistics.fitted import Fitted
from heapfit.statistics.letters import letters
from heapfit.statistics.median import CONFIDENCE
from heapfit.statistics.observations import Floats, Layout
from heapfit.statistics.transform import back
from heapfit.statistics.tukey import TUKEY, Comparisons, compare


@dataclass(frozen=True)
class Compared:
    """What was found of a family: the cells that differ in the level of one factor alone."""

    factor: str
    at: dict[str, str]
    levels: list[str]
    cells: list[int]
    comparisons: Comparisons

    def differences(self) -> Iterator[Difference]:
        for first, second, ratio, low, high, p in self.comparisons.rows():
            yield Difference(
                factor=self.factor,
                first=self.levels[first],
                second=self.levels[second],
                at=self.at,
                ratio=ratio,
                low=low,
                high=high,
                p=p,
                method=TUKEY,
            )


def compare_within(fitted: Fitted, factor: str) -> list[Compared]:
    """Return the families of `factor`, one for each setting of the other factors; none where it
    does not vary (and only keeps another company)."""
    layout = fitted.sample.layout
    names = [each.name for each in layout.factors]
    if factor not in names:
        return []
    axis = names.index(factor)
    cells = np.moveaxis(np.arange(layout.cells).reshape(layout.shape), axis, -1)
    others = [each for each in layout.factors if each.name != factor]
    settings = product(*(each.levels for each in others))
    return [
        Compared(
            factor=factor,
            at=dict(zip((each.name for each in others), setting, strict=True)),
            levels=layout.factors[axis].levels,
            cells=members,
            comparisons=compare(fitted.pooled.of(members), fitted.exponent),
        )
        for setting, members in zip(
            settings, cells.reshape(-1, layout.shape[axis]).tolist(), strict=True
        )
    ]


def table_factors(layout: Layout) -> tuple[str, str]:
    """Return the factors down and across the letters tables: the first two that vary.

    A single factor has the other of allocator and cores, of one level, for company.
    """
    names = [factor.name for factor in layout.factors]
    if len(names) > 1:
        return names[0], names[1]
    return (ALLOCATOR, CORES) if names == [ALLOCATOR] else (ALLOCATOR, names[0])


def letters_tables(
    fitted: Fitted, down: list[Compared], across: list[Compared]
) -> list[LettersTable]:
    """Return one table for each setting of the factors beyond the first two.

    `down` compares the levels of the table's row factor (lower-case letters), `across` those of its
    column factor (upper case); either may be empty. Intervals are of single means, 95 % each.
    """
    layout = fitted.sample.layout
    rows, columns = table_factors(layout)
    lower, upper = _marks(fitted, down), _marks(fitted, across)
    sizes = np.bincount(layout.cell, minlength=layout.cells)
    lows, highs = _mean_intervals(fitted)
    means = fitted.means
    tables: dict[tuple[str, ...], LettersTable] = {}
    for cell, levels in enumerate(layout.cell_levels()):
        at = {name: level for name, level in levels.items() if name not in (rows, columns)}
        placed = {**layout.held, **levels}  # a level may be empty: a variable left unset
        table = tables.setdefault(
            tuple(at.values()), LettersTable(rows=rows, columns=columns, at=at, cells=[])
        )
        table.cells.append(
            LetterCell(
                row=placed[rows],
                column=placed[columns],
                n=int(sizes[cell]),
                mean=float(means[cell]),
                low=float(lows[cell]),
                high=float(highs[cell]),
                upper=upper[cell].upper(),
                lower=lower[cell],
            )
        )
    return list(tables.values())


def _marks(fitted: Fitted, compared: list[Compared]) -> list[str]:
    """The letters of each cell, the largest mean of a family first."""
    marks = [""] * fitted.sample.layout.cells
    means = fitted.means
    for each in compared:
        order = np.argsort(-means[each.cells], kind="stable").tolist()
        found = letters(order, each.comparisons.different())
        for cell, mark in zip(each.cells, found, strict=True):
            marks[cell] = mark
    return marks


def _mean_intervals(fitted: Fitted) -> tuple[Floats, Floats]:
    pooled = fitted.pooled
    spread = stdtrit(pooled.df, (1 + CONFIDENCE) / 2) * np.sqrt(np.diag(pooled.covariance))
    ends = [back(pooled.means + sign * spread, fitted.exponent) for sign in (-1, 1)]
    return np.minimum(*ends), np.maximum(*ends)
