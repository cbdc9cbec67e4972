"""What the recorder is told, and how that is written in the program's environment.

This table says the same as `allocator/record/settings.c`, which reads it there.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from heapfit import paths
from heapfit.errors import HeapfitError, unknown
from heapfit.options import Option

# The library, as `paths.library` knows it, and the variables that it reads.
VARIANT = "record"
VARIABLE = "HEAPFIT_RECORD"
OPTIONS_VARIABLE = "HEAPFIT_RECORD_OPTIONS"

# In a path: the number of the process that writes the file.
PROCESS = "%p"

# Which process the recording began with, and the like: the recorder's own, for its children.
PROCESS_VARIABLE = "HEAPFIT_RECORD_PROCESS"

SITES_MAX = 64
_SAMPLE_MAX = 1 << 40
_PROCESS_MAX = (1 << 32) - 1
_YEAR_S = 365 * 86400
_FLUSH_MAX_MS = 60_000

OPTIONS: dict[str, Option] = {
    option.name: option
    for option in (
        Option("sample", "size", 0, _SAMPLE_MAX),
        Option("sites", "number", 0, SITES_MAX),
        Option("start", "choice", 0, 1, choices=("now", "later")),
        Option("children", "choice", 0, 1, choices=("off", "on")),
        Option("process", "number", 0, _PROCESS_MAX),
        Option("seconds", "number", 0, _YEAR_S),
        Option("flush_ms", "number", 1, _FLUSH_MAX_MS),
    )
}


@dataclass(frozen=True)
class RecordOptions:
    """How a program is recorded; as it is, everything that it does, without call sites."""

    children: bool = False  # forked and exec'ed processes too, each into a file of its own
    later: bool = False  # record nothing before `heapfit ctl PID record start`
    seconds: int = 0  # stop after so long; 0: at the program's end
    sample: int = 0  # mean bytes between noted allocations; 0: each is noted
    sites: int = 0  # return addresses that are followed for each allocation

    def settings(self) -> dict[str, str]:
        """Return what differs from the recorder's own defaults, by the recorder's names.

        >>> RecordOptions(children=True, sites=8).settings()
        {'children': 'on', 'sites': '8'}
        """
        words = {"children": "on" if self.children else "", "start": "later" if self.later else ""}
        numbers = {"seconds": self.seconds, "sample": self.sample, "sites": self.sites}
        chosen = {**words, **{name: str(number or "") for name, number in numbers.items()}}
        return {name: value for name, value in chosen.items() if value}


def library() -> Path:
    """Return the recorder's library; HeapfitError where heapfit has none."""
    found = paths.libraries()
    if found and VARIANT not in found:
        raise HeapfitError(
            "this heapfit was built without its recorder; install libzstd-dev and rebuild it"
        )
    return paths.library(VARIANT)


def seen_from(root: Path) -> bool:
    """Whether a process with this root finds the recorder's library where we do; also where that
    cannot be known."""
    found = paths.libraries().get(VARIANT)
    if found is None:
        return True
    try:
        return os.path.samefile(root / found.relative_to("/"), found)
    except FileNotFoundError:
        return False
    except OSError:
        return True


def check(settings: Mapping[str, str]) -> None:
    """Raise UsageError for a setting that the recorder does not know, or not with this value."""
    for name, value in settings.items():
        if name not in OPTIONS:
            raise unknown("option of the recorder", name, OPTIONS)
        OPTIONS[name].check(value)


def variables(path: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that make the recorder write to `path`, which must be absolute."""
    words = ",".join(f"{name}:{value}" for name, value in settings.items())
    return {VARIABLE: str(path), OPTIONS_VARIABLE: words}
