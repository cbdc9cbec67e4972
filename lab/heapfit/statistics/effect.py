"""Effect sizes with their intervals: partial eta squared, and ratios of means.

Both intervals invert a test: they hold the values that it does not reject.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import fdtr, ncfdtr

from heapfit.statistics.median import CONFIDENCE
from heapfit.statistics.observations import Floats
from heapfit.statistics.transform import back

# The noncentrality is looked for up to this multiple of its estimate's order of magnitude.
_REACH = 64.0


@dataclass(frozen=True)
class Effect:
    """A share of variation with its 95 % interval."""

    estimate: float
    low: float | None
    high: float | None


def partial_eta_squared(f: float, df: float, residual_df: float, n: int) -> Effect:
    """Return a term's sum of squares over itself plus the residual one, with its interval.

    The interval is that of the noncentrality of the F distribution, c, as c / (c + n): the bounds
    are the noncentralities under which an F that large, or that small, has probability 2.5 %.

    Reference: J. H. Steiger, "Beyond the F test: effect size confidence intervals and tests of
    close fit in the analysis of variance and contrast analysis", Psychological Methods 9 (2004),
    164-182; M. Smithson, "Confidence Intervals" (2003).
    """
    if not np.isfinite(f):
        return Effect(1.0, None, None)
    tail = (1 - CONFIDENCE) / 2
    low = _noncentrality(f, df, residual_df, 1 - tail)
    high = _noncentrality(f, df, residual_df, tail)
    return Effect(f * df / (f * df + residual_df), low / (low + n), high / (high + n))


def _noncentrality(f: float, df: float, residual_df: float, below: float) -> float:
    """The noncentrality under which F stays below `f` with probability `below`; at least 0."""
    from scipy.optimize import brentq  # Takes a while to load: only for who reads an analysis.

    if fdtr(df, residual_df, f) <= below:
        return 0.0
    ceiling = _REACH * (f * df + df + 10)
    return float(brentq(lambda c: _noncentral_f(f, df, residual_df, c) - below, 0, ceiling))


def _noncentral_f(f: float, df: float, residual_df: float, noncentrality: float) -> float:
    """P(F <= f). Where the series does not converge (tens of thousands of degrees of freedom),
    Patnaik's approximation, by a central F of the same two moments, which is close there.

    Reference: P. B. Patnaik, "The non-central chi-square and F-distributions and their
    applications", Biometrika 36 (1949), 202-232.
    """
    exact = float(ncfdtr(df, residual_df, noncentrality, f))
    if np.isfinite(exact):
        return exact
    moved = df + noncentrality
    return float(fdtr(moved**2 / (moved + noncentrality), residual_df, f * df / moved))


def ratio_interval(
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
