"""Conversion of traces to tables: that they hold what happened, against a plain-Python model."""

from __future__ import annotations

import errno
import json
import resource
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from conftest import Heapfit
from heapfit.errors import HeapfitError, UsageError
from heapfit.trace import convert as converting
from heapfit.trace.convert import Summary, convert
from heapfit.trace.native import FREE, MALLOC, REALLOC, Event, Writer
from heapfit.trace.schema import FILES
from trace_data import END, MODULES, Answers, Program, service, tables

Rows = list[dict[str, Any]]


def rows(folder: Path, name: str) -> Rows:
    table = pq.read_table(folder / f"{name}.parquet")
    assert table.schema.equals(FILES[name])
    found: Rows = table.to_pylist()
    return found


@pytest.fixture(scope="module")
def program() -> Program:
    return service()


@pytest.fixture(scope="module")
def answers(program: Program) -> Answers:
    return Answers(program.calls)


@pytest.fixture(scope="module")
def trace(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return program.write(tmp_path_factory.mktemp("trace") / "service.hft")


@pytest.fixture(scope="module")
def converted(trace: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Summary]:
    folder = tmp_path_factory.mktemp("converted") / "service.tables"
    return folder, convert(trace, folder)


@pytest.mark.parametrize("name", ["objects", "threads", "flow", "sites"])
def test_a_table_holds_what_happened(
    name: str, converted: tuple[Path, Summary], program: Program, answers: Answers
) -> None:
    assert rows(converted[0], name) == tables(program, answers)[name]


def test_the_old_block_is_live_until_realloc_returns(tmp_path: Path) -> None:
    """While 200 MiB were being copied neither block counted, so that the peak was too low."""
    mib = 2**20
    program = Program()
    for name in ("copies", "holds"):
        program.thread(name)
    program.calls = [
        (0, Event(10, MALLOC, address=1 << 30, size=200 * mib, usable=200 * mib)),
        (0, Event(20, REALLOC, address=2 << 30, old=1 << 30, size=201 * mib, usable=201 * mib,
                  lasted_ns=100)),
        (1, Event(50, MALLOC, address=3 << 30, size=50 * mib, usable=50 * mib)),
        (1, Event(90, FREE, address=3 << 30)),
        (1, Event(99, MALLOC, address=1 << 30, size=mib, usable=mib)),
    ]  # fmt: skip
    convert(program.write(tmp_path / "x.hft"), tmp_path / "x.tables")
    totals = json.loads((tmp_path / "x.tables" / "summary.json").read_text())["totals"]
    assert totals["peak_bytes"] == 250 * mib
    assert totals["end_bytes"] == 202 * mib
    assert totals["replaced"] == totals["unmatched_frees"] == 0


def test_the_course_of_memory_has_the_frees_of_older_blocks_until_then(tmp_path: Path) -> None:
    ms = 1_000_000
    program = Program()
    program.thread("main")
    program.calls = [
        (0, Event(5 * ms, FREE, address=1 << 30)),
        (0, Event(10 * ms, MALLOC, address=2 << 30, size=10, usable=16)),
        (0, Event(15 * ms, FREE, address=2 << 30)),
        (0, Event(20 * ms, REALLOC, address=3 << 30, old=4 << 30, size=10, usable=16)),
        (0, Event(25 * ms, FREE, address=3 << 30)),
    ]
    convert(program.write(tmp_path / "x.hft"), tmp_path / "x.tables")
    seen = {
        row["ns"] // ms: row["unmatched_frees"] for row in rows(tmp_path / "x.tables", "memory")
    }
    assert [seen[at] for at in (5, 10, 20, 25)] == [0, 1, 1, 2]


def test_the_summary_says_what_the_trace_is(
    converted: tuple[Path, Summary], program: Program, answers: Answers
) -> None:
    folder, summary = converted
    assert summary.totals == answers.totals
    assert summary.info["arguments"] == program.info["arguments"]
    assert summary.end == END
    assert summary.duration_ns == program.marks[-1].ns
    written = json.loads((folder / "summary.json").read_text())
    assert written == {**summary.plain, "modules": MODULES, "changed": []}


def test_a_recording_that_was_cut_short_is_converted_as_far_as_it_goes(
    trace: Path, answers: Answers, tmp_path: Path
) -> None:
    whole = trace.read_bytes()
    cut = tmp_path / "cut.hft"
    cut.write_bytes(whole[: len(whole) * 2 // 3])
    summary = convert(cut, tmp_path / "tables")
    assert summary.problems.cut_short
    assert 0 < summary.objects < len(answers.blocks)
    assert summary.end is None


NUMBERS = ("pid", "parent", "cores", "page_size", "sample", "sites", "started_unix_ns")


@pytest.mark.parametrize("to", ["pprof", "perfetto"])
@pytest.mark.parametrize("value", ["x", 10**29])
def test_what_no_recorder_says_of_itself_is_no_obstacle(
    run_heapfit: Heapfit, tmp_path: Path, to: str, value: Any
) -> None:
    with Writer(tmp_path / "a.hft", dict.fromkeys((*NUMBERS, "file_number"), value)) as writer:
        writer.site(0, 0x1000)
        writer.event(0, Event(1, MALLOC, 16, size=8, usable=8, site=1))
    result = run_heapfit(
        "trace", "export", "--to", to, tmp_path / "a.hft", "-o", tmp_path / "made", folder=tmp_path
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("content", [b"heapfit", b"#!/bin/sh\necho hello\n" * 100])
def test_what_is_no_trace_is_refused_and_nothing_is_written(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    with pytest.raises(HeapfitError, match=r"cannot read .*file: "):
        convert(file, tmp_path / "tables")
    assert list(tmp_path.iterdir()) == [file]


def test_a_folder_is_replaced_if_it_holds_tables_alone(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recording among them was lost, as were both the old and the new ones of the folder `.`."""
    tables, link, other = (tmp_path / name for name in ("tables", "link", "other"))
    convert(trace, tables)
    link.symlink_to(tables)
    monkeypatch.chdir(tables)
    for folder in (tables, link, Path()):
        (tables / "objects.parquet").write_bytes(b"older")
        convert(trace, folder)
        assert rows(tables, "objects")
    (tables / "flow.parquet").unlink()
    convert(trace, tables)
    assert rows(tables, "flow") is not None
    # One that ends halfway leaves no summary, without which nothing is read.
    (tables / "sites.parquet").unlink()
    (tables / "sites.parquet").mkdir()
    with pytest.raises(OSError, match="directory"):
        convert(trace, tables)
    assert not (tables / "summary.json").exists()
    (tables / "sites.parquet").rmdir()
    convert(trace, tables)
    (tables / "a.hft").touch()
    other.mkdir()
    (other / "summary.json").write_text("another's")
    for folder in (tables, other):
        with pytest.raises(UsageError, match="is not a folder of tables alone"):
            convert(trace, folder)
    assert (tables / "a.hft").exists()
    assert (other / "summary.json").read_text() == "another's"
    assert set(tmp_path.iterdir()) == {tables, link, other}


def test_a_disk_that_is_full_is_told_and_leaves_no_file(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))  # as good as a full disk
    try:
        with pytest.raises(OSError, match="File too large"):
            service().write(tmp_path / "a.hft")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_named_as_by_other_commands(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "Error writing bytes to file. Detail: [errno 28]")

    monkeypatch.setattr(converting, "_write_objects", full)
    with pytest.raises(OSError, match="No space left on device") as failed:
        convert(trace, tmp_path / "tables")
    assert failed.value.filename == str(tmp_path / "tables")
    assert list(tmp_path.iterdir()) == []
