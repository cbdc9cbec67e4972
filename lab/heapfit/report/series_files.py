"""A series' answer as Markdown and as JSON: the same tables, to paste or to read by a program.

As in `report.json` of a single study, the plans' trials are left out of the JSON.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from heapfit.findings import Advice
from heapfit.records import SeriesSummary
from heapfit.report.described import explained, machine_facts
from heapfit.report.json_report import without_plan
from heapfit.report.markdown import bullets, code, escape, table
from heapfit.report.reading import SeriesReading
from heapfit.report.series_tables import Cell, Table, metric_tables, probe_tables, ratio_tables
from heapfit.report.series_words import conclusions, notes, recommendations, troubles
from heapfit.study import command_line

FORMAT: Literal["heapfit-series/2"] = "heapfit-series/2"


class SeriesReport(SeriesSummary):
    """What a series' `report.json` holds: its summary and what that means in words. Base units."""

    conclusions: list[str]
    advice: dict[str, Advice | None] = Field(default={}, description="By experiment.")
    format: Literal["heapfit-series/2"] = FORMAT


def json_text(reading: SeriesReading) -> str:
    """Return the report as JSON text."""
    summary = reading.summary
    fields: dict[str, Any] = {name: getattr(summary, name) for name in SeriesSummary.model_fields}
    for kind in ("workloads", "probes", "experiments"):
        fields[kind] = {name: without_plan(each) for name, each in fields[kind].items()}
    report = SeriesReport.model_construct(
        **fields,
        conclusions=conclusions(summary),
        advice=reading.advice,
    )
    return report.model_dump_json(indent=1) + "\n"


def markdown_text(reading: SeriesReading) -> str:
    """Return the report as Markdown text, in GitHub's dialect."""
    summary, series = reading.summary, reading.summary.series
    parts = [f"# {escape(series.definition.title)}", escape(series.definition.question)]
    lines = [f"{name}: {line}" for name, line in recommendations(reading)]
    parts += [bullets([*conclusions(summary), *lines])]
    parts += [_section(each) for each in ratio_tables(summary)]
    parts += [bullets(notes(summary))] if notes(summary) else []
    parts += [_section(each) for each in [*probe_tables(summary), *metric_tables(summary)]]
    if troubles(summary):
        parts += ["## Problems", bullets(troubles(summary))]
    parts += ["## How to repeat this", code(command_line(series))]
    versions = [f"{each.name} {each.version}: {explained(each)}" for each in series.allocators]
    parts += ["## Allocators", bullets(versions)]
    facts = [f"{label}: {value}" for label, value in machine_facts(series.machine)]
    parts += ["## Machine", bullets(facts)]
    return "\n\n".join(parts) + "\n"


def _section(shown: Table) -> str:
    rows = [[escape(line.label), *map(_cell, line.cells)] for line in [*shown.lines, *shown.totals]]
    head = [escape(text) for text in (shown.corner, *shown.columns)]
    return f"## {escape(shown.title)}\n\n{table(head, rows)}"


def _cell(cell: Cell) -> str:
    return f"**{escape(cell.text)}**" if cell.is_best else escape(cell.text)
