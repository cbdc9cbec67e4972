"""Designed studies for the tests of the statistics: from a table of figures, or simulated.

Published examples are about wool and guinea pigs: their first factor takes the place of the
allocator, the others are factors of the study's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
from heapfit.records import Factor, Metric, PlannedTrial, Study, Trial, TrialStatus
from report_data import START, make_study

WALL = Metric(name="wall_s", label="Wall time", unit="s", better="lower", source="clock")
MEMORY = Metric(name="peak_rss_bytes", label="RSS", unit="bytes", better="lower", source="wait4")

# The levels of a trial in the order of the study's factors, allocator first.
Levels = tuple[str, ...]


def study_of(
    allocators: Sequence[str],
    factors: Mapping[str, Sequence[str]],
    metrics: Sequence[Metric] = (WALL,),
) -> Study:
    """A study of these factors without a plan; `cores`, if it is one of them, comes first."""
    study = make_study(
        allocators=allocators,
        cores=[int(level) for level in factors.get("cores", "1")],
        replicates=1,
        warmups=0,
        metrics=metrics,
        primary=metrics[0].name,
        command=["true"],
        title="A designed study",
        factors=[Factor(name=n, levels=list(own)) for n, own in factors.items() if n != "cores"],
    )
    return study.model_copy(update={"name": "designed", "plan": []})


def trial_of(
    study: Study,
    levels: Levels,
    figures: Mapping[str, float],
    block: int = 0,
    machine: str | None = None,
) -> Trial:
    """A finished trial; `levels`: of the allocator, the cores if they vary, the other factors."""
    allocator, *others = levels
    names = [*(["cores"] if len(study.cores) > 1 else []), *(f.name for f in study.factors)]
    by_factor = dict(zip(names, others, strict=True))
    cores = int(by_factor.pop("cores", study.cores[0]))
    planned = PlannedTrial(
        index=0, block=block, replicate=block, allocator=allocator, cores=cores, levels=by_factor
    )
    ok, own = TrialStatus.OK, dict(figures)
    return Trial(planned=planned, status=ok, started=START, metrics=own, machine=machine)


def by_block(
    figures: Mapping[str, Sequence[float]], metric: Metric = WALL, baseline: str | None = None
) -> tuple[Study, list[Trial]]:
    """A study of one setting in which each allocator gave these figures, block by block."""
    study = study_of(list(figures), {}, (metric,))
    trials = [
        trial_of(study, (name,), {metric.name: figure}, block)
        for name, own in figures.items()
        for block, figure in enumerate(own)
    ]
    return study.model_copy(update={"baseline": baseline or study.baseline}), trials


def table(
    factors: Mapping[str, Sequence[str]],
    rows: Sequence[tuple[Levels, float]],
    blocks: Sequence[int] | None = None,
) -> tuple[Study, list[Trial]]:
    """A study of `factors`, the first as the allocators, with one trial for each row."""
    (_, allocators), *others = factors.items()
    study = study_of(allocators, dict(others))
    at = blocks or [0] * len(rows)
    trials = [
        trial_of(study, levels, {"wall_s": figure}, block)
        for (levels, figure), block in zip(rows, at, strict=True)
    ]
    return study, trials


def grid(
    factors: Mapping[str, Sequence[str]], per_cell: int, figures: Sequence[float]
) -> tuple[Study, list[Trial]]:
    """As `table`, of figures listed cell by cell, the last factor varying fastest."""
    cells = [cell for cell in product(*factors.values()) for _ in range(per_cell)]
    return table(factors, list(zip(cells, figures, strict=True)))


def simulated(
    generator: np.random.Generator,
    slower: Mapping[str, float],
    replicates: int,
    cv: float,
    factors: Mapping[str, Sequence[str]] | None = None,
) -> tuple[Study, list[Trial]]:
    """Trials of lognormal scatter in complete blocks that share a lognormal effect.

    `slower`: by allocator, the true cost relative to 1.
    """
    study = study_of(list(slower), factors or {})
    cells = list(product(slower, *(factors or {}).values()))
    trials = []
    for block in range(replicates):
        common = generator.normal(0, 0.02)
        scatter = generator.normal(0, cv, len(cells))
        for cell, own in zip(cells, np.exp(common + scatter), strict=True):
            trials.append(trial_of(study, cell, {"wall_s": slower[cell[0]] * own}, block))
    return study, trials
