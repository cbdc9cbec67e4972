"""All pairwise comparisons of a family of means: Tukey's.

Tukey's honestly significant difference compares each pair's difference, over its standard error
from the residual variance of the full model, with the studentized range of as many means as the
family has; all its intervals hold together with 95 % probability, where variances are equal. With
unequal numbers of figures, or with means adjusted for incomplete blocks, each pair has a standard
error of its own (Tukey-Kramer, which errs on the safe side).

References: J. W. Tukey, "The problem of multiple comparisons" (1953), in The Collected Works VIII;
C. Y. Kramer, Biometrics 12 (1956), 307-310; A. J. Hayter, "A proof of the conjecture that the
Tukey-Kramer multiple comparisons procedure is conservative", Annals of Statistics 12 (1984), 61-75.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from heapfit.records import SIGNIFICANT
from heapfit.statistics.effect import ratio_interval
from heapfit.statistics.observations import Floats
from heapfit.statistics.studentized_range import critical, survival

TUKEY = "Tukey HSD"


@dataclass(frozen=True)
class Estimates:
    """Means on the scale of the analysis and their covariance, which rests on one residual variance
    of `df` degrees of freedom."""

    means: Floats
    covariance: Floats
    df: float

    def of(self, members: list[int]) -> Estimates:
        """Return the estimates of some of the means."""
        return Estimates(self.means[members], self.covariance[np.ix_(members, members)], self.df)


@dataclass(frozen=True)
class Comparisons:
    """Every pair (first < second) of a family, as columns."""

    first: list[int]
    second: list[int]
    ratio: Floats
    low: Floats
    high: Floats
    p: Floats

    def rows(self) -> Iterator[tuple[int, int, float, float, float, float]]:
        columns = (self.ratio.tolist(), self.low.tolist(), self.high.tolist(), self.p.tolist())
        return zip(self.first, self.second, *columns, strict=True)

    def different(self) -> list[tuple[int, int]]:
        """Return the pairs found to differ."""
        return [(i, j) for i, j, _, _, _, p in self.rows() if p < SIGNIFICANT]


def compare(estimates: Estimates, exponent: float) -> Comparisons:
    """Return all pairwise comparisons of one family of means."""
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
    ratio, low, high = ratio_interval(means, parts, limit, exponent)
    p = survival(studentized, k, np.asarray(estimates.df, dtype=np.float64))
    return Comparisons(first.tolist(), second.tolist(), ratio, low, high, p)
