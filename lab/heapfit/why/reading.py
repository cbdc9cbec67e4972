"""One look at a process through /proc, two looks compared, and which processes are the largest."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from heapfit.errors import HeapfitError
from heapfit.live import Client, Ledger, LiveProfile, Process, find, present
from heapfit.live.processes import read_file, status_of, words
from heapfit.trial.tree import PAGE_SIZE
from heapfit.why import limits, program
from heapfit.why.causes import Cause, Place, causes
from heapfit.why.maps import Mapping, parse

_PROC = Path("/proc")
_KIB = 1024
# Of the environment, what changes how memory is allocated; nothing else of it is told.
_SETTINGS = (
    "GLIBC_TUNABLES",
    "GOGC",
    "GOMEMLIMIT",
    "HEAPFIT_OPTIONS",
    "LD_PRELOAD",
    "MALLOC_ARENA_MAX",
    "MALLOC_CONF",
    "NODE_OPTIONS",
    "PYTHONMALLOC",
    "USE_ZEND_ALLOC",
)


@dataclass(frozen=True)
class Reading:
    """What /proc says of a process; sizes are in bytes."""

    process: Process
    allocator: program.Allocator | None
    runtime: str | None
    threads: int
    cores: int
    resident: int
    most_resident: int  # since it began; the kernel's own mark
    proportional: int
    huge: int
    lazily_freed: int
    swapped: int
    causes: list[Cause]
    huge_untouched: float | None  # the part of huge pages that is zeros; None: not known
    group: limits.Group | None
    own_limits: dict[str, int]
    settings: dict[str, str]  # of its environment
    # Of its heap, where heapfit serves it and may be asked.
    ledger: Ledger | None
    profile: LiveProfile | None


def read(pid: int) -> Reading:
    """Return a look at the process.

    Raises Gone where there is none, or it ends meanwhile, and HeapfitError where it may not be
    read: it belongs to somebody else.
    """
    process = present(pid)
    folder = _PROC / str(pid)
    mappings = _mappings(folder, process)
    status = status_of(pid) or {}
    if "VmRSS" not in status:
        present(pid)
        raise HeapfitError(
            f"process {pid} ({process.name}) has no memory of its own: it is a part of the kernel"
        )
    exe, root = _link(folder / "exe"), folder / "root"
    files = {each.path for each in mappings if each.path.startswith("/")}
    allocator = program.allocator_of(files, exe, root)
    runtime = program.runtime_of(files, exe, root)
    place = Place(allocator.name if allocator else "", runtime, _stack_pointers(pid))
    found = causes(mappings, place)
    ledger, profile = _heap(pid) if place.allocator == "heapfit" else (None, None)
    return Reading(
        process=process,
        allocator=allocator,
        runtime=runtime,
        threads=int(status.get("Threads", "1")),
        cores=_cores(pid),
        resident=sum(each.resident for each in mappings),
        most_resident=_kib(status, "VmHWM"),
        proportional=sum(each.proportional for each in mappings),
        huge=sum(each.huge for each in mappings),
        lazily_freed=sum(each.lazily_freed for each in mappings),
        swapped=sum(each.swapped for each in mappings),
        causes=found,
        huge_untouched=_untouched(folder, mappings),
        group=limits.group_of(_lines(pid, "cgroup")),
        own_limits=limits.own_limits(_lines(pid, "limits")),
        settings=_settings(pid),
        ledger=ledger,
        profile=profile,
    )


def _mappings(folder: Path, process: Process) -> list[Mapping]:
    try:
        with (folder / "smaps").open("rb") as file:
            return list(parse(file))
    except PermissionError as error:
        raise HeapfitError(
            f"process {process.pid} ({process.name}) may not be read by you; put before the "
            "command: sudo"
        ) from error
    except ProcessLookupError:
        present(process.pid)
        raise
    except FileNotFoundError as error:
        present(process.pid)
        raise HeapfitError(
            "this kernel has no /proc/PID/smaps (CONFIG_PROC_PAGE_MONITOR)"
        ) from error


def _heap(pid: int) -> tuple[Ledger | None, LiveProfile | None]:
    """Return what heapfit says of its heap; None where it was not told to listen."""
    ledger = profile = None
    with suppress(HeapfitError):
        client = Client(pid)
        ledger = client.ledger()
        profile = client.profile()
    return ledger, profile


def _lines(pid: int, name: str) -> list[str]:
    return read_file(pid, name).decode(errors="replace").splitlines()


def _kib(status: dict[str, str], name: str) -> int:
    return int(status.get(name, "0").split()[0]) * _KIB


def _link(file: Path) -> str:
    try:
        return os.readlink(file).removesuffix(" (deleted)")
    except OSError:
        return ""


def _cores(pid: int) -> int:
    try:
        return len(os.sched_getaffinity(pid))
    except OSError:
        return os.cpu_count() or 1


def _settings(pid: int) -> dict[str, str]:
    pairs = (word.partition("=") for word in words(read_file(pid, "environ")))
    return {name: value for name, _, value in pairs if name in _SETTINGS}


def _stack_pointers(pid: int) -> list[int]:
    """Return where the stacks of waiting threads are; of one that runs the kernel does not say."""
    try:
        tasks = os.listdir(_PROC / str(pid) / "task")
    except OSError:
        return []
    said = (read_file(pid, f"task/{task}/syscall").split() for task in tasks)
    return [int(each[-2], 16) for each in said if len(each) >= 2 and each[-2].startswith(b"0x")]


# ------------------------------------------------------------------ huge pages

_HUGE, _PAGE = 2 << 20, 4 << 10
_PAGES_READ = 64


def _untouched(folder: Path, mappings: list[Mapping]) -> float | None:
    """Return how much of the huge pages holds nothing but zeros: what came with them and was never
    written, or was cleared. Looked at are some of them, at equal distances."""
    places = [
        start
        for each in mappings
        if each.huge
        for start in range(-(-each.start // _HUGE) * _HUGE, each.end - _HUGE + 1, _HUGE)
        if each.huge >= each.resident * 3 // 4
    ]
    if not places:
        return None
    step = max(1, len(places) // _PAGES_READ)
    zeros = pages = 0
    blank = bytes(_PAGE)
    try:
        with (folder / "mem").open("rb", buffering=0) as memory:
            for place in places[::step][:_PAGES_READ]:
                memory.seek(place)
                content = memory.read(_HUGE)
                for at in range(0, len(content), _PAGE):
                    zeros += content[at : at + _PAGE] == blank
                    pages += 1
    except OSError:
        return None
    return zeros / pages if pages else None


# ---------------------------------------------------------------------- growth


@dataclass(frozen=True)
class Growth:
    """What one cause has gained between two looks, in bytes; below zero: lost."""

    key: str
    before: int
    after: int

    @property
    def gained(self) -> int:
        return self.after - self.before


def grown(before: Reading, after: Reading) -> list[Growth]:
    """Return what each cause has gained, what gained most first."""
    old = {each.key: each.resident for each in before.causes}
    new = {each.key: each.resident for each in after.causes}
    found = [Growth(key, old.get(key, 0), new.get(key, 0)) for key in {**new, **old}]
    return sorted(found, key=lambda each: -each.gained)


def largest(number: int) -> list[tuple[Process, int]]:
    """Return the processes with the most resident memory, with that in bytes."""
    sizes = []
    for entry in _PROC.iterdir():
        if not entry.name.isdecimal():
            continue
        pages = read_file(int(entry.name), "statm").split()
        if len(pages) > 1 and pages[1] != b"0":
            sizes.append((int(pages[1]) * PAGE_SIZE, int(entry.name)))
    found: list[tuple[Process, int]] = []
    for resident, pid in sorted(sizes, reverse=True):
        process = find(pid)
        if process is not None and pid != os.getpid():
            found.append((process, resident))
        if len(found) == number:
            break
    return found
