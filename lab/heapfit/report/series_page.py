"""The page of a series: its figures, drawn and tabled, with a link to each workload.

A figure shows every allocator's ratio to the best peer, a row per workload. Allocators that it has
no ratio of are left out; the others look as they do in every figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from heapfit.drawing import Figure, escaped, label, line_at_one, looks_of, rows_axis, titled
from heapfit.records import PeerComparison, SeriesSummary, Summary
from heapfit.report.described import explained, library_text, machine_facts
from heapfit.report.page import PAGE_FILE, FigureStore, render
from heapfit.report.reading import SeriesReading
from heapfit.report.series_tables import Table, metric_tables, probe_tables, ratio_tables
from heapfit.report.series_words import (
    GEOMETRIC_MEAN,
    compared_with,
    conclusions,
    explanation,
    notes,
    part_label,
    recommendations,
    shown_ratio,
    troubles,
)
from heapfit.report.settings import factor_label, level_text
from heapfit.study import command_line
from heapfit.text import TIMES

_ROW_HEIGHT = 26
_FRAME_HEIGHT = 140
_MARK_SIZE = 9
_SUBJECT_SIZE = 13
# What a reader of a ratio looks for; a logarithmic axis would choose 1, 2, 5, 10 alone.
_TICKS = [0.25, 0.5, 0.7, 1, 1.25, 1.5, 2, 3, 5, 10, 20, 50, 100]


def page(reading: SeriesReading) -> str:
    """Return the page's HTML. It links to `NAME/report.html` beside it for each workload."""
    summary, series = reading.summary, reading.summary.series
    definition = series.definition
    parts = {**summary.workloads, **summary.probes, **summary.experiments}
    return render(
        "series.html.j2",
        FigureStore(),
        title=definition.title,
        generator=f"heapfit {series.heapfit_version}",
        series=series,
        definition=definition,
        parts=parts,
        links={name: f"{quote(name)}/{PAGE_FILE}" for name in parts},
        conclusions=conclusions(summary),
        recommendations=recommendations(reading),
        notes=notes(summary),
        problems=troubles(summary),
        sections=_sections(summary),
        explanation=explanation,
        probes=probe_tables(summary),
        metrics=metric_tables(summary),
        workloads=summary.workloads,
        probe_parts=summary.probes,
        experiments=summary.experiments,
        varied=_varied,
        reproduce=command_line(series),
        explained=explained,
        library_text=library_text,
        machine=machine_facts(series.machine),
    )


def _sections(summary: SeriesSummary) -> list[tuple[PeerComparison, Table, dict[str, Any]]]:
    """Each figure of the study that has ratios, its table and its drawing."""
    names = [allocator.name for allocator in summary.series.allocators]
    subject_of = summary.series.definition.subject_of
    drawn = [figure for figure in summary.figures if figure.ratios]
    return [
        (figure, table, _drawing(figure, names, subject_of(figure.definition)))
        for figure, table in zip(drawn, ratio_tables(summary), strict=True)
    ]


def _varied(summary: Summary) -> str:
    """The factors of an experiment with their levels, in a line."""
    return "; ".join(
        f"{factor_label(factor.name)}: {', '.join(map(level_text, factor.levels))}"
        for factor in summary.study.design()
    )


def _drawing(comparison: PeerComparison, allocators: Sequence[str], subject: str) -> dict[str, Any]:
    """The figure: ratios on a logarithmic axis, the geometric means in the first row."""
    rows = [GEOMETRIC_MEAN, *comparison.ratios]
    reference = escaped(compared_with(comparison.definition))
    labels = [part_label(comparison.definition, part) for part in comparison.ratios]
    figure = Figure(_FRAME_HEIGHT + _ROW_HEIGHT * len(rows))
    looks = looks_of(allocators)
    for name in sorted(allocators, key=lambda name: name == subject):  # the subject on top
        look, own = looks[name], _of(comparison, name)
        if not own:
            continue
        figure.scatter(
            x=list(own.values()),
            y=[rows.index(row) for row in own],
            name=label(name),
            mode="markers",
            marker={
                "symbol": look.symbol if name == subject else f"{look.symbol}-open",
                "size": _SUBJECT_SIZE if name == subject else _MARK_SIZE,
                "color": look.colour,
            },
            hovertext=[
                f"{escaped(row)}<br>{label(name)}: {shown_ratio(ratio)}{TIMES}"
                for row, ratio in own.items()
            ],
            hoverinfo="text",
        )
    figure.update(
        xaxis={
            "title": titled(f"ratio to {reference}, logarithmic; less is better"),
            "type": "log",
            "tickvals": _TICKS,
            "ticksuffix": TIMES,
            "fixedrange": True,
            "zeroline": False,
        },
        yaxis={
            **rows_axis([f"<b>{GEOMETRIC_MEAN}</b>", *map(label, labels)]),
            "automargin": True,
        },
        shapes=[line_at_one("x")],
        showlegend=True,
        legend={"orientation": "h", "y": 1.01, "yanchor": "bottom", "x": 0},
        margin={"l": 8, "r": 16, "t": 64, "b": 48},
    )
    return figure.plain()


def _of(comparison: PeerComparison, allocator: str) -> dict[str, float]:
    """One allocator's ratios by row."""
    combined = comparison.combined.get(allocator)
    mean = {} if combined is None else {GEOMETRIC_MEAN: combined.geometric_mean}
    rows = comparison.ratios.items()
    return mean | {workload: row[allocator] for workload, row in rows if allocator in row}
