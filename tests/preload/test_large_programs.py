"""Large programs: servers, a compiler, a virtual machine, a browser.

They work in a folder that other users can enter: servers that refuse to run as root become nobody.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from checking import check_same_with_and_without
from comparison import Program, run_plain

pytestmark = pytest.mark.full


def large_server(
    name: str,
    loaded_in: set[str],
    packages: list[str],
    *,
    volatile: set[str],
    own_malloc: Collection[str] = (),
) -> Program:
    """A program that a script of ours starts, asks and ends."""
    return Program(
        name=name.partition("_")[0],
        command=["/usr/bin/python3", f"{{programs}}/{name}.py"],
        loaded_in=loaded_in,
        packages=[*packages, "python3"],
        environment={"PYTHONDONTWRITEBYTECODE": "1"},
        volatile=frozenset(volatile),
        own_malloc=frozenset(own_malloc),
    )


# The one that the everyday run starts, too; each of the others takes many times as long.
EVERYDAY = "nginx"

PROGRAMS = [
    Program(
        name="clang",
        command=["sh", "{programs}/compile_clang.sh", "{workloads}", "{programs}"],
        loaded_in={"clang++-16", "clang-16", "ld"},
        packages=["clang-16", "libstdc++-12-dev"],
    ),
    Program(
        name="java",
        command=["java", "{programs}/Work.java"],
        loaded_in={"java"},
        packages=["openjdk-17-jdk-headless"],
    ),
    large_server(
        "nginx_load",
        {"nginx", "wrk"},
        ["nginx", "wrk"],
        volatile={"access.log", "error.log", "nginx.conf"},
    ),
    large_server(
        "postgresql_bench",
        {"initdb", "postgres", "psql", "pgbench"},
        ["postgresql-15", "postgresql-client-15"],
        volatile={"server.log"},
    ),
    large_server(
        "mariadb_session",
        {"mariadbd", "mariadb"},
        ["mariadb-server-core", "mariadb-client-core"],
        volatile={"server.log"},
    ),
    large_server(
        "chromium_page",
        {"chromium"},
        ["chromium"],
        volatile={"server.log"},
        # Its own goes before ours; it is here as a program that must not mind the library.
        own_malloc={"chromium", "chrome_crashpad_handler", "exe"},
    ),
]


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A folder that every user can enter: servers that refuse to run as root work in it.

    pytest's own folders are closed to others, and so may be the one of the library.
    """
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o755)
        yield place


@pytest.fixture
def reachable(library: Path, open_place: Path) -> Path:
    """The library where every user can load it."""
    copy = open_place / library.name
    shutil.copyfile(library, copy)
    copy.chmod(0o755)
    return copy


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(each, id=each.name, marks=() if each.name == EVERYDAY else pytest.mark.full)
        for each in PROGRAMS
    ],
)
def test_behaves_the_same_under_the_library(
    program: Program, reachable: Path, open_place: Path
) -> None:
    check_same_with_and_without(program, reachable, open_place)


@pytest.mark.full
def test_chromium_behaves_the_same_in_its_sandbox(reachable: Path, open_place: Path) -> None:
    chromium = next(program for program in PROGRAMS if program.name == "chromium")
    sandboxed = replace(chromium, command=[*chromium.command, "sandboxed"])
    plain = run_plain(sandboxed, open_place)
    if plain.exit_code != 0 and "No usable sandbox" in plain.stderr:
        pytest.skip("here the browser has no sandbox even without the library")
    assert "confined: True" in plain.stdout
    check_same_with_and_without(sandboxed, reachable, open_place)
