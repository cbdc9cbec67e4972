"""The report as `report.json`: for scripts, continuous integration and other tools.

It is the summary as it is, with what the analysis found and advises (the records of `findings.py`,
whole), the conclusions in words and the version of this format. Base units throughout: seconds,
bytes, counts. The plan's trials are left out: `study.json` beside it has them.
"""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from heapfit.findings import Advice, Analysis
from heapfit.records import SeriesSummary, Summary
from heapfit.report import series
from heapfit.report.conclusions import overall
from heapfit.report.reading import Reading, SeriesReading
from heapfit.report.recommendation import deployment


class Report(Summary):
    """What `report.json` holds."""

    conclusions: list[str]
    advice: Advice | None = None
    deployment: list[str] = Field(
        default=[],
        description="Shell commands that run the program under the recommended allocator.",
    )
    analyses: list[Analysis] = Field(default=[], description="As papers make them.")
    format: Literal["heapfit-report/4"] = "heapfit-report/4"


class SeriesReport(SeriesSummary):
    """What the `report.json` of a study of many parts holds."""

    conclusions: list[str]
    advice: dict[str, Advice | None] = Field(default={}, description="By experiment.")
    format: Literal["heapfit-series/2"] = "heapfit-series/2"


def text(reading: Reading) -> str:
    """Return the report as JSON text."""
    summary = reading.summary
    fields = {name: getattr(summary, name) for name in Summary.model_fields}
    fields["study"] = _without_plan(summary).study
    report = Report.model_construct(
        **fields,
        conclusions=overall(reading.results),
        advice=reading.advice,
        deployment=deployment(summary.study, reading.advice),
        analyses=reading.analyses,
    )
    return report.model_dump_json(indent=2) + "\n"


def series_text(reading: SeriesReading) -> str:
    """Return the report of a study of many parts."""
    summary = reading.summary
    fields: dict[str, Any] = {name: getattr(summary, name) for name in SeriesSummary.model_fields}
    for kind in ("workloads", "probes", "experiments"):
        fields[kind] = {name: _without_plan(each) for name, each in fields[kind].items()}
    report = SeriesReport.model_construct(
        **fields,
        conclusions=series.conclusions(summary),
        advice=reading.advice,
    )
    return report.model_dump_json(indent=1) + "\n"


def _without_plan(summary: Summary) -> Summary:
    study = summary.study.model_copy(update={"plan": []})
    return summary.model_copy(update={"study": study})


def read(path: Path) -> Report:
    """Return the report in the file at `path`."""
    return Report.model_validate_json(path.read_bytes())
