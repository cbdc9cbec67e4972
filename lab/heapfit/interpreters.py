"""Interpreters that keep the program's objects in memory of their own, where no malloc is called.

A recording of such a program has its large objects and its libraries', and few of those that its
source speaks of. Where the interpreter can be told to ask malloc for each, that is said.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class Interpreter(NamedTuple):
    """An interpreter's memory: what is in it, and how its objects come to be recorded or seen."""

    keeps: str
    variable: str  # of the environment; empty: it has none
    values: frozenset[str]  # those with which it asks malloc for each object
    instead: str


# By the name of the executable. The variables are of Python's manual ("Memory Management"), and of
# PHP's internals book ("Zend Memory Manager").
_INTERPRETERS = {
    r"(python|pypy)[0-9.]*": Interpreter(
        "Python keeps objects of at most 512 bytes in arenas of its own",
        "PYTHONMALLOC",
        frozenset({"malloc", "malloc_debug"}),
        "record it with `heapfit record --objects` (`PYTHONMALLOC=malloc`)",
    ),
    r"php(-fpm|-cgi)?[0-9.]*": Interpreter(
        "PHP keeps its scripts' objects in a heap of its own",
        "USE_ZEND_ALLOC",
        frozenset({"0"}),
        "record it with `heapfit record --objects` (`USE_ZEND_ALLOC=0`)",
    ),
    r"node(js)?": Interpreter(
        "V8 keeps JavaScript's objects in a heap of its own",
        "",
        frozenset(),
        "ask Node for a heap snapshot",
    ),
    r"java": Interpreter(
        "the JVM keeps Java's objects in a heap of its own",
        "",
        frozenset(),
        "ask `jcmd PID GC.class_histogram`",
    ),
}


# The variables with which each interpreter that can asks malloc for every object.
OBJECTS_FROM_MALLOC = {"PYTHONMALLOC": "malloc", "USE_ZEND_ALLOC": "0"}


def hiding(program: str, environment: Mapping[str, str]) -> Interpreter | None:
    """Return the interpreter that kept objects from the recording of the executable `program`.

    >>> hiding("/usr/bin/python3.11", {}).variable
    'PYTHONMALLOC'
    >>> hiding("/usr/bin/python3.11", {"PYTHONMALLOC": "malloc"}) is None
    True
    """
    for pattern, found in _INTERPRETERS.items():
        if re.fullmatch(pattern, Path(program).name):
            return None if environment.get(found.variable) in found.values else found
    return None
