"""Write a report's file whole or not at all: an older one stays until the new is complete."""

from __future__ import annotations

import os
from pathlib import Path

from heapfit.errors import HeapfitError

PAGE_FILE = "report.html"
MARKDOWN_FILE = "report.md"
JSON_FILE = "report.json"


def write_text(path: Path, text: str, remedy: str | None = None) -> None:
    """Write `text` to `path`. Raises `HeapfitError` where it cannot be written, with the `remedy`:
    that of a study's reports, unless given."""
    unfinished = path.with_name(f"{path.name}.tmp")
    try:
        unfinished.write_text(text, encoding="utf-8")
        os.replace(unfinished, path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        reason = (error.strerror or str(error)).lower()
        remedy = remedy or (
            "the trials are safe, so make room or mend the folder "
            f"and run: heapfit report {path.parent}"
        )
        raise HeapfitError(f"cannot write {path}: {reason}; {remedy}") from error
