"""The summary as `report.json`: for scripts, continuous integration and other tools.

The file is the `Summary` record as it is, with the conclusions in words and the version of this
format. Base units throughout: seconds, bytes, counts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from heapfit.records import Summary
from heapfit.report.conclusions import overall
from heapfit.report.files import write_text
from heapfit.report.results import Results

FORMAT: Literal["heapfit-report/1"] = "heapfit-report/1"


class Report(Summary):
    """What `report.json` holds."""

    conclusions: list[str]
    format: Literal["heapfit-report/1"] = FORMAT


def dumps(summary: Summary) -> str:
    """Return the report as JSON text."""
    fields = {name: getattr(summary, name) for name in Summary.model_fields}
    report = Report(**fields, conclusions=overall(Results(summary)))
    return report.model_dump_json(indent=2) + "\n"


def write(summary: Summary, path: Path) -> None:
    """Write the report to `path`."""
    write_text(path, dumps(summary))


def read(path: Path) -> Summary:
    """Return the summary that `write` put into `path`."""
    report = Report.model_validate_json(path.read_bytes())
    return Summary(**{name: getattr(report, name) for name in Summary.model_fields})
