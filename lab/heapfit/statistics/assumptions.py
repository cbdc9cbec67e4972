"""Checks of what the analysis of variance assumes: normal residuals of equal variance.

Normality: Shapiro and Wilk's test of the residuals, the most powerful of the general ones; above
5000 residuals, for which its p-value is not known well, Anderson and Darling's. Equal variances:
Brown and Forsythe's test, Levene's about the median, over the cells of the design; it is robust to
the very non-normality that is in question. Both look at the residuals of the full model, so that
neither effects nor blocks are seen as scatter.

A test of thousands of residuals finds departures too small to matter: the F test and Tukey's are
robust to moderate non-normality when cells are of equal size (G. E. P. Box, Biometrika 40 (1953),
318-335). A failed check therefore adds a robust analysis to the classical one; it hides nothing.

References: S. S. Shapiro and M. B. Wilk, Biometrika 52 (1965), 591-611; T. W. Anderson and D. A.
Darling, JASA 49 (1954), 765-769; M. B. Brown and A. B. Forsythe, "Robust tests for the equality of
variances", JASA 69 (1974), 364-367.
"""

from __future__ import annotations

import numpy as np
from scipy import stats

from heapfit.findings import AssumptionCheck
from heapfit.statistics.observations import Floats, Integers

SIGNIFICANT = 0.05
_FEWEST_PER_CELL = 3  # two figures are always equally far from their median
_FEWEST_RESIDUALS = 8
_MOST_FOR_SHAPIRO = 5000


def check(residuals: Floats, cell: Integers) -> list[AssumptionCheck]:
    """Return both checks; one that the figures do not allow (too few of them) is left out."""
    checks: list[AssumptionCheck] = []
    if len(residuals) >= _FEWEST_RESIDUALS:
        checks.append(_normality(residuals))
    if np.bincount(cell).min() >= _FEWEST_PER_CELL:
        checks.append(_equal_variances(residuals, cell))
    return checks


def holds(checks: list[AssumptionCheck], assumption: str) -> bool:
    """Whether no check speaks against `assumption`."""
    return all(each.holds for each in checks if each.assumption == assumption)


def _normality(residuals: Floats) -> AssumptionCheck:
    if len(residuals) <= _MOST_FOR_SHAPIRO:
        test, (statistic, p) = "Shapiro-Wilk", stats.shapiro(residuals / residuals.std())
    else:
        # Takes a second to load: only where it is needed.
        from statsmodels.stats.diagnostic import normal_ad

        test, (statistic, p) = "Anderson-Darling", normal_ad(residuals)
    return AssumptionCheck(
        assumption="normality",
        test=test,
        statistic=float(statistic),
        p=float(p),
        holds=bool(p >= SIGNIFICANT),
    )


def _medians(figures: Floats, cell: Integers, sizes: Integers) -> Floats:
    """The median of each cell."""
    ordered = figures[np.lexsort((figures, cell))]
    first = np.cumsum(sizes) - sizes
    middle: Floats = (ordered[first + (sizes - 1) // 2] + ordered[first + sizes // 2]) / 2
    return middle


def _equal_variances(residuals: Floats, cell: Integers) -> AssumptionCheck:
    # scipy.stats.levene does the same cell by cell, which is slow with a thousand of them.
    sizes = np.bincount(cell)
    deviations = np.abs(residuals - _medians(residuals, cell, sizes)[cell])
    means = np.bincount(cell, deviations) / sizes
    between = float(sizes @ (means - deviations.mean()) ** 2) / (len(sizes) - 1)
    within = float(np.sum((deviations - means[cell]) ** 2)) / (len(residuals) - len(sizes))
    statistic = between / within if within > 0 else np.inf
    p = stats.f.sf(statistic, len(sizes) - 1, len(residuals) - len(sizes))
    return AssumptionCheck(
        assumption="equal-variance",
        test="Brown-Forsythe",
        statistic=float(statistic),
        p=float(p),
        holds=bool(p >= SIGNIFICANT),
    )
