"""`heapfit why`: programs whose memory is mostly of one kind, seen from outside."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Heapfit, heapfit_command
from heapfit.cli import why as cli_why
from heapfit.errors import HeapfitError
from heapfit.host import contents, proc
from heapfit.host.allocator import Allocator, allocator_of
from heapfit.host.cgroups import Memory, cores_of, memory_of
from heapfit.host.contents import Glibc, Heap
from heapfit.host.maps import parse
from heapfit.live import pinners
from heapfit.live.profile import profile
from heapfit.live.records import ProfileAnswer, ProfileSample, ProfileSite
from heapfit.why import Reading, findings, grown
from heapfit.why import read as read_all
from heapfit.why import reading as why_reading
from heapfit.why.causes import Cause, Place, causes

SOURCE = Path(__file__).parent / "why_program.c"
PLANTED = Path(__file__).parents[2] / "benchmarks/why"
PYTHON = "kept = [str(i) for i in range(400_000)]; print('there', flush=True); input()"
KINDS = ("malloc", "mapped", "arenas", "stacks", "variables", "shared", "shared_anonymous",
         "files", "jit")  # fmt: skip


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("why") / "why_program"
    subprocess.run(["gcc", "-O1", "-pthread", SOURCE, "-o", made], check=True)
    return made


@pytest.fixture(autouse=True)
def _enough_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "_READ_S", 1000.0)


def read(pid: int) -> Reading:
    """What there is of a process, whatever the limit of the group that the tests run in."""
    return replace(read_all(pid), limits=[])


@contextmanager
def running(*words: object, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """The program, as soon as its memory is there."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    command = [str(each) for each in words]
    with subprocess.Popen(command, env=os.environ | environment, **pipes) as started:  # type: ignore[call-overload]
        try:
            assert started.stdout.readline() in (b"there\n", b"ready\n")
            yield started
        finally:
            started.kill()


@pytest.mark.parametrize("kind", KINDS)
def test_what_holds_the_memory_comes_first(program: Path, kind: str) -> None:
    with (  # /tmp may be in memory
        tempfile.NamedTemporaryFile(dir="/var/tmp") as file,
        running(program, kind, file.name) as started,
    ):
        reading = read(started.pid)
    first, *others = findings(reading)
    held = reading.resident + reading.swapped
    assert first.cause == kind.partition("_")[0]
    assert first.size > 0.8 * reading.resident
    assert sum(each.size for each in (first, *others) if not each.of_all) == held


@pytest.mark.parametrize(
    ("name", "cause", "command"),
    [
        ("leak", "malloc", "heapfit record"),
        ("pinned", "free", "heapfit record -o"),
        ("arenas", "arenas", "heapfit run"),
        ("busy", "arenas", "heapfit run"),
    ],
)
def test_free_blocks_of_glibc_are_told_from_a_leak(
    tmp_path: Path, name: str, cause: str, command: str
) -> None:
    subprocess.run(["gcc", "-O1", PLANTED / f"{name}.c", "-o", tmp_path / name], check=True)
    with running(tmp_path / name) as started:
        reading = read(started.pid)
    [first, *_] = findings(reading)
    assert first.cause == cause
    assert first.size > 0.8 * reading.resident
    assert first.commands[0].startswith(command)
    trimmed = (
        reading.glibc.main.in_whole_pages
    )  # in 8 MiB, the program has done as malloc_trim does
    assert name != "pinned" or 16 << 20 < trimmed < 32 << 20 < first.size


@pytest.mark.parametrize("in_whole_pages", [24 << 20, 1 << 20])
def test_whole_free_pages_of_arenas_are_for_malloc_trim(program: Path, in_whole_pages: int) -> None:
    """Two arenas were advised, which helped nothing where malloc_trim returned nearly all."""
    with running(program, "arenas") as started:
        reading = read(started.pid)
    free = Heap(32 << 20, True, in_whole_pages)
    [arenas, *_] = findings(replace(reading, glibc=Glibc(Heap(), 8, free)))
    is_trimmed = in_whole_pages > 8 << 20
    assert ("malloc_trim(0) would return about 24.0 MiB" in arenas.sentence) is is_trimmed
    assert arenas.commands[0].startswith("heapfit run ")
    # What lies between live blocks, two arenas would keep as well.
    assert arenas.commands[-1].startswith("heapfit profile whole-") is not is_trimmed
    unknown = replace(free, whole=False, in_whole_pages=1 << 20)
    [arenas, *_] = findings(replace(reading, glibc=Glibc(Heap(), 8, unknown)))
    assert arenas.commands[-1].startswith("MALLOC_ARENA_MAX=2 ")


def test_malloc_trim_leaves_the_ends_of_arenas(program: Path) -> None:
    with running(program, "ends", MALLOC_ARENA_MAX="16") as started:
        others = read(started.pid).glibc.others
    assert others.whole
    assert others.free > 60_000_000  # of 63 MB, of which 26 are before a block that lives
    assert 25_000_000 < others.in_whole_pages < 26_000_000


def test_malloc_trim_returns_what_small_free_blocks_fill_together(program: Path) -> None:
    """None of them has a whole page: it was to return almost nothing."""
    with running(program, "fast") as started:
        main = read(started.pid).glibc.main
    assert main.whole
    assert 36_000_000 < main.free < 39_000_000
    assert 30_000_000 < main.in_whole_pages < 35_000_000


def test_all_chunks_are_looked_at_where_lists_cannot_be_read(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(program, "pinned") as started:
        main = read(started.pid).glibc.main
        monkeypatch.setattr(contents._FreeLists, "_followed", lambda *_: False)
        partly = read(started.pid).glibc.main
    assert (main.whole, partly.whole, partly.nearly) == (True, False, True)
    assert 0.9 * main.free < partly.free <= main.free


@pytest.mark.parametrize(("name", "limit"), [("_MOST_BLOCKS", 1), ("_JOINED", 1000)])
def test_what_is_kept_at_hand_changes_no_figure(
    program: Path, monkeypatch: pytest.MonkeyPatch, name: str, limit: int
) -> None:
    with running(program, "pinned") as started:
        main = read(started.pid).glibc.main
        monkeypatch.setattr(contents, name, limit)
        assert read(started.pid).glibc.main == main


def test_a_torn_arena_leaves_the_others_their_result(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One torn list had every heap of every arena looked at."""
    with running(program, "arenas") as started:
        whole = read(started.pid).glibc
        torn, walked = [], []
        listed, walk = contents._FreeLists._listed, contents._FreeLists._walk

        def tear(lists: Any, arena: int, spans: contents.Spans) -> tuple[bool, int]:
            followed, last = listed(lists, arena, spans)
            if torn or len(spans) > 1 or spans[0][0] // contents.ARENA != arena // contents.ARENA:
                return followed, last
            torn.extend(spans)
            return False, last

        def look(lists: Any, start: int, end: int) -> tuple[int, int]:
            walked.append((start, end))
            return walk(lists, start, end)

        monkeypatch.setattr(contents._FreeLists, "_listed", tear)
        monkeypatch.setattr(contents._FreeLists, "_walk", look)
        partly = read(started.pid).glibc
    assert torn
    assert walked == torn
    assert (partly.main.whole, partly.others.whole) == (True, False)
    assert partly.others.free == whole.others.free


def test_the_time_is_for_all_arenas_together(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "_READ_S", 0.0)
    with running(program, "arenas") as started:
        glibc = read(started.pid).glibc
    assert glibc.arenas > 1
    assert not any((glibc.main.whole, glibc.others.whole, glibc.others.is_rest_used))


def test_the_count_of_blocks_only_rises(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(contents, "TOLD_S", 0.0)
    monkeypatch.setattr(contents, "_BETWEEN_LOOKS", 100)
    listed = contents._FreeLists._listed
    monkeypatch.setattr(
        contents._FreeLists, "_listed", lambda *each: (False, listed(*each)[1])
    )  # so that all is walked as well
    with running(program, "arenas") as started:
        read_all(started.pid, said.append)
    counts = [int(each.split(" ")[0].replace(",", "")) for each in said if "blocks" in each]
    assert counts
    assert counts[0] > 0
    assert counts == sorted(counts)


@pytest.mark.parametrize("start", [1 << 20, 0xFFFF_F400_0000])
def test_the_free_end_of_an_older_heap_counts(start: int) -> None:
    """Before the two heads behind its chunks: glibc leaves them where it begins another heap."""
    block = bytearray(contents._BLOCK + 16)
    at = start
    for size in (48 | 1, 48 | 1, 64 | 1, 16, 1):  # the third is free
        offset = at - start + 8
        block[offset : offset + 8] = size.to_bytes(8, "little")
        at += size & ~7 or 16
    lists = contents._FreeLists(-1, -1, print)
    lists._copy = lambda at, size: block[at - start : at - start + size]  # type: ignore[method-assign]
    lists._until = time.monotonic() + 1000
    free, _ = lists._walk(start, at)
    assert free == 64
    lists._add(large := start + (1 << 20), 40 << 20)
    chunks = np.frombuffer(lists._free, np.uint64)
    found = [
        (begin, end)
        for each in lists._joined(np.sort(chunks), start, start + (64 << 20))
        for begin, end in zip(*each, strict=True)
    ]
    assert found == [(start + 96, start + 160), (large, large + (40 << 20))]


def test_what_could_not_be_read_is_no_leak(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "_MOST_CHUNKS", 1000)
    monkeypatch.setattr(contents, "_BETWEEN_LOOKS", 100)
    with running(program, "fast") as started:
        reading = read(started.pid)
    assert not reading.glibc.main.is_rest_used
    for trimmed, said in ((24 << 20, "would return at least 24.0 MiB"), (0, "is not known")):
        partly = Heap(32 << 20, False, trimmed)
        found = {e.cause: e for e in findings(replace(reading, glibc=Glibc(partly)))}
        assert "This is a lower bound" in found["free"].sentence
        assert said in found["free"].sentence
        assert "almost nothing" not in found["free"].sentence
        assert not any("record" in line for line in found["malloc"].commands)
        assert "Record" not in found["malloc"].sentence


def test_what_a_program_was_started_with_is_in_the_commands(tmp_path: Path, library: Path) -> None:
    subprocess.run(["gcc", "-O1", PLANTED / "arenas.c", "-o", tmp_path / "arenas"], check=True)
    script = f"cd {tmp_path}; exec ./arenas"
    with running("sh", "-c", script, MALLOC_ARENA_MAX="2") as started:
        reading = read(started.pid)
        found = {each.cause: each for each in findings(reading)}  # some have the main arena
    assert "limited to 2" in found["arenas"].sentence
    assert found["arenas"].commands[:2] == [
        f"heapfit run --control -- {tmp_path}/arenas",
        f"LD_PRELOAD={library} {tmp_path}/arenas  # to deploy it",
    ]
    recorded = f"MALLOC_ARENA_MAX=2 heapfit record -o whole-{started.pid}.hft -- {tmp_path}/arenas"
    assert recorded in found["free"].commands
    assert reading.glibc.main.whole


def test_a_full_container_comes_before_what_is_in_it(program: Path) -> None:
    with running(program, "mapped") as started:
        reading = read(started.pid)
    full = Memory(limit=10 << 30, used=10 << 30, cache=0, file="/a/memory.max")
    assert findings(replace(reading, limits=[full]))[0].cause == "limit"
    [first, *_] = findings(replace(reading, limits=[replace(full, cache=9 << 30)]))
    assert (first.cause, first.size) == ("cache", 9 << 30)


def test_no_byte_is_counted_for_two_causes(program: Path) -> None:
    """Of a heap in huge pages that is free and clear both were told."""
    with running(program, "mapped") as started:
        reading = read(started.pid)
    heap = Cause("malloc", likely=False)
    heap.add(next(parse([b"1000000-5000000 rw-p 0 00:00 0 [heap]", b"Rss: 65536 kB"])))
    heap.huge = heap.lazily_freed = reading_size = 64 << 20
    both = replace(
        reading,
        causes=[heap],
        resident=reading_size,
        huge=reading_size,
        huge_untouched=1.0,
        lazily_freed=20 << 20,
        limits=[],
        glibc=Glibc(Heap(free=30 << 20)),
    )
    found = {each.cause: each.size for each in findings(both) if not each.of_all}
    assert sum(found.values()) == reading_size
    assert found["free"] == 30 << 20


def test_who_cannot_be_recorded_is_not_told_to(program: Path) -> None:
    with running(program, "malloc") as started:
        reading = read(started.pid)
    assert reading.recordable
    said = "This program cannot be recorded: it is linked with musl."
    cause = replace(reading.causes[0], key="jemalloc")
    for glibc, causes_ in (
        (Glibc(Heap(30 << 20, True)), reading.causes),
        (Glibc(Heap(30 << 20)), reading.causes),
        (Glibc(), [cause]),
    ):
        looked = replace(reading, glibc=glibc, causes=causes_)
        advice = "Record the|record the process|the recorder|another allocator|heapfit fit"
        for obstacle in ("", said):
            found = findings(replace(looked, obstacle=obstacle))
            told = " ".join(each.sentence for each in found)
            commands = [line for each in found for line in each.commands]
            assert (said in told) is bool(obstacle)
            assert bool(re.search(advice, told)) is not bool(obstacle)
            assert any("heapfit r" in line for line in commands) is not bool(obstacle)


def test_what_gets_into_no_program_says_why(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, static, other = (tmp_path / each for each in ("own", "static", "of-32-bits"))
    (source := tmp_path / "own.c").write_text(
        "#include <stdlib.h>\nstatic char a[9]; void *malloc(size_t n) { return n ? a : 0; }\n"
        "int main(void) { return malloc(9) == 0; }"
    )
    for made, flags in ((own, ["-fno-builtin"]), (static, ["-static", "-Dmalloc=mine"])):
        subprocess.run(["gcc", "-w", *flags, source, "-o", made], check=True)
    other.write_bytes(b"\x7fELF\x01\x01" + bytes(100))
    libc, musl = "/lib/libc.so.6", "/lib/ld-musl-x86_64.so.1"
    for run, files, why in (
        (program, [libc], ""),
        (program, [f"{libc} (deleted)"], ""),
        (program, ["/lib/libc-2.31.so"], ""),
        (program, [musl], "it is linked with musl"),
        (own, [libc], "its malloc is its own; it would not use a preloaded one"),
        (static, [], "its malloc is built in, because it is linked statically"),
        (other, [libc], "it is no program of 64 bits"),
    ):
        said = why_reading._obstacle(run, files)
        assert (why in said) if why else not said
    with running(program, "malloc") as started:
        for machine, is_attached in (("x86_64", True), ("aarch64", False)):
            monkeypatch.setattr(platform, "machine", lambda machine=machine: machine)
            monkeypatch.setattr(why_reading, "_FILTER", "not looked at")
            reading = replace(read(started.pid), computes=True)
            [heap] = [each for each in findings(reading) if each.cause == "malloc"]
            assert heap.commands[0].startswith("heapfit record --pid") is is_attached
            assert heap.commands[0].startswith("heapfit record -o") is not is_attached


def test_a_program_of_a_container_is_not_started_outside_of_it(
    program: Path, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was to be started here, where another program has its name."""
    variables = {"LD_PRELOAD": str(library)}
    for kind, environment in (("malloc", {}), ("arenas", {}), ("malloc", variables)):
        with running(program, kind, **environment) as started:
            for elsewhere in (False, True):
                monkeypatch.setattr(
                    why_reading, "has_other_root", lambda _, elsewhere=elsewhere: elsewhere
                )
                reading = replace(read(started.pid), computes=True)
                free = replace(reading.glibc, others=Heap(reading.resident, True))
                found = findings(replace(reading, glibc=free))
                told = " ".join(each.sentence for each in found)
                commands = [line for each in found for line in each.commands]
                assert ("in a container, or with another root: run heapfit there" in told) is (
                    elsewhere
                )
                starts = [each for each in commands if re.search(f"{program}|-- |--pid", each)]
                assert bool(starts) is not elsewhere


def test_what_is_not_known_of_variables_is_not_said_to_be_unset(program: Path) -> None:
    """Servers write their titles over them."""
    with running(program, "arenas") as started:
        reading = read(started.pid)
    for known, said in (
        (True, "MALLOC_ARENA_MAX is not set"),
        (False, "whether MALLOC_ARENA_MAX is set is not known"),
    ):
        assert said in findings(replace(reading, settings_known=known))[0].sentence


def test_who_records_itself_writes_where_it_may(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(program, "malloc") as started:
        reading = replace(read(started.pid), computes=True, from_start_only=False)
        own, other = os.geteuid(), os.geteuid() + 1
        for user, folders, folder in (
            (own, ["/tmp"], ""),
            (other, ["/tmp"], "/tmp/"),
            (other, [str(tmp_path / "unseen"), "/tmp"], "/tmp/"),
            (other, [], "FOLDER/"),
        ):
            module = sys.modules[findings.__module__]
            monkeypatch.setattr(module, "_SEEN_BY_ALL", folders)
            process = replace(reading.process, user=user)
            [heap] = [e for e in findings(replace(reading, process=process)) if e.cause == "malloc"]
            assert heap.commands[0].endswith(f" -o {folder}growth-{started.pid}.hft")


GUARD = b"10000000-10001000 ---p 0 00:00 0"
DATA, HEAP = b"13fff000-14000000 rw-p 0 08:01 7 /a.so", b"14000000-18000000 rw-p 0 00:00 0"


def test_a_small_heap_is_not_worth_a_recording(program: Path) -> None:
    with running(program, "malloc") as process:
        reading = read(process.pid)
    [heap] = [each for each in reading.causes if each.key == "malloc"]
    for resident, is_little in ((40 << 20, False), (1 << 20, True)):
        changed = replace(heap, resident=resident)
        found = findings(replace(reading, causes=[changed], glibc=Glibc(Heap(0, True))))
        [told] = [each for each in found if each.cause == "malloc"]
        assert ("There is little to find in so little memory." in told.sentence) is is_little
        assert any("record" in each for each in told.commands) is not is_little


@pytest.mark.parametrize(
    ("waiting", "is_recorded"), [("input()", False), ("while True: pass", True)]
)
def test_what_computes_nothing_is_recorded_from_its_start(waiting: str, is_recorded: bool) -> None:
    """A recording of it as it is has no events."""
    code = f"kept = [bytes(1000) for _ in range(20_000)]; print('there', flush=True)\n{waiting}"
    with running(sys.executable, "-c", code, PYTHONMALLOC="malloc") as started:
        while (reading := read(started.pid)).computes is not is_recorded:
            pass
    assert reading.computed  # Its start is recent.
    reading = replace(reading, computed=False)
    [heap] = [each for each in findings(reading) if each.cause == "malloc"]
    assert heap.commands[0].startswith("heapfit record --pid") is is_recorded
    whole = heap.commands[0].startswith("PYTHONMALLOC=malloc heapfit record -o")
    assert whole is not is_recorded
    assert ("from its start" in heap.sentence) is not is_recorded


def test_what_works_in_bursts_is_first_recorded_as_it_is(program: Path) -> None:
    """It was to restart, which loses what has leaked."""
    with running(program, "malloc") as started:
        reading = replace(read(started.pid), computes=False, computed=True, from_start_only=False)
    [heap] = [each for each in findings(reading) if each.cause == "malloc"]
    assert "if it will run within a minute" in heap.sentence
    recordings = [each.split(" ")[2] for each in heap.commands if "heapfit record" in each]
    assert recordings == ["--pid", "-o"]


@pytest.mark.parametrize(("used_s", "part"), [(0.0, 0.0), (0.5, 0.0005), (3000.0, 3.0)])
def test_what_a_process_has_computed_counts_from_its_start(
    monkeypatch: pytest.MonkeyPatch, used_s: float, part: float
) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    fields = ["S", *["0"] * 10, str(round(used_s * ticks)), *["0"] * 7, str(500 * ticks), "0"]
    monkeypatch.setattr(proc, "read_file", lambda *_: f"7 (a ) b) {' '.join(fields)}".encode())
    monkeypatch.setattr(time, "clock_gettime", lambda _: 1500.0)
    assert why_reading._part_of_life(7) == pytest.approx(part)


def never(_: int) -> bool:
    return False


@pytest.mark.parametrize(
    ("place", "lines", "cause"),
    [
        (Place("", "go", [0x10800010]), [b"10800000-10c00000 rw-p 0 00:00 0"], "go"),
        (Place("tcmalloc", None, []), [b"10000000-10010000 rw-p 0 00:00 0 [heap]"], "tcmalloc"),
        (Place("glibc", None, []), [GUARD, b"10001000-10100000 rw-p 0 00:00 0"], "stacks"),
        (Place("heapfit", None, []), [GUARD, b"10001000-10100000 rw-p 0 00:00 0"], "heapfit"),
        (Place("glibc", None, []), [b"10000000-10010000 rw-s 0 08:01 7 /a/[heap]"], "files"),
        (
            Place("glibc", None, [], tmpfs=["00:1c"]),
            [b"10000-20000 rw-s 0 00:1c 7 /tmp/a"],
            "shared",
        ),
        (
            Place("glibc", None, []),
            [GUARD, b"10001000-20000000 rw-p 0 00:00 0"],
            "mapped",
        ),
        (Place("glibc", "java", [], is_arena=never), [b"14000000-1c000000 rw-p 0 00:00 0"], "java"),
        # The kernel has made one mapping of a stack and a large block.
        (Place("glibc", None, [0x10F00000]), [b"10800000-11800000 rw-p 0 00:00 0"], "stacks"),
        (Place("glibc", None, [0x10F00000]), [b"10800000-11801000 rw-p 0 00:00 0"], "mapped"),
        (
            Place("glibc", None, [0x10F00000], usual_stack=16 << 20),
            [b"10800000-11801000 rw-p 0 00:00 0"],
            "stacks",
        ),
        # A heap that is full leaves less than a guard below the next.
        (Place("glibc", None, []), [b"13ff0000-14000000 ---p 0 00:00 0", HEAP], "arenas"),
        # The kernel has made one mapping of a library's variables and a large block.
        (Place("glibc", None, [], variables=lambda _: 4096), [DATA, HEAP], "arenas"),
        (
            Place("glibc", None, [], variables=lambda _: 4096, is_arena=never),
            [DATA, HEAP],
            "mapped",
        ),
        (Place("glibc", None, [], is_arena=never), [DATA, HEAP], "variables"),
    ],
)
def test_the_place_of_a_mapping_tells(place: Place, lines: list[bytes], cause: str) -> None:
    [found] = causes(list(parse([*lines, b"Rss: 64 kB"])), place)
    assert found.key == cause


def test_what_an_upgrade_has_replaced_is_known_by_its_name(tmp_path: Path) -> None:
    library, c_library = "/lib/libjemalloc.so.2 (deleted)", "/lib/libc.so.6 (deleted)"
    both = [library, "/lib/libmimalloc.so.2.0", c_library]
    for preload, name, file in (
        ("/x.so:libjemalloc.so.2", "jemalloc", library),
        ("libmimalloc.so.2", "mimalloc", both[1]),
        (None, "jemalloc", library),  # not known: it may be
        ("", "glibc", c_library),  # the others were opened since
    ):
        assert allocator_of(both, "", tmp_path, preload) == Allocator(name, file)
    found = allocator_of(["/lib/x86_64-linux-musl/libc.so"], "", tmp_path, "")
    assert found is not None
    assert found.name == "musl"


def test_the_allocator_is_the_first_that_the_loader_finds(program: Path, tmp_path: Path) -> None:
    """One that a program had only opened was taken for its own; an unknown one for glibc's."""
    source, library = tmp_path / "mine.c", tmp_path / "libmine.so"
    source.write_text("void *__libc_malloc(long); void *malloc(long n){return __libc_malloc(n);}")
    subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", library], check=True)
    with running(program, "malloc", LD_PRELOAD=str(library)) as started:
        found = read(started.pid).allocator
    assert found is not None
    assert found.text == "mine (libmine.so)"
    opens = f"import ctypes; ctypes.CDLL({str(library)!r}); print('there', flush=True); input()"
    with running(sys.executable, "-c", opens) as started:
        found = read(started.pid).allocator
    assert getattr(found, "name", None) == "glibc"


def test_a_pipe_in_the_place_of_a_library_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    os.mkfifo(tmp_path / "root" / "libc.so.6")
    assert allocator_of(["/libc.so.6"], "", tmp_path, "") == Allocator("glibc", "/libc.so.6")


def test_what_is_named_is_what_runs(program: Path, library: Path) -> None:
    with running(program, "arenas", MALLOC_ARENA_MAX="16") as started:
        reading = read(started.pid)
    [arenas, *_] = findings(reading)
    assert reading.allocator is not None
    assert reading.allocator.name == "glibc"
    assert reading.allocator.version.startswith("2.")
    assert "9 threads" in arenas.sentence
    assert "8 arenas, in 8 heaps" in arenas.sentence
    assert "limited to 16" in arenas.sentence
    for free, said in ((0, " How much of it is free"), (4096, "free. How much more is free")):
        [arenas, *_] = findings(replace(reading, glibc=Glibc(Heap(), 8, Heap(free))))
        assert f"{said} is not known. " in arenas.sentence
    with running(program, "malloc", LD_PRELOAD=str(library)) as started:
        [heap, *_] = findings(read(started.pid))
    assert (heap.cause, heap.title) == ("heapfit", "heapfit's heap")
    assert "runs under heapfit without control:on" in heap.sentence


def test_what_sleeps_with_free_memory_is_to_give_it_back_by_itself(
    tmp_path: Path, library: Path
) -> None:
    """It was to be trimmed by hand, after each peak."""
    subprocess.run(["gcc", "-O1", PLANTED / "retained.c", "-o", tmp_path / "retained"], check=True)
    options = {"LD_PRELOAD": str(library), "HEAPFIT_OPTIONS": "control:on"}
    with running(tmp_path / "retained", **options) as started:
        reading = read(started.pid)
    run = f"heapfit run --control --set background=on -- {tmp_path}/retained"
    is_on = {"HEAPFIT_OPTIONS": "control:on,background:on"}
    for looked, is_advised in (
        (reading, True),
        (replace(reading, threads=2), False),
        (replace(reading, settings=is_on), False),
    ):
        [heap] = [each for each in findings(looked) if each.cause == "heapfit"]
        assert heap.commands[0] == f"heapfit ctl {started.pid} trim"
        assert (heap.commands[1] == run) is is_advised
        deployed = f"HEAPFIT_OPTIONS=background:on LD_PRELOAD={library} {tmp_path}/retained"
        assert (f"{deployed}  # to deploy it" in heap.commands) is is_advised
        assert ("background:on" in heap.sentence) is is_advised


def test_the_call_site_that_pins_most_is_named_first(
    program: Path, library: Path, run_heapfit: Heapfit
) -> None:
    preload = {"LD_PRELOAD": str(library)}
    with running(program, "pinned", **preload, HEAPFIT_OPTIONS="control:on,sample:64k") as started:
        said = run_heapfit("why", str(started.pid))
        told = json.loads(run_heapfit("why", str(started.pid), "--json").stdout)
    assert told["pinners"][0]["calls"][0].startswith("site_sparse")
    [pinned] = [each for each in told["findings"] if each["cause"] == "pinned"]
    assert re.search(
        r"samples\) is pinned by [\d.]+ MiB of objects that site_sparse", pinned["sentence"]
    )
    assert "site_dense" not in pinned["sentence"]
    assert not pinned["commands"]
    assert "site_sparse" in said.stdout
    with running(program, "pinned", **preload, HEAPFIT_OPTIONS="control:on") as started:
        said = run_heapfit("why", str(started.pid))
    assert f"→ heapfit ctl {started.pid} set sample=512k" in said.stdout


def test_of_pythons_objects_a_recording_is_proposed_since_it_names_lines(
    program: Path, library: Path
) -> None:
    """A sample of the heap names the interpreter's own functions."""
    options = {"LD_PRELOAD": str(library), "HEAPFIT_OPTIONS": "control:on"}
    with running(program, "malloc", **options) as started:
        reading = replace(read(started.pid), computes=True)
    for settings, command in (
        (reading.settings, f"heapfit ctl {started.pid} set sample=512k"),
        ({"PYTHONMALLOC": "malloc"}, f"heapfit record --pid {started.pid} --for 60s"),
    ):
        [heap] = [e for e in findings(replace(reading, settings=settings)) if e.cause == "heapfit"]
        assert any(each.startswith(command) for each in heap.commands), heap.commands


def test_a_small_heap_of_heapfits_is_not_worth_a_sample(program: Path, library: Path) -> None:
    options = {"LD_PRELOAD": str(library), "HEAPFIT_OPTIONS": "control:on"}
    for kind, is_little in (("little", True), ("pinned", False)):
        with running(program, kind, **options) as started:
            found = findings(read(started.pid))
        [heap] = [each for each in found if each.cause == "heapfit"]
        assert ("There is little to find in so little memory." in heap.sentence) is is_little
        commands = [line for each in found for line in each.commands]
        assert any("sample" in each for each in commands) is not is_little


def test_sites_with_too_few_samples_are_not_named() -> None:
    site = "/usr/bin/program+0x10"

    def sentences(*pinned: tuple[int, int]) -> list[str]:
        """Of sites with so many samples, each of which pins so much."""
        numbers = range(len(pinned))
        samples = [
            ProfileSample(site=number, bytes=64, mean=64, pinned=pinned[number][1])
            for number in numbers
            for _ in range(pinned[number][0])
        ]
        sites = [ProfileSite(site=number, calls=[f"{site}{number}"]) for number in numbers]
        return pinners.told(profile(ProfileAnswer(mean=64, samples=samples, sites=sites)))

    [first, second] = sentences((2, 500), (3, 1000))
    assert "from 3 samples" in first
    assert "from 2 samples" in second
    assert not sentences((1, 5000), (3, 1000))


def test_one_caller_of_several_is_named_that_pins_nearly_all() -> None:
    many = [ProfileSample(site=0, bytes=64, mean=64, pinned=1) for _ in range(50)]
    few = [ProfileSample(site=1, bytes=64, mean=64, pinned=1000) for _ in range(5)]
    calls = ["/x+0x10", "/x+0x20"], ["/x+0x10", "/x+0x30"]
    sites = [ProfileSite(site=number, calls=list(each)) for number, each in enumerate(calls)]
    [told] = pinners.told(profile(ProfileAnswer(mean=64, samples=[*many, *few], sites=sites)))
    assert "from 5 samples" in told
    assert "x+0x10 ← x+0x30 allocates" in told


def test_a_runtimes_objects_are_not_mallocs() -> None:
    with running(sys.executable, "-c", PYTHON) as started:
        reading = read(started.pid)
    assert reading.runtime == "python"
    [first, *_] = findings(reading)
    assert first.cause == "python"
    assert "only once all of it is free" in first.sentence
    assert "PYTHONMALLOC=malloc" in first.sentence
    # An allocator does nothing for objects that grow, so that it comes last.
    starts = ("heapfit record --objects ", "heapfit profile ", "PYTHONMALLOC=malloc heapfit run ")
    for command, start in zip(first.commands, starts, strict=True):
        assert command.startswith(start)


@pytest.mark.full
def test_zeros_in_huge_pages_are_told(program: Path) -> None:
    with running(program, "huge_pages") as started:
        reading = read(started.pid)
    if not reading.huge:
        pytest.skip("the kernel gives no huge pages here")
    [first, *_] = findings(reading)
    assert first.cause == "huge_pages"


def test_what_grows_between_two_looks_comes_first(program: Path) -> None:
    with running(program, "stacks") as started:
        before = read(started.pid)
        assert started.stdin is not None
        started.stdin.write(b"x")
        started.stdin.flush()
        while grown(before, after := read(started.pid))[0].gained < 60 << 20:
            pass
    [first, *_] = grown(before, after)
    assert first.key == "malloc"
    assert first.title.startswith("malloc's main heap")
    assert before.run == after.run


def test_free_memory_that_becomes_noticeable_has_not_grown(program: Path) -> None:
    with running(program, "malloc") as started:
        before = read(started.pid)
    tenth = before.resident // 10
    less, more = (replace(before, glibc=Glibc(Heap(tenth + by, True))) for by in (-4096, 4096))
    assert {each.key: each.gained for each in grown(less, more)}["free"] == 8192


@pytest.mark.parametrize("is_read", [True, False])
def test_what_was_free_in_one_look_has_not_grown_where_the_other_could_not_tell(
    program: Path, capsys: pytest.CaptureFixture[str], is_read: bool
) -> None:
    """Pages in swap are not read: what had been free before was a leak."""
    with running(program, "malloc") as started:
        reading = read(started.pid)
    cause = Cause("malloc", likely=False, resident=80 << 20)
    less = replace(reading, causes=[cause], resident=80 << 20, glibc=Glibc(Heap(60 << 20, True)))
    unread = replace(less, glibc=Glibc(Heap(40 << 20, is_read)))
    assert {each.key for each in grown(less, unread) if each.matters} == (
        {"malloc"} if is_read else set()
    )
    more = replace(unread, causes=[replace(cause, resident=90 << 20)])
    cli_why._show_growth([each for each in grown(less, more) if each.matters])
    told = capsys.readouterr().out
    assert ("heap, in use, grew by 30.0 MiB" in told) is is_read
    assert ("heap, in use and free together, grew by 10.0 MiB" in told) is not is_read


@pytest.mark.parametrize(("free", "is_told"), [(131 << 10, False), (16 << 20, True)])
def test_of_a_little_free_memory_there_is_nothing_to_do(
    program: Path, capsys: pytest.CaptureFixture[str], free: int, is_told: bool
) -> None:
    """A process whose memory goes up and down got three commands for 131 KiB of it."""
    with running(program, "malloc") as started:
        reading = read(started.pid)
    cause = Cause("malloc", likely=False, resident=2 * free)
    before, after = (
        replace(reading, causes=[cause], resident=2 * free, glibc=Glibc(Heap(each, True)))
        for each in (0, free)
    )
    cli_why._show(after, findings(after), grown(before, after), every=False)
    printed = capsys.readouterr().out
    assert ("Nothing has grown" not in printed) is is_told
    [found] = [each for each in findings(after) if each.cause == "free"]
    assert bool(found.commands) is is_told
    assert ("little to find" in found.sentence) is not is_told


def test_what_has_grown_is_told_however_little_it_is(
    program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A leak of 8 MiB beside 238 of free memory got no command."""
    with running(program, "malloc") as started:
        after = read(started.pid)
    cause, of_all = Cause("malloc", likely=False, resident=15 << 20), 10 << 30
    few = replace(after, causes=[cause], resident=of_all, glibc=Glibc(Heap(0, True)), computes=True)
    before = replace(few, causes=[replace(cause, resident=7 << 20)])
    growth = grown(before, few)
    assert [each.key for each in growth] == ["malloc"]
    for grew, is_told in ((growth, True), ([], False)):
        cli_why._show(few, findings(few), grew, every=False)
        assert ("heapfit record --pid" in capsys.readouterr().out) is is_told


def test_of_a_heap_that_is_partly_free_the_rest_is_called_in_use(program: Path) -> None:
    with running(program, "malloc") as started:
        reading = read(started.pid)
    for free, whole, title in (
        (reading.resident // 2, True, "malloc's main heap, in use"),
        (reading.resident // 2, False, "malloc's main heap"),
        (0, True, "malloc's main heap"),
    ):
        found = findings(replace(reading, glibc=Glibc(Heap(free, whole))))
        assert [each.title for each in found if each.cause == "malloc"] == [title]


def test_a_process_that_executes_the_same_program_again_is_another_run() -> None:
    again = "print('there', flush=True); input()"
    source = f"import os, sys; {again}; os.execv(sys.executable, [sys.executable, '-c', {again!r}])"
    with running(sys.executable, "-c", source) as started:
        before = read(started.pid)
        assert started.stdin is not None
        assert started.stdout is not None
        started.stdin.write(b"\n")
        started.stdin.flush()
        started.stdout.readline()
        assert read(started.pid).run != before.run


def test_the_command_says_it_in_words_and_in_json(program: Path, run_heapfit: Heapfit) -> None:
    with running(program, "arenas") as started:
        said = run_heapfit("why", str(started.pid))
        told = run_heapfit("why", str(started.pid), "--json")
    assert said.returncode == told.returncode == 0, said.stderr
    assert "glibc's arenas of threads" in said.stdout
    assert "→ heapfit record" in said.stdout  # all of it lives
    found = json.loads(told.stdout)
    first = next(each for each in found["findings"] if not each["of_all"])
    assert first["cause"] == "arenas"
    assert first["evidence"]


def test_without_a_process_the_largest_are_listed(run_heapfit: Heapfit) -> None:
    listed = json.loads(run_heapfit("why", "--json").stdout)
    sizes = [each["resident"] for each in listed]
    assert sizes
    assert sizes == sorted(sizes, reverse=True)


def test_what_cannot_be_read_is_said(run_heapfit: Heapfit) -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
        assert f"there is no process {ended.pid}" in run_heapfit("why", str(ended.pid)).stderr
    assert "is not a process ID" in run_heapfit("why", "no-such-program").stderr


@contextmanager
def sleeping(program: Path) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([program, "600"]) as started:
        try:
            yield started
        finally:
            started.kill()


def test_a_process_may_be_given_by_a_name_that_no_other_has(
    run_heapfit: Heapfit, tmp_path: Path
) -> None:
    sleeper = tmp_path / f"folder-{os.getpid()} of" / f"sleeper-of-{os.getpid()}"
    sleeper.parent.mkdir()
    sleeper.symlink_to(str(shutil.which("sleep")))
    with sleeping(sleeper) as first:
        found = json.loads(run_heapfit("why", sleeper.name, "--json").stdout)
        assert found["pid"] == first.pid
        with sleeping(sleeper) as second:
            said = run_heapfit("why", sleeper.name).stderr
            assert f"2 processes are named {sleeper.name!r}" in said
            assert f"({first.pid}, {second.pid})" in said
        assert "the name of a running process" in run_heapfit("why", f"folder-{os.getpid()}").stderr
    assert "is empty: is it running?" in run_heapfit("why", "").stderr


@pytest.mark.full  # pid 1 may be one's own in a container
def test_of_somebody_elses_process_is_told_what_may_be_read(program: Path) -> None:
    with running(program, "malloc") as started:
        other = started.pid if os.geteuid() == 0 else 1
        try:
            os.seteuid(65534 if os.geteuid() == 0 else os.geteuid())
            [first, *_] = findings(read(other))
        finally:
            os.seteuid(os.getuid())
    assert first.cause == "anonymous"
    assert first.commands == [f"sudo heapfit why {other}"]


@pytest.mark.full
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give its capabilities away")
def test_root_without_the_right_to_trace_sees_what_may_be_read() -> None:
    weak = ["setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-all"]
    with subprocess.Popen(
        ["setpriv", "--reuid", "65534", "--clear-groups", "sleep", "60"]
    ) as other:
        try:
            while b"sleep" not in Path(f"/proc/{other.pid}/cmdline").read_bytes()[:6]:
                pass
            asked = [*weak, *heapfit_command("why", str(other.pid))]
            told = subprocess.run(asked, capture_output=True, text=True)
        finally:
            other.kill()
    assert told.stdout.startswith(f"sleep (process {other.pid}) has "), told.stderr


def test_what_is_no_process_any_more_is_said(program: Path) -> None:
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(HeapfitError, match=f"has ended .*process {os.getpid()}, waits"):
            read(ended.pid)
    with running(program, "leaderless") as started:  # its first thread has ended
        assert read(started.pid).resident > 60 << 20
    waits = threading.Event()
    (thread := threading.Thread(target=waits.wait)).start()
    with pytest.raises(HeapfitError, match=f"is a thread; .*heapfit why {os.getpid()}"):
        read(thread.native_id or 0)
    waits.set()


def test_a_mapping_that_grew_between_two_reads_counts_once() -> None:
    first = [b"1000-3000 rw-p 0 00:00 0 [heap]\n", b"Rss: 8 kB\n", b"VmFlags: rd wr\n"]
    grown = [b"1000-4000 rw-p 0 00:00 0 [heap]\n", b"Rss: 12 kB\n", b"VmFlags: rd wr\n"]
    assert [each.resident for each in parse([*first, *grown])] == [12288]


def test_hostile_names_are_names() -> None:
    lines = [b"1000-2000 rw-p 00000000 00:00 7 /a b\\n: Rss: 9 kB (deleted)\n", b"Rss: 4 kB\n"]
    [mapping] = parse([*lines, b"Private_Hugetlb: 8 kB\n", b"Shared_Hugetlb: 4 kB\n"])
    assert mapping.path == "/a b\\n: Rss: 9 kB (deleted)"
    assert mapping.resident == 4096 + 12288
    assert memory_of(["5:memory:/a", "b"], Path("/none")) is None


def test_a_limit_of_its_own_that_is_near_comes_first(program: Path) -> None:
    limit = 142 << 20
    with running("prlimit", f"--as={limit}", program, "mapped") as started:
        reading = read_all(started.pid)
    own = [each for each in reading.limits if each.own]
    [first, *_] = findings(replace(reading, limits=own))
    assert first.title == "use of the limit on address space"
    assert 0.9 * limit < first.size <= limit


@pytest.mark.parametrize("version", [1, 2])
def test_the_nearest_limit_of_a_group_counts(tmp_path: Path, version: int) -> None:
    top = tmp_path / ("memory" if version == 1 else "")
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache", "total_shmem")
    of_2 = ("memory.max", "memory.current", "file", "shmem")
    limit, used, cache, shared = names if version == 1 else of_2
    for folder, most in ((top / "a", "1000"), (top / "a/b", "max" if version == 2 else "4000")):
        folder.mkdir(parents=True)
        (folder / limit).write_text(most)
        (folder / used).write_text("900")
        (folder / "memory.stat").write_text(f"{cache} 400\n{shared} 100\n")
    groups = ["3:cpu,cpuacct:/x", "5:memory:/a/b"] if version == 1 else ["0::/a/b"]
    found = memory_of(groups, tmp_path)
    assert found == Memory(1000, 900, 300, str(top / "a" / limit))
    assert cores_of(groups, tmp_path) is None
    if version == 1:
        (tmp_path / "cpu/x").mkdir(parents=True)
        (tmp_path / "cpu/x/cpu.cfs_quota_us").write_text("150000")
        (tmp_path / "cpu/x/cpu.cfs_period_us").write_text("100000")
    else:
        (top / "a/b/memory.high").write_text("950")
        assert memory_of(groups, tmp_path) == Memory(950, 900, 300, str(top / "a/b/memory.high"))
        (top / "a/cpu.max").write_text("150000 100000\n")
        (top / "a/b/cpu.max").write_text("max 100000\n")
    assert cores_of(groups, tmp_path) == 1.5
