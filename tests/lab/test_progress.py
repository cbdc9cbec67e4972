"""What a person sees while a study runs: in a terminal, and in a log file."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from engine_helpers import study_of, system_allocator, workload
from heapfit.cli.progress import StudyProgress
from heapfit.records import Factor, Study, WorkloadMetric
from heapfit.study import execute
from rich.console import Console

pytestmark = pytest.mark.full

TWO = [system_allocator("glibc"), system_allocator("other", OTHER="1")]
THREADS = Factor(name="threads", levels=["1", "[2]"])
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_ERASED = re.compile(r"\x1b\[2K")


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is drawn is not for the terminal of who runs the tests, which may be a dumb one."""
    monkeypatch.setenv("TERM", "xterm")


def small_study(**fields: object) -> Study:
    """Each allocator prints a figure of its own: 10, and 25 for the other."""
    figure = WorkloadMetric(
        name="figure", label="Figure", unit="count", pattern="^f=([0-9]+)$", better="lower"
    )
    work = workload(
        *("sh", "-c", "echo f=$((10 + 15 * ${OTHER:-0})); echo '{threads}'"),
        parameters={"threads": "1"},
        metrics=[figure],
        check={"stdout": "ignore"},
        primary_metric="figure",
    )
    return study_of(work, TWO, replicates=2, **fields)


def shown(study: Study, folder: Path, *, terminal: bool) -> str:
    """Run `study` and return what its progress wrote, erasures as form feeds."""
    written = io.StringIO()
    console = Console(file=written, force_terminal=terminal, width=120, height=40)
    with StudyProgress(console) as progress:
        execute(study, folder, progress)
    return _ESCAPE.sub("", _ERASED.sub("\f", written.getvalue()))


def test_a_terminal_shows_what_runs_what_remains_and_the_medians(tmp_path: Path) -> None:
    study = small_study(factors=[THREADS])
    text = shown(study, tmp_path, terminal=True)
    assert f"0/{len(study.plan)}" in text
    assert f"{len(study.plan)}/{len(study.plan)} 0 remain, " in text
    assert "s left glibc, 1 core, threads = [2]" in text
    assert "glibc, 1 core, threads = 1 (warm-up)" in text
    last = text[text.rindex("Figure, medians so far") :]
    assert re.search(r"so far +threads = 1 +threads = \[2\]", last)
    assert len(re.findall(r"25  2\.50x  n = 2", last)) == 2
    assert len(re.findall(r"10  n = 2", last)) == 2


def test_without_a_terminal_there_are_plain_lines(tmp_path: Path) -> None:
    written = io.StringIO()
    study = small_study(factors=[THREADS])
    with StudyProgress(Console(file=written, width=60)) as progress:
        execute(study, tmp_path, progress)
    assert "\x1b" not in written.getvalue()
    first = written.getvalue().splitlines()[0]
    assert re.fullmatch(rf"0 of {len(study.plan)} trials; now glibc, 1 core, .*\(warm-up\)", first)
