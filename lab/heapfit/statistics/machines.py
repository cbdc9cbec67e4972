"""Test whether differences between allocators depend on the machine, where several took part.

A pair's differences within blocks are of one machine each. Their mean on one machine less that on
another is zero where the machine does not matter to the pair: this is the interaction of machine
and allocator. It is tested like a verdict: variances are those of the verdict on each machine's
blocks and add up, with Satterthwaite's degrees of freedom. The family are all pairs of allocators
between all pairs of machines, of one metric over all settings.

A report states what is found. It changes no verdict and chooses no other test: verdicts are of all
machines together, each with the weight of its blocks.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import numpy as np

from heapfit.records import MachineDifference, Metric
from heapfit.statistics.observations import Readings, figures_of
from heapfit.statistics.verdict import (
    Pairs,
    by_block,
    judge,
    of_each,
    over_settings,
    pairs,
    subject_of,
)


def machine_differences(readings: Readings, metric: Metric) -> list[MachineDifference]:
    """Return how each pair of allocators differs between each two machines that ran both."""
    names = _names(readings)
    if len(names) < 2 or len(readings.study.allocators) < 2:
        return []
    figures = figures_of(readings, metric.name)
    ratio = subject_of(metric.name, figures) == "ratio"
    table = by_block(readings, figures)
    machine = readings.machine_of_shared
    own = [
        over_settings(pairs(table[..., machine == number], ratio=ratio))
        for number in range(len(names))
    ]
    couples = list(combinations(range(len(names)), 2))
    many = len(couples) * of_each(readings.study)
    return [
        each
        for one, other in couples
        for each in _between(readings, metric, ratio, (names[one], names[other]),
                             (own[one], own[other]), many)
    ]  # fmt: skip


def _names(readings: Readings) -> list[str]:
    """Return the names of the machines, in the order of their numbers in the readings."""
    ran_on = {trial.planned.index: trial.machine or "" for trial in readings.trials}
    numbers, places = np.unique(readings.machine, return_index=True)
    return [ran_on[int(readings.index[place])] for _, place in zip(numbers, places, strict=True)]


def _between(
    readings: Readings,
    metric: Metric,
    ratio: bool,
    machines: tuple[str, str],
    own: tuple[Pairs, Pairs],
    many: float,
) -> Iterator[MachineDifference]:
    one, other = own
    together = one.variance + other.variance
    with np.errstate(divide="ignore", invalid="ignore"):
        df = together**2 / (one.variance**2 / one.df + other.variance**2 / other.df)
    found = replace(
        one,
        mean=one.mean - other.mean,
        variance=together,
        df=np.where(together > 0, df, np.minimum(one.df, other.df)),
        comparisons=np.maximum(one.comparisons, other.comparisons),
    )
    judged = judge(found, many)
    allocators = [allocator.name for allocator in readings.study.allocators]
    columns = (judged.mean, judged.low, judged.high, judged.p, one.mean, other.mean)
    scaled = [np.exp(each) if ratio and each is not judged.p else each for each in columns]
    for first, second, *numbers in zip(
        found.first.tolist(), found.second.tolist(), *(e.tolist() for e in scaled), strict=True
    ):
        estimate, low, high, p, here, there = numbers
        if not np.isnan(p):
            yield MachineDifference(
                metric=metric.name,
                first=allocators[first],
                second=allocators[second],
                subject="ratio" if ratio else "difference",
                on={machines[0]: here, machines[1]: there},
                estimate=estimate,
                low=low,
                high=high,
                p=p,
            )
