"""Turn a study's trials into the figures that a report shows.

An absolute figure is the median over replicates with its interval (`median.py`). Verdicts
(`verdict.py`) compare the allocators: all pairs in the metrics that are analysed, each allocator
with the baseline in the others. `analysed_metrics` decides which are analysed: those that the study
names, else the primary one; processor time where it decides; memory and fragmentation always, since
they are the other sides of every trade that an allocator makes; and those of a paper's tables,
which stand beside ours.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import product

import numpy as np

from heapfit.meaning import FRAGMENTATION, PEAKS, PROCESSOR, deciding_metrics
from heapfit.records import (
    Estimate,
    Metric,
    Precision,
    Setting,
    Study,
    Summary,
    Trial,
    TrialStatus,
    Verdict,
)
from heapfit.statistics.machines import machine_differences
from heapfit.statistics.median import median_intervals
from heapfit.statistics.observations import Floats, Readings, figures_of
from heapfit.statistics.verdict import between_settings, by_block, in_settings, verdicts

_OTHER_SIDES = (PROCESSOR, *PEAKS, *FRAGMENTATION)


def summarise(readings: Readings) -> Summary:
    """Return the summary of what has been measured so far.

    Only trials that are `ok` and no warm-up count. A metric that a cell never gave has no estimate.
    """
    study, trials = readings.study, readings.trials
    return Summary(
        study=study,
        estimates=[
            estimate
            for metric, figures in readings.figures.items()
            for estimate in _estimates(readings, metric, by_block(readings, figures))
        ],
        verdicts=verdicts(readings, whole=analysed_metrics(study)),
        trials_done=len(trials),
        trials_planned=len(study.plan),
        problems=[trial for trial in trials if trial.status is not TrialStatus.OK],
        machines=[
            each
            for metric in deciding_metrics(study)
            for each in machine_differences(readings, metric)
        ],
        precision=precision_of(readings) if study.rule and study.rule.precision else None,
        other_output=_other_output(study, trials),
        trials_outlived=sum(trial.left_running > 0 for trial in trials),
    )


def _other_output(study: Study, trials: Sequence[Trial]) -> list[str]:
    """Return the programs whose output differs from that of the first program in some setting."""
    printed: dict[tuple[str | None, Setting], str | None] = {}
    for trial in trials if study.programs else ():
        if trial.status is TrialStatus.OK:
            program = study.allocator(trial.planned.allocator).program
            printed.setdefault((program, trial.planned.setting), trial.output_sha256)
    first = study.programs[:1]
    return [
        program
        for program in study.programs
        if any(
            (first[0], setting) in printed and printed[first[0], setting] != digest
            for (name, setting), digest in printed.items()
            if name == program
        )
    ]


def analysed_metrics(study: Study) -> list[str]:
    """Return the names of the metrics to analyse, the primary one first."""
    published = [table.metric for table in study.published]
    wanted = dict.fromkeys([study.primary_metric, *study.shown, *published, *_OTHER_SIDES])
    measured = {metric.name for metric in study.metrics}
    return [name for name in wanted if name in measured]


def _estimates(readings: Readings, metric: str, table: Floats) -> Iterator[Estimate]:
    """Yield estimates in the order of a table: by setting, then by allocator as in the study."""
    study = readings.study
    names = [allocator.name for allocator in study.allocators]
    rows = table.reshape(-1, table.shape[-1])
    columns = zip(
        product(study.settings(), names),
        median_intervals(rows),
        (~np.isnan(rows)).sum(axis=1).tolist(),
        np.fmin.reduce(rows, axis=1).tolist(),  # ignores NaN
        np.fmax.reduce(rows, axis=1).tolist(),
        strict=True,
    )
    for ((cores, levels), allocator), own, n, minimum, maximum in columns:
        if own is None:
            continue
        yield Estimate(
            allocator=allocator,
            cores=cores,
            levels=dict(levels),
            metric=metric,
            n=n,
            median=own.median,
            low=own.low,
            high=own.high,
            minimum=minimum,
            maximum=maximum,
        )


# --------------------------------------------------------------- precision


def precision_of(readings: Readings) -> Precision | None:
    """Return the widest of the intervals that a reader decides by; None where no two can be
    compared.

    These are of the primary metric and of peak memory, which the headline and the recommendation
    read: of every pair, in every setting. How far an interval of a ratio reaches to either side is
    the root of its upper bound over its lower one, less 1: on the scale of logarithms it is
    symmetric. A metric whose figures can be zero has no ratio, and no precision. Processor time,
    where it decides beside wall time, is left out: whether it does is not known before the end.
    """
    study = readings.study
    metrics = [
        each
        for each in deciding_metrics(study)
        if each.name != PROCESSOR or study.workload.fixes_duration
    ]
    ratios = (each for each in _verdicts(readings, metrics) if each.subject == "ratio")
    return max(map(_precision, ratios), key=lambda each: each.reached, default=None)


def _verdicts(readings: Readings, metrics: Iterable[Metric]) -> Iterator[Verdict]:
    for metric in metrics:
        if readings.study.is_of_one:
            yield from between_settings(readings, metric)
        else:
            for found in in_settings(readings, figures_of(readings, metric.name), metric):
                yield from found


def _precision(verdict: Verdict) -> Precision:
    reached = math.inf
    if verdict.low and verdict.high is not None:  # A bound of nothing is one below all numbers.
        reached = math.sqrt(verdict.high / verdict.low) - 1
    return Precision(
        reached=reached,
        metric=verdict.metric,
        first=verdict.first,
        second=verdict.second,
        at=verdict.at,
        blocks=verdict.blocks,
    )
