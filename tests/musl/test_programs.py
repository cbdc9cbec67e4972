"""Programs that are compiled for musl do the same with heapfit preloaded as with musl's own
malloc."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import musl_programs
import process_groups
import pytest
import shared_home
from musl_programs import BY_NAME, Program

EVERYDAY = ("bc", "health", "larson", "thread-churn")
TIMEOUT_S = 120
# The variable names another build's library in place of this checkout's.
LIBRARY = Path(os.environ.get("HEAPFIT_MUSL_LIBRARY") or "build/musl/libheapfit.so").absolute()
WHOLE_STATISTICS = {"HEAPFIT_OPTIONS": "stats_at_exit:json"}


def compiled(program: Program) -> Path:
    sources = [Path(musl_programs.__file__), program.source.parent]
    if program.source.is_relative_to(musl_programs.WORKLOADS):
        sources.append(musl_programs.WORKLOADS / "micro" / "micro.h")
    folder = shared_home.programs(
        f"musl-{program.name}", sources, lambda folder: musl_programs.compile_into(folder, program)
    )
    return folder / program.name


def run(program: Program, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [str(compiled(program)), *program.of_test]
    return process_groups.run(command, timeout_s=TIMEOUT_S, env=environment)


def statistics(stderr: str) -> dict[str, Any]:
    """What heapfit says at the end; the workloads write times there, too."""
    found: dict[str, Any] = json.loads(stderr.splitlines()[-1])["total"]
    return found


@pytest.mark.timeout(3 * TIMEOUT_S)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in EVERYDAY else pytest.mark.full)
        for name in sorted(BY_NAME)
    ],
)
def test_a_program_does_the_same_with_heapfit(name: str) -> None:
    assert LIBRARY.is_file(), f"{LIBRARY} is missing; cmake --build --preset musl"
    program = BY_NAME[name]
    plain = run(program)
    ours = run(program, LD_PRELOAD=str(LIBRARY), **WHOLE_STATISTICS)
    assert plain.returncode == 0, plain.stderr
    assert plain.stdout
    assert ours.stdout == plain.stdout
    assert ours.returncode == 0
    assert statistics(ours.stderr)["refills"] > 0, "the program has not allocated with heapfit"
