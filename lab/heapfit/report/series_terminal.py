"""A series' answer in a terminal: tables of ratios, probes, conclusions, what went wrong.

A table wider than the terminal is continued below itself, so that no allocator is left out.
"""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from heapfit.report.described import explanations
from heapfit.report.reading import SeriesReading
from heapfit.report.series_tables import Cell, Table, probe_tables, ratio_tables
from heapfit.report.series_words import conclusions, notes, recommendations, troubles
from heapfit.report.terminal_text import NO_FIGURE, print_line, print_problems, tables
from heapfit.text import visible


def render(reading: SeriesReading, console: Console) -> None:
    """Print the answer as wide as `console` is."""
    summary = reading.summary
    for table in [*ratio_tables(summary), *probe_tables(summary)]:
        _print_table(table, console)
    console.print()
    for line in conclusions(summary):
        print_line(console, line, style="bold")
    for name, line in recommendations(reading):
        print_line(console, f"{visible(name)}: {line}", style="bold")
    for line in [*explanations(summary.series.allocators), *notes(summary)]:
        print_line(console, line, style="dim")
    print_problems(console, troubles(summary))


def _print_table(table: Table, console: Console) -> None:
    console.print()
    print_line(console, visible(table.title), style="bold")
    rows, totals = (
        [(visible(line.label), list(map(_shown, line.cells))) for line in lines]
        for lines in (table.lines, table.totals)
    )
    for part in tables("", list(map(visible, table.columns)), rows, totals, console):
        console.print()
        console.print(part)


def _shown(cell: Cell) -> Text:
    if not cell.text:
        return Text(NO_FIGURE, style="dim")
    return Text(visible(cell.text), style="bold" if cell.is_best else "")
