"""What all tables of a terminal share: their form, and text that any terminal can show."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.text import Text

from heapfit.report.units import DASH, TIMES

NO_FIGURE = "-"
# Between two columns: the padding that the table asks for, and its empty divider.
COLUMN_GAP = 2
TABLE_BOX = box.SIMPLE_HEAD
INDENT = "  "


def print_line(console: Console, line: str, style: str = "") -> None:
    """Print `line`, which is already `visible`, wrapped as wide as `console` is."""
    console.print(Text(encodable(line, console), style=style), soft_wrap=False)


def ascii_only(console: Console) -> bool:
    return not console.encoding.startswith("utf")


def encodable(text: str, console: Console) -> str:
    """Return `text` such that the console's encoding can print it."""
    if not ascii_only(console):
        return text
    readable = text.replace("µ", "u").replace(DASH, "-").replace(TIMES, "x").replace("∞", "inf")
    return readable.encode("ascii", "backslashreplace").decode("ascii")
