"""Findings made by hand from made trials, for the tests of the reports.

Means, intervals and letters follow from the trials by simple rules, so that a report's numbers can
be checked; the statistics themselves are tested where they live.
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Sequence
from statistics import fmean, stdev

from heapfit.findings import (
    Advice,
    Analysis,
    AnovaRow,
    AssumptionCheck,
    Difference,
    LetterCell,
    LettersTable,
    PowerNote,
    Standing,
    Transform,
)
from heapfit.records import ALLOCATOR, CORES, Study, Trial, TrialStatus
from heapfit.report.analysis import Findings, analysed_metrics

Interval = tuple[float, float, float]


def make_findings(study: Study, trials: Sequence[Trial]) -> Findings:
    """Return findings about the metrics that the report asks for."""
    analyses = [make_analysis(study, trials, metric) for metric in analysed_metrics(study)]
    return Findings(analyses, make_advice(study))


def make_analysis(study: Study, trials: Sequence[Trial], metric: str) -> Analysis:
    factors = [factor for factor in study.design() if len(factor.levels) > 1]
    across = max(factors[1:], key=lambda f: len(f.levels)) if len(factors) > 1 else None
    held = [f for f in factors if f.name != ALLOCATOR and f is not across]
    tables = [
        _letters(study, trials, metric, across.name if across else CORES, dict(at))
        for at in itertools.product(*([(f.name, level) for level in f.levels] for f in held))
    ]
    return Analysis(
        metric=metric,
        factors=[factor.name for factor in factors],
        transform=Transform(
            exponent=-1,
            name="1/x",
            box_cox=-0.87,
            low=-1.3,
            high=-0.45,
            reason="1/x is the simple scale nearest to the exponent of greatest likelihood.",
        ),
        checks_before=[
            AssumptionCheck(
                assumption="normality", test="Shapiro-Wilk", statistic=0.91, p=3e-7, holds=False
            ),
            AssumptionCheck(
                assumption="equal-variance", test="Levene", statistic=4.1, p=0.0002, holds=False
            ),
        ],
        checks=[
            AssumptionCheck(
                assumption="normality", test="Shapiro-Wilk", statistic=0.99, p=0.21, holds=True
            ),
            AssumptionCheck(
                assumption="equal-variance", test="Levene", statistic=1.2, p=0.03, holds=False
            ),
        ],
        anova=_anova([factor.name for factor in factors], 0.00005745),
        letters=tables,
        differences=[d for table in tables for d in _differences(table)],
        robust=_anova([factor.name for factor in factors], 1200.0),
        robust_method="aligned rank transform",
        power=PowerNote(effect=0.02, replicates=9, residual_cv=0.013),
    )


def make_advice(study: Study) -> Advice:
    """The second allocator is recommended; memory costs fall as time costs rise."""
    names = [allocator.name for allocator in study.allocators]
    order = [*names[1:], names[0]]
    last = max(1, len(order) - 1)
    standings = [
        Standing(
            allocator=name,
            score=1 + 0.02 * at,
            costs={"time": 1 + 0.03 * at, "memory": 1.2 - 0.2 * at / last + 0.1 * (at % 2)},
            metrics={"wall_s": 1.2 + 0.03 * at, "peak_rss_bytes": 8e7},
            on_front=at % 2 == 0,
            tied_with_best=at == 1,
        )
        for at, name in enumerate(order)
    ]
    return Advice(
        weights={"time": 2, "memory": 1},
        standings=standings,
        recommended=order[0],
        reasons=f"{order[0]} is 3 % faster than {order[-1]} at the same memory. "
        "Nothing is both faster and leaner.",
    )


def _letters(
    study: Study, trials: Sequence[Trial], metric: str, columns: str, at: dict[str, str]
) -> LettersTable:
    cells = []
    levels = next(factor.levels for factor in study.design() if factor.name == columns)
    for column in levels:
        means = {
            a.name: found
            for a in study.allocators
            if (found := _mean(trials, metric, {**at, columns: column, ALLOCATOR: a.name}))
        }
        for place, name in enumerate(sorted(means, key=lambda name: -means[name][0])):
            mean, low, high = means[name]
            letter = string.ascii_lowercase[place // 2]
            cells.append(
                LetterCell(
                    row=name, column=column, n=study.replicates, mean=mean, low=low, high=high,
                    upper=string.ascii_uppercase[levels.index(column)] if len(levels) > 1 else "",
                    lower=letter,
                )
            )  # fmt: skip
    order = [allocator.name for allocator in study.allocators]
    cells.sort(key=lambda cell: (order.index(cell.row), levels.index(cell.column)))
    return LettersTable(rows=ALLOCATOR, columns=columns, at=at, cells=cells)


def _mean(trials: Sequence[Trial], metric: str, levels: dict[str, str]) -> Interval | None:
    values = [
        trial.metrics[metric]
        for trial in trials
        if trial.status is TrialStatus.OK
        and not trial.planned.warmup
        and metric in trial.metrics
        and all(trial.planned.level(name) == level for name, level in levels.items())
    ]
    if not values:
        return None
    spread = 2 * stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return fmean(values), fmean(values) - spread, fmean(values) + spread


def _differences(table: LettersTable) -> list[Difference]:
    return [
        Difference(
            factor=ALLOCATOR,
            first=first.row,
            second=second.row,
            at={**table.at, table.columns: first.column},
            ratio=first.mean / second.mean,
            low=first.low / second.high,
            high=first.high / second.low,
            p=0.0301 if first.lower == second.lower else 1e-9,
            method="Tukey HSD",
        )
        for first, second in itertools.combinations(table.cells, 2)
        if first.column == second.column
    ]


def _anova(factors: list[str], size: float) -> list[AnovaRow]:
    sources = [":".join(some) for n in (1, 2) for some in itertools.combinations(factors, n)]
    rows = [
        AnovaRow(
            source=source, df=6 - at, sum_sq=size * 0.5**at, f=1238.68 * 0.3**at, p=1e-9 * 25**at,
            eta_sq=0.95 * 0.8**at, eta_sq_low=0.9 * 0.8**at, eta_sq_high=0.97 * 0.8**at,
        )
        for at, source in enumerate(sources)
    ]  # fmt: skip
    return [
        *rows,
        AnovaRow(source="block", df=14, sum_sq=size / 90, f=1.1, p=0.4),
        AnovaRow(source="residual", df=392, sum_sq=size / 20),
        AnovaRow(source="total", df=419, sum_sq=size * 2),
    ]
