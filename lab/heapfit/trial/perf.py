"""Metric sources: events of the kernel and the processor in a program's tree, counted by
perf_event_open(2).

A counter is opened on the launcher before it forks. It is inherited by everything that the launcher
starts and begins to count when the program is executed, so the launcher itself is never in it. Only
counting is asked for, no samples: that needs no root for the processor's events of user code, and
for the kernel's tracepoints no more than the number that tracefs knows them by.

The `perf` command is no fallback: it makes the same system call under the same rules.
"""

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from heapfit.records import Metric
from heapfit.trial.launcher import Ended
from heapfit.trial.source import Source, SourceFailed, cost

# By machine: the system call's number, for which libc has no function.
_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}

# The part of `struct perf_event_attr` in use here, up to its first published size, which every
# kernel takes: type, size, config, sample_period, sample_type, read_format, flags; the rest is 0.
ATTRIBUTE_SIZE = 64
_ATTRIBUTE = struct.Struct("=IIQQQQQ16x")
_FLAG_DISABLED = 1 << 0
_FLAG_INHERIT = 1 << 1
_FLAG_EXCLUDE_KERNEL = 1 << 5
_FLAG_EXCLUDE_HYPERVISOR = 1 << 6
_FLAG_ENABLE_ON_EXEC = 1 << 12
_FORMAT_TIME_ENABLED = 1 << 0
_FORMAT_TIME_RUNNING = 1 << 1
_CLOSE_ON_EXEC = 1 << 3
_READING = struct.Struct("=QQQ")  # the count, and for how long it was enabled and really ran

_ANY_CORE, _NO_GROUP, _THIS_PROCESS = -1, -1, 0

HARDWARE, SOFTWARE, TRACEPOINT, HARDWARE_CACHE = 0, 1, 2, 3

# The numbers of the processor's events and of its caches.
_CYCLES, _INSTRUCTIONS, _CACHE_MISSES = 0, 1, 3
_L1D, _DTLB = 0, 3
FRAGMENTATION = "kmem:mm_page_alloc_extfrag"

_TRACEFS = (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing"))
_PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
# What the kernel lets everybody count: user code at 2, itself too at 1.
_PARANOID_USER, _PARANOID_KERNEL = 2, 1


class Unavailable(Exception):
    """This machine cannot count an event; the message says why and what would help."""


@dataclass(frozen=True)
class Event:
    """What to count: `kind` and `config` as perf_event_open(2) numbers them."""

    kind: int
    config: int
    in_kernel: bool = False


def cache_read_misses(cache: int) -> int:
    """Return the config of a HARDWARE_CACHE event: loads that `cache` missed."""
    read, miss = 0, 1
    return cache | read << 8 | miss << 16


def tracepoint(name: str) -> Event:
    """Return the event of a tracepoint, `group:name`. Raises `Unavailable`."""
    for folder in _TRACEFS:
        path = folder / "events" / name.replace(":", "/") / "id"
        try:
            return Event(TRACEPOINT, int(path.read_text()), in_kernel=True)
        except PermissionError as error:
            raise Unavailable(f"needs root: {folder} is not ours to read") from error
        except (OSError, ValueError):
            continue
    if any((folder / "events").is_dir() for folder in _TRACEFS):
        raise Unavailable(f"this kernel has no tracepoint {name}")
    raise Unavailable(
        f"tracefs is not mounted (as root: mount -t tracefs tracefs {_TRACEFS[0]}), "
        "or the kernel has none"
    )


def attribute(event: Event) -> bytes:
    """Return the `struct perf_event_attr` that counts `event` in what a process will execute."""
    flags = _FLAG_DISABLED | _FLAG_INHERIT | _FLAG_ENABLE_ON_EXEC
    if not event.in_kernel:
        flags |= _FLAG_EXCLUDE_KERNEL | _FLAG_EXCLUDE_HYPERVISOR
    no_samples, reading = 0, _FORMAT_TIME_ENABLED | _FORMAT_TIME_RUNNING
    return _ATTRIBUTE.pack(
        event.kind, ATTRIBUTE_SIZE, event.config, no_samples, no_samples, reading, flags
    )


class Counter:
    """A count of `event` in what `process` executes and starts from now on. To be closed."""

    def __init__(self, event: Event, process: int) -> None:
        """Open the counter; raise `Unavailable` where the kernel refuses."""
        self._fd = _open(event, process)

    def read(self) -> float | None:
        """Return the count, or None if it never had the hardware to itself.

        Where there were more events than hardware, each counted for a part of the time; the count
        is then scaled to the whole.
        """
        count, enabled, running = _READING.unpack(os.read(self._fd, _READING.size))
        if running == enabled:  # also when both are zero: nothing was executed
            return float(count)
        return count * enabled / running if running else None

    def close(self) -> None:
        os.close(self._fd)


def _open(event: Event, process: int) -> int:
    number = _PERF_EVENT_OPEN.get(platform.machine())
    if number is None:
        raise Unavailable(f"heapfit cannot open counters on {platform.machine()}")
    attributes = ctypes.create_string_buffer(attribute(event), ATTRIBUTE_SIZE)
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = (process, _ANY_CORE, _NO_GROUP, _CLOSE_ON_EXEC)
    descriptor = libc.syscall(number, attributes, *map(ctypes.c_long, arguments))
    if descriptor < 0:
        raise Unavailable(_why(event, ctypes.get_errno()))
    return int(descriptor)


def _why(event: Event, error: int) -> str:
    if error in (errno.EACCES, errno.EPERM):
        level = _PARANOID_KERNEL if event.in_kernel else _PARANOID_USER
        return f"not permitted (as root: sysctl kernel.perf_event_paranoid={level})"
    if error == errno.ENOSYS or not _PARANOID.exists():
        return "the kernel has no performance events"
    if error in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP, errno.EINVAL):
        return "the processor shows no such counter, as is common in a virtual machine"
    return f"perf_event_open: {os.strerror(error).lower()}"


# --------------------------------------------------------------- sources


class PerfSource(Source):
    """Counts `events()` from the execution of the program until all of its tree has ended."""

    def __init__(self) -> None:
        self._counters: dict[str, Counter] = {}

    @classmethod
    def events(cls) -> Mapping[str, Event]:
        """Return the events by the metric that each is; raise `Unavailable`."""
        raise NotImplementedError

    @classmethod
    def unavailable(cls) -> str | None:
        try:
            for event in cls.events().values():
                Counter(event, _THIS_PROCESS).close()
        except Unavailable as reason:
            return str(reason)
        return None

    def attach(self, launcher: int) -> None:
        try:
            for metric, event in self.events().items():
                self._counters[metric] = Counter(event, launcher)
        except Unavailable as reason:
            raise SourceFailed(f"{metric} cannot be counted: {reason}") from reason

    def figures(self, ended: Ended) -> dict[str, float]:
        counts = {metric: counter.read() for metric, counter in self._counters.items()}
        return {metric: count for metric, count in counts.items() if count is not None}

    def close(self) -> None:
        with ExitStack() as closing:
            for counter in self._counters.values():
                closing.callback(counter.close)
        self._counters.clear()


def _counter(name: str, label: str, what: str) -> tuple[Metric]:
    means = f"counter of the processor: {what}, user code of the process tree"
    return (cost(name, label, "count", means),)


class _Hardware(PerfSource):
    """A counter of the processor, over the program's own code.

    Each counter is a source of its own, because a processor may have one and lack another. Only
    user code is counted, which needs no root. Virtual machines often have no counters at all; then
    `simulation.py` gives some of the same figures.
    """

    event: ClassVar[Event]

    @classmethod
    def events(cls) -> Mapping[str, Event]:
        return {cls.metrics[0].name: cls.event}


class Instructions(_Hardware):
    metrics = _counter("instructions", "Instructions", "instructions retired")
    event = Event(HARDWARE, _INSTRUCTIONS)


class Cycles(_Hardware):
    metrics = _counter("cycles", "Cycles", "cycles while not halted")
    event = Event(HARDWARE, _CYCLES)


class L1DataMisses(_Hardware):
    metrics = _counter("l1d_misses", "L1 data cache misses", "loads that missed the L1 cache")
    event = Event(HARDWARE_CACHE, cache_read_misses(_L1D))


class LastLevelMisses(_Hardware):
    metrics = _counter("llc_misses", "Last-level cache misses", "misses of the last level")
    event = Event(HARDWARE, _CACHE_MISSES)


class DataTlbMisses(_Hardware):
    metrics = _counter("dtlb_misses", "Data TLB misses", "loads that missed the TLB")
    event = Event(HARDWARE_CACHE, cache_read_misses(_DTLB))


COUNTERS = (Instructions, Cycles, L1DataMisses, LastLevelMisses, DataTlbMisses)


class KernelFragmentation(PerfSource):
    """How often the kernel had to break up memory of another kind for this program.

    The kernel keeps free pages apart by how movable their content will be. When a kind has run out,
    it takes a block from another kind, and physical memory gets more fragmented: that is the
    tracepoint, which studies of allocators have counted with SystemTap. Counted here are the events
    that the program's own requests for memory caused, not those of the whole machine.

    It costs nothing while no event happens. It is optional all the same, since it needs root on
    most machines, and is zero for a program that touches little memory on a machine with much.
    """

    metrics = (
        cost(
            "fragmentation_events",
            "Kernel fragmentation events",
            "count",
            f"tracepoint {FRAGMENTATION} over the process tree",
        ),
    )

    @classmethod
    def events(cls) -> Mapping[str, Event]:
        return {"fragmentation_events": tracepoint(FRAGMENTATION)}
