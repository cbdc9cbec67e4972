"""What all tables of a terminal share: their form, and text that any terminal can show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from heapfit.text import DASH, TIMES

NO_FIGURE = "-"
# Between two columns: the padding that the table asks for, and its empty divider.
COLUMN_GAP = 2
TABLE_BOX = box.SIMPLE_HEAD
INDENT = "  "

# A row of a table: its label, and its cells.
Row = tuple[str, Sequence[Text]]


def print_line(console: Console, line: str, style: str = "") -> None:
    """Print `line`, which is already `visible`, wrapped as wide as `console` is, if it wraps."""
    console.print(Text(encodable(line, console), style=style))


def print_problems(console: Console, lines: Sequence[str]) -> None:
    """Print what went wrong, if anything did."""
    if lines:
        console.print()
        print_line(console, "Problems", style="bold")
    for line in lines:
        print_line(console, f"{INDENT}! {line}")


def new_table() -> Table:
    """Return a table without columns, in the form that all have."""
    return Table(box=TABLE_BOX, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)


def fitting(widths: Sequence[int], room: int) -> int:
    """Return how many columns of these widths fit beside each other; at least the first."""
    for count, width in enumerate(widths):
        room -= width + COLUMN_GAP
        if room < 0:
            return max(count, 1)
    return len(widths)


def tables(
    corner: str,
    columns: Sequence[str],
    rows: Sequence[Row],
    totals: Sequence[Row],
    console: Console,
) -> Iterator[Table]:
    """Yield a table with its `totals` below a line, in parts where it is wider than `console`.

    Texts are `visible` already.
    """
    every = [*rows, *totals]
    room = console.width - max(cell_len(text) for text in (corner, *(label for label, _ in every)))
    widths = [
        max(cell_len(text) for text in (name, *(cells[at].plain for _, cells in every)))
        for at, name in enumerate(columns)
    ]
    first = 0
    while first < len(columns):
        end = first + fitting(widths[first:], room)
        made = new_table()
        made.add_column(Text(encodable(corner, console)))
        for name in columns[first:end]:
            made.add_column(Text(encodable(name, console)), justify="right", no_wrap=True)
        for at, (label, cells) in enumerate(every, start=1):
            shown = [Text(encodable(c.plain, console), style=c.style) for c in cells[first:end]]
            label_text = Text(encodable(label, console), no_wrap=True)
            made.add_row(label_text, *shown, end_section=at == len(rows))
        yield made
        first = end


def ascii_only(console: Console) -> bool:
    return not console.encoding.startswith("utf")


def encodable(text: str, console: Console) -> str:
    """Return `text` such that the console's encoding can print it."""
    if not ascii_only(console):
        return text
    readable = text.replace("µ", "u").replace(DASH, "-").replace(TIMES, "x").replace("∞", "inf")
    return readable.encode("ascii", "backslashreplace").decode("ascii")
