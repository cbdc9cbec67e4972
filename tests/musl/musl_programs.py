"""Programs in C, compiled for musl: SQLite and Lua, whose sources crates carry, and workloads of
this project. What they print does not depend on the allocator.

The tests beside this file run them, and so does benchmarks/musl.py.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from heapfit.catalogue import cargo

ROOT = Path(__file__).resolve().parents[2]
OWN = Path(__file__).resolve().parent / "programs"
WORKLOADS = ROOT / "workloads"
COMPILER = "musl-gcc"
FLAGS = ("-std=gnu17", "-O2", "-pthread")


@dataclass(frozen=True)
class Crate:
    """Where the sources of a program lie: the files of `pattern` in a folder of a crate."""

    name: str
    version: str
    folder: str
    pattern: str
    flags: tuple[str, ...]


@dataclass(frozen=True)
class Program:
    """A program, the words to run it with, and those that have it do less for a test."""

    name: str
    source: Path
    arguments: tuple[str, ...]
    small: tuple[str, ...] | None = None  # None: the same
    crate: Crate | None = None

    @property
    def of_test(self) -> tuple[str, ...]:
        return self.arguments if self.small is None else self.small


def workload(path: str, *arguments: str, scale: int = 5) -> Program:
    """A program of workloads/ with its options; a test does so many percent of the work."""
    source = WORKLOADS / f"{path}.c"
    return Program(source.stem, source, arguments, (*arguments, "--scale", str(scale)))


LUA = Crate("lua-src", "547.0.0", "lua-5.4.7", "*.c", ("-DLUA_USE_POSIX",))
SQLITE = Crate(
    "libsqlite3-sys",
    "0.30.1",
    "sqlite3",
    "sqlite3.c",
    ("-DSQLITE_ENABLE_FTS5", "-DSQLITE_OMIT_LOAD_EXTENSION"),
)

PROGRAMS = [
    Program("lua", OWN / "lua_main.c", (str(WORKLOADS / "lua" / "churn.lua"),), crate=LUA),
    Program("sqlite", OWN / "sqlite_main.c", (str(WORKLOADS / "sqlite/atlas.sql"),), crate=SQLITE),
    workload("olden/health"),
    workload("olden/bh"),
    workload("ptrdist/bc"),
    workload("ptrdist/ft"),
    workload("spec-relatives/equake"),
    workload("micro/churn", "--threads", "2", "--operations", "5m"),
    workload("micro/larson"),
    workload("micro/producer-consumer", "--blocks", "2m"),
    workload("micro/thread-churn"),
    workload("micro/realloc-growth", "--operations", "5m"),
]
BY_NAME = {program.name: program for program in PROGRAMS}


def compile_into(folder: Path, program: Program) -> None:
    """Compile a program, under its name; a crate's sources are fetched for it."""
    if program.crate is None:
        _compile([program.source], (), folder / program.name)
        return
    with tempfile.TemporaryDirectory(prefix="heapfit-musl-") as scratch:
        crate = program.crate
        fetched = cargo.fetch(crate.name, crate.version, Path(scratch), print) / crate.folder
        sources = [program.source, *sorted(fetched.glob(crate.pattern))]
        _compile(sources, (f"-I{fetched}", *crate.flags), folder / program.name)


def _compile(sources: Sequence[Path], flags: Sequence[str], program: Path) -> None:
    words = [COMPILER, *FLAGS, *flags, *map(str, sources), "-o", str(program), "-lm"]
    subprocess.run(words, check=True)
