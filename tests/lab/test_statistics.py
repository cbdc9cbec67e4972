"""Medians and intervals against published tables; ratios by block; intervals of samples."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from engine_helpers import study_of, system_allocator, workload
from heapfit.records import Estimate, Study, Trial, TrialStatus, Verdict
from heapfit.statistics import median_interval, read, summarise
from heapfit.weighted import interval


def test_agrees_with_the_example_of_the_r_package_statpsych() -> None:
    """D. G. Bonett, R package statpsych, help of ci.median (dgbonett.github.io/statpsych):
    `ci.median(.05, y)` prints Estimate 20.7, LL 10.8, UL 30.9."""
    y = "30.2 20.4 15.1 10.2 10.5 60.8 20.8 25.0 20.7 30.9 10.8 5.1 50.9 40.0 20.9 10.8 0 20.5 50.8"
    interval = median_interval([float(figure) for figure in y.split()])
    assert (interval.median, interval.low, interval.high) == (20.7, 10.8, 30.9)


def two_allocators(replicates: int) -> Study:
    return study_of(
        workload("true"),
        [system_allocator("glibc"), system_allocator("heapfit")],
        replicates=replicates,
    )


def trials_of(study: Study, walls: Mapping[str, list[float]]) -> list[Trial]:
    """Trials with the allocator's n-th wall time in the n-th replicate, after slow warm-ups."""
    trials = []
    for planned in study.plan:
        wall_s = 99.0 if planned.warmup else walls[planned.allocator][planned.replicate - 1]
        trials.append(
            Trial(
                planned=planned,
                status=TrialStatus.OK,
                started=study.created,
                exit_code=0,
                metrics={"wall_s": wall_s},
            )
        )
    return trials


def estimate_of(study: Study, trials: list[Trial], allocator: str) -> Estimate:
    found = summarise(read(study, trials)).estimates
    return next(each for each in found if (each.allocator, each.metric) == (allocator, "wall_s"))


def verdict_of(study: Study, trials: list[Trial]) -> Verdict | None:
    """What is known of heapfit's wall time to glibc's."""
    found = summarise(read(study, trials)).verdicts
    turned = [each if each.second == "glibc" else each.turned() for each in found]
    return next((each for each in turned if each.metric == "wall_s"), None)


def test_the_ratio_is_that_of_geometric_means_of_the_same_blocks() -> None:
    """The machine slows down tenfold half-way: absolute figures scatter, the ratio does not."""
    study = two_allocators(6)
    base = [1.0, 1.1, 0.9, 10.0, 11.0, 9.0]
    own = [figure * 0.8 for figure in base]
    trials = trials_of(study, {"glibc": base, "heapfit": own})
    verdict, estimate = verdict_of(study, trials), estimate_of(study, trials, "heapfit")
    assert verdict is not None
    assert verdict.estimate == pytest.approx(0.8)
    assert verdict.low == pytest.approx(0.8, rel=0.1)
    assert verdict.high == pytest.approx(0.8, rel=0.1)
    assert verdict.shown
    assert estimate.high > 10 * estimate.low


def test_failed_trials_are_problems_and_no_figures() -> None:
    study = two_allocators(3)
    trials = trials_of(study, {"glibc": [1, 1, 1], "heapfit": [2, 2, 50]})
    failed = [
        each.model_copy(update={"status": TrialStatus.MISMATCH, "reason": "other output"})
        if each.metrics["wall_s"] == 50
        else each
        for each in trials
    ]
    summary = summarise(read(study, failed))
    assert [problem.reason for problem in summary.problems] == ["other output"]
    estimate = estimate_of(study, failed, "heapfit")
    assert (estimate.n, estimate.median) == (2, 2.0)
    verdict = verdict_of(study, failed)
    assert verdict is not None
    assert (verdict.estimate, verdict.blocks, verdict.low, verdict.p) == (2.0, 2, None, None)


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
