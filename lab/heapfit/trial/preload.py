"""Put an allocator into a program, and notice when it did not get there.

The dynamic loader silently ignores a preload for a statically linked or setuid program, and only
warns when it cannot use the library. The program then runs on under the system's allocator, and its
figures would be published under another name. There are two checks:

- In every run, `PreloadWatch` looks for the library in the memory maps of the program's processes.
- That says little of the processes that do the work: `sh -c ./static-program` has the library in
  `sh`, and a program with a malloc of its own maps it and never calls it. So in one run of each
  treatment that is not timed, `heapfit-launch` traces the program and writes down what every
  process ran, how much processor time it used, and what it had loaded when it ended (`launch.c`
  explains the format). `why_not_served` reads that.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from heapfit import options
from heapfit.host.elf import has_malloc
from heapfit.host.program import inherited, why_not_replaced
from heapfit.record import options as record
from heapfit.records import InstalledAllocator, TrialStatus
from heapfit.text import percent
from heapfit.trial.outcome import WITHOUT_ALLOCATOR, Rejected, head
from heapfit.trial.placeholders import Levels
from heapfit.trial.source import Source
from heapfit.trial.tree import ProcessTree

VARIABLE = "LD_PRELOAD"
_FILLER = "HEAPFIT_FILLER"
_SIZES_STEP = 4096
_POINTER = 8

# The recorder's file in a trial's folder; that of a child process has a number behind.
RECORDING = "trace.hft"

# A program that was looked at this often, with this long between the first and the last look, and
# that never had the library, ran without it. One look would not do: a wrapper without the library
# may be about to start the program proper.
MIN_LOOKS = 2
MIN_LOOKING_S = 0.2

_SHARED_LIBRARY = re.compile(rb"/([^/\n]+\.so(?:\.[^/\n]*)?)$", re.MULTILINE)
_LOADER_PREFIX = b"ld-"

_LOADER_COMPLAINT = re.compile(
    rb"ERROR: ld\.so: object '([^']*)' from LD_PRELOAD cannot be preloaded[^\n]*"
)
_OTHER_CLASS = b"wrong ELF class"  # of a 32-bit program, which this library is not for

# How the file name of heapfit's library begins, that of a variant or of the user's own build too.
_OWN_LIBRARY_PREFIX = "libheapfit"

# A run in which more of the processor time than this went to programs without the allocator does
# not measure it.
_MOST_UNSERVED = 0.5


# ----------------------------------------------------------------- environment


def takes_options(allocator: InstalledAllocator) -> bool:
    """Tell whether `allocator` is heapfit, which alone reads `HEAPFIT_OPTIONS`."""
    return allocator.library is not None and allocator.library.name.startswith(_OWN_LIBRARY_PREFIX)


def environment_changes(
    allocator: InstalledAllocator | None,
    wanted: Mapping[str, str],
    levels: Levels | None = None,
    recordings: Path | None = None,
) -> dict[str, str]:
    """Return the variables to set for the program: the `wanted` ones, the allocator's, and those of
    `levels`, which take precedence.

    Without an allocator (a server's client) there is none of the allocator's. A preload that the
    workload or a level asks for stays, behind the allocator. A variant that is recorded has the
    recorder before all of them, which writes to the folder `recordings`.
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
    preloaded = [*map(str, preloaded_libraries(allocator)), changes.get(VARIABLE, "")]
    if any(preloaded):
        changes[VARIABLE] = ":".join(filter(None, preloaded))
    return changes


def of_one_size(changes: Mapping[str, str]) -> dict[str, str]:
    """Return the changes with a variable that fills them up to a multiple of 4 KiB.

    The environment lies at the far end of the stack, so its size decides how everything below is
    aligned, which alone changes times by per cents (Mytkowicz et al., ASPLOS 2009). The length of
    an allocator's path must not do that.
    """
    # A variable takes its text with a zero byte on the stack, and a pointer to it.
    size = sum(
        len(os.fsencode(f"{name}={value}")) + 1 + _POINTER
        for name, value in [*changes.items(), (_FILLER, "")]
    )
    return {**changes, _FILLER: "=" * (-size % _SIZES_STEP)}


def clean_environment(levels: Levels | None = None) -> dict[str, str]:
    """Return the lab's environment without a preload, which would be in every trial's program, and
    without the variables that `levels` leave unset."""
    without = {VARIABLE, *_unset(levels or Levels())}
    return {name: value for name, value in inherited().items() if name not in without}


def _unset(levels: Levels) -> list[str]:
    return [name for name, value in levels.environment.items() if not value]


def _recorder(allocator: InstalledAllocator) -> Path | None:
    return None if allocator.record is None else record.library()


def preloaded_libraries(allocator: InstalledAllocator) -> list[Path]:
    """Return the libraries that must appear in a program under `allocator`, in their order."""
    return [each for each in (_recorder(allocator), allocator.library) if each]


def without_allocator(why: str) -> Rejected:
    """Return the rejection of a run that measured another malloc than it was to."""
    return Rejected(TrialStatus.FAILED, f"{WITHOUT_ALLOCATOR}: {why}")


# ----------------------------------------------- is the library in the program?


class PreloadWatch(Source):
    """Looks for a process of the program's tree that has all libraries, until one has been seen.

    If the program's own file cannot be preloaded, only another program that it starts may have the
    library. If that was never seen, it was not there, however short the run.
    """

    def __init__(self, libraries: Sequence[Path], *, obstacle: str | None = None) -> None:
        """`obstacle` says why the program's file cannot be preloaded, if it cannot."""
        self.obstacle = obstacle
        self._paths = [os.fsencode(each) for each in libraries]
        self._names = [os.fsencode(each.resolve()) for each in libraries]
        self._seen = not libraries
        self._looks = 0
        self._first_look_s = 0.0
        self._last_look_s = 0.0
        self._root = 0

    @property
    def missing(self) -> bool:
        """Whether the library was not in the program, as far as the looks can tell."""
        if self.obstacle:
            return not self._seen
        looked_s = self._last_look_s - self._first_look_s
        return not self._seen and self._looks >= MIN_LOOKS and looked_s >= MIN_LOOKING_S

    def check(self, stderr: Path) -> None:
        """Reject a program that ran without the allocator under whose name it was measured.

        A complaint of the dynamic loader about a library of ours is at the head of what the program
        wrote to `stderr`. Once the library has been seen, a program of another class, such as a
        32-bit one, is a helper.
        """
        complaints = _LOADER_COMPLAINT.finditer(head(stderr))
        complaint = next((each for each in complaints if each[1] in self._paths), None)
        if complaint and self._seen and _OTHER_CLASS in complaint.group():
            return
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
        if self._seen:
            return
        processes = [process for _, process in ProcessTree(self._root).processes()]
        held = [maps for maps in map(_read_maps, processes) if not is_loading(maps)]
        if not held:  # The program has ended, or not yet begun.
            return
        self._seen = any(all(name in maps for name in self._names) for maps in held)
        self._looks += 1
        self._first_look_s = self._first_look_s or now_s
        self._last_look_s = now_s


def _read_maps(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/maps").read_bytes()
    except OSError:  # it ended
        return b""


def is_loading(maps: bytes) -> bool:
    """Tell whether a process has yet to map its libraries, of which preloaded ones come first.

    On a crowded machine the loader may have to wait. A program without a loader has all it needs.
    """
    libraries = {match[1] for match in _SHARED_LIBRARY.finditer(maps)}
    loaders = {name for name in libraries if name.startswith(_LOADER_PREFIX)}
    return not maps or (bool(loaders) and libraries == loaders)


# ------------------------------------- did the allocator serve the processes that worked?
#
# The dynamic loader binds malloc to the first definition that it finds: the program's, then those
# of LD_PRELOAD in their order.


@dataclass
class _Image:
    """What the launcher wrote of a process when it became another program, or ended."""

    event: str
    process: int
    cpu_ns: int
    exe: str = ""
    preload: list[str] = field(default_factory=list)
    code: set[str] = field(default_factory=set)


def why_not_served(witness: Path, library: Path) -> str | None:
    """Return why the allocator `library` did not serve a run; None where it did, or nothing is
    known.

    `witness` is the file that the launcher wrote.
    """
    total_ns = 0
    unserved_ns: Counter[tuple[str, str]] = Counter()
    for exe, image, cpu_ns in _programs(witness):
        total_ns += cpu_ns
        if why := _why_not(exe, image, str(library.resolve())):
            unserved_ns[exe, why] += cpu_ns
    if unserved_ns.total() <= _MOST_UNSERVED * total_ns:
        return None
    [((exe, why), cpu_ns)] = unserved_ns.most_common(1)
    return f"{percent(cpu_ns / total_ns)} of the processor time went to {exe}: {why}"


def _programs(witness: Path) -> Iterator[tuple[str, _Image | None, int]]:
    """Yield each program that a process ran, with the nanoseconds that it used there.

    What a process had loaded is known at its end only; before that, only its file is.
    """
    running: dict[int, tuple[str, int]] = {}  # of a process, its program and its time until now
    for image in _images(witness):
        exe, before_ns = running.get(image.process, ("", 0))
        cpu_ns = max(0, image.cpu_ns - before_ns)
        if image.event == "exit":
            yield image.exe, image, cpu_ns
        elif exe:
            yield exe, None, cpu_ns
        running[image.process] = image.exe, image.cpu_ns


def names_in(preloaded: str) -> list[str]:
    """Return the libraries that a value of LD_PRELOAD names, as the loader separates them.

    >>> names_in("libc.so.6: /tmp/libmine.so:")
    ['libc.so.6', '/tmp/libmine.so']
    """
    return preloaded.replace(":", " ").split()


def _images(witness: Path) -> list[_Image]:
    images: list[_Image] = []
    for line in witness.read_text(errors="surrogateescape").splitlines():
        kind, _, rest = line.partition(" ")
        if kind in {"exec", "exit"}:
            process, cpu_ns = map(int, rest.split())
            images.append(_Image(kind, process, cpu_ns))
        elif images and kind == "exe":
            images[-1].exe = rest
        elif images and kind == "preload":
            images[-1].preload = [os.path.realpath(each) for each in names_in(rest)]
        elif images and kind == "code":
            images[-1].code.add(rest)
    return images


def _why_not(exe: str, image: _Image | None, library: str) -> str | None:
    """Return why the malloc of a program is not that of `library`; None: it is, as far as known."""
    if found := _why_not_replaced(exe):
        return found
    if image is None:
        return None
    if library not in image.code:
        return "the library was not loaded into it; does what starts it clear LD_PRELOAD?"
    # Some programs write their title over their environment, and so over the list.
    known = image.preload if library in image.preload else [library]
    before = known[: known.index(library)]
    first = next((each for each in before if each in image.code and _has_malloc(each)), None)
    return first and f"its malloc is that of {first}, which stands first in LD_PRELOAD"


@cache
def _why_not_replaced(exe: str) -> str | None:
    return why_not_replaced(Path(exe))


@cache
def _has_malloc(library: str) -> bool:
    return has_malloc(Path(library))
