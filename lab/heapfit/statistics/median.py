"""The median of a sample with a distribution-free confidence interval.

The interval runs between two order statistics x(k) and x(n+1-k). The number of observations below
the population's median is binomial with p = 1/2, so the interval covers the median with
probability 1 - 2 P(B <= k-1), B ~ Bin(n, 1/2), whatever the (continuous) distribution. The largest
k that still covers with at least the wanted probability is taken: a conservative interval, the
inversion of the sign test.

References: W. R. Thompson, "On confidence ranges for the median and other expectation distributions
for populations of unknown distribution form", Annals of Mathematical Statistics 7 (1936), 122-128;
W. J. Conover, "Practical Nonparametric Statistics", 3rd ed. (1999), section 3.2; M. J. Campbell and
M. J. Gardner, "Calculating confidence intervals for some non-parametric analyses", British Medical
Journal 296 (1988), 1454-1456.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median

import numpy as np
from scipy.special import bdtr

from heapfit.statistics.observations import Floats, Integers

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A sample's median, its interval, and the probability with which such an interval covers."""

    median: float
    low: float
    high: float
    coverage: float


def median_interval(sample: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Return the median of `sample` (not empty) with its interval.

    Fewer than six observations cannot give a 95 % interval by any distribution-free method: even
    the whole range covers the median with only 1 - 2^(1-n) (five: 93.75 %, three: 75 %). The range
    is returned then. A bootstrap would be no way out, since its medians lie within that same range
    and its nominal level is not reached in samples so small.

    >>> interval = median_interval([3, 1, 2, 5, 4, 6])
    >>> interval.median, interval.low, interval.high, interval.coverage
    (3.5, 1.0, 6.0, 0.96875)
    """
    ordered = sorted(map(float, sample))
    rank = interval_rank(len(ordered), confidence)
    return Interval(
        median=median(ordered),
        low=ordered[rank - 1],
        high=ordered[-rank],
        coverage=coverage(len(ordered), rank),
    )


def median_intervals(samples: Floats) -> list[Interval | None]:
    """Return `median_interval` of each row, whose NaN are no observations; None: it has no other.

    >>> median_intervals(np.array([[3.0, np.nan, 1.0], [np.nan, np.nan, np.nan]]))
    [Interval(median=2.0, low=1.0, high=3.0, coverage=0.5), None]
    """
    known = (row[~np.isnan(row)].tolist() for row in samples)
    return [median_interval(sample) if sample else None for sample in known]


def cell_medians(figures: Floats, cell: Integers) -> Floats:
    """Return the median of each cell; of one that is empty, anything.

    >>> cell_medians(np.array([3.0, 5.0, 9.0, 1.0]), np.array([1, 0, 1, 1])).tolist()
    [5.0, 3.0]
    """
    sizes = np.bincount(cell)
    ordered = figures[np.lexsort((figures, cell))]
    first = np.cumsum(sizes) - sizes
    middle: Floats = (ordered[first + (sizes - 1) // 2] + ordered[first + sizes // 2]) / 2
    return middle


@lru_cache
def interval_rank(n: int, confidence: float = CONFIDENCE) -> int:
    """Return k, from 1: the interval runs from the k-th smallest to the k-th largest.

    >>> [interval_rank(n) for n in (5, 6, 9, 20)]
    [1, 1, 2, 6]
    """
    if n < 1:
        raise ValueError("the median of nothing does not exist")
    rank = 1
    while 2 * (rank + 1) <= n and coverage(n, rank + 1) >= confidence:
        rank += 1
    return rank


@lru_cache
def coverage(n: int, rank: int = 1) -> float:
    """Return the probability that [x(rank), x(n+1-rank)] covers the population's median.

    >>> round(coverage(9, 2), 3)
    0.961
    """
    return float(1 - 2 * bdtr(rank - 1, n, 0.5)) if n > 1 else 0.0
