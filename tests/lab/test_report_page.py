"""The page in a real browser: every figure drawn, nothing on the console, nothing from the network.

Needs Debian's `chromium`; without it these tests fail and say what to install.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from browser import Browser, BrowserError, Page
from heapfit.records import Study, Trial, TrialStatus
from heapfit.report import figures, html_report
from heapfit.statistics import read, summarise
from report_data import METRICS, RATE, Faults, make_study, make_trials

pytestmark = pytest.mark.full

DRAWN = "document.documentElement.dataset.figures"
DESKTOP, PHONE = 1280, 390

# What a hostile user would call things: each would show if any layer forgot to escape.
HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "{{ 7 * 7 }}",
    "<a href='javascript:alert(3)'>click</a>",
    "\"' onmouseover=alert(4) x='",
    "<!--<script>",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as running:
        yield running


def written(folder: Path, study: Study, trials: list[Trial]) -> Path:
    path = folder / "report.html"
    readings = read(study, trials)
    html_report.write(summarise(readings), readings, path)
    return path


def drawn(browser: Browser, path: Path, width: int = DESKTOP) -> Page:
    """Open the page and wait for its figures; they must have been drawn without a complaint."""
    page = browser.open(path, width)
    page.wait_until(f"{DRAWN} !== undefined")
    assert page.errors == []
    assert page.evaluate(DRAWN) == "drawn"
    assert page.requests == [path.resolve().as_uri()]
    return page


def marks(page: Page) -> dict[str, int]:
    """How many marks each figure shows, by the id of its element."""
    found: dict[str, int] = json.loads(
        page.evaluate(
            "JSON.stringify(Object.fromEntries([...document.querySelectorAll('.plot')].map(plot =>"
            " [plot.id, plot.querySelectorAll('.scatterlayer .point').length])))"
        )
    )
    return found


def test_every_figure_is_drawn_with_all_its_marks(browser: Browser, tmp_path: Path) -> None:
    study = make_study(replicates=7)
    page = drawn(browser, written(tmp_path, study, make_trials(study)))
    counts = marks(page)
    varying = len(METRICS) - 1  # major faults are always zero here, and said to be
    assert len(counts) == 2 * varying + 2 + 1  # strips; primary and memory by cores; drift
    strip = 5 * 7 + 5  # a mark per trial, a median per allocator
    assert counts["figure-1"] == 5 * 2  # each allocator's wall time at each number of cores
    assert counts["figure-3"] == strip
    assert list(counts.values()).count(strip) == 2 * varying
    assert list(counts.values())[-1] == 5 * 2 * 7  # drift: every trial that counts
    assert all(count > 0 for count in counts.values())
    assert page.evaluate("document.querySelectorAll('.errorbar, .xerror').length") > 0


def test_text_and_tables_are_there_without_scripts(tmp_path: Path) -> None:
    study = make_study()
    text = written(tmp_path, study, make_trials(study)).read_text()
    body = re.sub(r"<(script|style).*?</\1>", "", text, flags=re.DOTALL)
    assert "heapfit leads; mimalloc cannot be told apart from it" in body
    for fact in (study.machine.cpu, study.machine.kernel, study.reproduce, "libjemalloc.so.2"):
        assert fact in body
    sums = [allocator.sha256 for allocator in study.allocators if allocator.sha256]
    assert len(sums) == 4
    assert all(digest in body for digest in sums)


def test_the_page_names_no_other_place(tmp_path: Path) -> None:
    """Nothing that a browser would load: the policy forbids it, and nothing asks for it."""

    class Links(HTMLParser):
        found: list[str] = []  # noqa: RUF012  one parser, one test

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.found += [value or "" for key, value in attrs if key in ("src", "href", "srcset")]

    study = make_study()
    parser = Links()
    parser.feed(written(tmp_path, study, make_trials(study)).read_text())
    assert parser.found
    assert all(link.startswith("#") or link == "data:," for link in parser.found)


@pytest.mark.full
def test_hostile_names_are_shown_and_never_run(browser: Browser, tmp_path: Path) -> None:
    study = make_study(
        allocators=HOSTILE, replicates=3, title=HOSTILE[0], command=["sh", "-c", *HOSTILE]
    )
    study = study.model_copy(update={"reproduce": HOSTILE[1]})
    reason = "".join(HOSTILE)
    faults = Faults(status={HOSTILE[1]: (2, TrialStatus.FAILED, reason)})
    trials = [
        trial.model_copy(update={"stderr_tail": reason}) for trial in make_trials(study, faults)
    ]
    page = drawn(browser, written(tmp_path, study, trials))
    assert page.evaluate("document.querySelectorAll('main img, main script').length") == 0
    assert page.evaluate("document.querySelectorAll('[onerror], [onmouseover]').length") == 0
    assert page.evaluate("document.querySelectorAll('a[href*=javascript], svg a').length") == 0
    assert page.evaluate("document.scripts.length") == 4  # data, library, page, unpacked library
    shown = page.evaluate("document.body.innerText")
    assert all(name in shown for name in HOSTILE)


@pytest.mark.full
def test_figures_hide_control_characters_and_cut_long_names(
    browser: Browser, tmp_path: Path
) -> None:
    study = make_study(allocators=["glibc", "n" * 300, "a\x1b[31m\u202eb"], replicates=2)
    page = drawn(browser, written(tmp_path, study, make_trials(study)), PHONE)
    assert not {"\u202e", "\x1b"} & set(page.evaluate("document.body.textContent"))
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE


@pytest.mark.parametrize("width", [PHONE, 768, DESKTOP])
@pytest.mark.full
def test_nothing_is_wider_than_the_window(browser: Browser, tmp_path: Path, width: int) -> None:
    study = make_study(replicates=6)
    page = drawn(browser, written(tmp_path, study, make_trials(study)), width)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    spilled = (
        "[...document.querySelectorAll('.plot')].filter(plot =>"
        " plot.querySelector('.main-svg').getBoundingClientRect().right > innerWidth).length"
    )
    assert page.evaluate(spilled) == 0


@pytest.mark.full
def test_figures_follow_the_colour_scheme(browser: Browser, tmp_path: Path) -> None:
    study = make_study(cores=[1], replicates=2)
    page = drawn(browser, written(tmp_path, study, make_trials(study)))
    ink = "getComputedStyle(document.querySelector('.xtick text')).fill"
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(f"[{ink}, {paper}]")
    page.look(DESKTOP, dark=True)
    dark = page.evaluate(f"[{ink}, {paper}]")
    assert light[0] != dark[0]
    assert light[1] != dark[1]


@pytest.mark.full
def test_printing_fits_the_figures_to_the_paper_and_back(browser: Browser, tmp_path: Path) -> None:
    study = make_study(cores=[1], replicates=2)
    page = drawn(browser, written(tmp_path, study, make_trials(study)))
    page.evaluate(
        "window.widths = () =>"
        " [...document.querySelectorAll('.plot .main-svg')].map(svg => svg.getAttribute('width'))"
    )
    before = page.evaluate("widths()")
    page.evaluate("addEventListener('beforeprint', () => { window.printed = widths(); })")
    page.print_to(tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
    assert set(page.evaluate("printed")) == {"680"}
    page.wait_until(f"widths().join() === {','.join(before)!r}")
    assert page.errors == []


@pytest.mark.full
def test_tables_are_sorted_from_the_keyboard(browser: Browser, tmp_path: Path) -> None:
    study = make_study(cores=[1], replicates=7)
    page = drawn(browser, written(tmp_path, study, make_trials(study)))
    of_peak_memory = "find(sort => sort.innerText.startsWith('Peak'))"
    page.evaluate(
        f"[...document.querySelectorAll('table.overview .sort')].{of_peak_memory}.focus()"
    )
    names = "[...document.querySelectorAll('table.overview tbody th')].map(th => th.dataset.value)"
    page.press("Enter")
    least_first = page.evaluate(names)
    assert least_first == ["jemalloc", "heapfit", "glibc", "mimalloc", "tcmalloc"]
    page.press("Enter")
    assert page.evaluate(names) == least_first[::-1]
    page.press("Tab")
    assert page.evaluate("document.activeElement.innerText").startswith("User")


@pytest.mark.full
def test_a_browser_that_cannot_draw_says_so_in_the_page(browser: Browser, tmp_path: Path) -> None:
    study = make_study(cores=[1], replicates=2)
    path = written(tmp_path, study, make_trials(study))
    broken = re.sub(r'(id="plotly">)[^<]+', r"\1bm90IGd6aXA=", path.read_text())
    path.write_text(broken)
    page = browser.open(path)
    page.wait_until(f"{DRAWN} === 'failed'")
    assert "cannot be drawn here" in page.evaluate("document.querySelector('.plot').innerText")
    assert page.errors  # and the helper sees what the console says


def test_the_helper_notices_scripts_and_requests_that_should_not_be(
    browser: Browser, tmp_path: Path
) -> None:
    """The checks above are worth something only if they can fail."""
    path = tmp_path / "bad.html"
    path.write_text("<script>console.error('seen'); missing()</script><img src='nowhere.png'>")
    page = browser.open(path)
    page.wait_until("document.images[0].complete")
    assert any("seen" in error for error in page.errors)
    assert any("missing is not defined" in error for error in page.errors)
    assert any(url.endswith("nowhere.png") for url in page.requests)


def test_a_machine_without_the_browser_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(BrowserError, match="apt-get install chromium"):
        Browser()


@pytest.mark.full
def test_one_allocator_one_replicate_and_another_primary_metric(
    browser: Browser, tmp_path: Path
) -> None:
    study = make_study(
        allocators=["glibc"], cores=[4], replicates=1, metrics=[*METRICS, RATE], primary=RATE.name
    )
    page = drawn(browser, written(tmp_path, study, make_trials(study)))
    assert page.evaluate("document.querySelector('.metric h3').innerText").startswith("Requests")
    assert "Only glibc has a figure" in page.evaluate("document.body.innerText")


@pytest.mark.full
def test_failures_only_give_a_page_with_the_reasons(browser: Browser, tmp_path: Path) -> None:
    study = make_study(cores=[1])
    failed = {a.name: (-9, TrialStatus.FAILED, "cannot start xalan") for a in study.allocators}
    page = drawn(browser, written(tmp_path, study, make_trials(study, Faults(status=failed))))
    assert marks(page) == {}
    shown = page.evaluate("document.body.innerText")
    assert "No trial that counts has succeeded" in shown
    assert "glibc, 1 core: 15 of 15 trials failed: cannot start xalan" in shown


@pytest.mark.full
def test_a_metric_missing_on_some_trials_has_fewer_marks(browser: Browser, tmp_path: Path) -> None:
    study = make_study(allocators=["glibc", "heapfit"], cores=[1], replicates=10, warmups=0)
    trials = make_trials(study, Faults(without={"heapfit": (7, "wall_s")}))
    page = drawn(browser, written(tmp_path, study, trials))
    assert marks(page)["figure-1"] == 10 + 7 + 2
    assert "Wall time is missing from 3 of 10" in page.evaluate("document.body.innerText")


@pytest.mark.full
def test_a_study_without_a_trial_yet_has_a_page(browser: Browser, tmp_path: Path) -> None:
    page = drawn(browser, written(tmp_path, make_study(), []))
    assert "0 of 160 trials are done" in page.evaluate("document.body.innerText")


@pytest.mark.full
def test_many_trials_are_thinned_in_figures_and_the_page_says_so(
    browser: Browser, tmp_path: Path
) -> None:
    most = figures.MOST_POINTS
    study = make_study(allocators=["glibc", "heapfit"], cores=[1], replicates=most + 50, warmups=0)
    page = drawn(browser, written(tmp_path, study, make_trials(study)))
    assert marks(page)["figure-1"] == 2 * most + 2
    assert f"{most} of up to {most + 50} trials are drawn" in page.evaluate(
        "document.body.innerText"
    )
