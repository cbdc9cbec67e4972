"""Real programs where a sandbox leaves them little: a filter that kills for unknown system calls,
and no /proc and no /sys.

Such a filter is written for the program, from the calls that it makes. What the library makes
beside them is told in docs/limits.md, and no more than that is allowed here.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from checking import check_same_with_and_without
from comparison import Program
from heapfit import paths
from subjects import compiled, run
from test_programs import PROGRAMS
from trace_file import read_trace

pytestmark = pytest.mark.full

ROOT = Path(__file__).resolve().parents[2]
NO_FILTER = 77  # of programs/confined.c
OPENING = {"openat", "read", "close"}


def documented_calls() -> set[str]:
    """The system calls that docs/limits.md says the library makes with its default options."""
    text = (ROOT / "docs/limits.md").read_text()
    found = re.search(r"^## System calls$.*?```text\n(.*?)```", text, re.DOTALL | re.MULTILINE)
    assert found is not None
    return set(found[1].split())


def numbers_of_calls() -> dict[str, int]:
    """Of all system calls that the headers of this machine name."""
    command = ["/usr/bin/gcc", "-E", "-dM", "-include", "sys/syscall.h", "-xc", "/dev/null"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    pairs = re.findall(r"^#define __NR_(\w+) (\d+)$", done.stdout, re.MULTILINE)
    return {name: int(number) for name, number in pairs}


def named(name: str, phases: Program) -> Program:
    return next(each for each in [phases, *PROGRAMS] if each.name == name)


@pytest.mark.parametrize(
    ("settings", "watch", "added", "needless"),
    [
        ("", "", set(), set()),
        ("background:off", "", set(), set()),
        ("", "/proc/pressure/memory", {"fstat"}, set()),
        ("memory_limit:none", "", set(), OPENING),
        ("memory_limit:none,background:off", "", set(), OPENING),
    ],
)
def test_a_program_that_confines_itself_may_leave_out_all_calls_but_those_that_are_documented(
    settings: str,
    watch: str,
    added: set[str],
    needless: set[str],
    library: Path,
    tmp_path: Path,
) -> None:
    """Its own calls are few, so that they do not hide what the library makes."""
    program = compiled("confined.c", tmp_path)
    hardened = {"rt_sigaction"} if "hardened" in library.name else set()
    numbers = numbers_of_calls()
    calls = (documented_calls() | hardened | added) - needless
    words = [str(numbers[call]) for call in calls if call in numbers]
    watched = {"MEMORY_PRESSURE_WATCH": watch} if watch else {}
    done = run(program, *words, preload=library, settings=settings, **watched)
    if done.returncode == NO_FILTER:
        pytest.skip("here no filter can be installed")
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_the_recorder_makes_few_calls_in_a_thread_that_confines_itself(tmp_path: Path) -> None:
    """Those of the C library's malloc, and what record/writer.h says, though the thread waits."""
    program = compiled("confined.c", tmp_path)
    numbers = numbers_of_calls()
    of_malloc = {"brk", "getrandom", "madvise", "mmap", "mprotect", "mremap", "munmap"}
    of_recorder = {"clock_gettime", "futex", "getpid", "gettid"}
    calls = of_malloc | of_recorder | {"write", "exit_group"}
    file = tmp_path / "trace.hft"
    slow = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "inject=write:delay_enter=100000"]
    recorded = ["-E", f"LD_PRELOAD={paths.library('record')}", "-E", f"HEAPFIT_RECORD={file}"]
    words = [program, "alone", *(str(numbers[call]) for call in sorted(calls))]
    done = run(*slow, "-e", "trace=write", *recorded, *words)
    if done.returncode == NO_FILTER:
        pytest.skip("here no filter can be installed")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert read_trace(file).end["reason"] == "exit"


def test_a_program_does_not_wait_for_a_recorder_that_a_filter_has_ended(tmp_path: Path) -> None:
    file = str(tmp_path / "trace.hft")
    program = compiled("lone_filter.c", tmp_path)
    done = run(program, preload=paths.library("record"), HEAPFIT_RECORD=file)
    if done.returncode == NO_FILTER:
        pytest.skip("here no filter can be installed")
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 5000, "it waited for 10 seconds"
    assert "has been ended" in done.stderr


EVERYTHING = (
    "background:on,zeroed_reserve:8m,guard_sample:64k,huge_pages:always,decay_ms:10,control:on"
)


# The program and its options, since a thread of ours is in the way of who enters a namespace.
Blinder = Callable[[list[str], str], list[str]]


@pytest.fixture(scope="session")
def without_kernel_files() -> Blinder:
    """Runs a command where /proc and /sys are empty folders."""
    mounts = "mount -t tmpfs none /proc && mount -t tmpfs none /sys"
    script = f'{mounts} && HEAPFIT_OPTIONS="$0" exec "$@"'

    def command(words: list[str], settings: str) -> list[str]:
        return ["unshare", "-rm", "sh", "-c", script, settings, *words]

    tried = subprocess.run(command(["true"], ""), stderr=subprocess.PIPE, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"nothing can be mounted here: {tried.stderr.strip()}")
    return command


@pytest.mark.parametrize(("name", "settings"), [("phases", EVERYTHING), ("python3-threads", "")])
def test_a_program_works_without_proc_and_sys(
    name: str,
    settings: str,
    phases: Program,
    without_kernel_files: Blinder,
    library: Path,
    tmp_path: Path,
) -> None:
    program = named(name, phases)
    blind = replace(program, command=without_kernel_files(program.expanded(), settings))
    check_same_with_and_without(blind, library, tmp_path)
