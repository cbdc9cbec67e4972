"""Real programs behave the same on Linux 4.18, as far as a filter of system calls can stand for it.

Its own programs, a C library among them, know how to do without the calls that it lacks; so do the
library, and what needs a later kernel says so in one line.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from checking import check_same_with_and_without
from comparison import PROGRAMS_FOLDER, Program
from heapfit import paths
from test_programs import PROGRAMS, PYTHON

pytestmark = pytest.mark.full

TIMEOUT_S = 60
NO_FILTER = 77  # of programs/old_kernel.c

ALWAYS = {"python3-processes", "redis"}
FURTHER = {"python3-threads", "python3-limits-as", "sqlite3", "perl", "git", "ruby", "php", "node"}
NEEDS_5_9 = "this kernel does not let a thread have descriptors of its own (Linux 5.9 does)"

Launcher = Callable[[list[str]], list[str]]


@pytest.fixture(scope="session")
def on_old_kernel(tmp_path_factory: pytest.TempPathFactory) -> Launcher:
    launcher = tmp_path_factory.mktemp("old") / "old_kernel"
    source = PROGRAMS_FOLDER / "old_kernel.c"
    subprocess.run(["/usr/bin/gcc", "-O1", source, "-o", launcher], check=True)
    tried = subprocess.run([launcher, "true"], stderr=subprocess.PIPE, text=True)
    if tried.returncode == NO_FILTER:
        pytest.skip(f"here {tried.stderr.strip()}")
    return lambda command: [str(launcher), *command]


def few_and_many() -> list[object]:
    named = {program.name: program for program in PROGRAMS}
    always = [pytest.param(named[name], id=name) for name in sorted(ALWAYS)]
    full = pytest.mark.full
    return [
        *always,
        *(pytest.param(named[name], id=name, marks=full) for name in sorted(FURTHER)),
    ]


# Where huge pages and cleared memory are wanted, more is asked of the kernel.
@pytest.mark.parametrize("settings", ["", "huge_pages:always,zeroed_reserve:8m,decay_ms:10"])
@pytest.mark.parametrize("program", few_and_many())
def test_behaves_the_same(
    program: Program, settings: str, on_old_kernel: Launcher, library: Path, tmp_path: Path
) -> None:
    environment = {**program.environment, "HEAPFIT_OPTIONS": settings}
    old = replace(program, command=on_old_kernel(program.command), environment=environment)
    check_same_with_and_without(old, library, tmp_path)


def test_the_filter_answers_as_an_old_kernel(on_old_kernel: Launcher, tmp_path: Path) -> None:
    """So that what passes above passes because of what the library does."""
    script = tmp_path / "asks.py"
    script.write_text(
        "import ctypes, json, mmap, os\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "memory = mmap.mmap(-1, 1 << 16)\n"
        "start = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory)))\n"
        "size = ctypes.c_size_t(1 << 16)\n"
        "answers = {}\n"
        "def ask(name, function, *arguments):\n"
        "    ctypes.set_errno(0)\n"
        "    answers[name] = ctypes.get_errno() if function(*arguments) == -1 else 0\n"
        "ask('close_range', libc.syscall, 436, 1000, 1000, 0)\n"
        "ask('cold', libc.madvise, start, size, 20)\n"
        "ask('populate', libc.madvise, start, size, 22)\n"
        "ask('needed', libc.madvise, start, size, 3)\n"
        "ask('move', libc.mremap, start, size, size, 5, start)\n"
        "print(json.dumps(answers))\n"
    )
    command = on_old_kernel([PYTHON, str(script)])
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    enosys, einval = 38, 22
    answers = json.loads(done.stdout)
    refused = {"close_range": enosys, "cold": einval, "populate": einval, "move": einval}
    assert answers == {**refused, "needed": 0}


@pytest.mark.parametrize(
    ("variant", "variables", "line"),
    [
        ("default", {"HEAPFIT_OPTIONS": "control:on"}, f"heapfit: no control: {NEEDS_5_9}\n"),
        ("record", {}, f"heapfit: no recording: {NEEDS_5_9}\n"),
    ],
)
def test_what_needs_a_later_kernel_says_so(
    variant: str, variables: dict[str, str], line: str, on_old_kernel: Launcher, tmp_path: Path
) -> None:
    preload = {"LD_PRELOAD": str(paths.library(variant))}
    recording = {"HEAPFIT_RECORD": str(tmp_path / "trace.hft")}
    result = subprocess.run(
        on_old_kernel([PYTHON, "-c", "print(sum(range(1000)))"]),
        env={**os.environ, **preload, **recording, **variables},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "499500\n", line)
