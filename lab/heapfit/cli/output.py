"""Where commands print: results on standard output, everything else on standard error."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel
from rich.console import Console
from rich.table import Table

results = Console(highlight=False)
messages = Console(stderr=True, highlight=False)


def say(line: str) -> None:
    """Tell the person what goes on; never part of a command's result."""
    messages.print(line, style="dim", markup=False)


def warn(line: str) -> None:
    """Tell the person what they should know before they trust a result."""
    messages.print(line, style="yellow", markup=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """Print records, or plain data that holds records, as JSON."""
    print(json.dumps(value, default=_plain, indent=2, ensure_ascii=False))


def table(*columns: str) -> Table:
    """Return an empty table in the style that all commands share."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column, overflow="fold")
    return made


def _plain(value: Any) -> Any:
    return json.loads(value.model_dump_json()) if isinstance(value, BaseModel) else str(value)
