"""The summary as `report.json`: for scripts, continuous integration and other tools.

The file is the `Summary` record as it is, with two keys in front: the version of this format and
the conclusions in words. Base units throughout: seconds, bytes, counts.
"""

from __future__ import annotations

import json
from pathlib import Path

from heapfit.records import Summary
from heapfit.report.conclusions import overall
from heapfit.report.files import write_text
from heapfit.report.results import Results

FORMAT = "heapfit-report/1"


def dumps(summary: Summary) -> str:
    """Return the report as JSON text."""
    head = {"format": FORMAT, "conclusions": overall(Results(summary))}
    return json.dumps(head | summary.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"


def write(summary: Summary, path: Path) -> None:
    """Write the report to `path`."""
    write_text(path, dumps(summary))


def read(path: Path) -> Summary:
    """Return the summary that `write` put into `path`."""
    fields = json.loads(path.read_text(encoding="utf-8"))
    fields.pop("format")
    fields.pop("conclusions")
    return Summary.model_validate(fields)
