"""Show what a study found: in the terminal, as a page, as Markdown and as JSON.

`results.py` indexes a summary, `conclusions.py`, `problems.py` and `drift.py` put into words what
it means, `units.py` scales its numbers; the writers (`terminal.py`, `html_report.py`,
`markdown_report.py`, `json_report.py`) only lay that out, so all of them say the same.
"""

from __future__ import annotations

from pathlib import Path

from heapfit.report import html_report, json_report, markdown_report, terminal
from heapfit.statistics import summarise
from heapfit.study import load

__all__ = ["html_report", "json_report", "markdown_report", "terminal", "write_all"]

PAGE_FILE = "report.html"
MARKDOWN_FILE = "report.md"
JSON_FILE = "report.json"


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
