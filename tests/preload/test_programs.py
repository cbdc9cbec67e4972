"""Real programs behave under the preloaded library exactly as without it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from checking import check_same_with_and_without
from comparison import Program

# The system's own interpreter: one in a virtual environment might be built in another way.
PYTHON = "/usr/bin/python3"
# Without this most of Python's objects come from its own allocator and malloc sees little.
PYTHON_ENVIRONMENT = {
    "PYTHONMALLOC": "malloc",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
}


def python_program(name: str, *packages: str, loaded_in: set[str] | None = None) -> Program:
    return Program(
        name=f"python3-{name}",
        command=[PYTHON, f"{{programs}}/python_{name}.py"],
        loaded_in=loaded_in or {"python3"},
        packages=["python3", *packages],
        environment=PYTHON_ENVIRONMENT,
    )


def limited_python_program(limit: str, mebibytes: int) -> Program:
    program = python_program("limits", "util-linux", loaded_in={"prlimit", "python3"})
    words = ["prlimit", f"--{limit}={mebibytes << 20}", *program.command]
    return replace(program, name=f"{program.name}-{limit}", command=words)


PROGRAMS = [
    python_program("threads"),
    python_program("processes"),
    python_program("documents"),
    limited_python_program("as", 800),
    limited_python_program("data", 300),
    Program(
        name="redis",
        command=[PYTHON, "{programs}/redis_session.py"],
        loaded_in={"redis-server", "redis-benchmark", "redis-cli"},
        packages=["python3", "redis-server", "redis-tools"],
        volatile=frozenset({"kept.rdb", "server.log"}),
    ),
    Program(
        "sqlite3",
        ["sqlite3", "-batch", "atlas.db", ".read {workloads}/sqlite/atlas.sql"],
        {"sqlite3"},
        ["sqlite3", "iso-codes"],
    ),
    Program(
        "g++",
        ["sh", "{programs}/compile_cxx.sh", "{workloads}/cc1plus/ledger.cc"],
        {"g++", "cc1plus", "as", "collect2", "ld"},
        ["g++"],
    ),
    Program("git", ["sh", "{programs}/git_history.sh"], {"git"}, ["git"]),
    Program("perl", ["perl", "{programs}/text.pl"], {"perl"}, ["perl"]),
    Program("node", ["node", "{programs}/work.js"], {"node"}, ["nodejs"]),
    Program("java", ["java", "{programs}/Work.java"], {"java"}, ["openjdk-17-jdk-headless"]),
    Program(
        name="php",
        command=["php", "-n", "{programs}/page.php"],
        loaded_in={"php"},
        packages=["php-cli"],
        environment={"USE_ZEND_ALLOC": "0"},
    ),
]


IN_GATE = {"git", "perl", "php", "python3-documents", "python3-threads", "redis", "sqlite3"}


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(each, id=each.name, marks=[] if each.name in IN_GATE else pytest.mark.full)
        for each in PROGRAMS
    ],
)
def test_behaves_the_same_under_the_library(
    program: Program, library: Path, tmp_path: Path
) -> None:
    check_same_with_and_without(program, library, tmp_path)
