"""Markdown in GitHub's dialect, from text that may come from anywhere."""

from __future__ import annotations

import re
from collections.abc import Sequence

from heapfit.text import visible

# Characters that mean something within a line, and those that do at its start.
_MARKUP = re.compile(r"([\\`*_\[\]<>|~&$#]|^[-+])")


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


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, are_words: bool = False) -> str:
    """Return a table of cells that are Markdown already; all but the first column to the right,
    unless all of them `are_words`."""
    lines = [head, ["---", *("---" if are_words else "---:" for _ in head[1:])], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
