"""Intervals of totals that are estimated from few samples hold the total as often as they say."""

from __future__ import annotations

import numpy as np
import pytest
from heapfit.weighted import interval

RUNS = 4000


@pytest.mark.parametrize("samples", [5, 100])
@pytest.mark.parametrize("sizes", [(64,), (16, 60_000)])
def test_an_interval_holds_the_total_however_few_the_samples(
    samples: int, sizes: tuple[int, ...]
) -> None:
    """Objects of a few sizes, each sampled as the recorder does it, by weights alone."""
    draw = np.random.default_rng(samples)
    mean = 65536
    # As many bytes of each size, and so as many samples, nearly.
    size = np.array(sizes, dtype=float)
    chance = -np.expm1(-size / mean)
    count = np.maximum(1, np.round(samples / len(sizes) / chance)).astype(int)
    exact = float((count * size).sum())
    held = 0
    for _ in range(RUNS):
        sampled = draw.binomial(count, chance)
        total = float((sampled * size / chance).sum())
        variance = float((sampled * (1 - chance) / chance**2 * size**2).sum())
        low, high = interval(total, variance)
        held += low <= exact <= high or (total == 0 and samples < 10)
        assert low >= 0
    assert held / RUNS >= 0.94


def test_what_is_counted_has_no_interval() -> None:
    assert interval(0.0, 0.0) == (0.0, 0.0)
    assert interval(12.0, 0.0) == (12.0, 12.0)
