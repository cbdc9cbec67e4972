"""Real programs behave the same with options that change how the heap works, or add a thread."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from checking import check_same_with_and_without
from comparison import Program
from pool_programs import PROGRAMS as POOL_PROGRAMS
from test_programs import PROGRAMS

pytestmark = pytest.mark.full

SETTINGS = [
    "huge_pages:always",
    "zeroed_reserve:8m",
    "control:on",
    "cache_line_align:1",
    "guard_sample:4k",
    "decay_ms:0,thread_span_threshold:0,shared_span_threshold:0",
]
# A program with one thread and one with several.
ALWAYS = {"python3-threads", "perl"}
FURTHER = {"sqlite3", "python3-processes", "redis", "git", "php", "ruby", "bash", "sort", "make"}


def few_and_many() -> list[object]:
    named = {program.name: program for program in PROGRAMS}
    luajit = next(hard.program for hard in POOL_PROGRAMS if hard.program.name == "luajit")
    source = str(Path(__file__).parent / "programs/pools/jit.lua")
    lua = replace(luajit, command=[luajit.command[0], source])
    always = [pytest.param(named[name], id=name) for name in sorted(ALWAYS)]
    full = pytest.mark.full
    further = [pytest.param(named[name], id=name, marks=full) for name in sorted(FURTHER)]
    return [*always, *further, pytest.param(lua, id="luajit", marks=full)]


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("program", few_and_many())
def test_behaves_the_same_with_an_option(
    program: Program, settings: str, library: Path, tmp_path: Path
) -> None:
    variables = {**program.environment, "HEAPFIT_OPTIONS": settings}
    check_same_with_and_without(replace(program, environment=variables), library, tmp_path)
