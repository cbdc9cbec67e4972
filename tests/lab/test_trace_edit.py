"""Cutting, merging and anonymising traces: what must be in the new trace, and what must not."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from heapfit.errors import UsageError
from heapfit.trace import edit
from heapfit.trace import merge as merging
from heapfit.trace.anonymise import anonymise
from heapfit.trace.convert import convert, inspect
from heapfit.trace.cut import Part, cut
from heapfit.trace.ending import ended_early
from heapfit.trace.merge import merge
from heapfit.trace.native import Event, Problems, Reader
from trace_data import END, INFO, MODULES, Answers, Program, service

Calls = list[tuple[int, Event]]


@pytest.fixture(scope="module")
def program() -> Program:
    return service()


@pytest.fixture(scope="module")
def trace(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return program.write(tmp_path_factory.mktemp("trace") / "service.hft")


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is handled by batches must not depend on where one ends."""
    monkeypatch.setattr(edit, "BATCH_ROWS", 1000)
    monkeypatch.setattr(merging, "BATCH_ROWS", 300)


def calls(trace: Path) -> Calls:
    """The events of a trace, those that failed as they were written."""
    with Reader(trace) as reader:
        found = []
        for batch in reader.events(1 << 12):
            columns = {name: column.tolist() for name, column in batch.items()}
            for row, thread in enumerate(columns.pop("thread")):
                event = Event(**{name: column[row] for name, column in columns.items()})
                found.append((thread, replace(event, kind=event.kind & 15)))
        return found


def another_program() -> Program:
    """Return a program of another process."""
    program = service(requests=40, seed=7)
    program.info |= {"pid": 99, "started_unix_ns": INFO["started_unix_ns"] + 1_000_000}
    return program


def without_time(events: Sequence[tuple[int, Event]]) -> Calls:
    return [(thread, replace(event, ns=0)) for thread, event in events]


def names(trace: Path) -> list[str]:
    return [thread.name for thread in inspect(trace)[1]]


def test_a_part_in_the_middle_begins_with_the_blocks_that_live_there(
    trace: Path, program: Program, tmp_path: Path
) -> None:
    made = cut(trace, tmp_path / "cut.hft", Part(from_event=5000, to_event=9000))
    before = Answers(program.calls[:5000])
    found = calls(tmp_path / "cut.hft")
    carried, rest = found[: made.live], found[made.live :]
    expected = {(a, b.size, b.usable, b.site) for a, b in before.live.items()}
    assert {(e.address, e.size, e.usable, e.site) for _, e in carried} == expected
    assert all(event.ns < 100 for _, event in carried)
    assert [e for _, e in without_time(rest)] == [
        e for _, e in without_time(program.calls[5000:9000])
    ]
    whole = Answers(program.calls[:9000])
    found_totals = inspect(tmp_path / "cut.hft")[0].totals
    assert found_totals.end_bytes == whole.totals.end_bytes
    assert found_totals.unmatched_frees == 0


def test_of_threads_all_is_kept_that_becomes_of_their_blocks(
    trace: Path, program: Program, tmp_path: Path
) -> None:
    chosen = frozenset({1, 2})
    made = cut(trace, tmp_path / "cut.hft", Part(threads=chosen))
    expected = [b for b in Answers(program.calls).blocks if b.born_thread in chosen]
    found = Answers(calls(tmp_path / "cut.hft"))
    assert made.events == sum(2 if b.died_ns else 1 for b in expected) - found.totals.reallocs
    assert found.totals.unmatched_frees == 0
    assert [(b.address, b.size, b.born_ns, b.died_ns) for b in found.blocks] == [
        (b.address, b.size, b.born_ns, b.died_ns) for b in expected
    ]
    # The logger and worker-3 free blocks of theirs; the main thread does not.
    assert sorted(names(tmp_path / "cut.hft")) == ["logger", "worker-1", "worker-2", "worker-3"]


def test_a_part_without_an_event_is_refused_and_leaves_no_file(trace: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no event"):
        cut(trace, tmp_path / "cut.hft", Part(from_ns=10**12))
    assert list(tmp_path.iterdir()) == []


def test_threads_without_an_event_are_refused_and_leave_no_file(
    trace: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="holds no event"):
        cut(trace, tmp_path / "cut.hft", Part(threads=frozenset({99})))
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_is_not_replaced(trace: Path, tmp_path: Path) -> None:
    there = tmp_path / "there.hft"
    there.write_text("mine")
    with pytest.raises(UsageError, match="is there already"):
        cut(trace, there, Part(to_event=10))
    with pytest.raises(UsageError, match="is there already"):
        merge([trace], there)
    with pytest.raises(UsageError, match="is there already"):
        anonymise(trace, there)
    assert there.read_text() == "mine"


def test_a_trace_is_not_cut_into_itself(trace: Path) -> None:
    before = trace.read_bytes()
    with pytest.raises(UsageError, match="is the trace itself"):
        cut(trace, trace, Part(to_event=10))
    assert trace.read_bytes() == before


def test_parts_that_were_cut_out_of_a_recording_become_what_they_were(
    trace: Path, program: Program, tmp_path: Path
) -> None:
    half = program.calls[6000][1].ns
    parts = [tmp_path / "1.hft", tmp_path / "2.hft", tmp_path / "3.hft"]
    cut(trace, parts[0], Part(to_ns=half))
    cut(trace, parts[1], Part(from_ns=half, to_event=9000))
    cut(trace, parts[2], Part(from_event=9000))
    made = merge(parts[::-1], tmp_path / "all.hft")
    assert made.processes == 1
    assert without_time(calls(tmp_path / "all.hft")) == without_time(program.calls)
    assert sorted(names(tmp_path / "all.hft")) == sorted(program.names)
    summary, _ = inspect(tmp_path / "all.hft")
    assert summary.problems == made.problems == Problems()
    assert ended_early(summary.end) == ""
    with Reader(tmp_path / "all.hft") as reader:
        list(reader.events(1 << 12))
        assert [tuple(row)[::2] for row in reader.sites().tolist()] == program.sites
        assert reader.modules == MODULES
    overlapping = tmp_path / "overlapping.hft"
    cut(trace, overlapping, Part(from_ns=half - 1_000_000))
    with pytest.raises(UsageError, match="overlap"):
        merge([parts[0], overlapping], tmp_path / "twice.hft")
    with pytest.raises(UsageError, match="the same part of the same process"):
        merge([tmp_path / "all.hft", parts[1]], tmp_path / "twice.hft")


def test_of_a_process_that_was_recorded_twice_nothing_is_known_in_between(tmp_path: Path) -> None:
    first, second = Program(), Program(info={**INFO, "file_number": 2, "began_late": True})
    thread = first.thread("service")
    held = [first.malloc(thread, 1000) for _ in range(100)]
    first.wait(1_000_000)
    first.mark()
    gap = 5_000_000
    second.info["started_unix_ns"] += first.ns + gap
    second.thread("service")
    for _ in range(50):
        second.free(thread, second.malloc(thread, 16))
    parts = [
        first.write(tmp_path / "1.hft", {"reason": "stop"}),
        second.write(tmp_path / "2.hft"),
    ]
    made = merge(parts[::-1], tmp_path / "all.hft")
    summary, threads = inspect(tmp_path / "all.hft")
    assert (made.processes, len(threads)) == (1, 1)
    assert summary.totals.end_objects == 0
    assert summary.totals.peak_objects == len(held)
    assert summary.problems == Problems(gap_ns=gap)
    assert summary.info["began_late"] is False
    assert ended_early(summary.end) == ""
    freed = [event.ns for _, event in calls(tmp_path / "all.hft") if event.address in held][100:]
    assert freed[:100] == [first.ns] * 100
    anonymise(tmp_path / "all.hft", tmp_path / "anonymous.hft")
    assert inspect(tmp_path / "anonymous.hft")[0].problems.gap_ns == gap


@pytest.mark.parametrize(
    ("end", "gap", "late", "processes"),
    [
        ("stop", 5_000_000, {"began_late": True}, 1),
        ("stop", -1_000, {"began_late": True}, 2),  # of two containers
        # Of a container that was started again.
        ("stop", 5_000_000, {"began_late": True, "process_began": 8000}, 2),
        ("stop", 5_000_000, {"began_late": True, "process_began": 8000, "file_number": 2}, 2),
        ("stop", 5_000_000, {"began_late": True, "process_began": 0}, 2),  # not known
        ("exit", 5_000_000, {"began_late": True}, 2),
        ("stop", 5_000_000, {}, 2),
        # A part of a recording from its start, which was cut out.
        ("stop", 5_000_000, {"began_late": True, "live_before": 0}, 2),
    ],
)
def test_a_process_that_a_recorder_was_attached_to_twice_is_one(
    tmp_path: Path, end: str, gap: int, late: dict[str, Any], processes: int
) -> None:
    """It counted as two, with all its memory, since each recorder numbers its files from 1."""
    attached = {**INFO, "began_late": True, "process_began": 7000}
    first = Program(info=dict(attached))
    second = Program(info={**INFO, "process_began": 7000, **late})
    third = Program(info=dict(attached))
    started = INFO["started_unix_ns"]
    for program in (first, second, third):
        program.info["started_unix_ns"] = started
        thread = program.thread("service")
        for _ in range(100):
            program.malloc(thread, 1000)
        program.wait(1_000_000)
        program.mark()
        started += program.ns + gap
    parts = [
        first.write(tmp_path / "1.hft", {"reason": end}),
        second.write(tmp_path / "2.hft", {"reason": "stop"}),
        third.write(tmp_path / "3.hft", {"reason": "stop"}),
    ]
    made = merge(parts[1::-1], tmp_path / "all.hft")
    assert made.processes == processes
    at_once = 1 if end == "exit" else processes
    assert inspect(tmp_path / "all.hft")[0].totals.peak_objects == 100 * at_once
    if processes == 1:
        # What was merged can be merged with what follows.
        assert merge([tmp_path / "all.hft", parts[2]], tmp_path / "more.hft").processes == 1
        assert merge(parts, tmp_path / "at-once.hft").processes == 1
        # What is in it already would count twice.
        cut(parts[1], tmp_path / "part.hft", Part(from_event=50))
        with pytest.raises(UsageError, match="parts of one recording that overlap in time"):
            merge([tmp_path / "all.hft", tmp_path / "part.hft"], tmp_path / "twice.hft")
    else:
        with pytest.raises(UsageError, match="is a merge of several processes"):
            merge([tmp_path / "all.hft", parts[2]], tmp_path / "more.hft")


def test_a_recording_is_not_put_behind_a_merge_that_spans_it(tmp_path: Path) -> None:
    parts, started = [], INFO["started_unix_ns"]
    for number in (1, 2, 3):
        program = Program(info={**INFO, "file_number": number, "started_unix_ns": started})
        program.malloc(program.thread("service"), 100)
        program.mark()
        parts.append(program.write(tmp_path / f"{number}.hft", {"reason": "stop"}))
        started += program.ns + 5_000_000
    merge([parts[0], parts[2]], tmp_path / "around.hft")
    with pytest.raises(UsageError, match="parts of one process that overlap in time"):
        merge([tmp_path / "around.hft", parts[1]], tmp_path / "all.hft")
    assert not (tmp_path / "all.hft").exists()


def test_a_part_is_placed_at_the_time_of_day_at_which_it_happened(
    trace: Path, program: Program, tmp_path: Path
) -> None:
    half = program.calls[6000][1].ns
    for name, part in (("time", Part(from_ns=half)), ("events", Part(from_event=6000))):
        cut(trace, tmp_path / f"{name}.hft", part)
        with Reader(tmp_path / f"{name}.hft") as reader:
            assert reader.info["started_unix_ns"] == INFO["started_unix_ns"] + half


def test_one_recording_is_not_merged_with_itself(trace: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.hft"
    copy.write_bytes(trace.read_bytes())
    for other in (trace, copy):
        with pytest.raises(UsageError, match="the same part of the same process"):
            merge([trace, other], tmp_path / "all.hft")


def test_processes_stay_apart(program: Program, tmp_path: Path) -> None:
    other = another_program()
    parts = [program.write(tmp_path / "1.hft"), other.write(tmp_path / "2.hft")]
    made = merge(parts, tmp_path / "all.hft")
    assert made.processes == 2
    summary, threads = inspect(tmp_path / "all.hft")
    in_time = sorted((program, other), key=lambda each: each.ns)
    both = [Answers(each.calls).totals for each in in_time]
    exited, last = (each.end_objects for each in both)
    for name, more in {
        "allocations": 0,
        "bytes": 0,
        "unmatched_frees": 0,
        "frees": exited,
        "events": exited,
    }.items():
        assert getattr(summary.totals, name) == sum(getattr(each, name) for each in both) + more
    assert summary.totals.end_objects == last
    assert summary.totals.replaced == 0
    assert len(threads) == len(program.names) + len(other.names)
    assert summary.info["merged"] == [program.info, other.info]
    found = calls(tmp_path / "all.hft")
    assert [event.ns for _, event in found] == sorted(event.ns for _, event in found)
    spaces = {event.address >> 57 for _, event in found if event.address}
    assert spaces == {0, 1}
    # Its addresses are moved: another process's would be those of the second.
    third = Program(info={**INFO, "pid": 99})
    third.malloc(third.thread("third"), 100)
    with pytest.raises(UsageError, match="is a merge of several processes"):
        merge([tmp_path / "all.hft", third.write(tmp_path / "3.hft")], tmp_path / "more.hft")


def resident(trace: Path) -> list[int]:
    with Reader(trace) as reader:
        for _ in reader.events(1 << 12):
            pass
        return [size for size in reader.marks()["resident"].tolist() if size]


def two_processes(folder: Path, ends: Sequence[str], **late: Any) -> tuple[list[Path], list[int]]:
    """Return recordings of which the second begins after the end of the first, and what is resident
    at the end of each."""
    files, sizes, started = [], [], INFO["started_unix_ns"]
    for number, (end, more) in enumerate(zip(ends, ({}, late), strict=True), start=1):
        info = {**INFO, "pid": number, "process_began": 7000, "started_unix_ns": started, **more}
        program = Program(info=info)
        thread = program.thread("service")
        program.mark()
        for _ in range(100 * number):
            program.malloc(thread, 1000)
        program.mark()
        program.wait(1_000_000)
        program.mark()
        files.append(program.write(folder / f"{number}.hft", {"reason": end}))
        sizes.append(program.marks[-1].resident)
        started += program.ns + 5_000_000
    return files, sizes


@pytest.mark.parametrize(
    ("end", "has_exited"),
    [("exit", True), ("exec", True), ("killed", True), ("stop", False), ("it hangs", False)],
)
def test_what_a_process_had_counts_until_it_exits(
    tmp_path: Path, end: str, has_exited: bool
) -> None:
    """Two workers, one after the other, had a peak that never was."""
    files, sizes = two_processes(tmp_path, (end, "exit"))
    if end == "killed":  # The file has no end.
        os.truncate(files[0], files[0].stat().st_size - 4)
    merge(files, tmp_path / "all.hft")
    totals = inspect(tmp_path / "all.hft")[0].totals
    left = 200 if has_exited else 300  # What the last one has stays.
    assert (totals.peak_objects, totals.end_objects) == (left, left)
    assert resident(tmp_path / "all.hft")[-1] == sizes[1] + (0 if has_exited else sizes[0])


@pytest.mark.parametrize(
    ("late", "ran"),
    [
        ({"began_late": True, "process_began": 6999}, True),
        ({"began_late": True, "process_began": 0}, True),  # not known
        ({"began_late": True, "process_began": 7001}, False),  # a child of the first
        ({"began_late": False, "process_began": 6999}, False),
        ({"cut_of_unix_ns": INFO["started_unix_ns"] - 1}, True),
        ({"cut_of_unix_ns": INFO["started_unix_ns"]}, False),
    ],
)
def test_a_process_that_ran_before_its_recording_is_no_growth(
    tmp_path: Path, late: dict[str, Any], ran: bool
) -> None:
    files, sizes = two_processes(tmp_path, ("stop", "stop"), **late)
    merge(files, tmp_path / "all.hft")
    [before, *_], [own, *_] = resident(tmp_path / "all.hft"), resident(files[0])
    assert before == own + (resident(files[1])[0] if ran else 0)
    assert resident(tmp_path / "all.hft")[-1] == sum(sizes)


def test_the_gaps_of_processes_are_not_added_up(tmp_path: Path) -> None:
    gap, parts = 5_000_000, []
    for pid in (1, 2):
        started = INFO["started_unix_ns"]
        for number in (1, 2):
            program = Program(
                info={**INFO, "pid": pid, "file_number": number, "started_unix_ns": started}
            )
            program.malloc(program.thread("service"), 100)
            program.mark()
            parts.append(program.write(tmp_path / f"{pid}-{number}.hft"))
            started += program.ns + gap
    assert merge(parts, tmp_path / "all.hft").problems.gap_ns == gap


def test_traces_that_were_sampled_otherwise_do_not_add_up(trace: Path, tmp_path: Path) -> None:
    other = Program(info={**INFO, "sample": 4096}).write(tmp_path / "sampled.hft")
    with pytest.raises(UsageError, match="sampled differently"):
        merge([trace, other], tmp_path / "all.hft")


def test_traces_that_do_not_tell_when_they_began_cannot_be_put_in_order(
    trace: Path, tmp_path: Path
) -> None:
    """Several of them were merged as though all had begun at one moment."""
    undated = [
        Program(info={**INFO, "started_unix_ns": 0}).write(tmp_path / f"{number}.hft")
        for number in range(2)
    ]
    for sources in ([trace, undated[0]], undated):
        with pytest.raises(UsageError, match="does not tell when it began"):
            merge(sources, tmp_path / "all.hft")
    merge(undated[:1], tmp_path / "all.hft")


@pytest.fixture(scope="module")
def anonymous(trace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("anonymous") / "anonymous.hft"
    anonymise(trace, made)
    return made


def test_an_anonymous_trace_still_tells_that_it_ended_before_its_program(tmp_path: Path) -> None:
    program = service(requests=2)
    for name, end, is_early in (("a", END, False), ("b", {"reason": "stop"}, True)):
        made = tmp_path / f"{name}.anonymous.hft"
        anonymise(program.write(tmp_path / f"{name}.hft", end), made)
        assert bool(ended_early(inspect(made)[0].end)) is is_early


def test_nothing_of_the_program_is_left_in_a_file_for_its_owner_alone(anonymous: Path) -> None:
    assert anonymous.stat().st_mode & 0o777 == 0o600
    with Reader(anonymous) as reader:
        list(reader.events(1 << 12))
        told: Any = (reader.info, reader.end, reader.modules, reader.threads)
    for secret in ("service", "secret", "worker", "logger", "libc", "4711", "17000000", "exit"):
        assert secret not in repr(told)
    assert b"secret" not in anonymous.read_bytes()


def test_the_use_of_the_heap_is_the_same(anonymous: Path, program: Program) -> None:
    def kept(events: Calls) -> list[Any]:
        return [
            (thread, e.ns, e.kind, e.size, e.usable, e.site, e.alignment, e.lasted_ns)
            for thread, e in events
        ]

    found = calls(anonymous)
    assert kept(found) == kept(program.calls)
    assert Answers(found).totals == Answers(program.calls).totals
    with Reader(anonymous) as reader:
        list(reader.events(1 << 12))
        assert [caller for caller, _, _ in reader.sites().tolist()] == [
            caller for caller, _ in program.sites
        ]


@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_trace_is_handled_as_far_as_it_can_be_read(
    seed: int, trace: Path, tmp_path: Path
) -> None:
    content = bytearray(trace.read_bytes())
    chance = random.Random(seed)
    for _ in range(chance.choice((1, 5, 50))):
        content[chance.randrange(16, len(content))] ^= 1 << chance.randrange(8)
    damaged = tmp_path / "damaged.hft"
    damaged.write_bytes(content)
    whole = inspect(damaged)[0].totals.events
    assert anonymise(damaged, tmp_path / "a.hft").events == whole
    other = another_program().write(tmp_path / "other.hft")
    made = merge([damaged, other], tmp_path / "m.hft")
    of_other = inspect(other)[0].totals  # It exits first.
    assert made.events == whole + of_other.events + of_other.end_objects
    if whole:
        cut(damaged, tmp_path / "c.hft", Part(to_event=whole))
        assert inspect(tmp_path / "c.hft")[0].totals.events == whole
    assert convert(damaged, tmp_path / "tables").totals.events == whole


def test_a_new_trace_tells_what_was_wrong_with_the_old_one(trace: Path, tmp_path: Path) -> None:
    content = bytearray(trace.read_bytes()[:-100])
    content[len(content) // 2] ^= 1
    damaged, other = tmp_path / "damaged.hft", another_program().write(tmp_path / "other.hft")
    damaged.write_bytes(content)
    wrong = inspect(damaged)[0].problems
    assert wrong.cut_short
    assert wrong != Problems(cut_short=True)
    made = tmp_path / "made.hft"
    for make in (
        lambda: anonymise(damaged, made).problems,
        lambda: merge([other, damaged], made).problems,
        lambda: cut(damaged, made, Part(from_event=1)).problems,
    ):
        assert make() == inspect(made)[0].problems == wrong
        # Of a part before the end it is not said that the end is missing.
        part = tmp_path / "part.hft"
        assert cut(made, part, Part(to_event=10)).problems == replace(wrong, cut_short=False)
        made.unlink()
        part.unlink()


def test_what_a_file_says_of_problems_is_not_believed_blindly(tmp_path: Path) -> None:
    for said in ([], {"gap_ns": -1, "late_events": "2", "error": 1 << 70, "cut_short": 7}):
        made = service(requests=2).write(tmp_path / "a.hft", {**END, "problems": said})
        assert inspect(made)[0].problems == Problems()
