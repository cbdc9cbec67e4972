"""One look at a process through /proc."""

from __future__ import annotations

import math
import mmap
import os
import re
import signal
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from heapfit.errors import HeapfitError
from heapfit.host import cgroups, contents
from heapfit.host.allocator import Allocator, allocator_of, is_glibc
from heapfit.host.elf import read_or_none
from heapfit.host.interpreters import OBJECTS_FROM_MALLOC, runtime_of
from heapfit.host.machine import settings_in
from heapfit.host.maps import Mapping, parse
from heapfit.host.proc import (
    PROC,
    Gone,
    Process,
    began,
    environment_of,
    fields_of,
    has_other_root,
    inside,
    is_heapfits,
    living,
    plain,
    present,
    read_file,
    status_of,
    threads,
    undeleted,
)
from heapfit.host.program import why_not_replaced
from heapfit.live import Client, Ledger, LiveProfile, NotListening
from heapfit.record import can_attach, seen_from
from heapfit.why.causes import Cause, Place, causes

_KIB = 1024
_READ_BYTES = 1 << 16  # the kernel answers each read as of its own moment: the fewer the better
_MANY = 1000  # mappings between looks at the clock
# Parts of a processor's time: less has who only wakes now and then, and of its life who may do
# something in a minute.
_COMPUTES, _COMPUTED = 0.001, 0.0001
_FILTER = "2"  # seccomp's mode with a filter of system calls


@dataclass(frozen=True)
class Reading:
    """What /proc says of a process; sizes are in bytes."""

    process: Process
    run: tuple[object, ...]  # another one after an exec, or of another process
    exe: str
    allocator: Allocator | None
    runtime: str | None
    obstacle: str  # a sentence on why no recorder and no allocator gets into it; empty: they do
    elsewhere: bool  # it sees other files: what starts it here starts another program
    from_start_only: bool  # by a filter of system calls, on this processor, or by mounts of its own
    traceable: bool  # by us: its memory may be read
    handles_usr1: bool  # which ends a program that does not
    threads: int
    computes: bool  # it took a part of a processor's time meanwhile, or that is not known
    computed: bool  # it took a part of its life's, or that is not known
    cores: int
    resident: int
    most_resident: int  # since it began; the kernel's own mark
    proportional: int
    huge: int
    lazily_freed: int
    swapped: int
    causes: list[Cause]
    huge_untouched: float | None  # the part of huge pages that is zeros; None: not known
    glibc: contents.Glibc
    limits: list[cgroups.Memory]  # of its control groups, and its own
    settings: dict[str, str]  # of its environment
    settings_known: bool
    # Of its heap, where heapfit serves it and may be asked.
    ledger: Ledger | None
    profile: LiveProfile | None
    unasked: str | None  # why heapfit, which the process has, said nothing
    start: str  # the command that starts the process so that it would; empty: none is known

    @property
    def recordable(self) -> bool:
        return not self.obstacle


def read(pid: int, progress: Callable[[str], None] = lambda _: None) -> Reading:
    """Return a look at the process; of somebody else's, what everybody may know. `progress` is
    told how much has been read, if that takes long.

    Raises Gone where there is none, or it ends meanwhile, and HeapfitError where it has no memory.
    """
    process, alive = _there(pid)
    used, began = _processor_time(alive), time.monotonic_ns()
    folder = PROC / str(alive)
    run = _run(alive)
    mappings = _mappings(folder, process, progress)
    status = status_of(alive) or {}
    if "VmRSS" not in status:
        if "2" in (str(pid), status.get("PPid")):  # kthreadd, the parent of those
            raise HeapfitError(
                f"process {pid} ({process.name}) has no memory of its own: it is a part of the "
                "kernel"
            )
        raise Gone(f"process {pid} ({process.name}) has ended")
    exe = _link(folder / "exe")
    files = {each.path for each in mappings or () if each.path and "x" in each.permissions}
    groups = _lines(alive, "cgroup")
    environment = environment_of(alive)
    settings = settings_in(environment or {})
    preload = None if environment is None else environment.get("LD_PRELOAD", "")
    allocator = allocator_of(files, exe, folder, preload)
    name = allocator.name if allocator else ""
    runtime = runtime_of(folder / "exe", [exe, *files])
    ledger, profile, unasked, start = _heap(pid) if name == "heapfit" else (None, None, None, "")
    elsewhere = has_other_root(alive)
    limits = _soft_limits(alive)
    place = Place(
        allocator=name,
        # One that asks malloc for every object has nothing of its own.
        runtime=None if settings.items() & OBJECTS_FROM_MALLOC.items() else runtime,
        stacks=_stack_pointers(pid),
        told=ledger is not None,
        usual_stack=limits.get("Max stack size", 0),
        tmpfs=_tmpfs(alive),
        variables=partial(_variables, folder),
        is_arena=partial(contents.is_arena, folder),
    )
    found = causes(mappings, place) if mappings is not None else _by_kind(status)
    arenas = [mapping for each in found if each.key == "arenas" for mapping in each.mappings]
    glibc = (
        contents.glibc(folder, mappings or [], arenas, progress)
        if name == "glibc"
        else contents.Glibc()
    )
    reading = Reading(
        process=process,
        run=run,
        exe=exe,
        allocator=allocator,
        runtime=runtime,
        obstacle=_ELSEWHERE if elsewhere else _obstacle(folder / "exe", files, allocator),
        elsewhere=elsewhere,
        from_start_only=status.get("Seccomp") == _FILTER
        or not can_attach()
        or not seen_from(folder / "root"),
        traceable=contents.is_readable(folder),
        handles_usr1=bool(int(status.get("SigCgt", "0"), 16) >> signal.SIGUSR1 - 1 & 1),
        threads=sum(not is_heapfits(alive, each) for each in threads(alive)),
        computes=not used
        or abs(_processor_time(alive) - used) >= _COMPUTES * (time.monotonic_ns() - began),
        computed=_part_of_life(alive) >= _COMPUTED,
        cores=_cores(pid, groups),
        resident=sum(each.resident for each in found),
        most_resident=_kib(status, "VmHWM"),
        proportional=sum(each.proportional for each in mappings or ()),
        huge=sum(each.huge for each in found),
        lazily_freed=sum(each.lazily_freed for each in found),
        swapped=sum(each.swapped for each in found),
        causes=found,
        huge_untouched=contents.untouched(folder, mappings or []),
        glibc=glibc,
        limits=[*_limits(alive, groups, status, limits)],
        settings=settings,
        settings_known=environment is not None,
        ledger=ledger,
        profile=profile,
        unasked=unasked,
        start="" if elsewhere else start,
    )
    if (now := _run(alive)) != run:
        present(pid)  # or it has ended
        if not any(now[1:]):  # It is about to, and has given its memory back.
            raise Gone(f"process {pid} ({process.name}) has ended")
        raise HeapfitError(f"process {pid} runs another program now: look at it again")
    return reading


def _there(pid: int) -> tuple[Process, int]:
    """Return what is known of a process, and under which number /proc tells its memory; raises what
    it is instead."""
    status = status_of(pid)
    if status is not None and status["Tgid"] != str(pid):
        raise HeapfitError(f"{pid} is a thread; use its process: heapfit why {status['Tgid']}")
    alive = living(pid)
    if status is not None and alive is None:
        raise Gone(
            f"process {pid} ({plain(status['Name'])}) has ended and has no memory; what is left of "
            f"it goes when its parent, process {status['PPid']}, waits for it"
        )
    return present(pid), alive or pid


def _mappings(
    folder: Path, process: Process, progress: Callable[[str], None]
) -> list[Mapping] | None:
    """Return the mappings of a process; None where they may not be read."""
    found, told = [], time.monotonic()
    try:
        with (folder / "smaps").open("rb", buffering=_READ_BYTES) as file:
            for mapping in parse(file):
                found.append(mapping)
                if len(found) % _MANY == 0 and time.monotonic() >= told + contents.TOLD_S:
                    told = time.monotonic()
                    progress(f"{len(found):,} mappings read so far")
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
        cause.add(Mapping(0, 0, "", "", name, size, swapped=swapped.get(name, 0)))
    return sorted(found, key=lambda each: -each.resident)


_ELSEWHERE = "This program runs in a container, or with another root: run heapfit there."


def _obstacle(program: Path, files: Collection[str], allocator: Allocator | None = None) -> str:
    """Return a sentence on why no recorder and no other allocator gets into a process with these
    files; nothing where they do, or heapfit is in the program."""
    elf = read_or_none(program)
    if allocator is not None and allocator.linked and allocator.name == "heapfit":
        return ""
    if elf is None:
        why = "it is no program of 64 bits"
    elif elf.has_malloc or not any(map(is_glibc, files)):
        why = why_not_replaced(program) or "it is linked with musl"
    else:
        return ""
    return f"This program cannot be recorded: {why}."


def _heap(pid: int) -> tuple[Ledger | None, LiveProfile | None, str | None, str]:
    """Return what heapfit says of its heap; where it does not, why, and what starts the process so
    that it would."""
    try:
        client = Client(pid)
        return client.ledger(), client.profile(), None, ""
    except NotListening as error:
        return None, None, error.reason, error.start
    except HeapfitError as error:
        return None, None, str(error), ""


def _lines(pid: int, name: str) -> list[str]:
    lines = read_file(pid, name).decode(errors="replace").split("\n")
    return [line for line in lines if line]


def _run(pid: int) -> tuple[object, ...]:
    """Return what a process has that changes when it executes a program, even the same again: when
    it began, what the kernel gave the program, which may not be read of others, and its file."""
    return began(pid), read_file(pid, "auxv"), _link(PROC / str(pid) / "exe")


def _tmpfs(pid: int) -> set[str]:
    """Return the devices of file systems in memory, as the kernel writes them beside mappings."""
    found = set()
    for line in _lines(pid, "mountinfo"):
        mount, _, kind = line.partition(" - ")
        if kind.startswith(("tmpfs ", "ramfs ")):
            major, _, minor = mount.split(" ")[2].partition(":")
            found.add(f"{int(major):02x}:{int(minor):02x}")
    return found


def _variables(folder: Path, path: str) -> int:
    """Return how many bytes a file's variables may take behind its data, in whole pages."""
    elf = read_or_none(inside(folder, path))
    return (1 << 62) if elf is None else elf.zeros + 2 * mmap.PAGESIZE


def _processor_time(pid: int) -> int:
    """Return the nanoseconds that the threads of the program itself have computed; 0: not known."""
    own = (each for each in threads(pid) if not is_heapfits(pid, each))
    used = (read_file(pid, f"task/{each}/schedstat").split() for each in own)
    return sum(int(each[0]) for each in used if each)


def _part_of_life(pid: int) -> float:
    """Return which part of a processor's time a process has had on average; 1: not known."""
    fields, start = fields_of(pid), began(pid)
    if not start:
        return 1.0
    ticks = os.sysconf("SC_CLK_TCK")
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - start / ticks
    # Of all its threads, but in whole ticks.
    in_ticks = (int(fields[11]) + int(fields[12])) / ticks
    return max(in_ticks, _processor_time(pid) / 1e9) / max(age, 1 / ticks)


def _kib(status: dict[str, str], name: str) -> int:
    return int(status.get(name, "0").split()[0]) * _KIB


def _link(file: Path) -> str:
    try:
        return undeleted(os.readlink(file))
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


def _soft_limits(pid: int) -> dict[str, int]:
    """Return the limits of a process itself that are not infinite, by their names."""
    lines = (re.split(" {2,}", line) for line in _lines(pid, "limits"))
    return {name: int(soft) for name, soft, *_ in lines if soft.isdecimal()}


def _limits(
    pid: int, groups: list[str], status: dict[str, str], own: dict[str, int]
) -> Iterator[cgroups.Memory]:
    if (of_group := cgroups.memory_of(groups)) is not None:
        yield of_group
    for name, field in _OWN_LIMITS.items():
        if name in own:
            file, what = f"/proc/{pid}/limits", name.removeprefix("Max ")
            yield cgroups.Memory(own[name], _kib(status, field), 0, file, what)


def _stack_pointers(pid: int) -> list[int]:
    """Return where the stacks of waiting threads are; of one that runs the kernel does not say."""
    said = (read_file(pid, f"task/{task}/syscall").split() for task in threads(pid))
    return [int(each[-2], 16) for each in said if len(each) >= 2 and each[-2].startswith(b"0x")]
