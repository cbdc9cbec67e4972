"""report.json, report.md and the page: true to the summary, safe with hostile names."""

from __future__ import annotations

import gzip
import io
import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import Heapfit
from heapfit.catalogue import load_allocators
from heapfit.errors import HeapfitError
from heapfit.files import write_text
from heapfit.records import InstalledAllocator, WorkloadRun
from heapfit.report import (
    Reading,
    html_report,
    json_report,
    markdown_report,
    read,
    terminal,
    write_reading,
)
from heapfit.report.recommendation import deployment
from markupsafe import escape
from report_data import keep, make_study, make_trials
from rich.console import Console

pytestmark = pytest.mark.full

ROOT = Path(__file__).resolve().parent.parent.parent


def write_all(folder: Path) -> Path:
    """Make every report of the study in `folder`."""
    return write_reading(read(folder), folder)


# Perl reads what LD_PRELOAD and the environment say it is, so each line shows what it does.
SAYS_SO = ["perl", "-e", 'print "$ENV{LD_PRELOAD} $ENV{HEAPFIT_OPTIONS} it\'s"']


def recommending(chosen: InstalledAllocator, command: list[str]) -> Reading:
    """A study of `command` that recommends `chosen`, which stands in heapfit's place."""
    made = make_study(("glibc", "heapfit"), cores=[1])
    workload = made.workload.model_copy(update={"run": WorkloadRun(command=command)})
    study = made.model_copy(update={"command": command, "workload": workload})
    advice = Reading(study, make_trials(study)).advice
    assert advice is not None
    assert advice.recommended == "heapfit"
    renamed = study.model_copy(update={"allocators": [study.allocators[0], chosen]})
    reading = Reading(renamed, [])
    reading.advice = advice.model_copy(update={"recommended": chosen.name})
    return reading


def test_what_is_recommended_runs_by_the_lines_that_are_shown(
    run_heapfit: Heapfit,
    library: Path,
    clean_environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Of the environment of who asks for a report nothing gets into the lines.
    monkeypatch.setenv("HEAPFIT_OPTIONS", "verbose:1")
    plain = load_allocators()["heapfit"]
    installed = InstalledAllocator(
        name="heapfit", title=plain.title, version="0", library=library, options={"decay_ms": "10"}
    )
    reading = recommending(installed, SAYS_SO)
    run, by_hand = deployment(reading.study, reading.advice)
    words = shlex.split(run)
    assert words[:4] == ["heapfit", "run", "--allocator", "heapfit:decay_ms=10"]
    said = f"{library} decay_ms:10 it's"
    assert run_heapfit(*words[1:]).stdout == said
    assert subprocess.check_output(["sh", "-c", by_hand], env=clean_environment, text=True) == said
    assert json.loads(json_report.text(reading))["deployment"] == [run, by_hand]
    page = html_report.page(reading)
    assert f"<code>{escape(run)}<br>{escape(by_hand)}</code>" in page
    for line in (run, by_hand):
        assert f"\n{line}\n" in markdown_report.text(reading)
        console = Console(file=io.StringIO(), width=60)
        terminal.render(reading, console)
        assert isinstance(console.file, io.StringIO)
        assert f"  {line}\n" in console.file.getvalue()


def test_markdown_tables_are_rectangular_whatever_the_names() -> None:
    hostile = "a|b`c\n| x | y |"
    study = make_study(
        allocators=["glibc", hostile], cores=[1], title="# <script>alert(1)</script>"
    )
    text = markdown_report.text(Reading(study, make_trials(study)))
    tables = [block for block in text.split("\n\n") if block.startswith("| allocator")]
    for table in tables:
        unescaped = [line.replace("\\|", "") for line in table.splitlines()]
        assert len({line.count("|") for line in unescaped}) == 1
    assert "<script>" not in text.replace("\\<", "")
    assert "\n| x | y |" not in text


@pytest.mark.parametrize("name", ["demo", "compare-busy"])
def test_what_earlier_versions_measured_is_read(name: str, tmp_path: Path) -> None:
    """The documentation's studies: each was measured by the version of its day."""
    kept = ROOT / "docs/results" / name
    shutil.copy(kept / "study.json", tmp_path)
    trials = gzip.decompress((kept / "trials.jsonl.gz").read_bytes())
    (tmp_path / "trials.jsonl").write_bytes(trials)
    report = json_report.read(write_all(tmp_path).with_name("report.json"))
    assert report.trials_done == trials.count(b"\n") == report.trials_planned
    assert report.advice is not None


def test_a_report_that_cannot_be_written_says_what_to_do_and_keeps_the_old(tmp_path: Path) -> None:
    study = make_study(cores=[1], replicates=2)
    folder = keep(tmp_path, study, make_trials(study))
    (folder / "report.json").mkdir()  # nobody, not even root, can replace a folder by a file
    (folder / "report.json" / "inside").touch()
    with pytest.raises(HeapfitError, match=r"cannot write .*report\.json.*run: heapfit report"):
        write_all(folder)
    assert not list(folder.glob("*.tmp"))
    assert (folder / "trials.jsonl").stat().st_size > 0


def test_a_link_and_a_pipe_are_written_to_and_not_replaced(tmp_path: Path) -> None:
    """`--markdown /dev/stdout`, as root, must not put a file in the place of the device."""
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(tmp_path / "file")
    write_text(link, "through the link")
    assert link.is_symlink()
    assert (tmp_path / "file").read_text() == "through the link"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_text(pipe, "through the pipe")
        assert os.read(reader, 100) == b"through the pipe"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
