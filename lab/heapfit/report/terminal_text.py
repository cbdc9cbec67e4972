"""What all tables of a terminal share: their form, and text that any terminal can show."""

from collections.abc import Iterable, Iterator, Sequence

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from heapfit.report.tables import Cell, Table
from heapfit.text import COLUMN_GAP, DASH, TIMES, visible

NO_FIGURE = "-"
# Behind the best figure of a column: colour alone says nothing.
BEST = "*"
INDENT = "  "


def print_line(console: Console, line: str, style: str = "") -> None:
    """Print `line`, which is already `visible`, wrapped as wide as `console` is, if it wraps."""
    console.print(Text(encodable(line, console), style=style))


def print_lines(console: Console, lines: Iterable[str], style: str = "") -> None:
    for line in lines:
        print_line(console, line, style)


def print_problems(console: Console, lines: Sequence[str]) -> None:
    """Print what went wrong, if anything did."""
    if lines:
        console.print()
        print_line(console, "Problems", style="bold")
    print_lines(console, (f"{INDENT}! {line}" for line in lines))


def new_table() -> RichTable:
    """Return a table without columns, in the form that all have."""
    # Of COLUMN_GAP one column is the padding, the other the empty divider.
    return RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)


def fitting(widths: Sequence[int], room: int) -> int:
    """Return how many columns of these widths fit beside each other; at least the first."""
    for count, width in enumerate(widths):
        room -= width + COLUMN_GAP
        if room < 0:
            return max(count, 1)
    return len(widths)


def in_parts(table: Table, console: Console) -> Iterator[RichTable]:
    """Yield a table with its totals below a line, in parts where it is wider than `console`."""
    every = [*table.rows, *table.totals]
    labels = [_text(row.label, console) for row in every]
    cells = [[_cell(cell, console) for cell in row.cells] for row in every]
    corner = _text(table.corner, console)
    names = [_text(name, console) for name in table.columns]
    room = console.width - max(text.cell_len for text in (corner, *labels))
    widths = [max(text.cell_len for text in column) for column in zip(names, *cells, strict=True)]
    first = 0
    while first < len(names):
        end = first + fitting(widths[first:], room)
        made = new_table()
        made.add_column(corner)
        for name in names[first:end]:
            made.add_column(name, justify="right", no_wrap=True)
        for at, (label, row) in enumerate(zip(labels, cells, strict=True), start=1):
            made.add_row(label, *row[first:end], end_section=at == len(table.rows))
        yield made
        first = end


def _text(text: str, console: Console, style: str = "") -> Text:
    return Text(encodable(visible(text), console), style=style, no_wrap=True)


def _cell(cell: Cell, console: Console) -> Text:
    if not cell.text:
        return Text(NO_FIGURE, style="dim")
    mark = f"{BEST if cell.is_best else ' '} {cell.letters}" if cell.letters else ""
    return _text(cell.text + mark, console, style="bold" if cell.is_best else "")


def ascii_only(console: Console) -> bool:
    return not console.encoding.startswith("utf")


def encodable(text: str, console: Console) -> str:
    """Return `text` such that the console's encoding can print it."""
    if not ascii_only(console):
        return text
    readable = text.replace("µ", "u").replace(DASH, "-").replace(TIMES, "x").replace("∞", "inf")
    return readable.encode("ascii", "backslashreplace").decode("ascii")
