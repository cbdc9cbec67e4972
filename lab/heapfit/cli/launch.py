"""Become the user's program with another allocator. Standard library only, see `quick`."""

import os
import signal
import sys
from collections.abc import Iterable, Mapping
from typing import NoReturn

from heapfit import options, paths
from heapfit.host.program import inherited, obstacle, started_by, starting

# Python ignores these signals, and what is ignored stays ignored in the program that follows.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


def refined(control: bool, guard: bool, settings: Iterable[str]) -> list[str]:
    """Return the settings of `--control`, `--guard` and `--set`; of a name the last counts, so that
    `--set` refines what a switch stands for wherever it is written."""
    switches = {options.CONTROL_ON: control, options.GUARD_ON: guard}
    return [*(setting for setting, is_on in switches.items() if is_on), *settings]


def environment_changes(variant: str, settings: Iterable[str]) -> dict[str, str]:
    """Return what a program's environment has beyond ours: the library, and its options.

    `settings` are `name=value` words; raises UsageError for one that the library does not know.
    """
    chosen = options.parse_settings(settings, variant)
    library = paths.library(variant)
    paths.check_preloadable(library)
    preloaded = os.environ.get("LD_PRELOAD", "")
    changes = {"LD_PRELOAD": ":".join(filter(None, [str(library), preloaded]))}
    if chosen:
        existing = os.environ.get(options.VARIABLE, "")
        changes[options.VARIABLE] = options.merge(existing, chosen)
    return changes


def become(command: list[str], changes: Mapping[str, str]) -> NoReturn:
    """Replace this process by `command` with these `changes` of the environment, which put an
    allocator into it; raise HeapfitError when it cannot start."""
    changed = {**inherited(), **changes}
    if "LD_PRELOAD" in changes:
        _say_what_stays_out(command[0])
    sys.stdout.flush()
    for number in _IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    with starting(command):
        os.execvpe(command[0], command, changed)
    raise AssertionError  # it does not return


def environment(variant: str, settings: Iterable[str]) -> dict[str, str]:
    """Return the whole environment of a program under heapfit."""
    return {**inherited(), **environment_changes(variant, settings)}


def _say_what_stays_out(name: str) -> None:
    """Say in one line where the library would be preloaded in vain, which nobody else would."""
    program = started_by(name)
    found = obstacle(program) if program else None
    if found is not None:
        state, advice = found
        print(f"heapfit: note: the malloc of {name} is {state}; {advice}", file=sys.stderr)
