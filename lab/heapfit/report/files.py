"""Write a report's file whole or not at all: an older one stays until the new is complete."""

from __future__ import annotations

import os
from pathlib import Path

from heapfit.errors import HeapfitError

PAGE_FILE = "report.html"
MARKDOWN_FILE = "report.md"
JSON_FILE = "report.json"


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path`. Raises `HeapfitError` with what to do where it cannot be written."""
    unfinished = path.with_name(f"{path.name}.tmp")
    try:
        unfinished.write_text(text, encoding="utf-8")
        os.replace(unfinished, path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        reason = (error.strerror or str(error)).lower()
        raise HeapfitError(
            f"cannot write {path}: {reason}; the trials are safe, so make room or mend the folder "
            f"and run: heapfit report {path.parent}"
        ) from error
