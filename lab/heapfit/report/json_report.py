"""The report as `report.json`: for scripts, continuous integration and other tools.

The file is the `Summary` record as it is, with what the analysis found and advises (the records of
`findings.py`, whole), the conclusions in words and the version of this format. Base units
throughout: seconds, bytes, counts. The plan's trials are left out: `study.json` beside it has them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from heapfit.findings import Advice, Analysis
from heapfit.records import Summary
from heapfit.report.conclusions import overall
from heapfit.report.deployment import deployment
from heapfit.report.reading import Reading

FORMAT: Literal["heapfit-report/4"] = "heapfit-report/4"
EARLIER = Literal["heapfit-report/3"]


class Report(Summary):
    """What `report.json` holds."""

    conclusions: list[str]
    advice: Advice | None = None
    deployment: list[str] = Field(
        default=[], description="Command lines for a shell that run what is recommended."
    )
    analyses: list[Analysis] = Field(default=[], description="As papers make them.")
    format: Literal["heapfit-report/4"] | EARLIER = FORMAT


def text(reading: Reading) -> str:
    """Return the report as JSON text."""
    summary = reading.summary
    fields = {name: getattr(summary, name) for name in Summary.model_fields}
    fields["study"] = without_plan(summary).study
    report = Report.model_construct(
        **fields,
        conclusions=overall(reading.results),
        advice=reading.advice,
        deployment=deployment(summary.study, reading.advice),
        analyses=reading.analyses,
    )
    return report.model_dump_json(indent=2) + "\n"


def without_plan(summary: Summary) -> Summary:
    """Return the summary of a study as a report holds it."""
    study = summary.study.model_copy(update={"plan": []})
    return summary.model_copy(update={"study": study})


def read(path: Path) -> Report:
    """Return the report in the file at `path`."""
    return Report.model_validate_json(path.read_bytes())
