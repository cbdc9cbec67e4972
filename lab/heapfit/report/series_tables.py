"""A series' tables, laid out once for the terminal, the page and Markdown.

Columns are the allocators, the subject first and then the best mean first; rows are workloads, or a
probe's own figures. The order is that of the study's first figure; a figure of experiments, which
compare some of the allocators, has its own. Below a table of ratios stand each allocator's
geometric mean, its interval, its best and its worst workload.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from heapfit.meaning import RESIDENT_PEAK
from heapfit.records import (
    Combined,
    Estimate,
    Experiment,
    Metric,
    PeerComparison,
    SeriesSummary,
    Summary,
)
from heapfit.report.series_words import BEST, GEOMETRIC_MEAN, WORST, part_label, shown_ratio
from heapfit.text import DASH, TERMINAL_DIGITS, scale_for

_WORKLOAD = "workload"


@dataclass(frozen=True)
class Cell:
    """What a cell shows; nothing where there is no figure. `is_best`: the best of its row."""

    text: str = ""
    is_best: bool = False


@dataclass(frozen=True)
class Line:
    """One row. `workload` names the study that it comes from, to link to its page."""

    label: str
    cells: list[Cell]
    workload: str | None = None


@dataclass(frozen=True)
class Table:
    """Lines under the allocators' names, and the lines that sum them up. `corner` heads labels;
    `subject` is the allocator that it is about, where that is not the study's."""

    title: str
    corner: str
    columns: list[str]
    lines: list[Line]
    totals: list[Line]
    subject: str | None = None


def columns(summary: SeriesSummary) -> list[str]:
    """Return the allocators in the order of the tables, by the first figure."""
    subject = summary.series.definition.subject
    combined = summary.figures[0].combined if summary.figures else {}
    return _in_order([each.name for each in summary.series.allocators], combined, subject)


def _ranked(figure: PeerComparison, subject: str) -> list[str]:
    """Return the allocators that `figure` has a ratio of, in the order of its own table."""
    names = list(dict.fromkeys(name for row in figure.ratios.values() for name in row))
    return _in_order(names, figure.combined, subject)


def _in_order(names: Sequence[str], combined: Mapping[str, Combined], subject: str) -> list[str]:
    def place(name: str) -> tuple[bool, bool, float]:
        known = name in combined
        return (name != subject, not known, combined[name].geometric_mean if known else 0.0)

    return sorted(names, key=place)


def ratio_tables(summary: SeriesSummary) -> list[Table]:
    """Return a table of ratios to the best peer per figure of the study."""
    definition, every = summary.series.definition, columns(summary)
    tables = []
    for figure in summary.figures:
        own = _ranked(figure, definition.subject_of(figure.definition))
        order = own if figure.definition.experiments else every
        tables += [_ratio_table(figure, order)] if figure.ratios else []
    return tables


def probe_tables(summary: SeriesSummary) -> list[Table]:
    """Return a table per probe: its own figures and its peak memory, as medians."""
    order = columns(summary)
    return [_probe_table(each, order) for each in summary.probes.values() if each.estimates]


def metric_tables(summary: SeriesSummary) -> list[Table]:
    """Return a table of medians for each metric that the study names, a row per workload.

    Likewise of each experiment with several workloads that no figure combines.
    """
    order = columns(summary)
    metrics = summary.series.definition.metrics
    tables = [_metric_table(summary.workloads, name, order, "") for name in metrics]
    for title, metrics, parts in _uncombined(summary):
        compared = {each.allocator for part in parts.values() for each in part.estimates}
        named = [name for name in order if name in compared]
        tables += [_metric_table(parts, name, named, f"{title}: ") for name in metrics]
    return [table for table in tables if table.lines]


def _uncombined(summary: SeriesSummary) -> Iterator[tuple[str, list[str], dict[str, Summary]]]:
    """Yield title, metrics and parts of experiments with several workloads without a figure."""
    definition = summary.series.definition
    in_figures = {name for figure in definition.figures for name in figure.experiments}
    families: dict[str, list[Experiment]] = {}
    for each in definition.experiments:
        if each.family and each.family not in in_figures:
            families.setdefault(each.family, []).append(each)
    for parts in families.values():
        title = parts[0].title.rpartition(": ")[0] or parts[0].family
        measured = [each for each in parts if each.name in summary.experiments]
        yield (
            title,
            parts[0].metrics,
            {each.workload: summary.experiments[each.name] for each in measured},
        )


def _metric_table(
    parts: Mapping[str, Summary], metric: str, order: list[str], prefix: str
) -> Table:
    lines = [
        line
        for workload, each in parts.items()
        if (line := _medians(each, metric, workload, order)) is not None
    ]
    return Table(f"{prefix}{_label(parts, metric)}", _WORKLOAD, order, lines, [])


def _ratio_table(figure: PeerComparison, order: list[str]) -> Table:
    known = figure.combined
    lines = []
    for workload, ratios in figure.ratios.items():
        best = min(ratios.values())
        cells = [
            Cell(shown_ratio(ratios[name]), ratios[name] == best) if name in ratios else Cell()
            for name in order
        ]
        lines.append(Line(part_label(figure.definition, workload), cells, workload))
    totals = [
        Line(label, [Cell(show(known[name])) if name in known else Cell() for name in order])
        for label, show in _TOTALS.items()
    ]
    has_content = [line for line in totals if any(cell.text for cell in line.cells)]
    subject = figure.definition.subject
    return Table(figure.definition.title, _WORKLOAD, order, lines, has_content, subject)


def _interval(combined: Combined) -> str:
    if combined.low is None:
        return ""
    return f"{shown_ratio(combined.low)}{DASH}{shown_ratio(combined.high)}"


# What stands below a table of ratios.
_TOTALS: dict[str, Callable[[Combined], str]] = {
    GEOMETRIC_MEAN: lambda each: shown_ratio(each.geometric_mean),
    "95 % interval": _interval,
    BEST: lambda each: shown_ratio(each.best),
    WORST: lambda each: shown_ratio(each.worst),
}


def _probe_table(summary: Summary, order: list[str]) -> Table:
    study = summary.study
    own = [metric.name for metric in study.workload.metrics]
    wanted = dict.fromkeys([study.primary_metric, *own, RESIDENT_PEAK])
    lines = [_medians(summary, name, None, order) for name in wanted]
    title = f"{study.title} ({study.name})"
    return Table(title, "figure", order, [line for line in lines if line is not None], [])


def _medians(summary: Summary, name: str, label: str | None, order: list[str]) -> Line | None:
    """A row of medians with its unit; without a `label` the metric's own. None: no figure."""
    found = {each.allocator: each for each in summary.estimates if each.metric == name}
    metric = next((each for each in summary.study.metrics if each.name == name), None)
    if metric is None or not found:
        return None
    scale = scale_for(metric.unit, [each.median for each in found.values()], TERMINAL_DIGITS)
    best = _best(found, metric)
    cells = [
        Cell(scale.number(found[each].median), each in best) if each in found else Cell()
        for each in order
    ]
    return Line(f"{label or metric.label}{scale.suffix}", cells, label)


def _best(found: Mapping[str, Estimate], metric: Metric) -> set[str]:
    """The allocators with the best median; none where all are the same."""
    medians = [each.median for each in found.values()]
    best = min(medians) if metric.better == "lower" else max(medians)
    names = {name for name, each in found.items() if each.median == best}
    return names if len(names) < len(found) else set()


def _label(parts: Mapping[str, Summary], name: str) -> str:
    metrics = (m for each in parts.values() for m in each.study.metrics)
    return next((metric.label for metric in metrics if metric.name == name), name)
