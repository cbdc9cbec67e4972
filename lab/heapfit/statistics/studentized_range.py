"""The studentized range distribution, for many quantities at once.

For k independent standard normal variables of range W and an independent s, s^2 a chi-square of v
degrees of freedom over v, the distribution is

    P(W / s <= q) = integral of P(W <= q s) over the density of s,
    P(W <= w) = k * integral of phi(z) [Phi(z) - Phi(z - w)]^(k-1) dz.

The range's distribution depends on k alone: it is tabulated once for each k by Gauss-Legendre
quadrature and interpolated by a cubic spline; the integral over s is another quadrature. SciPy's
`studentized_range`, to which the tests compare this, takes several milliseconds for each quantity
and a tenth of a second for a quantile: too slow for a report with thousands of comparisons.

References: H. L. Harter, "Tables of range and studentized range", Annals of Mathematical Statistics
31 (1960), 1122-1147; M. D. Copenhaver and B. Holland, "Computation of the distribution of the
maximum studentized range statistic", Journal of Statistical Computation and Simulation 30 (1988),
1-15.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.polynomial.legendre import leggauss
from numpy.typing import ArrayLike
from scipy.special import chdtri, gammaln, ndtr, stdtr

from heapfit.statistics.observations import Floats

if TYPE_CHECKING:
    from scipy.interpolate import CubicSpline

# Beyond that the range of any number of normals that is compared here does not go (p < 1e-16).
_WIDEST = 14.0
_TABLE = np.linspace(0.0, _WIDEST, 1401)
_NODES, _WEIGHTS = leggauss(96)
_REACH = 8.5  # the normal density is below 1e-16 beyond
_TAIL = 1e-13  # of the distribution of s, cut off at either end
# Above, s is 1 for all that can be seen.
_MOST_DF = 1e7
_LARGEST_Q = 1e4
# The search for a quantile: from where, the step of the derivative, when to stop.
_START, _STEP, _CLOSE, _MOST_STEPS = 3.0, 1e-4, 1e-8, 60


def survival(q: ArrayLike, k: int, df: ArrayLike) -> Floats:
    """Return P(Q > q) for the range of `k` means with `df` degrees of freedom; `q`, `df` broadcast.

    The probability that Tukey's test gives to a pair whose studentized difference is `q`.

    >>> round(float(survival(3.877, 3, 10)), 4)  # tables: the upper 5 % point of 3, 10 is 3.88
    0.05
    """
    quantity = np.abs(np.asarray(q, float))
    freedom = np.minimum(np.asarray(df, float), _MOST_DF)
    if k == 2:  # the range of two is Student's t
        return np.asarray(2 * stdtr(freedom, -quantity / np.sqrt(2)))
    s, density = _deviations(freedom[..., None])
    wide = np.minimum(np.minimum(quantity, _LARGEST_Q)[..., None] * s, _WIDEST)
    inside = (_range_table(k)(wide) * density).sum(axis=-1)
    return np.asarray(np.clip(1 - inside / density.sum(axis=-1), 0.0, 1.0))


@lru_cache(maxsize=4096)
def critical(k: int, df: float, level: float = 0.05) -> float:
    """Return q with P(Q > q) = `level`, by Newton's method on the logarithm of the tail, which is
    nearly straight.

    >>> round(critical(3, 10), 2)
    3.88
    """
    q = _START
    for _ in range(_MOST_STEPS):
        tail, beside = survival([q, q + _STEP], k, df)
        change = float(tail / ((beside - tail) / _STEP) * np.log(level / tail))
        q = min(max(q + change, q / 2), q * 2)
        if abs(change) < _CLOSE:
            break
    return q


def _deviations(df: Floats) -> tuple[Floats, Floats]:
    """Nodes of s along the last axis and their weighted density (up to a factor)."""
    low = np.sqrt(chdtri(df, 1 - _TAIL) / df)
    high = np.sqrt(chdtri(df, _TAIL) / df)
    half = (high - low) / 2
    s = low + half * (1 + _NODES)
    log_density = (df - 1) * np.log(s) - df * s**2 / 2 - (gammaln(df / 2) - df / 2 * np.log(df / 2))
    return s, half * _WEIGHTS * np.exp(log_density)


@lru_cache(maxsize=64)
def _range_table(k: int) -> CubicSpline:
    """P(W <= w) of the range of k standard normals, for w from 0 to `_WIDEST`."""
    from scipy.interpolate import CubicSpline  # Takes a while to load.

    z = _REACH * _NODES
    scale = _REACH * _WEIGHTS
    phi = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    within = ndtr(z) - ndtr(z - _TABLE[:, None])
    return CubicSpline(_TABLE, k * (within ** (k - 1) * phi * scale).sum(axis=1))
