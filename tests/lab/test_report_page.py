"""The page of a report asks for nothing elsewhere, and no name in it is taken for a part of it."""

from __future__ import annotations

from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from heapfit.records import Study, Trial, TrialStatus
from heapfit.report import Reading, html_report
from report_data import Faults, make_study, make_trials

pytestmark = pytest.mark.full

# What a hostile user would call things: each would show if any layer forgot to escape.
HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "{{ 7 * 7 }}",
    "<a href='javascript:alert(3)'>click</a>",
    "\"' onmouseover=alert(4) x='",
    "<!--<script>",
]


class Elements(HTMLParser):
    """The elements of a page, by name, with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {key: value or "" for key, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.text += data


def written(folder: Path, study: Study, trials: list[Trial]) -> Path:
    path = folder / "report.html"
    path.write_text(html_report.page(Reading(study, trials)))
    return path


def test_the_page_names_no_other_place(tmp_path: Path) -> None:
    """Nothing that a browser would load: the policy forbids it, and nothing asks for it."""
    study = make_study()
    page = Elements(written(tmp_path, study, make_trials(study)).read_text())
    places = ("src", "href", "srcset")
    links = [own[each] for _, own in page.found for each in places if each in own]
    assert links
    assert all(link.startswith("#") or link == "data:," for link in links)


@pytest.mark.parametrize(("baseline", "is_other"), [("glibc", True), ("heapfit", False)])
def test_an_interval_beside_the_baseline_is_said_to_be_of_another_family(
    baseline: str, is_other: bool
) -> None:
    study = make_study().model_copy(update={"baseline": baseline})
    page = " ".join(Elements(html_report.page(Reading(study, make_trials(study)))).text.split())
    assert "Effect sizes: against heapfit" in page
    assert ("; that of glibc, the baseline, for all comparisons with it" in page) == is_other
    assert page.count(", the baseline, for all comparisons") == 2 * is_other


def test_hostile_names_are_text(tmp_path: Path) -> None:
    study = make_study(
        allocators=HOSTILE, replicates=3, title=HOSTILE[0], command=["sh", "-c", *HOSTILE]
    )
    study = study.model_copy(update={"reproduce": HOSTILE[1]})
    reason = "".join(HOSTILE)
    faults = Faults(status={HOSTILE[1]: (2, TrialStatus.FAILED, reason)})
    trials = [
        trial.model_copy(update={"stderr_tail": reason}) for trial in make_trials(study, faults)
    ]
    page = Elements(written(tmp_path, study, trials).read_text())
    tags = Counter(tag for tag, _ in page.found)
    assert tags["script"] == 3  # data, library, page
    assert not tags["img"]
    assert not [own for _, own in page.found if {"onerror", "onmouseover"} & own.keys()]
    assert not [own for _, own in page.found if "javascript" in own.get("href", "")]
    assert all(name in page.text for name in HOSTILE)
