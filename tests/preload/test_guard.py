"""guard_sample finds mistakes of real programs that nobody notices, and says where they are."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from subjects import compiled, run
from test_core_dump import asks, gdb, held, program, subject_under

pytestmark = pytest.mark.full

TIMEOUT_S = 120
ADDRESS = "0x[0-9a-f]+"
PLACE = re.compile(r"heapfit:     (\S+)\+(0x[0-9a-f]+)")

__all__ = ["program"]


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    flags = ["-g", "-w", "-fno-builtin", "-fno-optimize-sibling-calls"]
    return compiled("guarded.c", tmp_path_factory.mktemp("guarded"), *flags)


@dataclass
class Report:
    """What was said: the first line, and the places of each stack that are the program's."""

    returncode: int
    text: str
    line: str
    stacks: dict[str, list[str]]


def found(file: str | Path, offset: str) -> list[str]:
    """The function and the line of the source that an offset belongs to."""
    look = ["addr2line", "-s", "-f", "-e", file, offset]
    return subprocess.run(look, capture_output=True, text=True, check=True).stdout.split()


def report_of(guarded: Path, library: Path, settings: str, *words: str | Path) -> Report:
    done = run(guarded, *words, preload=library, settings=settings)
    stacks: dict[str, list[str]] = {}
    line, *rest = done.stderr.splitlines() or [""]
    for each in rest:
        place = PLACE.fullmatch(each)
        if " by thread " in each:
            stacks[each.split()[1]] = []
        elif place is not None and place[1].startswith(str(guarded)):
            stacks[list(stacks)[-1]].append(place[2])
    return Report(done.returncode, done.stderr, line, stacks)


BLOCK = f"the block at {ADDRESS} of"
FOUND = {
    "overflow": (
        f"overflow: read of {ADDRESS}, byte 1 past the end of {BLOCK} 48 bytes",
        {"accessed": "read_beyond", "allocated": "make_name"},
        signal.SIGSEGV,
    ),
    "underflow": (
        f"underflow: read of {ADDRESS}, byte 1 before {BLOCK} 48 bytes",
        {"accessed": "read_before", "allocated": "make_name"},
        signal.SIGSEGV,
    ),
    "freed": (
        f"use after free: read of {ADDRESS}, byte 8 of {BLOCK} 48 bytes",
        {"accessed": "read_freed", "allocated": "make_name", "freed": "drop_name"},
        signal.SIGSEGV,
    ),
    "thread": (
        f"use after free: read of {ADDRESS}, byte 8 of {BLOCK} 48 bytes",
        {"accessed": "read_freed", "allocated": "make_name", "freed": "drop_name"},
        signal.SIGSEGV,
    ),
    "off_by_one": (
        f"overflow: byte 1 past the end of {BLOCK} 40 bytes was written to, found by free",
        {"free": "drop_name", "allocated": "make_name"},
        signal.SIGABRT,
    ),
}


@pytest.mark.parametrize("kind", FOUND)
@pytest.mark.unhardened("its canaries are found first")
def test_a_mistake_that_does_no_harm_is_found_in_time(
    kind: str, guarded: Path, library: Path
) -> None:
    line, functions, number = FOUND[kind]
    # 2000000 requests of 48 bytes, or until it is found: so many points that none is hit by a
    # chance below one in 10^39. Each thread begins anew, and costs more.
    size = "4k" if kind == "thread" else "512k"
    report = report_of(guarded, library, f"guard_sample:{size}", kind)
    assert re.fullmatch(f"heapfit: {line}", report.line)
    assert report.returncode == -number
    innermost = {act: found(guarded, stack[0])[0] for act, stack in report.stacks.items()}
    assert innermost == functions


@pytest.mark.parametrize(("kind", "taken"), [("freed", "no more"), ("off_by_one", "never")])
def test_a_report_that_nobody_takes_changes_nothing(
    taken: str, kind: str, guarded: Path, library: Path
) -> None:
    reader, writer = os.pipe()
    if taken == "no more":
        os.close(reader)
    else:
        os.set_blocking(writer, False)
        for size in (4096, 1):  # until there is no room
            with contextlib.suppress(BlockingIOError):
                while True:
                    os.write(writer, b"x" * size)
        os.set_blocking(writer, True)
    done = subprocess.run(
        [guarded, kind],
        env={**os.environ, "LD_PRELOAD": str(library), "HEAPFIT_OPTIONS": "guard_sample:64k"},
        stderr=writer,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == -FOUND[kind][2]
    os.close(writer)
    if taken == "never":
        os.close(reader)


@pytest.fixture(scope="session")
def survivor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled("survivor.c", tmp_path_factory.mktemp("survivor"), "-fno-builtin")


def survived(survivor: Path, library: Path, *words: str) -> list[str]:
    """The lines that were said; the program goes on after each fault."""
    done = run(survivor, *words, preload=library)
    assert (done.returncode, done.stdout) == (0, "survived\n")
    return done.stderr.splitlines()


def test_threads_report_one_after_the_other(survivor: Path, default_library: Path) -> None:
    lines = survived(survivor, default_library, "48", "8", "8")
    acts = [line.split()[1] for line in lines if not PLACE.fullmatch(line)]
    acts = [act for act in acts if act != "build"]  # IDs of files
    assert acts == ["use", "accessed", "allocated", "freed"] * 64


@pytest.mark.parametrize("size", ["0", "300000"])
def test_hardened_faults_are_reported_a_few_times(
    size: str, survivor: Path, hardened_library: Path
) -> None:
    lines = survived(survivor, hardened_library, size, "1", "1000")
    kind = "an object of no bytes" if size == "0" else "which was freed"
    assert len(lines) == 64
    assert all(line.endswith(kind) for line in lines)


ROOT = Path(__file__).parents[2]


def explained(text: str, *words: str) -> str:
    command = [sys.executable, "-m", "heapfit", "explain", *words]
    path = {**os.environ, "PYTHONPATH": str(ROOT / "lab")}
    done = subprocess.run(command, input=text, env=path, capture_output=True, text=True, check=True)
    return done.stdout


def test_a_report_is_explained_by_functions_and_lines(guarded: Path, default_library: Path) -> None:
    report = report_of(guarded, default_library, "guard_sample:512k", "freed")
    text = f"before\n{report.text}after\n"
    lines = explained(text).splitlines()
    assert lines[0] == "before"
    assert lines[-1] == "after"
    innermost = {act: stack[0] for act, stack in report.stacks.items()}
    for act, function in FOUND["freed"][1].items():
        name, place = found(guarded, innermost[act])
        assert name == function
        assert any(line.endswith(f"+{innermost[act]}  {name} ({place})") for line in lines)
    [told] = json.loads(explained(text, "--json"))
    assert told["said"] == report.line.removeprefix("heapfit: ")
    assert {each["act"]: each["stack"][0]["function"] for each in told["acts"]} == FOUND["freed"][1]


def test_a_file_that_is_another_than_the_reports_is_told(
    guarded: Path, default_library: Path, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    shutil.copy(guarded, program)
    reports = [report_of(program, default_library, "guard_sample:512k", "freed")]
    subprocess.run(["strip", program], check=True)  # which keeps the build ID
    assert "(this file was rebuilt" not in explained(reports[0].text)
    source = ROOT / "docs/examples/guard/sessions.c"
    subprocess.run(["gcc", "-g", source, "-o", program], check=True)
    reports.append(report_of(program, default_library, "guard_sample:32m"))
    text = "".join(each.text for each in reports)
    of_program = [line for line in explained(text).splitlines() if f"{program}+" in line]
    rebuilt = ["rebuilt or replaced since" in line for line in of_program]
    assert rebuilt == sorted(rebuilt, reverse=True)  # all of the first report, none of the second
    assert any("sessions.c:" in line for line in of_program)
    old, new = json.loads(explained(text, "--json"))
    assert {
        each["rebuilt"] for each in old["acts"][0]["stack"] if each["file"] == str(program)
    } == {True}
    assert not any(each["rebuilt"] for each in new["acts"][0]["stack"])


def test_gdb_says_what_is_guarded(program: Path, library: Path) -> None:
    with subject_under(program, library, "guard_sample:1") as subject:
        where = {text: int(address, 16) for address, text in held(subject).items()}
        small, freed = where["a small object"], where["a freed object"]
        page = small & ~0xFFF
        asked = (small, freed, page - 0x1000)
        said = gdb("-p", str(subject.pid), *asks("stats", *(f"block {at:#x}" for at in asked)))
    blocks = [line for line in said if line.startswith("0x")]
    assert re.fullmatch(
        f"{small:#x} is 36 bytes into a guarded object of 100 bytes at {ADDRESS}. It is live.",
        blocks[0],
    )
    assert re.fullmatch(
        f"{freed:#x} is 136 bytes into a guarded object of 200 bytes at {ADDRESS}. It was freed.",
        blocks[1],
    )
    assert blocks[2].endswith("is in an inaccessible page beside guarded objects.")
    assert any("MiB for guarded objects" in line for line in said)


def test_stacks_are_taken_without_the_dynamic_linkers_lock(library: Path, tmp_path: Path) -> None:
    # Where the C library has a function that finds an object without it, which is asked for once.
    program = compiled("linker_asked.c", tmp_path, "-w", "-fno-builtin", "-rdynamic")
    done = run(program, preload=library, settings="guard_sample:1")
    assert done.returncode == 0
    assert int(done.stdout) <= 1
