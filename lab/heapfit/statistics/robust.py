"""Rank-based answers for when the assumptions of the analysis of variance fail.

**The table**: the ANOVA-type statistic of Brunner, Dette and Munk on the ranks of all figures. It
tests every main effect and interaction of a factorial design, needs neither normality nor equal
variances, and is the same under every monotone transform. (The aligned rank transform, the other
rank method for interactions, needs equal variances and gives wrong answers on skewed figures: T.
Tsandilas and G. Casiez, "The illusory promise of the aligned rank transform", 2024.)

**The pairs** of allocators within each setting: where variances differ, or cells are large enough
for means to be normal, Games and Howell's procedure (`tukey.py`); else Dwass, Steel, Critchlow and
Fligner's, a rank test of each pair with the studentized range as its reference. Unlike Dunn's test
a pair's answer there does not depend on the other allocators in the study, and it has an interval:
that of Hodges and Lehmann for the ratio, from the ratios of all pairs of figures.

Blocks and machines are taken out beforehand, as estimated by least squares.

References: E. Brunner, H. Dette and A. Munk, "Box-type approximations in nonparametric factorial
designs", JASA 92 (1997), 1494-1502; D. E. Critchlow and M. A. Fligner, "On distribution-free
multiple comparisons in the one-way analysis of variance", Communications in Statistics - Theory and
Methods 20 (1991), 127-139; J. L. Hodges and E. L. Lehmann, "Estimates of location based on rank
tests", Annals of Mathematical Statistics 34 (1963), 598-611.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
from scipy.special import fdtrc

from heapfit.findings import AnovaRow
from heapfit.statistics.linear_model import Term
from heapfit.statistics.observations import Floats, Integers
from heapfit.statistics.studentized_range import critical
from heapfit.statistics.tukey import Comparisons

ANOVA_TYPE = "ANOVA-type statistic on ranks (Brunner, Dette and Munk 1997)"
DSCF = "Dwass-Steel-Critchlow-Fligner"
_FEWEST_PER_CELL = 2


def anova_type(
    terms: Sequence[Term], shape: tuple[int, ...], figures: Floats, cell: Integers
) -> list[AnovaRow]:
    """Return the row of each term; none where a cell has a single figure.

    The statistic is p'Tp / tr(TS): p the mean ranks of the cells, S their variances, T the
    projection on the term's contrasts. Its degrees of freedom are Box's approximations. `sum_sq` is
    p'Tp.
    """
    sizes = np.bincount(cell)
    if sizes.min() < _FEWEST_PER_CELL:
        return []
    ranks = average_ranks(figures)
    means = np.bincount(cell, ranks) / sizes
    variances = np.bincount(cell, (ranks - means[cell]) ** 2) / (sizes - 1) / sizes
    rows = [
        _anova_type_row(term, _projection(shape, term.axes), means, variances, sizes)
        for term in terms
    ]
    return [row for row in rows if row is not None]


def _anova_type_row(
    term: Term, projection: Floats, means: Floats, variances: Floats, sizes: Integers
) -> AnovaRow | None:
    diagonal = np.diag(projection) * variances
    trace = float(diagonal.sum())
    if trace == 0:
        return None  # no scatter in any cell: nothing to test against
    quadratic = float(means @ projection @ means)
    df = trace**2 / float(variances @ projection**2 @ variances)
    df_error = trace**2 / float((diagonal**2 / (sizes - 1)).sum())
    f = quadratic / trace
    return AnovaRow(
        source=term.name,
        df=df,
        sum_sq=quadratic,
        f=f,
        p=float(fdtrc(df, df_error, max(f, 0.0))),  # less than 0 is rounding
        df_error=df_error,
    )


def average_ranks(figures: Floats) -> Floats:
    """Return the ranks of `figures` from 1; equal ones have the mean of theirs.

    >>> average_ranks(np.array([2.0, 7.0, 2.0, 1.0])).tolist()
    [2.5, 4.0, 2.5, 1.0]
    """
    _, group, sizes = np.unique(figures, return_inverse=True, return_counts=True)
    last = np.cumsum(sizes)
    ranks: Floats = (last - (sizes - 1) / 2)[group]
    return ranks


def _projection(shape: tuple[int, ...], axes: tuple[int, ...]) -> Floats:
    """Centring over the term's own factors, averaging over the others."""
    by_axis = []
    for axis, levels in enumerate(shape):
        average = np.full((levels, levels), 1 / levels)
        by_axis.append(np.eye(levels) - average if axis in axes else average)
    return reduce(np.kron, by_axis)


def rank_comparisons(samples: Sequence[Floats]) -> Comparisons:
    """Return Dwass, Steel, Critchlow and Fligner's comparisons of all pairs of positive samples."""
    from scikit_posthocs import posthoc_dscf  # takes a second to load

    k = len(samples)
    p = posthoc_dscf([list(figures) for figures in samples]).to_numpy(dtype=float)
    first, second = np.triu_indices(k, 1)
    limit = critical(k, np.inf) / np.sqrt(2)
    intervals = [
        _ratios(samples[i], samples[j], limit)
        for i, j in zip(first.tolist(), second.tolist(), strict=True)
    ]
    ratio, low, high = np.array(intervals).T
    return Comparisons(first.tolist(), second.tolist(), ratio, low, high, p[first, second])


def _ratios(first: Floats, second: Floats, limit: float) -> tuple[float, float, float]:
    """Hodges and Lehmann's ratio and its interval."""
    ratios = np.sort(np.divide.outer(first, second), axis=None)
    m, n = len(first), len(second)
    outside = m * n / 2 - limit * np.sqrt(m * n * (m + n + 1) / 12)
    rank = int(np.floor(outside))
    if rank < 1:  # too few figures to bound the ratio
        return float(np.median(ratios)), 0.0, float("inf")
    return float(np.median(ratios)), float(ratios[rank - 1]), float(ratios[-rank])
