"""What the page shows of the trials themselves: overview tables, and every trial drawn.

Few settings are laid open. Of many, each is folded until a reader opens it, only the metrics that
the study is about are drawn, and fewer points stand for the trials of a row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from heapfit.records import Estimate, Metric, Setting, Verdict
from heapfit.report import figures
from heapfit.report.page import FigureStore
from heapfit.report.results import MOST_OPEN_SETTINGS, Results
from heapfit.report.settings import setting_label
from heapfit.report.units import DASH, PAGE_DIGITS, TIMES, Scale, ratio
from heapfit.statistics.observations import Integers, Readings
from heapfit.text import counted

# What a browser draws and a page holds without effort, over all its strips.
_MOST_POINTS_OF_PAGE = 40_000
_FEWEST_POINTS = 10
_RATIO_DECIMALS = 3

# The trials behind the estimates, as indices of the readings, by setting and allocator.
Cells = Mapping[Setting, Mapping[str, Integers]]


@dataclass(frozen=True)
class Row:
    """One allocator's line in a table: shown texts, and the values that sorting uses."""

    allocator: str
    is_baseline: bool
    is_best: bool
    estimate: Estimate | None
    median: str = ""
    interval: str = ""
    ratio: str = ""
    ratio_interval: str = ""
    ratio_values: tuple[float | str, float | str] = ("", "")
    undecided: bool = False


@dataclass(frozen=True)
class Panel:
    """One metric in one setting: a figure, its description in words, its table.

    Where every trial gave the same there is nothing to draw, and `constant` says what it was."""

    title: str
    constant: str | None
    figure: str | None
    alternative: str
    rows: list[Row]


@dataclass(frozen=True)
class MetricSection:
    """Everything that the page shows of one metric's trials."""

    metric: Metric
    anchor: str
    unit: str
    is_primary: bool
    panels: list[Panel]


@dataclass(frozen=True)
class Overview:
    """The first table: every allocator by every metric, in one setting."""

    title: str
    rows: list[tuple[str, bool, list[Row]]]


def by_cell(readings: Readings) -> Cells:
    """Return the trials that count, by setting and allocator."""
    study = readings.study
    order = np.argsort(readings.cell, kind="stable")
    cells, starts = np.unique(readings.cell[order], return_index=True)
    places = list(product((allocator.name for allocator in study.allocators), study.settings()))
    found: dict[Setting, dict[str, Integers]] = defaultdict(dict)
    for cell, rows in zip(cells.tolist(), np.split(order, starts[1:]), strict=False):
        name, setting = places[cell]
        found[setting][name] = rows
    return found


def folds(results: Results) -> bool:
    """Whether the study has so many settings that each is folded."""
    return len(results.settings) > MOST_OPEN_SETTINGS


def overviews(results: Results) -> list[Overview]:
    return [_overview(results, setting) for setting in results.settings if results.metrics]


def sections(
    results: Results, readings: Readings, analysed: Sequence[str], store: FigureStore
) -> tuple[list[MetricSection], str | None]:
    """Return a section per metric that is drawn, and what is to be said of points left out."""
    cells = by_cell(readings)
    drawn = [m for m in results.metrics if not folds(results) or m.name in analysed]
    rows = max(1, len(drawn) * sum(len(by_name) for by_name in cells.values()))
    most = min(figures.MOST_POINTS, max(_FEWEST_POINTS, _MOST_POINTS_OF_PAGE // rows))
    made = [_section(results, readings, metric, cells, most, store) for metric in drawn]
    return made, _thinned(cells, most)


def unit_of(results: Results, metric: Metric) -> str:
    return results.scale(metric, PAGE_DIGITS).unit


def _overview(results: Results, setting: Setting) -> Overview:
    rows = []
    for name in results.ranked(setting, results.metrics[0]):
        cells = [_row(results, metric, setting, name) for metric in results.metrics]
        rows.append((name, name == results.baseline, cells))
    return Overview(setting_label(setting), rows)


def _section(
    results: Results,
    readings: Readings,
    metric: Metric,
    cells: Cells,
    most: int,
    store: FigureStore,
) -> MetricSection:
    return MetricSection(
        metric=metric,
        anchor=f"metric-{results.metrics.index(metric) + 1}",
        unit=unit_of(results, metric),
        is_primary=metric.name == results.study.primary_metric,
        panels=[
            _panel(results, readings, metric, setting, cells.get(setting, {}), most, store)
            for setting in results.settings
            if results.estimates(setting, metric)
        ],
    )


def _panel(
    results: Results,
    readings: Readings,
    metric: Metric,
    setting: Setting,
    trials: Mapping[str, Integers],
    most: int,
    store: FigureStore,
) -> Panel:
    rows = [_row(results, metric, setting, name) for name in results.allocators]
    constant = results.constant(setting, metric)
    medians = ", ".join(f"{row.allocator} {row.median}" for row in rows if row.estimate)
    title = setting_label(setting)
    figure = None
    if constant is None:
        figure = figures.strip(results, readings, trials, metric, setting, most)
    scale = results.scale(metric, PAGE_DIGITS)
    return Panel(
        title=title,
        constant=None if constant is None else scale.text(constant),
        figure=None if figure is None else store.add(figure),
        alternative=f"{metric.label}, {title}: every trial. Medians: {medians}.",
        rows=rows,
    )


def _row(results: Results, metric: Metric, setting: Setting, name: str) -> Row:
    estimate = results.estimate(setting, metric, name)
    is_baseline = name == results.baseline
    if estimate is None:
        return Row(name, is_baseline, False, None)
    scale = results.scale(metric, PAGE_DIGITS)
    has_interval = estimate.low < estimate.high
    verdict = results.against_baseline(setting, metric, name)
    return Row(
        allocator=name,
        is_baseline=is_baseline,
        is_best=name in results.best(setting, metric),
        estimate=estimate,
        median=scale.number(estimate.median),
        interval=_between(scale.number(estimate.low), scale.number(estimate.high))
        if has_interval
        else "",
        ratio=results.relative(setting, metric, name, scale, TIMES, _RATIO_DECIMALS),
        ratio_interval=_ratio_interval(verdict, scale),
        ratio_values=_ratio_values(verdict, is_baseline),
        undecided=results.undecided(setting, metric, name),
    )


def _ratio_interval(verdict: Verdict | None, scale: Scale) -> str:
    if verdict is None or verdict.low is None or verdict.high is None:
        return ""
    if verdict.subject == "difference":
        return _between(scale.difference(verdict.low), scale.difference(verdict.high))
    return _between(*(ratio(bound, "", _RATIO_DECIMALS) for bound in (verdict.low, verdict.high)))


def _ratio_values(verdict: Verdict | None, is_baseline: bool) -> tuple[float | str, float | str]:
    """The values to sort by: of the ratio, and of the lower end of its interval."""
    if verdict is None:
        return (1.0 if is_baseline else "", "")
    return verdict.estimate, "" if verdict.low is None else verdict.low


def _between(low: str, high: str) -> str:
    return f"{low} {DASH} {high}"


def _thinned(cells: Cells, most_points: int) -> str | None:
    """Say so when a figure shows fewer points than there are trials."""
    most = max((len(row) for rows in cells.values() for row in rows.values()), default=0)
    if most <= most_points:
        return None
    return (
        f"{most_points:,} of up to {counted(most, 'trial')} are drawn per row: the smallest, the "
        "largest and others evenly chosen. Medians and intervals are of all."
    )
