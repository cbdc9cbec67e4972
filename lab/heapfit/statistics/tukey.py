"""Which means of a designed study differ: Tukey's comparisons, and the tables with letters.

Within each level of every other factor, the levels of one factor are one family of comparisons, as
in the paper that the notation is from: T. B. Ferreira, R. Matias, A. Macedo and L. B. Araujo, "An
experimental study on memory allocators in multicore and multithreaded applications" (PDCAT 2011;
the SBESC 2011 slides show the tables). Letters run from the largest mean, as there.

Tukey's honestly significant difference compares each pair's difference, over its standard error
from the residual variance of the full model, with the studentized range of as many means as the
family has; all its intervals hold together with 95 % probability, where variances are equal. With
unequal numbers of figures, or with means adjusted for incomplete blocks, each pair has a standard
error of its own (Tukey-Kramer, which errs on the safe side).

References: J. W. Tukey, "The problem of multiple comparisons" (1953), in The Collected Works VIII;
C. Y. Kramer, Biometrics 12 (1956), 307-310; A. J. Hayter, "A proof of the conjecture that the
Tukey-Kramer multiple comparisons procedure is conservative", Annals of Statistics 12 (1984), 61-75.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from heapfit.findings import Difference, LetterCell, LettersTable
from heapfit.records import ALLOCATOR, CORES, SIGNIFICANT
from heapfit.statistics.letters import letters
from heapfit.statistics.linear_model import Estimates, Fit
from heapfit.statistics.median import CONFIDENCE
from heapfit.statistics.observations import Floats, Layout
from heapfit.statistics.studentized_range import critical, survival
from heapfit.statistics.transform import back


class Comparison(NamedTuple):
    """Two means of a family, by their places in it."""

    first: int
    second: int
    ratio: float
    low: float
    high: float
    p: float


@dataclass(frozen=True)
class Family:
    """The cells of the design that differ in the level of one factor alone, compared."""

    factor: str
    at: dict[str, str]  # the levels of the other factors
    levels: list[str]
    cells: list[int]
    comparisons: list[Comparison]

    def differences(self) -> Iterator[Difference]:
        for first, second, ratio, low, high, p in self.comparisons:
            yield Difference(
                factor=self.factor,
                first=self.levels[first],
                second=self.levels[second],
                at=self.at,
                ratio=ratio,
                low=low,
                high=high,
                p=p,
                method="Tukey HSD",
            )


def compare(estimates: Estimates, exponent: float) -> list[Comparison]:
    """Return all pairwise comparisons (first < second) of one family of means, which are on the
    scale of `exponent`."""
    k = len(estimates.means)
    first, second = np.triu_indices(k, 1)
    variance = np.diag(estimates.covariance)
    parts = variance[first], variance[second], estimates.covariance[first, second]
    error = np.sqrt(np.maximum(parts[0] + parts[1] - 2 * parts[2], 0.0))
    gap = np.abs(estimates.means[first] - estimates.means[second])
    with np.errstate(divide="ignore", invalid="ignore"):
        studentized = np.where(gap == 0, 0.0, gap / error) * np.sqrt(2)
    means = estimates.means[first], estimates.means[second]
    limit = critical(k, estimates.df) / np.sqrt(2)
    p = survival(studentized, k, estimates.df)
    columns = (first, second, *_ratio_intervals(means, parts, limit, exponent), p)
    return [Comparison(*row) for row in zip(*(each.tolist() for each in columns), strict=True)]


def compare_within(fit: Fit, exponent: float, factor: str) -> list[Family]:
    """Return the families of `factor`, one for each setting of the other factors; none where it
    does not vary."""
    layout = fit.model.layout
    names = [each.name for each in layout.factors]
    if factor not in names:
        return []
    axis = names.index(factor)
    cells = np.moveaxis(np.arange(layout.cells).reshape(layout.shape), axis, -1)
    others = [each for each in layout.factors if each.name != factor]
    settings = product(*(each.levels for each in others))
    return [
        Family(
            factor=factor,
            at=dict(zip((each.name for each in others), setting, strict=True)),
            levels=layout.factors[axis].levels,
            cells=members,
            comparisons=compare(fit.estimates.of(members), exponent),
        )
        for setting, members in zip(
            settings, cells.reshape(-1, layout.shape[axis]).tolist(), strict=True
        )
    ]


# --------------------------------------------------------------- letters tables


def table_factors(layout: Layout) -> tuple[str, str]:
    """Return the factors down and across the letters tables: the first two that vary.

    Beside a single factor stands the other of allocator and cores, with its one level.
    """
    names = [factor.name for factor in layout.factors]
    if len(names) > 1:
        return names[0], names[1]
    return (ALLOCATOR, CORES) if names == [ALLOCATOR] else (ALLOCATOR, names[0])


def letters_tables(
    fit: Fit, exponent: float, down: list[Family], across: list[Family]
) -> list[LettersTable]:
    """Return one table for each setting of the factors beyond the first two.

    `down` compares the levels of the table's row factor (lower-case letters), `across` those of its
    column factor (upper case); either may be empty. Intervals are of single means, 95 % each.
    """
    layout = fit.model.layout
    rows, columns = table_factors(layout)
    lower, upper = _marks(fit, exponent, down), _marks(fit, exponent, across)
    sizes = np.bincount(layout.cell, minlength=layout.cells)
    lows, highs = _mean_intervals(fit.estimates, exponent)
    means = back(fit.means, exponent)
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


def _marks(fit: Fit, exponent: float, families: list[Family]) -> list[str]:
    """The letters of each cell, the largest mean of a family first."""
    means = back(fit.means, exponent)
    marks = [""] * len(means)
    for family in families:
        order = np.argsort(-means[family.cells], kind="stable").tolist()
        different = [(c.first, c.second) for c in family.comparisons if c.p < SIGNIFICANT]
        for cell, mark in zip(family.cells, letters(order, different), strict=True):
            marks[cell] = mark
    return marks


def _mean_intervals(estimates: Estimates, exponent: float) -> tuple[Floats, Floats]:
    spread = stdtrit(estimates.df, (1 + CONFIDENCE) / 2) * np.sqrt(np.diag(estimates.covariance))
    ends = [back(estimates.means + sign * spread, exponent) for sign in (-1, 1)]
    return np.minimum(*ends), np.maximum(*ends)


# ------------------------------------------------------------- ratios of means


def _ratio_intervals(
    means: tuple[Floats, Floats],
    variances: tuple[Floats, Floats, Floats],
    critical: Floats | float,
    exponent: float,
) -> tuple[Floats, Floats, Floats]:
    """Return the ratios of means on the measured scale and their bounds.

    `means` are those of first and second on the scale of the analysis, `variances` theirs and their
    covariance, `critical` the multiple of the standard error at which the test of equality rejects.

    On the logarithmic scale a difference is a ratio: its bounds are taken back by the exponential.
    On a power scale the bounds are Fieller's, the ratios r for which |first - r second| does not
    exceed `critical` standard errors, taken back by the root. As r = 1 is the hypothesis of
    equality, an interval excludes 1 if and only if the test rejects. The ratio is one of
    back-transformed means: geometric means on the logarithmic scale, harmonic ones for the
    reciprocal.

    Where the second mean cannot be told from zero the ratio has no upper bound; to a mean of zero
    it is infinite, of two zeros it is 1.

    Reference: E. C. Fieller, "Some problems in interval estimation", Journal of the Royal
    Statistical Society B 16 (1954), 175-185.
    """
    first, second = means
    if exponent == 0:
        spread = critical * np.sqrt(np.maximum(variances[0] + variances[1] - 2 * variances[2], 0.0))
        gap = first - second
        return np.exp(gap), np.exp(gap - spread), np.exp(gap + spread)
    low, high = _fieller(first, second, variances, critical**2)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(first == second, 1.0, first / second)
    bounds = back(low, exponent), back(high, exponent)
    return back(ratio, exponent), np.minimum(*bounds), np.maximum(*bounds)


def _fieller(
    first: Floats, second: Floats, variances: tuple[Floats, Floats, Floats], squared: Floats | float
) -> tuple[Floats, Floats]:
    """The roots of (first - r second)^2 = squared * variance of that difference."""
    a = second**2 - squared * variances[1]
    b = first * second - squared * variances[2]
    c = first**2 - squared * variances[0]
    with np.errstate(divide="ignore", invalid="ignore"):
        root = np.sqrt(np.maximum(b**2 - a * c, 0.0))
        bounded = a > 0
        low = np.where(bounded, (b - root) / a, 0.0)
        high = np.where(bounded, (b + root) / a, np.inf)
    return np.maximum(low, 0.0), high
