"""Whether what allocators are to each other depends on the machine: told, and never by chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from design_data import WALL, study_of, trial_of
from heapfit.records import MachineDifference, Metric, Study, Trial
from heapfit.report.problems import remarks
from heapfit.statistics import read, summarise
from heapfit.statistics.machines import machine_differences
from scipy.stats import ttest_ind


def ran(
    figures: Mapping[str, Mapping[str, Sequence[float]]],
    metric: Metric = WALL,
    factors: Mapping[str, Sequence[str]] | None = None,
) -> tuple[Study, list[Trial]]:
    """A study of what each machine measured of each allocator, block by block; the same at every
    level of `factors`."""
    names = list(next(iter(figures.values())))
    study = study_of(names, factors or {}, (metric,))
    levels = [(level,) for each in (factors or {}).values() for level in each] or [()]
    made = [
        trial_of(study, (name, *level), {metric.name: figure}, block=100 * at + block,
                 machine=machine)
        for at, (machine, own) in enumerate(figures.items())
        for name, row in own.items()
        for block, figure in enumerate(row)
        for level in levels
    ]  # fmt: skip
    planned = [
        trial.model_copy(update={"planned": trial.planned.model_copy(update={"index": index})})
        for index, trial in enumerate(made)
    ]
    return study, planned


def differences(made: tuple[Study, list[Trial]], metric: Metric = WALL) -> list[MachineDifference]:
    return machine_differences(read(*made), metric)


def row(seed: int, mean: float, spread: float = 0.02, blocks: int = 6) -> list[float]:
    return (mean * np.exp(np.random.default_rng(seed).normal(0, spread, blocks))).tolist()


def test_allocators_that_rank_otherwise_on_another_machine_are_told() -> None:
    made = ran(
        {"one": {"a": row(1, 1.0), "b": row(2, 0.8)}, "two": {"a": row(3, 5.0), "b": row(4, 6.0)}}
    )
    [found] = differences(made)
    assert found.shown
    assert (found.first, found.second, list(found.on)) == ("a", "b", ["one", "two"])
    assert found.estimate == pytest.approx(found.on["one"] / found.on["two"])
    [said] = remarks(summarise(read(*made)))
    assert said.startswith("Wall time depends on the machine: a relative to b is 1.2")
    assert "x on one and 0.8" in said


def test_with_two_allocators_it_is_welchs_test_of_the_differences_within_blocks() -> None:
    own = {
        "one": {"a": row(1, 1.0), "b": row(2, 0.8)},
        "two": {"a": row(3, 5.0, 0.1, 9), "b": row(4, 4.0, 0.1, 9)},
    }
    [found] = differences(ran(own))
    gaps = [np.log(each["a"]) - np.log(each["b"]) for each in own.values()]
    expected = ttest_ind(*gaps, equal_var=False)
    assert found.p == pytest.approx(expected.pvalue)
    interval = expected.confidence_interval(0.95)
    assert (np.log(found.low), np.log(found.high)) == pytest.approx((interval.low, interval.high))


@pytest.mark.full
@pytest.mark.parametrize("wild", [1.0, 5.0])
def test_no_more_than_one_study_of_twenty_tells_of_a_difference_that_is_none(wild: float) -> None:
    """Three allocators on three machines, of which one scatters more."""
    generator = np.random.default_rng(5)
    studies, told = 600, 0
    for _ in range(studies):
        noise = generator.normal(0, 0.03, (3, 3, 6)) * np.array([wild, 1, 1])[:, None]
        figures = {
            machine: {name: np.exp(noise[j, i]).tolist() for j, name in enumerate("abc")}
            for i, machine in enumerate(("one", "two", "three"))
        }
        told += any(each.shown for each in differences(ran(figures)))
    assert told / studies < 0.05 + 3 * (0.05 * 0.95 / studies) ** 0.5
