"""Checks of what the analysis of variance assumes: normal residuals of equal variance.

Normality: Shapiro and Wilk's test of the residuals, the most powerful of the general ones; above
5000 residuals, for which its p-value is not known well, D'Agostino and Pearson's of skewness and
kurtosis. Equal variances: Brown and Forsythe's test, Levene's about the median, over the cells of
the design; it is robust to the very non-normality that is in question. Both look at the residuals
of the full model, so that neither effects nor blocks are seen as scatter.

A test of thousands of residuals finds departures too small to matter: the F test and Tukey's are
robust to moderate non-normality when cells are of equal size (G. E. P. Box, Biometrika 40 (1953),
318-335). A failed check is said, and hides nothing; verdicts do without these assumptions.

References: S. S. Shapiro and M. B. Wilk, Biometrika 52 (1965), 591-611; R. B. D'Agostino and E. S.
Pearson, Biometrika 60 (1973), 613-622; M. B. Brown and A. B. Forsythe, "Robust tests for the
equality of variances", JASA 69 (1974), 364-367.
"""

from __future__ import annotations

import numpy as np

from heapfit.findings import AssumptionCheck
from heapfit.records import SIGNIFICANT
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


def _normality(residuals: Floats) -> AssumptionCheck:
    # Takes a second to load: only where it is needed.
    from scipy.stats import normaltest, shapiro

    few = len(residuals) <= _MOST_FOR_SHAPIRO
    found = (shapiro if few else normaltest)(residuals / residuals.std())
    return AssumptionCheck(
        assumption="normality",
        test="Shapiro-Wilk" if few else "D'Agostino-Pearson",
        statistic=float(found.statistic),
        p=float(found.pvalue),
        rejected=bool(found.pvalue < SIGNIFICANT),
    )


def _equal_variances(residuals: Floats, cell: Integers) -> AssumptionCheck:
    from scipy.stats import levene

    order = np.argsort(cell, kind="stable")
    found = levene(*np.split(residuals[order], np.cumsum(np.bincount(cell))[:-1]))
    known = np.isfinite(found.statistic)  # unless nothing scatters within any cell
    return AssumptionCheck(
        assumption="equal-variance",
        test="Brown-Forsythe",
        statistic=float(found.statistic) if known else np.inf,
        p=float(found.pvalue) if known else 0.0,
        rejected=bool(not known or found.pvalue < SIGNIFICANT),
    )
