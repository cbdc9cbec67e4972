"""Write a report's file whole or not at all: an older one stays until the new is complete."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from heapfit.errors import HeapfitError

PAGE_FILE = "report.html"
MARKDOWN_FILE = "report.md"
JSON_FILE = "report.json"


def write_text(path: Path, text: str, remedy: str | None = None) -> None:
    """Write `text` to `path`. Raises `HeapfitError` where it cannot be written, with the `remedy`:
    that of a study's reports, unless given."""
    write_bytes(path, text.encode(), remedy)


def write_bytes(path: Path, content: bytes, remedy: str | None = None) -> None:
    """Do the same with `content`. A link, a pipe or a device is written to, not replaced."""
    in_place = path.is_symlink() or (path.exists() and not path.is_file())
    unfinished = path.with_name(f"{path.name}.tmp")
    try:
        if in_place:
            path.write_bytes(content)
        else:
            unfinished.write_bytes(content)
            os.replace(unfinished, path)
    except OSError as error:
        with contextlib.suppress(OSError):  # What is in the way of one is in that of the other.
            if not in_place:
                unfinished.unlink()
        reason = (error.strerror or str(error)).lower()
        remedy = remedy or (
            "the trials are safe, so make room or mend the folder "
            f"and run: heapfit report {path.parent}"
        )
        raise HeapfitError(f"cannot write {path}: {reason}; {remedy}") from error
