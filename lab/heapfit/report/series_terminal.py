"""A series' answer in a terminal: tables of ratios, probes, conclusions, what went wrong.

A table wider than the terminal is continued below itself, so that no allocator is left out.
"""

from __future__ import annotations

from collections.abc import Mapping

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from heapfit.records import SeriesSummary
from heapfit.report.analysis import Findings
from heapfit.report.series_tables import Cell, Line, Table, probe_tables, ratio_tables
from heapfit.report.series_words import conclusions, notes, recommendations, troubles
from heapfit.report.terminal_text import (
    COLUMN_GAP,
    INDENT,
    NO_FIGURE,
    TABLE_BOX,
    encodable,
    print_line,
)
from heapfit.report.variants import explanations
from heapfit.text import visible


def render(
    summary: SeriesSummary, console: Console, findings: Mapping[str, Findings] | None = None
) -> None:
    """Print the summary as wide as `console` is, with what was found in each experiment."""
    for table in [*ratio_tables(summary), *probe_tables(summary)]:
        _print_table(table, console)
    console.print()
    for line in conclusions(summary):
        print_line(console, line, style="bold")
    for name, line in recommendations(summary, findings or {}):
        print_line(console, f"{visible(name)}: {line}", style="bold")
    for line in [*explanations(summary.series.allocators), *notes(summary)]:
        print_line(console, line, style="dim")
    _print_troubles(troubles(summary), console)


def _print_table(table: Table, console: Console) -> None:
    console.print()
    print_line(console, visible(table.title), style="bold")
    lines = [*table.lines, *table.totals]
    labels = max(cell_len(visible(line.label)) for line in lines)
    first = 0
    while first < len(table.columns):
        end = _fitting(table, first, console.width - labels)
        console.print()
        console.print(_part(table, first, end, console))
        first = end


def _fitting(table: Table, first: int, room: int) -> int:
    """The end of the columns from `first` on that fit; always at least one."""
    for column in range(first, len(table.columns)):
        room -= _width(table, column) + COLUMN_GAP
        if room < 0:
            return max(column, first + 1)
    return len(table.columns)


def _width(table: Table, column: int) -> int:
    texts = [line.cells[column].text for line in [*table.lines, *table.totals]]
    return max(cell_len(visible(text)) for text in [table.columns[column], *texts])


def _part(table: Table, first: int, end: int, console: Console) -> RichTable:
    made = RichTable(box=TABLE_BOX, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    made.add_column("")
    for name in table.columns[first:end]:
        made.add_column(Text(encodable(visible(name), console)), justify="right", no_wrap=True)
    for line in table.lines:
        made.add_row(*_row(line, first, end, console), end_section=line is table.lines[-1])
    for line in table.totals:
        made.add_row(*_row(line, first, end, console))
    return made


def _row(line: Line, first: int, end: int, console: Console) -> list[Text]:
    label = Text(encodable(visible(line.label), console), no_wrap=True)
    return [label, *(_shown(cell, console) for cell in line.cells[first:end])]


def _shown(cell: Cell, console: Console) -> Text:
    if not cell.text:
        return Text(NO_FIGURE, style="dim")
    return Text(encodable(visible(cell.text), console), style="bold" if cell.is_best else "")


def _print_troubles(lines: list[str], console: Console) -> None:
    if not lines:
        return
    console.print()
    print_line(console, "Problems", style="bold")
    for line in lines:
        print_line(console, f"{INDENT}! {line}")
