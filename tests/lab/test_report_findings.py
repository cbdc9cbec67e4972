"""The report of a designed study: what was found is on the page, in the terminal and in the files.

The findings are those of the real statistics and the real advice on made trials.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator

import numpy as np
import plotly.graph_objects as go
import pytest
from browser import Browser
from design_data import study_of, trial_of
from heapfit.records import Factor
from heapfit.report import html_report, terminal
from heapfit.report.conclusions import conclude
from heapfit.report.findings_words import headline
from heapfit.report.letters import grids
from heapfit.report.reading import Findings, find
from heapfit.report.results import Results
from heapfit.statistics import Readings, read, summarise
from heapfit.text import TERMINAL_DIGITS, TIMES
from report_data import METRICS, make_study, make_trials
from rich.cells import cell_len
from rich.console import Console

pytestmark = pytest.mark.full

WALL = METRICS[0]
THREADS = Factor(name="threads", levels=["1", "4", "16"])


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as running:
        yield running


def designed(replicates: int = 4) -> tuple[Readings, Findings]:
    """A study over cores and threads with what is found in it."""
    study = make_study(replicates=replicates, factors=[THREADS])
    readings = read(study, make_trials(study))
    return readings, find(readings)


def figures_in(text: str) -> dict[str, dict[str, object]]:
    """The page's figures as it holds them."""
    found = re.search(r'id="figures">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    figures: dict[str, dict[str, object]] = json.loads(found.group(1))
    return figures


def test_plotly_knows_every_property_of_every_figure() -> None:
    """Figures are plain data, so nothing has checked them before the browser draws them."""
    readings, findings = designed(replicates=2)
    figures = figures_in(html_report.page(summarise(readings), readings, findings))
    assert len(figures) > 2 * 6  # at least a strip for each of two metrics in each setting
    for figure in figures.values():
        go.Figure(figure)  # raises for a property that does not exist


def test_who_is_shown_to_be_worse_than_another_does_not_lead_beside_one_that_scatters() -> None:
    """The best mean scatters so that nothing differs from it: all were marked as unsurpassed."""
    study = study_of(["glibc", "noisy", "good", "bad"], {}, (WALL,))
    generator = np.random.default_rng(3)
    truth = {"glibc": (2.4, 0.01), "noisy": (1.7, 0.2), "good": (2.0, 0.003), "bad": (2.1, 0.003)}
    trials = [
        trial_of(study, (name,), {"wall_s": float(mean * np.exp(generator.normal(0, cv)))}, block)
        for block in range(10)
        for name, (mean, cv) in truth.items()
    ]
    results = Results(summarise(read(study, trials)))
    assert "noisy has the best mean; none of the others" in conclude(results, (1, ()), WALL)
    [shown] = grids(results, WALL, results.scale(WALL, 4))
    leaders = [name for name, [cell] in shown.rows if cell is not None and cell.leads]
    assert leaders == ["noisy", "good"]


@pytest.mark.parametrize("width", [60])
def test_the_terminal_has_the_recommendation_and_every_letter_at_any_width(width: int) -> None:
    readings, findings = designed()
    console = Console(file=io.StringIO(), width=width)
    terminal.render(summarise(readings), console, findings)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert max(cell_len(line) for line in text.splitlines()) <= width
    assert findings.advice is not None
    assert text.strip().startswith(headline(findings.advice))
    results = Results(summarise(readings))
    for table in grids(results, WALL, results.scale(WALL, TERMINAL_DIGITS)):
        for _, cells in table.rows:
            assert all(cell and f"{cell.letters}" in text for cell in cells)
    assert "As papers do it, by an analysis of variance" in text
    assert f"allocator {TIMES} threads: F(" in text
