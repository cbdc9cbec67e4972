"""Real programs behave the same on Linux 4.18, as far as a filter of system calls can stand for it.

Its own programs, a C library among them, know how to do without the calls that it lacks; so do the
library, and what needs a later kernel says so in one line.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from checking import check_same_with_and_without
from comparison import Program
from heapfit import paths
from subjects import compiled, run
from test_programs import PROGRAMS, PYTHON

pytestmark = pytest.mark.full

NO_FILTER = 77  # of programs/old_kernel.c

# Each has several processes.
SOME = {"python3-processes", "redis"}
NEEDS_5_9 = "this kernel does not let a thread have descriptors of its own (Linux 5.9 does)"

Launcher = Callable[[list[str]], list[str]]


@pytest.fixture(scope="session")
def on_old_kernel(tmp_path_factory: pytest.TempPathFactory) -> Launcher:
    launcher = compiled("old_kernel.c", tmp_path_factory.mktemp("old"))
    tried = subprocess.run([launcher, "true"], stderr=subprocess.PIPE, text=True)
    if tried.returncode == NO_FILTER:
        pytest.skip(f"here {tried.stderr.strip()}")
    return lambda command: [str(launcher), *command]


# Where huge pages and cleared memory are wanted, more is asked of the kernel.
@pytest.mark.parametrize("settings", ["", "huge_pages:always,zeroed_reserve:8m,decay_ms:10"])
@pytest.mark.parametrize(
    "program", [each for each in PROGRAMS if each.name in SOME], ids=lambda each: each.name
)
def test_behaves_the_same(
    program: Program, settings: str, on_old_kernel: Launcher, library: Path, tmp_path: Path
) -> None:
    environment = {**program.environment, "HEAPFIT_OPTIONS": settings}
    old = replace(program, command=on_old_kernel(program.command), environment=environment)
    check_same_with_and_without(old, library, tmp_path)


@pytest.mark.parametrize(
    ("variant", "variables", "line"),
    [
        ("default", {"settings": "control:on"}, f"heapfit: no control: {NEEDS_5_9}\n"),
        ("record", {}, f"heapfit: no recording: {NEEDS_5_9}\n"),
    ],
)
def test_what_needs_a_later_kernel_says_so(
    variant: str, variables: dict[str, str], line: str, on_old_kernel: Launcher, tmp_path: Path
) -> None:
    words = on_old_kernel([PYTHON, "-c", "print(sum(range(1000)))"])
    variables = variables | {"HEAPFIT_RECORD": str(tmp_path / "trace.hft")}
    result = run(*words, preload=paths.library(variant), **variables)
    assert (result.returncode, result.stdout, result.stderr) == (0, "499500\n", line)
