"""Runtimes that keep the program's objects in memory of their own, where no malloc is called.

A recording of such a program has its large objects and its libraries', and few of those that its
source speaks of. Where the interpreter can be told to ask malloc for each, that is said.
"""

import mmap
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from heapfit.host.proc import undeleted


class Interpreter(NamedTuple):
    """An interpreter's memory: what is in it, and how its objects come to be recorded or seen."""

    keeps: str
    variable: str  # of the environment; empty: it has none
    values: frozenset[str]  # those with which it asks malloc for each object
    instead: str


# How the programs are named, and the libraries in which the runtime may be instead.
_PROGRAMS = {
    "java": r"java",
    "node": r"node(js)?",
    "python": r"python[0-9.]*",
    "pypy": r"pypy[0-9.]*",
    "ruby": r"ruby[0-9.]*",
    "php": r"php(-fpm|-cgi)?[0-9.]*",
    "perl": r"perl[0-9.]*",
    "lua": r"lua(jit)?[0-9.]*",
    "tcl": r"tclsh[0-9.]*",
}
# These keep their objects where every malloc sees them.
_ASK_MALLOC = ("perl", "lua", "tcl")
_LIBRARIES = {
    "java": r"libjvm\.so",
    "node": r"chrome|chromium|electron",  # programs that have V8, too
    "python": r"libpython[0-9.]+\.so.*",
    "ruby": r"libruby[\w.-]*\.so.*",
}
# The variables are of Python's manual ("Memory Management"), and of PHP's internals book ("Zend
# Memory Manager").
_INTERPRETERS = {
    "python": Interpreter(
        "Python keeps objects of at most 512 bytes in arenas of its own",
        "PYTHONMALLOC",
        frozenset({"malloc", "malloc_debug"}),
        "record it with `heapfit record --objects` (`PYTHONMALLOC=malloc`)",
    ),
    "php": Interpreter(
        "PHP keeps its scripts' objects in a heap of its own",
        "USE_ZEND_ALLOC",
        frozenset({"0"}),
        "record it with `heapfit record --objects` (`USE_ZEND_ALLOC=0`)",
    ),
    "pypy": Interpreter(
        "PyPy keeps Python's objects in a heap of its own",
        "",
        frozenset(),
        "ask `gc.get_stats()`",
    ),
    "node": Interpreter(
        "V8 keeps JavaScript's objects in a heap of its own",
        "",
        frozenset(),
        "ask Node for a heap snapshot",
    ),
    "java": Interpreter(
        "the JVM keeps Java's objects in a heap of its own",
        "",
        frozenset(),
        "ask `jcmd PID GC.class_histogram`",
    ),
}


# The variables with which each interpreter that can asks malloc for every object.
OBJECTS_FROM_MALLOC = {"PYTHONMALLOC": "malloc", "USE_ZEND_ALLOC": "0"}
# What a Go program's build information begins with, and in how much of the file it is looked for.
_GO, _GO_SEARCHED = b"\xff Go buildinf:", 64 << 20


def language_of(program: str) -> str | None:
    """Return what the executable `program` interprets, by its name.

    >>> language_of("/usr/bin/python3.11"), language_of("/usr/bin/luajit"), language_of("git")
    ('python', 'lua', None)
    """
    name = Path(program).name
    return next((each for each, of in _PROGRAMS.items() if re.fullmatch(of, name)), None)


def hiding(program: str, environment: Mapping[str, str]) -> Interpreter | None:
    """Return the interpreter that kept objects from the recording of the executable `program`.

    >>> hiding("/usr/bin/python3.11", {}).variable
    'PYTHONMALLOC'
    >>> hiding("/usr/bin/python3.11", {"PYTHONMALLOC": "malloc"}) is None
    True
    """
    found = _INTERPRETERS.get(language_of(program) or "")
    return None if found and environment.get(found.variable) in found.values else found


def made_to_ask_malloc(program: str, environment: Mapping[str, str]) -> bool:
    """Return whether the executable is an interpreter that was told to ask malloc for each object.

    >>> made_to_ask_malloc("/usr/bin/python3.11", {"PYTHONMALLOC": "malloc"})
    True
    >>> made_to_ask_malloc("/usr/bin/python3.11", {}), made_to_ask_malloc("/usr/bin/git", {})
    (False, False)
    """
    return hiding(program, {}) is not None and hiding(program, environment) is None


def names_lines(program: str) -> str | None:
    """Return what names the lines of scripts that the executable `program` runs; None where it is
    no interpreter.

    >>> names_lines("/usr/bin/python3.11"), names_lines("/usr/bin/git")
    ('`heapfit record --objects -- CMD` names lines of Python', None)
    >>> names_lines("/usr/bin/perl")
    "the language's own tools show those"
    """
    language = language_of(program)
    if language == "python":
        return "`heapfit record --objects -- CMD` names lines of Python"
    scripts = language is not None and language != "java"
    return "the language's own tools show those" if scripts else None


def runtime_of(program: Path, files: Iterable[str]) -> str | None:
    """Return which runtime keeps the objects of a process in memory of its own: by the names of its
    program and of what it has mapped, as the kernel gives them, or by what is in `program`.

    >>> runtime_of(Path("/none"), ["/lib/libjvm.so (deleted)"])
    'java'
    """
    names = [Path(undeleted(each)).name for each in files]
    for runtime, pattern in _PROGRAMS.items():
        if runtime in _ASK_MALLOC:
            continue
        known = f"{pattern}|{_LIBRARIES.get(runtime, pattern)}"
        if any(re.fullmatch(known, each) for each in names):
            return runtime
    return "go" if _is_go(program) else None


def _is_go(program: Path) -> bool:
    try:
        with (
            program.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            return data.find(_GO, 0, _GO_SEARCHED) >= 0
    except (OSError, ValueError):
        return False
