"""The report of a designed study: what was found is on the page, in the terminal and in the files.

The findings are those of the real statistics and the real advice on made trials.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
from browser import Browser, Page
from design_data import study_of, trial_of
from heapfit.records import Factor, PublishedTable
from heapfit.report import html_report, markdown_report, terminal
from heapfit.report.conclusions import conclude
from heapfit.report.differences import ratios_to
from heapfit.report.findings_words import headline, one_line
from heapfit.report.letters import grids
from heapfit.report.pareto import pareto
from heapfit.report.reading import Findings, find
from heapfit.report.results import Results
from heapfit.report.settings import setting_label, settings_of
from heapfit.statistics import Readings, read, summarise
from heapfit.text import PAGE_DIGITS, TERMINAL_DIGITS, TIMES
from report_data import METRICS, make_study, make_trials
from rich.cells import cell_len
from rich.console import Console

pytestmark = pytest.mark.full

DRAWN = "document.documentElement.dataset.figures"
HOSTILE = "</script><img src=x onerror=alert(1)>%{x}"
WALL = METRICS[0]
THREADS = Factor(name="threads", levels=["1", "4", "16"])
# Of a hundred thousand trials: Plotly's library is a fifth of it.
MOST_PAGE_BYTES = 12_000_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as running:
        yield running


def designed(replicates: int = 4) -> tuple[Readings, Findings]:
    """A study over cores and threads with what is found in it."""
    study = make_study(replicates=replicates, factors=[THREADS])
    readings = read(study, make_trials(study))
    return readings, find(readings)


def opened(browser: Browser, folder: Path, readings: Readings) -> Page:
    path = folder / "report.html"
    html_report.write(summarise(readings), readings, path, find(readings))
    page = browser.open(path)
    page.wait_until(f"{DRAWN} !== undefined")
    assert page.errors == []
    assert page.evaluate(DRAWN) == "drawn"
    assert page.requests == [path.resolve().as_uri()]
    return page


def figures_in(text: str) -> dict[str, dict[str, object]]:
    """The page's figures as it holds them."""
    found = re.search(r'id="figures">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    figures: dict[str, dict[str, object]] = json.loads(found.group(1))
    return figures


def test_settings_are_named_by_cores_and_levels_in_the_order_of_the_study() -> None:
    study = make_study(cores=[2, 1], factors=[THREADS, Factor(name="env.MODE", levels=["", "x"])])
    labels = [setting_label(setting) for setting in settings_of(study)]
    assert labels[:2] == ["1 core, threads 1, MODE unset", "1 core, threads 1, MODE x"]
    assert len(labels) == len(set(labels)) == 2 * 3 * 2


def test_the_recommendation_and_its_reasons_open_the_page(browser: Browser, tmp_path: Path) -> None:
    readings, findings = designed()
    page = opened(browser, tmp_path, readings)
    assert findings.advice is not None
    said = page.evaluate("document.querySelector('.answer').innerText")
    assert said.startswith(headline(findings.advice))
    assert findings.advice.reasons in said
    ranking = page.evaluate(
        "[...document.querySelectorAll('#recommendation ~ .panel tbody th')].map(e => e.innerText)"
    )
    assert ranking == [standing.allocator for standing in findings.advice.standings]


def test_folded_figures_are_drawn_when_they_are_opened(browser: Browser, tmp_path: Path) -> None:
    readings, _ = designed()
    page = opened(browser, tmp_path, readings)
    undrawn = "document.querySelectorAll('.plot:not(.js-plotly-plot)').length"
    assert page.evaluate(undrawn) > 0
    page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    page.wait_until(f"{undrawn} === 0")
    assert page.errors == []
    spilled = (
        "[...document.querySelectorAll('.plot .main-svg')].filter(svg =>"
        " svg.getBoundingClientRect().right > innerWidth).length"
    )
    assert page.evaluate(spilled) == 0


def test_plotly_knows_every_property_of_every_figure() -> None:
    """Figures are plain data, so nothing has checked them before the browser draws them."""
    readings, findings = designed(replicates=2)
    figures = figures_in(html_report.page(summarise(readings), readings, findings))
    assert len(figures) > 2 * 6  # at least a strip for each of two metrics in each setting
    for figure in figures.values():
        go.Figure(figure)  # raises for a property that does not exist


def test_every_line_of_an_interaction_plot_ends_in_its_name() -> None:
    readings, findings = designed(replicates=2)
    figures = figures_in(html_report.page(summarise(readings), readings, findings))
    interactions = [f for f in figures.values() if "lines+markers" in json.dumps(f)]
    # Of two metrics: over the threads for each number of cores, over the cores for each thread.
    assert len(interactions) == 2 * (2 + 3)
    for figure in interactions:
        said = json.dumps(figure["layout"]["annotations"])  # type: ignore[index]
        assert all(allocator.name in said for allocator in readings.study.allocators)


def test_letters_are_in_the_papers_notation_everywhere() -> None:
    readings, findings = designed()
    summary = summarise(readings)
    analysis = findings.of("wall_s")
    assert analysis is not None
    scale = Results(summary).scale(WALL, PAGE_DIGITS)
    page = html_report.page(summary, readings, findings)
    text = markdown_report.dumps(summary, findings)
    for table in analysis.letters:
        for cell in table.cells:
            letters = f"({cell.upper}{cell.lower})"
            assert re.search(rf">{scale.number(cell.mean)} <[^>]+>{re.escape(letters)}<", page)
            assert re.search(rf"{scale.number(cell.mean)}(\*\*)? {re.escape(letters)} \|", text)


def test_of_builds_the_page_speaks_of_programs_and_of_no_lines_without_plots() -> None:
    study = make_study(allocators=["glibc", "heapfit"], cores=[1], replicates=4)
    glibc, heapfit = study.allocators
    builds = [each.model_copy(update={"program": each.name, "variant_of": glibc})
              for each in (glibc, heapfit)]  # fmt: skip
    study = study.model_copy(update={"allocators": builds})
    readings = read(study, make_trials(study))
    text = html_report.page(summarise(readings), readings, find(readings))
    prose = re.sub(r"<(script|style).*?</\1>|<[^>]+>", "", text, flags=re.DOTALL)
    assert "Program / cores" in prose
    assert "a ratio to the best program" in prose
    assert "two programs that share a letter" in prose
    assert "its name stands at its end" not in prose, "nothing is drawn over one setting"


def test_what_is_next_to_nothing_apart_looks_so_and_no_two_labels_of_an_axis_are_the_same() -> None:
    study = make_study(allocators=["glibc", "heapfit"], cores=[1], replicates=4)
    _, findings = designed()
    assert findings.advice is not None
    costs = {"time": 1.0002, "memory": 1.3}
    standings = [
        findings.advice.standings[0].model_copy(update={"costs": cost, "allocator": name})
        for name, cost in (("glibc", {"time": 1.0, "memory": 1.0}), ("heapfit", costs))
    ]
    figure = pareto(
        findings.advice.model_copy(update={"standings": standings}),
        [each.name for each in study.allocators],
    )
    assert figure is not None
    low, high = figure["layout"]["xaxis"]["range"]
    assert high - low > 0.05, "ticks of a hundredth, which is what labels show"


def test_only_cells_that_are_not_shown_to_be_behind_lead() -> None:
    readings, _ = designed()
    results = Results(summarise(readings))
    shown = grids(results, WALL, results.scale(WALL, 4))[0]
    leaders = [name for name, cells in shown.rows if cells[-1] is not None and cells[-1].leads]
    assert set(leaders) == {"heapfit", "mimalloc"}


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


def test_ratios_are_turned_so_that_all_are_to_the_reference() -> None:
    readings, _ = designed(replicates=8)
    results = Results(summarise(readings))
    table = ratios_to(results, WALL, results.scale(WALL, 4), "heapfit")
    assert table is not None
    assert table.reference == "heapfit"
    assert table.columns[0] == "all settings"
    slower = dict(table.rows)["glibc"]
    assert len(slower) == 7
    assert all(cell is not None and float(cell.ratio[:-1]) > 1 and cell.decided for cell in slower)


def test_a_papers_table_stands_beside_ours_with_its_note(browser: Browser, tmp_path: Path) -> None:
    printed = PublishedTable(
        title="Execution time",
        source="A paper, table 2",
        metric="wall_s",
        columns=["Allocator / Core", "1", "2"],
        rows=[["Hoard", "479.63 (Ac)", "357.53 (Bab)"]],
        note="Another machine.",
    )
    study = make_study(replicates=4).model_copy(update={"published": [printed]})
    page = opened(browser, tmp_path, read(study, make_trials(study)))
    beside = page.evaluate("document.querySelector('.grids').innerText")
    assert "This study" in beside
    assert "479.63 (Ac)" in beside
    assert "A paper, table 2" in beside
    assert "Another machine." in page.evaluate("document.body.innerText")


def test_paper_gets_the_analysis_and_the_screen_its_folds_back(
    browser: Browser, tmp_path: Path
) -> None:
    readings, _ = designed(replicates=2)
    page = opened(browser, tmp_path, readings)
    count = "document.querySelectorAll('details.on-paper[open]').length"
    page.evaluate(f"addEventListener('beforeprint', () => {{ window.printed = {count}; }})")
    page.print_to(tmp_path / "report.pdf")
    assert page.evaluate("window.printed") > 0
    page.wait_until(f"{count} === 0")
    assert page.errors == []


def test_hostile_factors_and_levels_are_shown_and_never_run(
    browser: Browser, tmp_path: Path
) -> None:
    factor = Factor(name=HOSTILE, levels=[HOSTILE, "\u202e2"])
    study = make_study(allocators=["glibc", HOSTILE], factors=[factor], replicates=3)
    readings = read(study, make_trials(study))
    page = opened(browser, tmp_path, readings)
    assert page.evaluate("document.querySelectorAll('main img, main script').length") == 0
    assert "\u202e" not in page.evaluate("document.body.textContent")
    text = markdown_report.dumps(summarise(readings), find(readings))
    outside_code = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    assert "<img" not in outside_code.replace("\\<", "")


@pytest.mark.parametrize("width", [60, 100])
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


def test_no_significant_difference_is_said_when_it_is_the_truth() -> None:
    study = make_study(allocators=["glibc", "same"], cores=[1], replicates=5)
    findings = find(read(study, make_trials(study)))
    assert findings.advice is not None
    assert findings.advice.recommended is None
    assert one_line(findings.advice).startswith("No significant difference. ")


def test_too_few_trials_give_a_page_without_an_analysis(browser: Browser, tmp_path: Path) -> None:
    study = make_study(replicates=1, warmups=0, factors=[THREADS])
    page = opened(browser, tmp_path, read(study, make_trials(study)[:1]))
    assert "Too few trials" in page.evaluate("document.body.innerText")


@pytest.mark.full
def test_a_hundred_thousand_trials_make_a_page_that_is_complete_and_of_bounded_size() -> None:
    names = ["glibc", "heapfit", "jemalloc", "mimalloc", "tcmalloc", *"abcde"]
    levels = [f"{level}" for level in range(1, 26)]
    study = make_study(
        allocators=names,
        cores=(1, 2, 3, 4),
        replicates=100,
        warmups=0,
        factors=[Factor(name="threads", levels=levels)],
    )
    trials = make_trials(study)
    assert len(trials) == 100_000
    readings = read(study, trials)
    text = html_report.page(summarise(readings), readings, find(readings))
    assert len(text.encode()) < MOST_PAGE_BYTES
    for setting in settings_of(study):  # its overview, and a strip of each drawn metric
        assert text.count(f"<summary>{setting_label(setting)}</summary>") == 3
    assert "trials are drawn per row" in text
    figures = figures_in(text)
    points = sum(len(trace["x"]) for f in figures.values() for trace in f["data"])  # type: ignore
    assert points < 60_000
