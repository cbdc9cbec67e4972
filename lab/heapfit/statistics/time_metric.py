"""Which metric of time decides: wall time, or processor time where waits make wall time vary.

A program that uses one processor at a time spends the rest of its wall time waiting: for the
processor, which other programs use too, or for the disk. On a busy machine these waits vary from
run to run by more than allocators differ. Processor time, user and system time together, has none
of them. A program that uses several processors at once is judged by wall time, because processor
time does not show how long its threads wait for each other.

The choice must not depend on which allocator wins, nor on intervals that are narrow by chance: to
choose the metric with the narrower intervals gives false differences in up to 9 % of studies. The
choice is therefore made from the means of blocks over all allocators, whereas verdicts are of
differences within blocks. The two are independent where figures scatter normally and alike, so that
a verdict is false no more often than if its metric had been fixed. Processor time decides where

- no process of the program was seen to have several threads: on a busy machine, four threads that
  wait for a processor use no more than one that has it, and threads also wait for each other,
- no allocator uses more than one processor in any setting (`MOST_PROCESSORS`), as several processes
  can,
- waits, log(wall time / processor time), vary by more than `MOST_WAITS` from run to run,
- and wall time varies more than processor time does.

`benchmarks/verdict_errors.py` simulates the choice. It is not made for a study that is judged by
another metric than wall time, nor for a server, whose wall time is its client's. If the workload
fixes how long a trial runs, processor time replaces wall time, which says nothing then.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

import numpy as np

from heapfit.meaning import PROCESSOR, PROCESSOR_TIME, WALL
from heapfit.records import Metric, Study, Trial, TrialStatus
from heapfit.statistics import observations
from heapfit.statistics.observations import Flags, Floats, Readings, figures_of
from heapfit.statistics.verdict import FEWEST_BLOCKS, by_block, mean_of_known

# A little above one, for a thread that an allocator starts.
MOST_PROCESSORS = 1.05
# Standard deviation of a run's waits. With two allocators and ten blocks this alone makes an
# interval reach 2 % to either side.
MOST_WAITS = 0.02


def read(study: Study, trials: Sequence[Trial]) -> Readings:
    """Return the trials as `observations.read` does, with processor time as a further metric of
    the study where it decides."""
    readings = observations.read(study, trials)
    if study.workload.fixes_duration:
        return _without_wall_time(readings)
    processor = processor_time(readings)
    if processor is None or _has_threads(trials) or not _is_of_one_processor(readings, processor):
        return readings
    wall, own = (_tables(readings, each) for each in (readings.figures[WALL], processor))
    if not decides(wall, own):
        return readings
    metric = _metric(f"waits vary by {waits(wall, own):.0%}")
    at = next(n for n, each in enumerate(study.metrics, 1) if each.name == WALL)
    metrics = [*study.metrics[:at], metric, *study.metrics[at:]]
    return replace(
        readings,
        study=study.model_copy(update={"metrics": metrics}),
        figures={**readings.figures, PROCESSOR: processor},
    )


def _without_wall_time(readings: Readings) -> Readings:
    """Return the readings with processor time in the place of wall time."""
    processor = _processor_time(readings)
    if processor is None:
        return readings
    study = readings.study
    metric = _metric("the workload fixes how long a trial runs")

    def renamed(name: str) -> str:
        return PROCESSOR if name == WALL else name

    update = {
        "metrics": [metric if each.name == WALL else each for each in study.metrics],
        "primary_metric": renamed(study.primary_metric),
        "shown": [renamed(each) for each in study.shown],
    }
    figures = {**readings.figures, WALL: processor}
    return replace(
        readings,
        study=study.model_copy(update=update),
        figures={renamed(name): each for name, each in figures.items()},
    )


def _metric(why: str) -> Metric:
    return Metric(
        name=PROCESSOR,
        label="Processor time",
        unit="s",
        better="lower",
        source=f"user and system time, added; decides, as {why}",
    )


def waits_of(readings: Readings) -> float:
    """Return the standard deviation of a run's waits, relative to its processor time."""
    tables = (_tables(readings, figures_of(readings, name)) for name in (WALL, PROCESSOR))
    return float(waits(*tables))


def processor_time(readings: Readings) -> Floats | None:
    """Return each trial's processor time; None where wall time is not what the study is about."""
    study = readings.study
    if study.primary_metric != WALL or study.workload.server:
        return None
    return _processor_time(readings)


def _processor_time(readings: Readings) -> Floats | None:
    known = [name for name in PROCESSOR_TIME if name in readings.figures]
    if WALL not in readings.figures or PROCESSOR_TIME[0] not in known:
        return None
    total = np.sum([readings.figures[name] for name in known], axis=0)
    there = np.isfinite(total) & np.isfinite(readings.figures[WALL])
    return np.asarray(total) if there.any() and (total[there] > 0).all() else None


def _has_threads(trials: Sequence[Trial]) -> bool:
    """Tell whether a process has several threads under every allocator, as one may start a thread
    of its own."""
    seen: dict[str, list[int]] = defaultdict(list)
    for trial in trials:
        if trial.threads is not None and trial.status is TrialStatus.OK:
            seen[trial.planned.allocator].append(trial.threads)
    return bool(seen) and min(median(each) for each in seen.values()) > 1


def _is_of_one_processor(readings: Readings, processor: Floats) -> bool:
    """Tell whether no allocator uses more than one processor in any setting, on average over its
    trials."""
    wall = readings.figures[WALL]
    there = np.isfinite(wall) & np.isfinite(processor)
    used, passed = (np.bincount(readings.cell[there], each[there]) for each in (processor, wall))
    return bool((used <= MOST_PROCESSORS * passed).all())


def _tables(readings: Readings, figures: Floats) -> Floats:
    """Figures as [setting, allocator, block]. The settings of one allocator, which are compared,
    take the place of allocators. On each machine a setting is another: that runs on it wait more
    than on the next does not make them vary."""
    table = by_block(readings, figures)
    table = table.swapaxes(0, 1) if len(readings.study.allocators) == 1 else table
    on = readings.machine_of_shared
    return np.concatenate([np.where(on == each, table, np.nan) for each in np.unique(on)])


def decides(wall: Floats, processor: Floats) -> Flags:
    """Return whether processor time decides, by figures as [..., setting, allocator, block]."""
    least = np.isfinite(wall).any(axis=(-3, -2)).sum(axis=-1) >= FEWEST_BLOCKS
    varies_more = _scatter(np.log(wall)) > _scatter(np.log(processor))
    return np.asarray(least & (waits(wall, processor) > MOST_WAITS) & varies_more)


def waits(wall: Floats, processor: Floats) -> Floats:
    """Return the standard deviation of log(wall time / processor time) of a run."""
    return _scatter(np.log(wall / processor))


def _scatter(logs: Floats) -> Floats:
    """The standard deviation of a run, from the means of blocks over all allocators.

    Allocators of a mean are as many as there are, so its variance is that of a run over their
    number. What they share in a block makes the result larger.
    """
    left = logs - mean_of_known(logs)[..., None]
    of_blocks = mean_of_known(left, axis=-2)
    known = np.isfinite(of_blocks)
    allocators = np.isfinite(logs).any(axis=-1).sum(axis=-1).max(axis=-1)
    squares = np.nansum(of_blocks**2, axis=(-2, -1))
    df = (known.sum(axis=-1) - 1).clip(min=0).sum(axis=-1)
    return np.asarray(np.sqrt(allocators * squares / np.maximum(df, 1)))
