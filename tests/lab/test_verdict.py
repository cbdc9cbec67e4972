"""Verdicts: what they are made of, what must not move them, and that they keep their promise."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from conftest import load_benchmark
from design_data import MEMORY, WALL, by_block, study_of, trial_of
from heapfit.records import Metric, Study, Trial, Verdict
from heapfit.statistics import read
from heapfit.statistics.verdict import METHOD, judge, pairs, verdicts
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import digamma, polygamma
from scipy.stats import t, ttest_rel

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "verdict_errors.py"
FAULTS = Metric(name="major_faults", label="", unit="count", better="lower", source="wait4")
SYSTEM = Metric(name="system_s", label="", unit="s", better="lower", source="wait4")
CALLS = Metric(name="mmap_calls", label="", unit="count", better="lower", source="strace")


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    return load_benchmark(BENCHMARK)


def between(made: tuple[Study, list[Trial]], first: str, second: str) -> Verdict:
    found = verdicts(read(*made), whole=[each.name for each in made[0].metrics])
    return next(each for each in found if (each.first, each.second) == (first, second))


def scattered(seed: int, mean: float, spread: float, blocks: int = 8) -> list[float]:
    noise = np.random.default_rng(seed).normal(0, spread, blocks)
    return (mean * np.exp(noise)).tolist()


def test_two_allocators_are_compared_by_the_paired_t_test_of_logarithms() -> None:
    a, b = scattered(1, 1.0, 0.05), scattered(2, 0.95, 0.05)
    found = between(by_block({"a": a, "b": b}), "a", "b")
    expected = ttest_rel(np.log(a), np.log(b))
    assert found.p == pytest.approx(expected.pvalue)
    interval = expected.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((np.exp(interval.low), np.exp(interval.high)))
    assert found.estimate == pytest.approx(np.exp(np.mean(np.log(a)) - np.mean(np.log(b))))
    assert (found.subject, found.blocks, found.method) == ("ratio", 8, METHOD)


def test_comparisons_with_the_baseline_are_adjusted_for_themselves_alone() -> None:
    figures = np.array([scattered(seed, 1.0, 0.05) for seed in range(4)])
    found = between(
        by_block(dict(zip("abcd", figures.tolist(), strict=True)), baseline="c"), "a", "c"
    )
    pair = pairs(figures, to=2)
    [place] = np.flatnonzero(pair.first == 0)
    alone = 2 * t.sf(abs(pair.mean[place]) / pair.variance[place] ** 0.5, pair.df[place])
    assert found.p == pytest.approx(1 - (1 - alone) ** 3)
    turned = between(
        by_block(dict(zip("abcd", figures.tolist(), strict=True)), baseline="c"), "c", "d"
    )
    own = judge(pair)
    [place] = np.flatnonzero(pair.first == 3)
    assert (turned.low, turned.high) == pytest.approx(
        (np.exp(-own.high[place]), np.exp(-own.low[place]))
    )


@pytest.mark.parametrize(
    "scatter", ["one spread five times the others", "spreads from one to five times"]
)
@pytest.mark.parametrize(("treatments", "blocks"), [(3, 4), (15, 3)])
def test_the_promise_holds_from_three_blocks_on_for_both_families(
    benchmark: ModuleType, scatter: str, treatments: int, blocks: int
) -> None:
    studies = 3000
    margin = 3 * (0.05 * 0.95 / studies) ** 0.5
    made = benchmark.SCATTERS[scatter](
        np.random.default_rng(2), studies, blocks, np.zeros(treatments)
    )
    for to in (None, 0, treatments - 1):
        found = judge(pairs(made, to=to))
        assert (found.p < 0.05).any(axis=1).mean() <= benchmark.MOST_FALSE + margin
        covered = ((found.low <= 0) & (found.high >= 0)).all(axis=1).mean()
        assert covered >= benchmark.LEAST_COVERAGE - margin


@pytest.mark.parametrize("metric", [FAULTS, SYSTEM])
def test_of_a_metric_that_can_be_zero_the_difference_is_the_subject(metric: Metric) -> None:
    a, b = [5.0, 6.0, 5.5, 7.0], [1.0, 2.5, 1.5, 2.0]
    found = between(by_block({"a": a, "b": b}, metric), "a", "b")
    assert found.subject == "difference"
    assert found.estimate == pytest.approx(np.mean(np.subtract(a, b)))
    assert found.p == pytest.approx(ttest_rel(a, b).pvalue)
    assert found.absolute == found.estimate


def test_figures_that_never_vary_are_facts() -> None:
    found = between(by_block({"a": [7.0] * 3, "b": [8.0] * 3, "c": [7.0] * 3}, CALLS), "a", "b")
    assert (found.estimate, found.low, found.high) == pytest.approx((0.875, 0.875, 0.875))
    assert found.p == 0.0
    same = between(by_block({"a": [7.0] * 3, "b": [8.0] * 3, "c": [7.0] * 3}, CALLS), "a", "c")
    assert (same.p, same.shown) == (1.0, False)


@pytest.mark.parametrize(
    ("metric", "gap", "trivial"),
    [
        (WALL, 0.004, True),
        (WALL, 0.006, False),
        (MEMORY, 0.9 * 2**20, True),
        (MEMORY, 1.1 * 2**20, False),
        (CALLS, 1e-9, False),
        (Metric(name="p99", label="", unit="s", better="lower", source=""), 0.001, False),
    ],
)
def test_differences_too_small_to_matter_are_known(
    metric: Metric, gap: float, trivial: bool
) -> None:
    base = 100 * 2**20 if metric is MEMORY else 1.0
    found = between(by_block({"a": [base] * 4, "b": [base + gap] * 4}, metric), "a", "b")
    assert found.trivial == trivial
    assert found.shown
    assert found.counts == (not trivial)


def test_too_little_is_judged_by_the_whole_interval() -> None:
    """A middle below 5 ms says nothing where the interval goes beyond."""
    base = [1.0] * 6
    for gaps, trivial, matters in (
        ([0.001, 0.002, 0.003, 0.001, 0.002, 0.003], True, False),
        ([-0.020, 0.030, -0.025, 0.028, 0.015, -0.020], False, False),
        ([0.012, 0.013, 0.014, 0.012, 0.013, 0.014], False, True),
        ([0.002, 0.008, 0.009, 0.003, 0.008, 0.009], False, False),
    ):
        slower = [b + gap for b, gap in zip(base, gaps, strict=True)]
        found = between(by_block({"a": slower, "b": base}, WALL), "a", "b")
        for each in (found, found.turned()):
            assert (each.trivial, each.matters) == (trivial, matters), gaps
        assert found.absolute_low is not None
        assert found.absolute_high is not None
        assert found.absolute_low < found.absolute < found.absolute_high
        assert found.absolute == pytest.approx(sum(gaps) / 6, abs=5e-4)


@pytest.mark.parametrize(
    ("metric", "small", "large", "trivial", "matters"),
    [
        # A ratio of small figures is none of large ones.
        (MEMORY, (4.0 * 2**20, 4.5 * 2**20), (400 * 2**20, 400 * 2**20), True, False),
        (MEMORY, (40 * 2**20, 45 * 2**20), (400 * 2**20, 400 * 2**20), False, True),
        # Differences that balance each other are still there.
        (WALL, (0.0104, 0.010), (1.92, 2.0), False, True),
        (WALL, (0.0104, 0.010), (0.0096, 0.010), True, False),
        (WALL, (1.1, 1.0), (1.15, 1.05), False, True),
        (CALLS, (1.1, 1.0), (100.0, 100.0), False, True),
        # The mean says the opposite of the ratio.
        (WALL, (1.0, 2.0), (14.0, 10.0), False, False),
    ],
)
def test_over_settings_what_matters_is_in_the_settings(
    metric: Metric,
    small: tuple[float, float],
    large: tuple[float, float],
    trivial: bool,
    matters: bool,
) -> None:
    study = study_of(["a", "b"], {"size": ["small", "large"]}, (metric,))
    trials = [
        trial_of(study, (name, size), {metric.name: mean * (1 + 1e-4 * noise)}, block)
        for size, means in (("small", small), ("large", large))
        for seed, (name, mean) in enumerate(zip("ab", means, strict=True), start=len(size))
        for block, noise in enumerate(np.random.default_rng(seed).normal(0, 1, 6))
    ]
    found = [each for each in verdicts(read(study, trials)) if not each.at]
    for each in (found[0], found[0].turned()):
        assert (each.trivial, each.matters) == (trivial, matters)
        assert each.contradicts == (large == (14.0, 10.0))
    gap = (small[1] - small[0] + large[1] - large[0]) / 2
    assert abs(found[0].absolute) == pytest.approx(abs(gap), abs=2e-4 * max(large))


@pytest.mark.full
def test_the_promises_are_kept_in_every_simulated_study(benchmark: ModuleType) -> None:
    """The stored simulation in small: the bounds are wider by three standard errors."""
    studies = 1500
    margin = 3 * (0.05 * 0.95 / studies) ** 0.5
    for scatter in benchmark.SCATTERS:
        for treatments, blocks in ((2, 6), (5, 8), (15, 6)):
            line = benchmark.count(scatter, treatments, blocks, studies, seed=2)
            assert line.false["verdict"] <= benchmark.MOST_FALSE + margin, benchmark.said(line)
            assert line.coverage >= benchmark.LEAST_COVERAGE - margin, benchmark.said(line)


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
