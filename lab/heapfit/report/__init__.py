"""Show what a study found: in the terminal, as a page, as Markdown and as JSON.

`results.py` indexes a summary, `conclusions.py`, `problems.py` and `drift.py` put into words what
it means, `units.py` scales its numbers; the writers (`terminal.py`, `html_report.py`,
`markdown_report.py`, `json_report.py`) only lay that out, so all of them say the same. For a study
of many workloads the same parts are the modules `series_*.py`.
"""

from __future__ import annotations

from pathlib import Path

from heapfit.records import SeriesSummary
from heapfit.report import (
    html_report,
    json_report,
    markdown_report,
    series_files,
    series_page,
    series_terminal,
    terminal,
)
from heapfit.report.files import JSON_FILE, MARKDOWN_FILE, PAGE_FILE, write_text
from heapfit.report.series_summary import summarise_series
from heapfit.statistics import summarise
from heapfit.study import load

__all__ = [
    "html_report",
    "json_report",
    "markdown_report",
    "series_files",
    "series_terminal",
    "summarise_series",
    "terminal",
    "write_all",
    "write_series",
]


def write_all(folder: Path) -> Path:
    """Make every report of the study in `folder`, finished or not, and return the page's path.

    Reads `study.json` and `trials.jsonl`, which stay as they are. Raises `UsageError` if the folder
    holds no study, `HeapfitError` if it cannot be written to.
    """
    study, trials = load(folder)
    summary = summarise(study, trials)
    json_report.write(summary, folder / JSON_FILE)
    markdown_report.write(summary, folder / MARKDOWN_FILE)
    page = folder / PAGE_FILE
    html_report.write(summary, trials, page)
    return page


def write_series(summary: SeriesSummary, folder: Path) -> Path:
    """Make every report of the series in `folder` and of each of its parts; return the page's
    path.

    Raises `HeapfitError` if the folder cannot be written to.
    """
    for name in [*summary.workloads, *summary.probes, *summary.experiments]:
        write_all(folder / name)
    write_text(folder / JSON_FILE, series_files.json_text(summary))
    write_text(folder / MARKDOWN_FILE, series_files.markdown_text(summary))
    page = folder / PAGE_FILE
    write_text(page, series_page.page(summary))
    return page
