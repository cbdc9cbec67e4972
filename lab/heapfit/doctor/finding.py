"""One thing that the doctor looked at."""

from __future__ import annotations

from pathlib import Path

from heapfit.records import Record


class Finding(Record):
    """What was found of `topic`; `advice` says what to do when it spoils a measurement."""

    topic: str
    state: str
    advice: str = ""

    @property
    def ok(self) -> bool:
        """Tell whether there is nothing to do."""
        return not self.advice


def read(path: str) -> str | None:
    """Return what the kernel says in the file `path`, or None when it does not say it."""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return None


def chosen(text: str) -> str:
    """Return the word in brackets: how the kernel marks the setting in force.

    >>> chosen("always [madvise] never")
    'madvise'
    """
    return text.partition("[")[2].partition("]")[0] or text
