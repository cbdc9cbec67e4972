"""The trials of a study as columns, and the figures of one metric as a full factorial design.

A design is analysed over a full grid of its factors' levels, so that every effect is estimable.
Where a cell of that grid has no trials at all (an allocator that fails on one workload size, a
study that is still running), whole levels are left out until no cell is empty, each with its
reason. Cells may be of unequal size.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

from heapfit.records import ALLOCATOR, Factor, PlannedTrial, Study, Trial, TrialStatus

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Readings:
    """A study's trials as arrays, read once for all questions.

    Each array has an entry for each trial that counts (`ok` and no warm-up), in the order of
    `trials`.
    """

    study: Study
    trials: Sequence[Trial]  # all, whatever their status
    design: list[Factor]
    levels: list[Integers]  # of each factor of the design, the level's index
    index: Integers  # the place in the order of running
    block: Integers
    machine: Integers
    figures: dict[str, Floats]  # of each of the study's metrics; NaN: none
    bad: int  # trials that failed
    layouts: dict[bytes, Layout | None] = field(default_factory=dict)  # those found so far

    @property
    def shape(self) -> tuple[int, ...]:
        """How many levels each factor of the design has; the first is the allocator."""
        return tuple(len(factor.levels) for factor in self.design)

    @cached_property
    def cell(self) -> Integers:
        """The index of each trial's cell of the design, the last factor varying fastest.

        Without the allocator, which is the first, cells are numbered as `study.settings()`.
        """
        return np.ravel_multi_index(tuple(self.levels), self.shape).astype(np.int64)

    @cached_property
    def shared(self) -> Integers:
        """The number of each trial's machine and block, within which figures are compared.

        A machine that is lost in the middle of a block leaves the rest of it to another.
        """
        pairs = np.stack([self.machine, self.block])
        return np.unique(pairs, axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)

    @cached_property
    def machine_of_shared(self) -> Integers:
        """The machine of each number of `shared`."""
        machine = np.zeros(self.shared.max(initial=0) + 1, dtype=np.int64)
        machine[self.shared] = self.machine
        return machine


@dataclass(frozen=True, eq=False)
class Layout:
    """The trials of a full grid of `factors`, with no empty cell; shared by metrics that have
    their figures in the same trials.

    `cell` is the index of an observation's cell with the last factor varying fastest.
    """

    factors: list[Factor]  # of more than one level
    held: dict[str, str]  # the level of each other factor
    rows: Integers  # the trials, as indices of the readings
    cell: Integers
    block: Integers
    machine: Integers
    gaps: list[tuple[str, str]]  # each level left out, and where it has no good figure

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(factor.levels) for factor in self.factors)

    @property
    def cells(self) -> int:
        return prod(self.shape)

    def cell_levels(self) -> list[dict[str, str]]:
        """Return the levels of each cell, in the order of `cell`.

        >>> none = np.array([], dtype=np.int64)
        >>> factors = [Factor(name="allocator", levels=["a", "b"])]
        >>> Layout(factors, {}, none, none, none, none, []).cell_levels()
        [{'allocator': 'a'}, {'allocator': 'b'}]
        """
        names = [factor.name for factor in self.factors]
        grid = product(*(factor.levels for factor in self.factors))
        return [dict(zip(names, levels, strict=True)) for levels in grid]


@dataclass(frozen=True)
class Sample:
    """The figures of one metric on their layout."""

    layout: Layout
    figures: Floats
    left_out: list[str]


def read(study: Study, trials: Sequence[Trial]) -> Readings:
    """Return the trials of `study` as arrays."""
    counted = [trial for trial in trials if not trial.planned.warmup]
    good = [trial for trial in counted if trial.status is TrialStatus.OK]
    planned = [trial.planned for trial in good]
    design = study.design()
    return Readings(
        study=study,
        trials=trials,
        design=design,
        levels=[_level_indices(factor, planned) for factor in design],
        index=np.array([each.index for each in planned], dtype=np.int64),
        block=np.array([each.block for each in planned], dtype=np.int64),
        machine=_numbered([trial.machine or "" for trial in good]),
        figures={
            metric.name: np.array([each.metrics.get(metric.name, np.nan) for each in good], float)
            for metric in study.metrics
        },
        bad=len(counted) - len(good),
    )


def figures_of(readings: Readings, metric: str) -> Floats:
    """Return a metric's figure of each trial; NaN where it has none."""
    nothing = np.full(len(readings.block), np.nan)
    return readings.figures.get(metric, nothing)


def sample(readings: Readings, figures: Floats, metric: str) -> Sample | None:
    """Return the figures (NaN: none) of a metric over a full grid; None if no factor is left."""
    good = np.isfinite(figures)
    key = good.tobytes()
    if key not in readings.layouts:
        readings.layouts[key] = _layout(readings, good)
    layout = readings.layouts[key]
    if layout is None:
        return None
    left_out = [f"{level}: no good figure of {metric} {where}." for level, where in layout.gaps]
    if readings.bad:
        left_out.append(f"{readings.bad} failed trials have no part in it.")
    return Sample(layout, figures[layout.rows], left_out)


def _layout(readings: Readings, good: Flags) -> Layout | None:
    """Lay out the trials whose figure is `good`."""
    if not good.any():
        return None
    counts = np.bincount(readings.cell[good], minlength=prod(readings.shape))
    kept_levels, gaps = _complete(readings.design, counts.reshape(readings.shape))
    varied = [axis for axis, kept in enumerate(kept_levels) if len(kept) > 1]
    if not varied:
        return None
    keep = good.copy()
    for levels, kept in zip(readings.levels, kept_levels, strict=True):
        keep &= np.isin(levels, kept)
    factors = [_subset(readings.design[axis], kept_levels[axis]) for axis in varied]
    coordinates = [np.searchsorted(kept_levels[i], readings.levels[i][keep]) for i in varied]
    shape = [len(factor.levels) for factor in factors]
    return Layout(
        factors=factors,
        held={
            factor.name: factor.levels[int(kept[0])]
            for factor, kept in zip(readings.design, kept_levels, strict=True)
            if len(kept) == 1
        },
        rows=np.flatnonzero(keep),
        cell=np.ravel_multi_index(tuple(coordinates), shape).astype(np.int64),
        block=_numbered(readings.block[keep].tolist()),
        machine=_numbered(readings.machine[keep].tolist()),
        gaps=gaps,
    )


def _level_indices(factor: Factor, planned: Sequence[PlannedTrial]) -> Integers:
    index = {level: number for number, level in enumerate(factor.levels)}
    return np.array([index[each.level(factor.name)] for each in planned], dtype=np.int64)


def _numbered(values: Sequence[Hashable]) -> Integers:
    """Number the distinct values from 0, in the order in which they appear."""
    numbers = {value: number for number, value in enumerate(dict.fromkeys(values))}
    return np.array([numbers[value] for value in values], dtype=np.int64)


def _subset(factor: Factor, kept: Integers) -> Factor:
    return Factor(name=factor.name, levels=[factor.levels[int(index)] for index in kept])


def _complete(
    design: Sequence[Factor], grid: Integers
) -> tuple[list[Integers], list[tuple[str, str]]]:
    """Leave out levels until no cell of `grid` (counts) is empty; return those kept, and of the
    others where they had nothing."""
    kept = [np.arange(size) for size in grid.shape]
    gaps: list[tuple[str, str]] = []
    while not grid.all():
        axis, position = _emptiest(design, grid)
        factor = design[axis]
        empty = np.take(grid, position, axis=axis) == 0
        where = "at all" if empty.all() else f"in {empty.sum()} of {empty.size} settings"
        level = factor.levels[int(kept[axis][position])]
        gaps.append((f"{factor.name} {level}", where))
        grid = np.delete(grid, position, axis=axis)
        kept[axis] = np.delete(kept[axis], position)
    return kept, gaps


def _emptiest(design: Sequence[Factor], grid: Integers) -> tuple[int, int]:
    """Return the axis and place of the level with the largest share of empty cells.

    Of equals, an allocator is left out first, unless only two are left: two allocators at one
    number of cores tell more than one allocator at two.
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
