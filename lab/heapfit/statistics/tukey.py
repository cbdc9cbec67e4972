"""All pairwise comparisons of a family of means: Tukey's, and Games and Howell's.

Tukey's honestly significant difference compares each pair's difference, over its standard error
from the residual variance of the full model, with the studentized range of as many means as the
family has; all its intervals hold together with 95 % probability. With unequal numbers of figures,
or with means adjusted for incomplete blocks, each pair has a standard error of its own
(Tukey-Kramer, which errs on the safe side).

Games and Howell's procedure is the same with each cell's own variance in place of the common one
and Satterthwaite's degrees of freedom for each pair: for variances that differ.

References: J. W. Tukey, "The problem of multiple comparisons" (1953), in The Collected Works VIII;
C. Y. Kramer, Biometrics 12 (1956), 307-310; A. J. Hayter, "A proof of the conjecture that the
Tukey-Kramer multiple comparisons procedure is conservative", Annals of Statistics 12 (1984), 61-75;
P. A. Games and J. F. Howell, "Pairwise multiple comparison procedures with unequal n's and/or
variances", Journal of Educational Statistics 1 (1976), 113-125.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from heapfit.statistics.assumptions import SIGNIFICANT
from heapfit.statistics.effect import ratio_interval
from heapfit.statistics.observations import Floats
from heapfit.statistics.studentized_range import critical, criticals, survival

TUKEY = "Tukey HSD"
GAMES_HOWELL = "Games-Howell"


@dataclass(frozen=True)
class Estimates:
    """Means on the scale of the analysis and what is known of their error.

    `components` are the variances of which each mean's own is made, with `component_df` degrees of
    freedom each, for Satterthwaite's approximation: of mean i, weights[i]^2 * components. Without
    them (None), `covariance` rests on one residual variance of `df` degrees of freedom.
    """

    means: Floats
    covariance: Floats
    df: float
    weights: Floats | None = None
    components: Floats | None = None
    component_df: Floats | None = None

    def of(self, members: list[int]) -> Estimates:
        """Return the estimates of some of the means."""
        return Estimates(
            self.means[members],
            self.covariance[np.ix_(members, members)],
            self.df,
            None if self.weights is None else self.weights[members],
            self.components,
            self.component_df,
        )

    def combined(self, matrix: Floats, values: Floats) -> Estimates:
        """Return the estimates of `values`, to first order linear combinations of the means."""
        return Estimates(
            values,
            matrix @ self.covariance @ matrix.T,
            self.df,
            None if self.weights is None else matrix @ self.weights,
            self.components,
            self.component_df,
        )


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


def own_variances(estimates: Estimates, residuals: Floats, cell: np.ndarray) -> Estimates:
    """Return the estimates with each cell's own variance, for Games and Howell's procedure.

    The residuals of a model with blocks are smaller than the errors; they and their degrees of
    freedom are set right by what the model as a whole takes of both. Pairs of two allocators in
    complete blocks come out as in the paired t test.
    """
    sizes = np.bincount(cell, minlength=len(estimates.means)).astype(float)
    squares = np.bincount(cell, residuals**2, len(estimates.means))
    variances = squares / sizes * len(residuals) / estimates.df
    taken = estimates.df / (len(residuals) - len(sizes))
    return Estimates(
        estimates.means,
        np.diag(variances / sizes),
        estimates.df,
        np.eye(len(sizes)),
        variances / sizes,
        np.maximum((sizes - 1) * taken, 1e-3),
    )


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
    df, limit = _reference(estimates, first, second)
    means = estimates.means[first], estimates.means[second]
    ratio, low, high = ratio_interval(means, parts, limit / np.sqrt(2), exponent)
    p = survival(studentized, k, df)
    return Comparisons(first.tolist(), second.tolist(), ratio, low, high, p)


def _reference(
    estimates: Estimates, first: np.ndarray, second: np.ndarray
) -> tuple[Floats, Floats]:
    """Degrees of freedom, one figure where they are the same, and critical value of each pair."""
    k = len(estimates.means)
    if estimates.weights is None or estimates.components is None:
        limit = np.full(len(first), critical(k, estimates.df))
        return np.asarray(estimates.df, dtype=np.float64), limit
    parts = (estimates.weights[first] - estimates.weights[second]) ** 2 * estimates.components
    with np.errstate(divide="ignore", invalid="ignore"):
        df = parts.sum(axis=1) ** 2 / (parts**2 / estimates.component_df).sum(axis=1)
    df = np.maximum(np.where(np.isfinite(df), df, estimates.df), 1.0)
    return df, criticals(k, df)
