"""The ways a command of the lab can fail, as exceptions.

Only the command line turns them into a line on stderr and an exit code; everything below
raises. A message is one line that says what to do next.
"""

import difflib
from collections.abc import Iterable
from pathlib import Path

# The share of letters in common from which a name is what was meant, as difflib advises; and how
# many names are read at a glance.
NEAR = 0.6
_MOST_LISTED = 8
# What lists the names of a kind of which there may be more than that.
_LISTED_BY = {
    "allocator": "heapfit allocators",
    "workload": "heapfit workloads",
    "study": "heapfit study list",
}


class HeapfitError(Exception):
    """The work failed (exit code 1): a program is missing, a library does not load.

    A command that decides ends with 4 instead, since its 1 is a decision (`cli.gate.decides`).
    """

    exit_code = 1


class StudyStopped(HeapfitError):
    """Nothing more of a study of many parts can run, and not only this part of it."""


class FolderBusy(HeapfitError):
    """Another process runs the study in this folder: nothing is wrong with the study itself."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"another heapfit runs the study in {folder}; wait for it, or use --out")


class CannotRun(HeapfitError):
    """The user's program could not be started; the exit code is what a shell has for that."""

    def __init__(self, message: str, *, found: bool) -> None:
        super().__init__(message)
        self.found = found
        self.exit_code = 126 if found else 127


class UsageError(HeapfitError):
    """The request makes no sense (exit code 2): an unknown allocator, workload or option."""

    exit_code = 2


class AnotherStudy(UsageError):
    """The folder holds another study."""


def unknown(kind: str, name: str, known: Iterable[str], listed_by: str = "") -> UsageError:
    """Return the error for a `name` that is no `kind`, naming the nearest valid one.

    Where none is near they are listed instead; of many the command is named that lists them,
    `listed_by` or the usual one of the kind.

    >>> str(unknown("allocator", "jemaloc", ["glibc", "jemalloc"]))
    "unknown allocator 'jemaloc'; did you mean 'jemalloc'?"
    >>> str(unknown("value of --output", "no", ["same", "ignore"]))
    "unknown value of --output 'no'; there are ignore and same"
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=NEAR)
    if near:
        hint = f"did you mean {near[0]!r}?"
    elif len(names) > _MOST_LISTED and (by := listed_by or _LISTED_BY.get(kind)):
        hint = f"{by} lists them"
    elif len(names) > 1:
        hint = f"there are {', '.join(names[:-1])} and {names[-1]}"
    else:
        hint = f"there is only {names[0]!r}" if names else f"there is no {kind} yet"
    return UsageError(f"unknown {kind} {name!r}; {hint}")
