"""The report of a study as one HTML page: what it shows. `page.py` makes the page."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from heapfit.records import Estimate, InstalledAllocator, Metric, Summary, Trial
from heapfit.report import drift as drifts
from heapfit.report import figures
from heapfit.report.conclusions import MERE_RANGES, NOTHING, by_cores, headline_metrics
from heapfit.report.files import write_text
from heapfit.report.machine import machine_facts
from heapfit.report.page import FigureStore, render
from heapfit.report.problems import Problem, problems, remarks
from heapfit.report.results import Results
from heapfit.report.text import counted, visible
from heapfit.report.units import DASH, PAGE_DIGITS, TIMES, Scale, ratio

_RATIO_DECIMALS = 3


# The trials behind the estimates, by number of cores and allocator.
Cells = Mapping[int, Mapping[str, Sequence[Trial]]]


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
    undecided: bool = False


@dataclass(frozen=True)
class Panel:
    """One metric at one number of cores: a figure, its description in words, its table.

    Where every trial gave the same there is nothing to draw, and `constant` says what it was."""

    title: str
    constant: str | None
    figure: str | None
    alternative: str
    rows: list[Row]


@dataclass(frozen=True)
class MetricSection:
    """Everything that the page shows about one metric."""

    metric: Metric
    anchor: str
    unit: str
    is_primary: bool
    panels: list[Panel]
    by_cores: str | None


@dataclass(frozen=True)
class Overview:
    """The first table: every allocator by every metric, at one number of cores."""

    title: str
    rows: list[tuple[str, bool, list[Row]]]


def write(summary: Summary, trials: Sequence[Trial], path: Path) -> None:
    """Write the page to `path`. `trials` are all of the study's, whatever their status."""
    write_text(path, page(summary, trials))


def page(summary: Summary, trials: Sequence[Trial]) -> str:
    """Return the page's HTML."""
    results = Results(summary)
    store = FigureStore()
    cells = _by_cell(trials)
    return render(
        "report.html.j2",
        store,
        summary=summary,
        study=summary.study,
        title=summary.study.title or summary.study.name,
        command=shlex.join(summary.study.command),
        conclusions=_conclusions(results),
        overviews=[_overview(results, cores) for cores in results.cores if results.metrics],
        metrics=results.metrics,
        units={metric.name: _scale(results, metric).unit for metric in results.metrics},
        problems=[_problem_view(problem) for problem in problems(summary)],
        remarks=remarks(summary),
        sections=[_section(results, metric, cells, store) for metric in results.metrics],
        drift=_drift(results, trials, store),
        allocators=summary.study.allocators,
        library_text=_library_text,
        machine=machine_facts(summary.study.machine),
        mere_ranges=MERE_RANGES if results.has_mere_ranges else None,
        thinned=_thinned(cells),
        generator=f"heapfit {summary.study.heapfit_version}",
    )


def _scale(results: Results, metric: Metric) -> Scale:
    return results.scale(metric, PAGE_DIGITS)


def _by_cell(trials: Sequence[Trial]) -> Cells:
    cells: dict[int, dict[str, list[Trial]]] = defaultdict(lambda: defaultdict(list))
    for trial in trials:
        if drifts.counts(trial):
            cells[trial.planned.cores][trial.planned.allocator].append(trial)
    return cells


def _conclusions(results: Results) -> list[tuple[str, list[str]]]:
    """The conclusions under the number of cores, which goes unsaid where there is one only."""
    if not results.metrics:
        return [("", [NOTHING])]
    several = len(results.cores) > 1
    return [
        (counted(cores, "core") if several else "", sentences)
        for cores, sentences in by_cores(results)
    ]


def _overview(results: Results, cores: int) -> Overview:
    rows = []
    for name in results.ranked(cores, results.metrics[0]):
        cells = [_row(results, metric, cores, name) for metric in results.metrics]
        rows.append((name, name == results.baseline, cells))
    return Overview(counted(cores, "core"), rows)


def _section(results: Results, metric: Metric, cells: Cells, store: FigureStore) -> MetricSection:
    panels = [
        _panel(results, metric, cores, cells[cores], store)
        for cores in results.cores
        if results.estimates(cores, metric)
    ]
    lines = len(panels) > 1 and metric in headline_metrics(results)
    return MetricSection(
        metric=metric,
        anchor=f"metric-{results.metrics.index(metric) + 1}",
        unit=_scale(results, metric).unit,
        is_primary=metric.name == results.study.primary_metric,
        panels=panels,
        by_cores=store.add(figures.by_cores(results, metric)) if lines else None,
    )


def _panel(
    results: Results,
    metric: Metric,
    cores: int,
    trials: Mapping[str, Sequence[Trial]],
    store: FigureStore,
) -> Panel:
    rows = [_row(results, metric, cores, name) for name in results.allocators]
    constant = results.constant(cores, metric)
    medians = ", ".join(f"{row.allocator} {row.median}" for row in rows if row.estimate)
    title = counted(cores, "core")
    figure = figures.strip(results, trials, metric, cores) if constant is None else None
    return Panel(
        title=title,
        constant=None if constant is None else _scale(results, metric).text(constant),
        figure=None if figure is None else store.add(figure),
        alternative=f"{metric.label}, {title}: every trial. Medians: {medians}.",
        rows=rows,
    )


def _row(results: Results, metric: Metric, cores: int, name: str) -> Row:
    estimate = results.estimate(cores, metric, name)
    is_baseline = name == results.baseline
    if estimate is None:
        return Row(name, is_baseline, False, None)
    scale = _scale(results, metric)
    has_interval = estimate.low < estimate.high
    has_ratio_interval = estimate.ratio_low is not None and not is_baseline
    return Row(
        allocator=name,
        is_baseline=is_baseline,
        is_best=name in results.best(cores, metric),
        estimate=estimate,
        median=scale.number(estimate.median),
        interval=_between(scale.number(estimate.low), scale.number(estimate.high))
        if has_interval
        else "",
        ratio=_ratio(results.ratio(estimate)),
        ratio_interval=_between(_ratio(estimate.ratio_low, ""), _ratio(estimate.ratio_high, ""))
        if has_ratio_interval
        else "",
        undecided=results.differs_from_baseline(estimate) is False,
    )


def _ratio(value: float | None, sign: str = TIMES) -> str:
    return ratio(value, sign, _RATIO_DECIMALS)


def _between(low: str, high: str) -> str:
    return f"{low} {DASH} {high}"


def _drift(results: Results, trials: Sequence[Trial], store: FigureStore) -> dict[str, str] | None:
    primary = [m for m in results.metrics if m.name == results.study.primary_metric]
    found = drifts.deviations(trials, primary[0]) if primary else []
    if not found:
        return None
    return {
        "figure": store.add(figures.drift(results, found, primary[0])),
        "sentence": drifts.describe(found, primary[0]),
        "label": primary[0].label,
    }


def _problem_view(problem: Problem) -> dict[str, str]:
    tail = problem.first.stderr_tail.strip()
    return {
        "sentence": problem.sentence,
        "stderr": Markup("\n").join(visible(line) for line in tail.splitlines()),
        "places": problem.places,
    }


def _library_text(allocator: InstalledAllocator) -> str:
    return str(allocator.library) if allocator.library else "the system's own"


def _thinned(cells: Cells) -> str | None:
    """Say so when a figure shows fewer points than there are trials."""
    most = max((len(row) for rows in cells.values() for row in rows.values()), default=0)
    if most <= figures.MOST_POINTS:
        return None
    return f"{figures.MOST_POINTS:,} of up to {most:,} trials are drawn per row, evenly chosen."
