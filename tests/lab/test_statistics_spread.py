"""Spreads that learn from each other: against Smyth's formulas written out, and at their limits."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from heapfit.statistics.verdict import pairs
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import digamma, polygamma

Floats = NDArray[np.float64]


def figures(spreads: list[float], blocks: int, seed: int = 4) -> Floats:
    noise = np.random.default_rng(seed).normal(0, 1, (len(spreads), blocks))
    return noise * np.array(spreads)[:, None]


@pytest.mark.parametrize("spreads", [[1.0] * 4, [5.0, 1.0, 1.0, 1.0], [1.0, 2.0, 3.0, 4.0, 5.0]])
def test_a_pairs_variance_is_weighed_with_the_location_of_all(spreads: list[float]) -> None:
    made = figures(spreads, 7)
    count, df = len(spreads), 6
    own = np.array([(a - b).var(ddof=1) for a, b in combinations(made, 2)])
    logs = np.log(own) - digamma(df / 2) + np.log(df / 2)
    couples = list(combinations(combinations(range(count), 2), 2))
    sharing = sum(bool(set(one) & set(other)) for one, other in couples) / len(couples)
    excess = logs.var(ddof=1) - polygamma(1, df / 2) * (1 - sharing / 4)
    half = brentq(lambda x: polygamma(1, x) - excess, 1e-3, 1e6) if excess > 0.001 else 5e3
    location = np.exp(logs.mean() + digamma(half) - np.log(half))
    expected = (2 * half * location + df * own) / (2 * half + df)
    found = pairs(made, ratio=False)
    assert found.variance == pytest.approx(expected / 7, rel=2e-3)
    share = 0.5 - 0.9 / df
    assert found.df == pytest.approx(min(2 * share * half + df, df * (count - 1)), rel=2e-3)
