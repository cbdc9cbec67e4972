"""Checks of what the analysis of variance assumes: normal residuals of equal variance.

Normality: Shapiro and Wilk's test of the residuals, the most powerful of the general ones; above
5000 residuals, for which its p-value is not known well, Anderson and Darling's. Equal variances:
Brown and Forsythe's test, Levene's about the median, over the cells of the design; it is robust to
the very non-normality that is in question. Both look at the residuals of the full model, so that
neither effects nor blocks are seen as scatter.

A test of thousands of residuals finds departures too small to matter: the F test and Tukey's are
robust to moderate non-normality when cells are of equal size (G. E. P. Box, Biometrika 40 (1953),
318-335). A failed check is said, and hides nothing; verdicts do without these assumptions.

References: S. S. Shapiro and M. B. Wilk, Biometrika 52 (1965), 591-611; T. W. Anderson and D. A.
Darling, JASA 49 (1954), 765-769; R. B. D'Agostino and M. A. Stephens, "Goodness-of-Fit Techniques"
(1986), table 4.9 (its p-value with mean and variance estimated); M. B. Brown and A. B. Forsythe,
"Robust tests for the equality of variances", JASA 69 (1974), 364-367.
"""

from __future__ import annotations

import numpy as np
from scipy.special import fdtrc, ndtr

from heapfit.findings import AssumptionCheck
from heapfit.records import SIGNIFICANT
from heapfit.statistics.median import cell_medians
from heapfit.statistics.observations import Floats, Integers

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
        # Takes a second to load: only where it is needed.
        from scipy.stats import shapiro

        test, (statistic, p) = "Shapiro-Wilk", map(float, shapiro(residuals / residuals.std()))
    else:
        test, (statistic, p) = "Anderson-Darling", anderson_darling(residuals)
    return AssumptionCheck(
        assumption="normality",
        test=test,
        statistic=statistic,
        p=p,
        holds=p >= SIGNIFICANT,
    )


def anderson_darling(figures: Floats) -> tuple[float, float]:
    """Return Anderson and Darling's statistic for a normal distribution, and its p-value."""
    n = len(figures)
    below = ndtr((np.sort(figures) - figures.mean()) / figures.std(ddof=1))
    with np.errstate(divide="ignore"):  # figures so far out that the logarithm is of zero
        logs = np.log(below) + np.log1p(-below[::-1])
    statistic = float(-n - np.sum((2 * np.arange(1, n + 1) - 1.0) / n * logs))
    return statistic, _anderson_darling_p(statistic * (1 + 0.75 / n + 2.25 / n**2))


def _anderson_darling_p(a: float) -> float:
    """D'Agostino and Stephens' approximation, of the statistic as for an infinite sample."""
    if a < 0.2:
        return float(1 - np.exp(-13.436 + 101.14 * a - 223.73 * a**2))
    if a < 0.34:
        return float(1 - np.exp(-8.318 + 42.796 * a - 59.938 * a**2))
    if a < 0.6:
        return float(np.exp(0.9177 - 4.279 * a - 1.38 * a**2))
    # Beyond 13 the polynomial turns up again; p is below 1e-30 there.
    return float(np.exp(1.2937 - 5.709 * a + 0.0186 * a**2)) if a <= 13 else 0.0


def _equal_variances(residuals: Floats, cell: Integers) -> AssumptionCheck:
    # scipy.stats.levene does the same cell by cell, which is slow with a thousand of them.
    sizes = np.bincount(cell)
    deviations = np.abs(residuals - cell_medians(residuals, cell)[cell])
    means = np.bincount(cell, deviations) / sizes
    between = float(sizes @ (means - deviations.mean()) ** 2) / (len(sizes) - 1)
    within = float(np.sum((deviations - means[cell]) ** 2)) / (len(residuals) - len(sizes))
    statistic = between / within if within > 0 else np.inf
    p = fdtrc(len(sizes) - 1, len(residuals) - len(sizes), statistic)
    return AssumptionCheck(
        assumption="equal-variance",
        test="Brown-Forsythe",
        statistic=float(statistic),
        p=float(p),
        holds=bool(p >= SIGNIFICANT),
    )
