"""Turn a study's trials into the figures that a report shows.

Absolute figures: the median over replicates with its interval. Against the baseline: within each
block the ratio of the two figures, then the median of those ratios with its interval. Pairing by
block takes out what the two trials have in common, above all the state of a noisy machine at that
time; the ratio of the two medians would keep it in. Both intervals are those of `median.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod

import numpy as np

from heapfit.records import Estimate, Summary, TrialStatus
from heapfit.statistics.median import median_intervals
from heapfit.statistics.observations import Floats, Integers, Readings


def summarise(readings: Readings) -> Summary:
    """Return the summary of what has been measured so far.

    Only trials that are `ok` and no warm-up count. A metric that a cell never gave has no estimate.
    """
    study, trials = readings.study, readings.trials
    block = _blocks(readings)
    return Summary(
        study=study,
        estimates=[
            estimate
            for metric, figures in readings.figures.items()
            for estimate in _estimates(readings, metric, _table(readings, block, figures))
        ],
        trials_done=len(trials),
        trials_planned=len(study.plan),
        problems=[trial for trial in trials if trial.status is not TrialStatus.OK],
    )


def _blocks(readings: Readings) -> Integers:
    """Number what a trial shares with those that its figures are set against: machine and time.

    A machine that is lost in the middle of a block leaves the rest of it to another.
    """
    pairs = np.stack([readings.machine, readings.block])
    return np.unique(pairs, axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _table(readings: Readings, block: Integers, figures: Floats) -> Floats:
    """Figures by setting, allocator and block; NaN where there is none."""
    allocators, *others = readings.shape
    table = np.full((allocators * prod(others), block.max(initial=0) + 1), np.nan)
    there = ~np.isnan(figures)
    table[readings.cell[there], block[there]] = figures[there]
    return table.reshape(allocators, prod(others), -1).swapaxes(0, 1)


def _estimates(readings: Readings, metric: str, table: Floats) -> Iterator[Estimate]:
    """In the order of a table: by setting, then allocator as the study lists them."""
    study = readings.study
    names = [allocator.name for allocator in study.allocators]
    baseline = table[:, [names.index(study.baseline)]]
    with np.errstate(all="ignore"):
        ratios = table / np.where(baseline == 0, np.nan, baseline)  # there is none to zero
    rows = table.reshape(-1, table.shape[-1])
    columns = zip(
        product(study.settings(), names),
        median_intervals(rows),
        median_intervals(ratios.reshape(rows.shape)),
        (~np.isnan(rows)).sum(axis=1).tolist(),
        np.fmin.reduce(rows, axis=1).tolist(),  # ignores NaN
        np.fmax.reduce(rows, axis=1).tolist(),
        strict=True,
    )
    for ((cores, levels), allocator), own, relative, n, minimum, maximum in columns:
        if own is None:
            continue
        is_baseline = allocator == study.baseline  # at 1 by definition, hence without an interval
        interval = None if is_baseline else relative
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
            ratio=1.0 if is_baseline else interval and interval.median,
            ratio_low=interval and interval.low,
            ratio_high=interval and interval.high,
        )
