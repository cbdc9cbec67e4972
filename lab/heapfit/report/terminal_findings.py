"""The recommendation and the letters tables in a terminal; the page has the rest."""

from __future__ import annotations

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from heapfit.findings import Advice, Analysis
from heapfit.records import Metric
from heapfit.report import findings_words as words
from heapfit.report.analysis import Findings
from heapfit.report.letters import LEGEND, LettersEntry, LettersGrid, grids
from heapfit.report.results import Results
from heapfit.report.terminal_text import (
    COLUMN_GAP,
    INDENT,
    NO_FIGURE,
    TABLE_BOX,
    encodable,
    print_line,
)
from heapfit.report.units import TERMINAL_DIGITS
from heapfit.statistics import analysed_metrics
from heapfit.text import capitalised, counted, visible

# More tables than this of one metric scroll the answer away.
_MOST_TABLES = 3
_BEST = "*"


def print_recommendation(advice: Advice, console: Console) -> None:
    """Print what is recommended, why, and the ranking."""
    console.print()
    print_line(console, words.headline(advice), style="bold")
    print_line(console, visible(advice.reasons))
    console.print()
    costs = words.costs_of(advice)
    table = _table()
    table.add_column("")
    for header in ("score", *costs):
        table.add_column(Text(encodable(visible(header), console)), justify="right", no_wrap=True)
    table.add_column("")
    for each in advice.standings:
        figures = [f"{each.score:.3f}", *(words.cost_text(each, cost) for cost in costs)]
        cells = [visible(each.allocator), *figures, words.standing_notes(advice, each)]
        style = "bold" if each.allocator == advice.recommended else ""
        table.add_row(*(Text(encodable(cell, console), style=style) for cell in cells))
    console.print(table)
    note = f"Costs are ratios to the best; weights: {words.weights_text(advice)}."
    for line in (note, f"{capitalised(words.UNBEATEN)}.", *map(visible, advice.notes)):
        print_line(console, line, style="dim")


def print_analyses(results: Results, findings: Findings, console: Console) -> None:
    """Print of every analysed metric who differs from whom, and what a paper would say of it."""
    analysed = analysed_metrics(results.study)
    any_letters = False
    for metric in results.metrics:
        if metric.name not in analysed:
            continue
        tables = grids(results, metric, results.scale(metric, TERMINAL_DIGITS))
        analysis = findings.of(metric.name)
        if tables:
            _print_metric(results, metric, tables, console)
        elif analysis:  # of one allocator
            console.print()
            print_line(console, visible(metric.label), style="bold")
        if tables or len(results.allocators) == 1:
            _print_analysis(results, analysis, console)
        any_letters = any_letters or bool(tables)
    if any_letters:
        print_line(console, LEGEND, style="dim")
        print_line(console, f"{_BEST} no other of its column is shown to be better", style="dim")


def _print_metric(
    results: Results, metric: Metric, tables: list[LettersGrid], console: Console
) -> None:
    scale = results.scale(metric, TERMINAL_DIGITS)
    unit = f" ({scale.unit})" if scale.unit else ""
    console.print()
    print_line(console, visible(f"{metric.label}{unit}: who differs from whom"), style="bold")
    for table in tables[:_MOST_TABLES]:
        _print_grid(table, console)
    more = len(tables) - _MOST_TABLES
    if more > 0:
        print_line(console, f"{counted(more, 'more such table')} in the report.", style="dim")
        console.print()


def _print_analysis(results: Results, analysis: Analysis | None, console: Console) -> None:
    if analysis is None:
        return
    print_line(console, "As the paper did it (the report has more):", style="dim")
    said = words.sentences(analysis, results.study.replicates)
    for line in [*said, *words.anova_short(analysis)]:
        print_line(console, f"{INDENT}{line}", style="dim")
    console.print()


def _print_grid(shown: LettersGrid, console: Console) -> None:
    """Print the table; what is wider than the terminal is continued below."""
    console.print()
    if shown.title:
        print_line(console, shown.title)
    names = max(cell_len(text) for text in [shown.corner, *(name for name, _ in shown.rows)])
    first = 0
    while first < len(shown.columns):
        end = _fitting(shown, first, console.width - names)
        console.print(_part(shown, first, end, console))
        console.print()
        first = end


def _fitting(shown: LettersGrid, first: int, room: int) -> int:
    """The end of the columns from `first` on that fit; always at least one."""
    for column in range(first, len(shown.columns)):
        texts = [_text(cells[column]) for _, cells in shown.rows]
        room -= max(map(cell_len, [shown.columns[column], *texts])) + COLUMN_GAP
        if room < 0:
            return max(column, first + 1)
    return len(shown.columns)


def _part(shown: LettersGrid, first: int, end: int, console: Console) -> Table:
    table = _table()
    table.add_column(Text(encodable(shown.corner, console)))
    for column in shown.columns[first:end]:
        table.add_column(Text(encodable(column, console)), justify="right", no_wrap=True)
    for name, cells in shown.rows:
        texts = [
            Text(encodable(_text(cell), console), style="bold" if cell and cell.leads else "")
            for cell in cells[first:end]
        ]
        table.add_row(Text(encodable(name, console), no_wrap=True), *texts)
    return table


def _text(cell: LettersEntry | None) -> str:
    if cell is None:
        return NO_FIGURE
    return f"{cell.figure}{_BEST if cell.leads else ' '} {cell.letters}".rstrip()


def _table() -> Table:
    return Table(box=TABLE_BOX, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
