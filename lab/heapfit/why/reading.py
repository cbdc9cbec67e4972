"""One look at a process through /proc, and two looks compared."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from heapfit import cgroups
from heapfit.errors import HeapfitError
from heapfit.interpreters import runtime_of
from heapfit.live import Client, Gone, Ledger, LiveProfile, Process, present
from heapfit.live.processes import plain, read_file, status_of, words
from heapfit.machine import settings_in
from heapfit.why import contents, program
from heapfit.why.causes import Cause, Place, causes
from heapfit.why.maps import Mapping, parse

_PROC = Path("/proc")
_KIB = 1024
_VERY_MANY = 100_000  # mappings: some two seconds


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
    free: int  # of glibc's main heap, at least
    limits: list[cgroups.Memory]  # of its control groups, and its own
    settings: dict[str, str]  # of its environment
    # Of its heap, where heapfit serves it and may be asked.
    ledger: Ledger | None
    profile: LiveProfile | None


def read(pid: int, progress: Callable[[int], None] | None = None) -> Reading:
    """Return a look at the process; of somebody else's, what everybody may know. `progress` is
    told the number of mappings that have been read, if they are very many.

    Raises Gone where there is none, or it ends meanwhile, and HeapfitError where it has no memory.
    """
    process = _there(pid)
    folder = _PROC / str(pid)
    mappings = _mappings(folder, process, progress)
    status = status_of(pid) or {}
    if "VmRSS" not in status:
        if "2" in (str(pid), status.get("PPid")):  # kthreadd, the parent of those
            raise HeapfitError(
                f"process {pid} ({process.name}) has no memory of its own: it is a part of the "
                "kernel"
            )
        raise Gone(f"process {pid} ({process.name}) has ended")
    exe = _link(folder / "exe")
    files = {each.path for each in mappings or () if each.path and "x" in each.permissions}
    allocator = program.allocator_of(files, exe, folder)
    name = allocator.name if allocator else ""
    runtime = runtime_of(folder / "exe", [exe, *files])
    groups, environment = _lines(pid, "cgroup"), words(read_file(pid, "environ"))
    ledger, profile = _heap(pid) if name == "heapfit" else (None, None)
    place = Place(name, runtime, _stack_pointers(pid), told=ledger is not None)
    found = causes(mappings, place) if mappings is not None else _by_kind(status)
    heap = [each for each in mappings or () if each.path == "[heap]"]
    return Reading(
        process=process,
        allocator=allocator,
        runtime=runtime,
        threads=int(status.get("Threads", "1")),
        cores=_cores(pid, groups),
        resident=sum(each.resident for each in found),
        most_resident=_kib(status, "VmHWM"),
        proportional=sum(each.proportional for each in mappings or ()),
        huge=sum(each.huge for each in found),
        lazily_freed=sum(each.lazily_freed for each in found),
        swapped=sum(each.swapped for each in found),
        causes=found,
        huge_untouched=contents.untouched(folder, mappings or []),
        free=contents.free_in_glibc(folder, heap) if name == "glibc" else 0,
        limits=[*_limits(pid, groups, status)],
        settings=settings_in(dict(each.partition("=")[::2] for each in environment)),
        ledger=ledger,
        profile=profile,
    )


def _there(pid: int) -> Process:
    """Return what is known of a process; raises what it is instead."""
    status = status_of(pid)
    if status is not None and status["Tgid"] != str(pid):
        raise HeapfitError(f"{pid} is a thread; use its process: heapfit why {status['Tgid']}")
    if status is not None and status["State"][0] in "ZX":
        raise Gone(
            f"process {pid} ({plain(status['Name'])}) has ended and has no memory; what is left of "
            f"it goes when its parent, process {status['PPid']}, waits for it"
        )
    return present(pid)


def _mappings(
    folder: Path, process: Process, progress: Callable[[int], None] | None
) -> list[Mapping] | None:
    """Return the mappings of a process; None where they may not be read."""
    found = []
    try:
        with (folder / "smaps").open("rb") as file:
            for mapping in parse(file):
                found.append(mapping)
                if progress and len(found) % _VERY_MANY == 0:
                    progress(len(found))
        return found
    except PermissionError:
        return None
    except ProcessLookupError as error:
        raise Gone(f"process {process.pid} ({process.name}) has ended") from error
    except FileNotFoundError as error:
        present(process.pid)
        raise HeapfitError(
            "this kernel has no /proc/PID/smaps (CONFIG_PROC_PAGE_MONITOR)"
        ) from error


# What everybody may read of a process: the field of its status, and the cause.
_KINDS = (("RssAnon", "anonymous"), ("RssFile", "files"), ("RssShmem", "shared"))


def _by_kind(status: dict[str, str]) -> list[Cause]:
    swapped = {"RssAnon": _kib(status, "VmSwap")}
    found = [Cause(key, False) for _, key in _KINDS]
    for cause, (name, _) in zip(found, _KINDS, strict=True):
        size = _kib(status, name)
        cause.add(Mapping(0, 0, "", 0, 0, name, size, swapped=swapped.get(name, 0)))
    return sorted(found, key=lambda each: -each.resident)


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


def _cores(pid: int, groups: list[str]) -> int:
    """Return how many processors' time a process may use, rounded up."""
    try:
        allowed = len(os.sched_getaffinity(pid))
    except OSError:  # It has ended.
        allowed = os.cpu_count() or 1
    return min(allowed, math.ceil(cgroups.cores_of(groups) or allowed))


# A limit of the process itself, and the field of its status that it is for.
_OWN_LIMITS = {"Max address space": "VmSize", "Max data size": "VmData"}


def _limits(pid: int, groups: list[str], status: dict[str, str]) -> Iterator[cgroups.Memory]:
    if (of_group := cgroups.memory_of(groups)) is not None:
        yield of_group
    for line in _lines(pid, "limits"):
        for name, field in _OWN_LIMITS.items():
            soft = line.removeprefix(name).split()[0]
            if line.startswith(name) and soft.isdecimal():
                yield cgroups.Memory(
                    int(soft), _kib(status, field), 0, f"/proc/{pid}/limits: {name}"
                )


def _stack_pointers(pid: int) -> list[int]:
    """Return where the stacks of waiting threads are; of one that runs the kernel does not say."""
    try:
        tasks = os.listdir(_PROC / str(pid) / "task")
    except OSError:
        return []
    said = (read_file(pid, f"task/{task}/syscall").split() for task in tasks)
    return [int(each[-2], 16) for each in said if len(each) >= 2 and each[-2].startswith(b"0x")]


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
