"""Where commands print: results on standard output, everything else on standard error."""

import json
import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from heapfit.text import COLUMN_GAP


def _console(*, stderr: bool) -> Console:
    """Return a console that breaks lines where a terminal shows them, or COLUMNS asks for it.

    Elsewhere nothing is broken: a command that was cannot be pasted. What is printed is never read
    as markup: names of functions, commands and files have brackets and colons. Styles are those of
    Text.
    """
    made = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    made.soft_wrap = not made.is_terminal and "COLUMNS" not in os.environ
    return made


results = _console(stderr=False)
messages = _console(stderr=True)
_warned: set[str] = set()


def say(line: str) -> None:
    """Tell the person what goes on; never part of a command's result."""
    messages.print(line, style="dim")


def warn(line: str) -> None:
    """Tell the person what they should know before they trust a result, once."""
    if line not in _warned:
        _warned.add(line)
        messages.print(line, style="yellow")


def print_json(value: Any) -> None:
    """Print records, or plain data that holds records, as JSON."""
    print(json_text(value))


def json_text(value: Any) -> str:
    """Return records, or plain data that holds records, as JSON that standard output can hold."""
    return printable_json(json.dumps(value, default=_plain, indent=2, ensure_ascii=False))


def printable_json(text: str) -> str:
    """Return JSON with what standard output cannot hold escaped: unless that is UTF-8, all that is
    not ASCII; else what is no text."""
    is_utf8 = (getattr(sys.stdout, "encoding", None) or "").lower() in ("utf-8", "utf8")
    beyond = r"[\ud800-\udfff]" if is_utf8 else r"[^\0-\x7f]"
    return re.sub(beyond, lambda found: json.dumps(found[0])[1:-1], text)


def say_page(page: Path, *, as_json: bool) -> None:
    """Say where the page is; not on standard output where a program reads that."""
    where = messages if as_json else results
    where.print(f"The page: {page}", soft_wrap=True)


def table(*columns: str, right: Collection[str] = ()) -> Table:
    """Return an empty table in the style that all commands share; numbers stand to the `right`."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column, overflow="fold", justify="right" if column in right else "left")
    return made


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Collection[str] = (),
    least: int | None = None,
) -> None:
    """Print a table. Where its last column has less room than its longest text, or than `least`,
    what stands in it is printed below the rest of its row."""
    *widths, longest = [max(map(cell_len, each)) for each in zip(columns, *rows, strict=True)]
    if results.width - sum(widths) - COLUMN_GAP * len(widths) >= min(longest, least or longest):
        made = table(*columns, right=right)
        for row in rows:
            made.add_row(*row)
        results.print(made)
        return
    form = (" " * COLUMN_GAP).join(
        f"{{:{'>' if column in right else '<'}{width}}}"
        for column, width in zip(columns, widths, strict=False)
    )
    results.print(Text(form.format(*columns), style="bold"))
    for row in rows:
        results.print(form.format(*row))
        results.print(
            Text(f"{' ' * COLUMN_GAP}{row[-1]}")
            if results.soft_wrap
            else Padding(Text(row[-1]), (0, 0, 0, COLUMN_GAP))
        )


def print_facts(facts: Mapping[str, str | None]) -> None:
    """Print what is known of one thing, a line for each fact that there is."""
    rows = table("", "")
    rows.show_header = False
    for fact, value in facts.items():
        if value:
            rows.add_row(Text(fact, style="bold"), value)
    results.print(rows)


def _plain(value: Any) -> Any:
    return json.loads(value.model_dump_json()) if isinstance(value, BaseModel) else str(value)
