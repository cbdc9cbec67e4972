"""Programs that start others in unusual ways, unload code, or have a run-time of their own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from checking import check_same_with_and_without
from comparison import PROGRAMS_FOLDER, Program
from pool_programs import PROGRAMS as POOL_PROGRAMS
from pool_programs import HardProgram, build
from test_programs import python_program

pytestmark = pytest.mark.full

GXX = ["/usr/bin/g++", "-std=c++17", "-O1", "-pthread"]
# test_pools.py has these under the variant with pools, for what it makes of their callers.
FOREIGN = [
    hard for hard in POOL_PROGRAMS if hard.program.name in {"go", "rust", "luajit", "plugins"}
]


def test_python_starts_workers_by_exec_and_by_a_server(library: Path, tmp_path: Path) -> None:
    check_same_with_and_without(python_program("spawned"), library, tmp_path)


def test_plugins_are_closed_before_their_objects_are_freed(library: Path, tmp_path: Path) -> None:
    plugins = []
    for name in ["first", "second"]:
        plugin = tmp_path / f"{name}.so"
        words = [*GXX, "-shared", "-fPIC", "-fno-gnu-unique", "-o", plugin]
        subprocess.run([*words, PROGRAMS_FOLDER / "plugin_objects.cpp"], check=True)
        plugins.append(str(plugin))
    host = tmp_path / "plugin_host"
    subprocess.run([*GXX, "-o", host, PROGRAMS_FOLDER / "plugin_host.cpp"], check=True)
    program = Program("plugin_host", [str(host), *plugins], {"plugin_host"}, ["g++"])
    check_same_with_and_without(program, library, tmp_path)


@pytest.mark.parametrize("hard", FOREIGN, ids=lambda hard: hard.program.name)
def test_a_run_time_system_of_its_own(
    hard: HardProgram, default_library: Path, tmp_path: Path
) -> None:
    program = build(hard, tmp_path / "built")
    check_same_with_and_without(program, default_library, tmp_path)
