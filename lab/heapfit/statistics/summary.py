"""Turn a study's trials into the figures that a report shows.

Absolute figures: the median over replicates with its interval. Against the baseline: within each
block the ratio of the two figures, then the median of those ratios with its interval. Pairing by
block takes out what the two trials have in common, above all the state of a noisy machine at that
time; the ratio of the two medians would keep it in. Both intervals are those of `median.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from heapfit.records import Estimate, Setting, Study, Summary, Trial, TrialStatus
from heapfit.statistics.median import median_interval

# Figures of one metric by block, of one allocator in one setting.
ByBlock = dict[tuple[str | None, int], float]
Cell = tuple[str, Setting, str]


def summarise(study: Study, trials: Sequence[Trial]) -> Summary:
    """Return the summary of what has been measured so far.

    Only trials that are `ok` and no warm-up count. A metric that a cell never gave has no estimate.
    """
    figures = _figures(trials)
    estimates = [
        _estimate(study, cell, figures[cell], figures.get((study.baseline, cell[1], cell[2]), {}))
        for cell in _cells(study)
        if cell in figures
    ]
    return Summary(
        study=study,
        estimates=estimates,
        trials_done=len(trials),
        trials_planned=len(study.plan),
        problems=[trial for trial in trials if trial.status is not TrialStatus.OK],
    )


def _cells(study: Study) -> Iterable[Cell]:
    """In the order of a table: by metric, then setting, then allocator as the study lists them."""
    settings = study.settings()
    for metric in study.metrics:
        for setting in settings:
            for allocator in study.allocators:
                yield allocator.name, setting, metric.name


def _figures(trials: Iterable[Trial]) -> Mapping[Cell, ByBlock]:
    # First by allocator and setting: a key of all three made anew for every figure takes longer
    # than all the rest where there are a hundred thousand trials.
    cells: dict[tuple[str, Setting], dict[str, ByBlock]] = defaultdict(lambda: defaultdict(dict))
    for trial in trials:
        planned = trial.planned
        if trial.status is TrialStatus.OK and not planned.warmup:
            cell = cells[planned.allocator, planned.setting]
            block = trial.block
            for metric, figure in trial.metrics.items():
                cell[metric][block] = figure
    return {
        (allocator, setting, metric): by_block
        for (allocator, setting), by_metric in cells.items()
        for metric, by_block in by_metric.items()
    }


def _estimate(study: Study, cell: Cell, own: ByBlock, baseline: ByBlock) -> Estimate:
    allocator, (cores, levels), metric = cell
    absolute = median_interval(list(own.values()))
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    if allocator == study.baseline:
        ratio = 1.0  # by definition, hence without an interval
    elif ratios := _ratios(own, baseline):
        relative = median_interval(ratios)
        ratio, ratio_low, ratio_high = relative.median, relative.low, relative.high
    return Estimate(
        allocator=allocator,
        cores=cores,
        levels=dict(levels),
        metric=metric,
        n=len(own),
        median=absolute.median,
        low=absolute.low,
        high=absolute.high,
        minimum=min(own.values()),
        maximum=max(own.values()),
        ratio=ratio,
        ratio_low=ratio_low,
        ratio_high=ratio_high,
    )


def _ratios(own: ByBlock, baseline: ByBlock) -> list[float]:
    """The ratios of the blocks that have both; there is none to a baseline of zero."""
    return [figure / baseline[block] for block, figure in own.items() if baseline.get(block)]
