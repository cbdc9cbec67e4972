"""Show what a study found: in the terminal, as a page, as Markdown and as JSON.

`reading.py` loads a study and has it summed up and analysed. `results.py` indexes the summary.
`conclusions.py`, `recommendation.py`, `papers.py` and `problems.py` put into words what it means,
`comparisons.py` lays out who differs from whom, and `series.py` has all of that for a study of many
parts. The writers (`terminal.py`, `html_report.py`, `markdown_report.py`, `json_report.py`) only
lay it out, so all of them say the same.
"""

from pathlib import Path

from heapfit.files import write_text
from heapfit.report import html_report, json_report, markdown_report, terminal
from heapfit.report.page import JSON_FILE, MARKDOWN_FILE, PAGE_FILE
from heapfit.report.reading import Reading, SeriesReading, read


def write_reading(reading: Reading, folder: Path) -> Path:
    """Make every report of a study, finished or not, and return the page's path.

    Raises `HeapfitError` if the folder cannot be written to.
    """
    write_text(folder / JSON_FILE, json_report.text(reading))
    write_text(folder / MARKDOWN_FILE, markdown_report.text(reading))
    page = folder / PAGE_FILE
    write_text(page, html_report.page(reading))
    return page


def write_series(reading: SeriesReading, folder: Path) -> Path:
    """Make every report of the series in `folder` and of each of its parts; return the page's
    path.

    Raises `HeapfitError` if the folder cannot be written to.
    """
    for name, part in reading.parts.items():
        write_reading(part, folder / name)
    write_text(folder / JSON_FILE, json_report.series_text(reading))
    write_text(folder / MARKDOWN_FILE, markdown_report.series_text(reading))
    page = folder / PAGE_FILE
    write_text(page, html_report.series_page(reading))
    return page
