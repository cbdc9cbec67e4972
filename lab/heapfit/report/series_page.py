"""The page of a series: its figures, drawn and tabled, with a link to each workload."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import quote

from heapfit.records import InstalledAllocator, PublishedTable, SeriesSummary, Summary
from heapfit.report import series_figure
from heapfit.report.analysis import Findings
from heapfit.report.files import PAGE_FILE
from heapfit.report.machine import machine_facts
from heapfit.report.page import FigureStore, render
from heapfit.report.series_tables import Table, metric_tables, probe_tables, ratio_tables
from heapfit.report.series_words import (
    conclusions,
    explanation,
    notes,
    recommendations,
    troubles,
)
from heapfit.report.settings import factor_label, level_text
from heapfit.report.variants import explained
from heapfit.study import command_line


@dataclass(frozen=True)
class Section:
    """One figure of the study: drawn, described in words, its table, and a paper's beside it."""

    anchor: str
    table: Table
    note: str
    figure: str
    alternative: str
    published: list[PublishedTable]


@dataclass(frozen=True)
class Entry:
    """One workload in the list of pages; `link` is None while it has no page."""

    name: str
    title: str
    question: str
    link: str | None
    trials: str


def page(summary: SeriesSummary, findings: Mapping[str, Findings]) -> str:
    """Return the page's HTML. It links to `NAME/report.html` beside it for each workload."""
    series = summary.series
    store = FigureStore()
    link = _linker(summary)
    return render(
        "series.html.j2",
        store,
        title=series.definition.title,
        generator=f"heapfit {series.heapfit_version}",
        series=series,
        definition=series.definition,
        conclusions=conclusions(summary),
        recommendations=[
            (_entry(name, summary.experiments[name], link), line)
            for name, line in recommendations(summary, findings)
        ],
        notes=notes(summary),
        problems=troubles(summary),
        sections=_sections(summary, store),
        probes=probe_tables(summary),
        metrics=metric_tables(summary),
        workloads=[_entry(name, each, link) for name, each in summary.workloads.items()],
        experiments=[_entry(name, each, link) for name, each in summary.experiments.items()],
        probe_entries=[_entry(name, each, link) for name, each in summary.probes.items()],
        link=link,
        varied=lambda name: _varied(summary.experiments[name]),
        reproduce=command_line(series),
        explained=explained,
        library_text=_library_text,
        machine=machine_facts(series.machine),
    )


def _sections(summary: SeriesSummary, store: FigureStore) -> list[Section]:
    definition = summary.series.definition
    names = [allocator.name for allocator in summary.series.allocators]
    drawn = [figure for figure in summary.figures if figure.ratios]
    sections: list[Section] = []
    for figure, table in zip(drawn, ratio_tables(summary), strict=True):
        plot = series_figure.ratios(figure, names, definition.subject_of(figure.definition))
        sections.append(
            Section(
                anchor=f"figure-of-{len(sections) + 1}",
                table=table,
                note=explanation(figure.definition, definition),
                figure=store.add(plot),
                alternative=f"{table.title}: a row per workload, a mark per allocator; "
                "the table below holds the same numbers.",
                published=figure.definition.published,
            )
        )
    return sections


def _linker(summary: SeriesSummary) -> Callable[[str | None], str | None]:
    measured = {*summary.workloads, *summary.probes, *summary.experiments}

    def link(workload: str | None) -> str | None:
        return f"{quote(workload)}/{PAGE_FILE}" if workload in measured else None

    return link


def _entry(name: str, summary: Summary, link: Callable[[str | None], str | None]) -> Entry:
    workload = summary.study.workload
    trials = f"{summary.trials_done:,} of {summary.trials_planned:,}"
    title = summary.study.title or workload.title
    return Entry(name, title, workload.question, link(name), trials)


def _varied(summary: Summary) -> str:
    """The factors of an experiment with their levels, in a line."""
    design = summary.study.design()
    return "; ".join(
        f"{factor_label(factor.name)}: {', '.join(map(level_text, factor.levels))}"
        for factor in design
    )


def _library_text(allocator: InstalledAllocator) -> str:
    return str(allocator.library) if allocator.library else "the system's own"
