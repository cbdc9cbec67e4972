"""Show a study's answer: the tables, or JSON, and where the page is."""

from __future__ import annotations

from pathlib import Path

from heapfit.cli.output import messages, results
from heapfit.study import load


def show(folder: Path, *, as_json: bool) -> Path:
    """Print the answer of the study in `folder`, write its page and return the page's path."""
    # SciPy and Plotly take a second to load; a typing mistake is told without waiting for them.
    from heapfit.report import json_report, terminal, write_all
    from heapfit.statistics import summarise

    summary = summarise(*load(folder))
    page = write_all(folder)
    if as_json:
        print(json_report.dumps(summary), end="")
    else:
        terminal.render(summary, results)
        results.print()
    where = messages if as_json else results
    where.print(f"The page: {page}", soft_wrap=True, markup=False)
    return page


def show_series(folder: Path, *, as_json: bool) -> Path:
    """Do the same for the study of many workloads in `folder`."""
    from heapfit.report import series_files, series_terminal, summarise_series, write_series

    summary = summarise_series(folder)
    page = write_series(summary, folder)
    if as_json:
        print(series_files.json_text(summary), end="")
    else:
        series_terminal.render(summary, results)
        results.print()
    where = messages if as_json else results
    where.print(f"The page: {page}", soft_wrap=True, markup=False)
    return page
