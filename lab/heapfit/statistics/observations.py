"""The figures of one metric, laid out as a complete factorial design.

A design is analysed over a full grid of its factors' levels, so that every effect is estimable.
Where trials are missing altogether in a cell of that grid (an allocator that fails on one workload
size, a study that is still running), whole levels are left out until no cell is empty, each with
its reason; cells of unequal, non-zero size need nothing of the kind.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

from heapfit.records import ALLOCATOR, CORES, Factor, PlannedTrial, Study, Trial, TrialStatus

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Readings:
    """The trials of a study that count, as columns; shared by the analyses of all its metrics."""

    trials: list[Trial]
    design: list[Factor]
    levels: list[Integers]  # of each factor of the design, the level's index per trial
    block: Integers
    machine: Integers
    bad: int  # trials that failed


@dataclass(frozen=True)
class Sample:
    """The figures of one metric over a full grid of `factors`, with no empty cell.

    `cell` is the index of an observation's cell with the last factor varying fastest.
    """

    factors: list[Factor]  # of more than one level
    held: dict[str, str]  # the level of each other factor
    figures: Floats
    rows: Integers  # the trials that the figures are of, as indices of the readings
    cell: Integers
    block: Integers
    machine: Integers
    left_out: list[str]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(factor.levels) for factor in self.factors)

    @property
    def cells(self) -> int:
        return prod(self.shape)

    def cell_levels(self) -> list[dict[str, str]]:
        """Return the levels of each cell, in the order of `cell`.

        >>> nothing = np.array([])
        >>> none = nothing.astype(np.int64)
        >>> factors = [Factor(name="allocator", levels=["a", "b"])]
        >>> Sample(factors, {}, nothing, none, none, none, none, []).cell_levels()
        [{'allocator': 'a'}, {'allocator': 'b'}]
        """
        names = [factor.name for factor in self.factors]
        grid = product(*(factor.levels for factor in self.factors))
        return [dict(zip(names, levels, strict=True)) for levels in grid]


def read(study: Study, trials: Iterable[Trial]) -> Readings:
    """Return the trials of `study` that are `ok` and no warm-up, as columns."""
    counted = [trial for trial in trials if not trial.planned.warmup]
    good = [trial for trial in counted if trial.status is TrialStatus.OK]
    design = study.design()
    return Readings(
        trials=good,
        design=design,
        levels=[_level_indices(factor, [trial.planned for trial in good]) for factor in design],
        block=_numbered([trial.planned.block for trial in good]),
        machine=_numbered([trial.machine or "" for trial in good]),
        bad=len(counted) - len(good),
    )


def sample(readings: Readings, figures: Floats, metric: str) -> Sample | None:
    """Return the figures (NaN: none) of a metric over a full grid; None if no factor is left."""
    keep = np.isfinite(figures)
    if not keep.any():
        return None
    grid = np.zeros([len(factor.levels) for factor in readings.design], dtype=np.int64)
    np.add.at(grid, tuple(levels[keep] for levels in readings.levels), 1)
    kept_levels, left_out = _complete(readings.design, grid, metric)
    for levels, kept in zip(readings.levels, kept_levels, strict=True):
        keep &= np.isin(levels, kept)
    varied = [index for index, kept in enumerate(kept_levels) if len(kept) > 1]
    if not varied:
        return None
    factors = [_subset(readings.design[index], kept_levels[index]) for index in varied]
    coordinates = [np.searchsorted(kept_levels[i], readings.levels[i][keep]) for i in varied]
    if readings.bad:
        left_out.append(f"{readings.bad} failed trials have no part in it.")
    return Sample(
        factors=factors,
        held={
            factor.name: factor.levels[int(kept[0])]
            for factor, kept in zip(readings.design, kept_levels, strict=True)
            if len(kept) == 1
        },
        figures=figures[keep],
        rows=np.flatnonzero(keep),
        cell=np.ravel_multi_index(tuple(coordinates), [len(f.levels) for f in factors]).astype(
            np.int64
        ),
        block=_numbered(readings.block[keep].tolist()),
        machine=_numbered(readings.machine[keep].tolist()),
        left_out=left_out,
    )


def figures_of(readings: Readings, metric: str) -> Floats:
    """Return a metric's figure of each trial; NaN where it has none."""
    return np.array([trial.metrics.get(metric, np.nan) for trial in readings.trials], dtype=float)


def _level_indices(factor: Factor, planned: Sequence[PlannedTrial]) -> Integers:
    index = {level: number for number, level in enumerate(factor.levels)}
    levels: Iterable[str]
    if factor.name == ALLOCATOR:  # not `level()`: a call for each of 100,000 trials takes long
        levels = [each.allocator for each in planned]
    elif factor.name == CORES:
        levels = [str(each.cores) for each in planned]
    else:
        levels = [each.levels[factor.name] for each in planned]
    return np.array([index[level] for level in levels], dtype=np.int64)


def _numbered(values: Sequence[Hashable]) -> Integers:
    """Number the distinct values from 0, in the order in which they appear."""
    numbers = {value: number for number, value in enumerate(dict.fromkeys(values))}
    return np.array([numbers[value] for value in values], dtype=np.int64)


def _subset(factor: Factor, kept: Integers) -> Factor:
    return Factor(name=factor.name, levels=[factor.levels[int(index)] for index in kept])


def _complete(
    design: Sequence[Factor], grid: Integers, metric: str
) -> tuple[list[Integers], list[str]]:
    """Leave out levels until no cell of `grid` (counts) is empty; return those kept and why."""
    kept = [np.arange(size) for size in grid.shape]
    reasons: list[str] = []
    while not grid.all():
        axis, position = _emptiest(design, grid)
        factor = design[axis]
        empty = np.take(grid, position, axis=axis) == 0
        where = "at all" if empty.all() else f"in {empty.sum()} of {empty.size} settings"
        level = factor.levels[int(kept[axis][position])]
        reasons.append(f"{factor.name} {level}: no good figure of {metric} {where}.")
        grid = np.delete(grid, position, axis=axis)
        kept[axis] = np.delete(kept[axis], position)
    return kept, reasons


def _emptiest(design: Sequence[Factor], grid: Integers) -> tuple[int, int]:
    """The level with the largest share of empty cells.

    Of equals an allocator, unless only two are left: two allocators at one number of cores tell
    more here than one allocator at two.
    """
    shares = [
        ((grid == 0).mean(axis=tuple(other for other in range(grid.ndim) if other != axis)), axis)
        for axis in range(grid.ndim)
    ]
    candidates = [
        (float(share), (design[axis].name == ALLOCATOR) == (grid.shape[axis] > 2), -axis, position)
        for by_level, axis in shares
        for position, share in enumerate(by_level)
        if len(by_level) > 1
    ]
    _, _, axis, position = max(candidates)
    return -axis, position
