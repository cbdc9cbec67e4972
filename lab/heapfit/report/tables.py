"""A table of a report, laid out once for the terminal, the page and Markdown; and how Markdown in
GitHub's dialect is written, from text that may come from anywhere."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from heapfit.text import visible

# Characters that mean something within a line, and those that do at its start.
_MARKUP = re.compile(r"([\\`*_\[\]<>|~&$#]|^[-+])")


@dataclass(frozen=True)
class Cell:
    """What a cell shows; an empty text where there is no figure."""

    text: str = ""
    is_best: bool = False  # it stands out: bold, and with letters marked by a star
    letters: str = ""  # cells of a column that share a letter are not shown to differ
    # Only a page has room for these.
    interval: str = ""
    p: str = ""


@dataclass(frozen=True)
class Row:
    """One row. `workload` names the study that it comes from, to link to its page."""

    label: str
    cells: list[Cell]
    workload: str | None = None


@dataclass(frozen=True)
class Table:
    """Rows under the names of columns, and the rows that sum them up. `corner` heads the labels;
    `subject` is the allocator that the table is about."""

    title: str
    corner: str
    columns: list[str]
    rows: list[Row]
    totals: list[Row] = field(default_factory=list)
    subject: str | None = None


def escape(text: str) -> str:
    """Return `text` as Markdown that shows it literally.

    >>> escape("a|b<c>")
    'a\\\\|b\\\\<c\\\\>'
    """
    return _MARKUP.sub(r"\\\1", visible(text))


def code(text: str) -> str:
    """Return `text` as a code block, fenced longer than any fence within it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}sh\n{visible(text)}\n{fence}"


def bullets(lines: list[str]) -> str:
    """Return `lines` as a list."""
    return "\n".join(f"- {escape(line)}" for line in lines)


def markdown(table: Table) -> str:
    """Return a table as Markdown, without its title."""
    rows = [
        [escape(row.label), *map(_cell_markdown, row.cells)] for row in [*table.rows, *table.totals]
    ]
    return markdown_table([escape(text) for text in (table.corner, *table.columns)], rows)


def _cell_markdown(cell: Cell) -> str:
    figure = f"**{escape(cell.text)}**" if cell.is_best else escape(cell.text)
    return f"{figure} {cell.letters}".rstrip()


def markdown_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, are_words: bool = False
) -> str:
    """Return a table of cells that are Markdown already; all but the first column to the right,
    unless all of them `are_words`."""
    lines = [head, ["---", *("---" if are_words else "---:" for _ in head[1:])], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
