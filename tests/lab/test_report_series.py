"""The report of a study of many workloads: true numbers, whatever names, a page that draws."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

import heapfit
import pytest
import report_data
from conftest import Heapfit
from heapfit.records import FigureDefinition, Identity, Series, Session, StudyDefinition
from heapfit.report import SeriesReading, write_series
from heapfit.report.series import conclusions, troubles
from heapfit.study import looks, note_look
from heapfit.study.series import save_series
from report_data import make_study, make_trials

pytestmark = pytest.mark.full

HOSTILE = "</script><img src=x onerror=alert(1)>|`"


def keep(folder: Path, title: str = "A study") -> Path:
    """Put a series of two workloads and a probe on disk, as `heapfit study run` does."""
    names = ["first", "second", "probe"]
    studies = [
        make_study(cores=[1], replicates=6, title=title).model_copy(update={"name": name})
        for name in names
    ]
    figure = FigureDefinition(
        name="time",
        title=f"{title}: time",
        metric="wall_s",
        reference="best-peer",
        combine="geometric-mean",
        goal=1.05,
        worst_goal=1.25,
    )
    definition = StudyDefinition(
        name="series",
        title=title,
        question="Which?",
        workloads=names[:2],
        probes=names[2:],
        allocators=[allocator.name for allocator in studies[0].allocators],
        baseline="glibc",
        subject="heapfit",
        replicates=6,
        metrics=["wall_s", "peak_rss_bytes"],
        figures=[figure],
    )
    series = Series(
        heapfit_version=heapfit.__version__,
        created=studies[0].created,
        definition=definition,
        workloads=names[:2],
        probes=names[2:],
        allocators=studies[0].allocators,
        machine=studies[0].machine,
        command="heapfit study run series",
    )
    save_series(series, folder)
    for study in studies:
        report_data.keep(folder / study.name, study, make_trials(study))
    return folder


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [(0.9, 0.97, "met"), (1.01, 1.2, "missed"), (None, None, "inconclusive")],
)
def test_a_goal_is_told_only_where_the_whole_interval_is_on_one_side_of_it(
    tmp_path: Path, low: float | None, high: float | None, said: str
) -> None:
    summary = SeriesReading(keep(tmp_path)).summary
    [figure] = summary.figures
    mean = figure.combined["heapfit"].model_copy(update={"low": low, "high": high})
    goal = figure.definition.model_copy(update={"goal": 1.0})
    combined = {**figure.combined, "heapfit": mean}
    changed = figure.model_copy(update={"definition": goal, "combined": combined})
    [line] = conclusions(summary.model_copy(update={"figures": [changed]}))
    assert f"(goal 1: {said})" in line


def test_what_is_open_or_in_doubt_of_any_part_is_among_the_problems(tmp_path: Path) -> None:
    summary = SeriesReading(keep(tmp_path)).summary
    assert troubles(summary) == []
    part = summary.workloads["first"]
    begun = summary.series.model_copy(update={"experiments": ["begun", "absent", "refused"]})
    started = part.model_copy(update={"trials_done": 1})
    open_ = summary.model_copy(
        update={
            "series": begun,
            "experiments": {"begun": started},
            "problems": {"refused": "no such program"},
        }
    )
    assert troubles(open_) == [
        "refused: no such program",
        f"begun: 1 of {part.trials_planned} trials are done",
        "absent: not measured yet",
    ]
    library = Path("/usr/lib/libjemalloc.so.2")
    linked = {part.study.command[0]: library}
    identity = Identity(files=[], environment={}, system={}, linked_allocators=linked)
    session = Session(began=part.study.created, first=0, identity=identity)
    study = part.study.model_copy(update={"sessions": [session]})
    doubtful = {**summary.workloads, "second": part.model_copy(update={"study": study})}
    [said] = troubles(summary.model_copy(update={"workloads": doubtful}))
    assert said.startswith("second: The program is linked with libjemalloc.so.2")


def test_a_parts_page_says_how_often_its_verdicts_were_shown(
    run_heapfit: Heapfit, tmp_path: Path
) -> None:
    folder = keep(tmp_path)
    note_look(folder / "first", 4)
    for _ in range(2):
        assert run_heapfit("report", folder).returncode == 0
        assert [looks(folder / name) for name in ("first", "second")] == [[4, 6], [6]]
        first, second = ((folder / n / "report.md").read_text() for n in ("first", "second"))
        assert "Verdicts were shown after 4 and 6 blocks." in first
        assert "Verdicts were shown" not in second


def test_the_page_has_every_figure_and_links_to_every_workload(tmp_path: Path) -> None:
    folder = keep(tmp_path, title=HOSTILE)
    page = write_series(SeriesReading(folder), folder).read_text()
    links = [name for name in re.findall(r'href="([^"#]*)"', page) if name.endswith("report.html")]
    assert set(links) == {f"{name}/report.html" for name in ("first", "second", "probe")}
    assert all((folder / link).is_file() for link in links)
    assert f"<h1>{escape(HOSTILE)}</h1>" in page
    assert "<img" not in page
