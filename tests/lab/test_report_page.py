"""The page in a real browser: every figure drawn, nothing on the console, nothing from the network.

Needs Debian's `chromium`; without it these tests fail and say what to install.
"""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from browser import Browser, Page
from heapfit.records import Study, Trial, TrialStatus
from heapfit.report import html_report
from heapfit.statistics import read, summarise
from report_data import Faults, make_study, make_trials

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
