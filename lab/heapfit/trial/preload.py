"""Put an allocator into a program, and notice when it did not get there.

A preloaded library is silently ignored by a statically linked or setuid program, and with a mere
warning when the loader cannot use it. The program then runs on under the system's allocator, and
its figures would be published under another name. So the library must be seen in the program's
memory map, or at least not be missing from it for long. That is looked at in every run; whether the
processes that do the work also call it, one run of each treatment tells (`trial.witness`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from heapfit import options
from heapfit.record import options as record
from heapfit.records import InstalledAllocator, TrialStatus
from heapfit.trial.placeholders import Levels
from heapfit.trial.source import Source
from heapfit.trial.tree import ProcessTree
from heapfit.trial.verdict import WITHOUT_ALLOCATOR, Rejected, head

VARIABLE = "LD_PRELOAD"
_FILLER = "HEAPFIT_FILLER"
_SIZES_STEP = 4096
_POINTER = 8

# What the recorder writes in a trial's folder for it; of a child, with its number behind.
RECORDING = "trace.hft"

# A program that was looked at this often, with this long between the first and the last look, and
# that never had the library, ran without it. One look would not do: a wrapper without the library
# may be about to start the program proper.
MIN_LOOKS = 2
MIN_LOOKING_S = 0.2

_SHARED_LIBRARY = re.compile(rb"/([^/\n]+\.so(?:\.[^/\n]*)?)$", re.MULTILINE)
_LOADER_PREFIX = b"ld-"

_LOADER_COMPLAINT = re.compile(
    rb"ERROR: ld\.so: object '[^']*' from LD_PRELOAD cannot be preloaded[^\n]*"
)


# What the library of heapfit is called, a variant or a build of the user's own included.
_OWN_LIBRARY_PREFIX = "libheapfit"


def takes_options(allocator: InstalledAllocator) -> bool:
    """Tell whether `allocator` is heapfit, which alone reads `HEAPFIT_OPTIONS`."""
    return allocator.library is not None and allocator.library.name.startswith(_OWN_LIBRARY_PREFIX)


def environment_changes(
    allocator: InstalledAllocator | None,
    wanted: Mapping[str, str],
    levels: Levels | None = None,
    recordings: Path | None = None,
) -> dict[str, str]:
    """Return the variables that the program gets: the `wanted` ones, the allocator's and `levels`'.

    Without an allocator (a server's client) there is none of the allocator's. A level goes before
    all else, since a study that varies a variable must have its way. A preload that the workload or
    a level asks for stays, behind the allocator. A variant that is recorded has the recorder before
    all of them, which writes to the folder `recordings`.
    """
    levels = levels or Levels()
    own = allocator.environment if allocator else {}
    changes = {**wanted, **own, **levels.environment}
    for name in _unset(levels):
        del changes[name]
    if allocator is None:
        return changes
    settings = {**allocator.options, **levels.options}
    if settings and takes_options(allocator):
        present = changes.get(options.VARIABLE, os.environ.get(options.VARIABLE, ""))
        changes[options.VARIABLE] = options.merge(present, settings)
    if allocator.record is not None and recordings is not None:
        changes |= record.variables(recordings / RECORDING, allocator.record)
    libraries = [_recorder(allocator), allocator.library]
    preloaded = [*(str(each) for each in libraries if each), changes.get(VARIABLE, "")]
    if any(preloaded):
        changes[VARIABLE] = ":".join(filter(None, preloaded))
    return changes


def of_one_size(changes: Mapping[str, str]) -> dict[str, str]:
    """Return the changes with a variable that fills them up to a multiple of 4 KiB.

    The environment lies at the far end of the stack, so its size decides how everything below is
    aligned, which alone changes times by per cents (Mytkowicz et al., ASPLOS 2009). An allocator's
    path must not be what does that.
    """
    size = sum(_size_of(*each) for each in [*changes.items(), (_FILLER, "")])
    return {**changes, _FILLER: "=" * (-size % _SIZES_STEP)}


def _size_of(name: str, value: str) -> int:
    """Bytes that a variable takes on the stack: its text and the pointer to it."""
    return len(os.fsencode(f"{name}={value}")) + 1 + _POINTER


def _recorder(allocator: InstalledAllocator) -> Path | None:
    return None if allocator.record is None else record.library()


def watched_library(allocator: InstalledAllocator) -> Path | None:
    """Return the library that must appear in a program under `allocator`; None: there is none.

    It is the first one: where the loader takes that and not the next, it says so.
    """
    return _recorder(allocator) or allocator.library


def clean_environment(levels: Levels | None = None) -> dict[str, str]:
    """Return the lab's environment without a preload, which would be in every trial's program, and
    without the variables that `levels` leave unset."""
    without = {VARIABLE, *_unset(levels or Levels())}
    return {name: value for name, value in os.environ.items() if name not in without}


def _unset(levels: Levels) -> list[str]:
    return [name for name, value in levels.environment.items() if not value]


def without_allocator(why: str) -> Rejected:
    """Return the rejection of a run that measured another malloc than it was to."""
    return Rejected(TrialStatus.FAILED, f"{WITHOUT_ALLOCATOR}: {why}")


class PreloadWatch(Source):
    """Looks for the allocator's library in the program's tree until it has been seen once.

    Of a program that cannot be preloaded (by what its file is) only another one that it starts may
    have the library: if it was not seen, it was not there, however short the run.
    """

    def __init__(self, library: Path | None, *, obstacle: str | None = None) -> None:
        """`obstacle` says why the program's file cannot be preloaded, if it cannot."""
        self.obstacle = obstacle
        self._name = os.fsencode(library.resolve()) if library else None
        self._seen = library is None
        self._looks = 0
        self._first_look_s = 0.0
        self._last_look_s = 0.0
        self._root = 0

    @property
    def missing(self) -> bool:
        """Whether the library was not in the program, so far as the looks can tell."""
        if self.obstacle:
            return not self._seen
        looked_s = self._last_look_s - self._first_look_s
        return not self._seen and self._looks >= MIN_LOOKS and looked_s >= MIN_LOOKING_S

    def check(self, stderr: Path) -> None:
        """Reject a program that ran without the allocator under whose name it was measured.

        What the dynamic loader complains of is at the head of what the program wrote to `stderr`.
        """
        complaint = _LOADER_COMPLAINT.search(head(stderr))
        if complaint is None and not self.missing:
            return
        why = complaint.group().decode(errors="replace") if complaint else self.obstacle
        reason = why or (
            "the library never appeared in it; does it start another program without its "
            "environment?"
        )
        raise without_allocator(reason)

    def begin(self, root: int) -> None:
        self._root = root

    def sample(self, now_s: float) -> None:
        if self._seen or self._name is None:
            return
        processes = [process for _, process in ProcessTree(self._root).processes()]
        if not processes:  # it has ended
            return
        held = [maps for maps in map(_read_maps, processes) if not _is_loading(maps)]
        if not held:
            return
        self._seen = any(self._name in maps for maps in held)
        self._looks += 1
        self._first_look_s = self._first_look_s or now_s
        self._last_look_s = now_s


def _read_maps(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/maps").read_bytes()
    except OSError:  # it ended
        return b""


def _is_loading(maps: bytes) -> bool:
    """Whether a process has yet to map its libraries, of which preloaded ones come first.

    On a crowded machine the loader may have to wait. A program without a loader has all it needs.
    """
    libraries = {match[1] for match in _SHARED_LIBRARY.finditer(maps)}
    loaders = {name for name in libraries if name.startswith(_LOADER_PREFIX)}
    return not maps or (bool(loaders) and libraries == loaders)
