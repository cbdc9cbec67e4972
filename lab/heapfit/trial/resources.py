"""Metric sources: the time and the memory that a program's whole process tree takes.

The kernel accounts to the launcher, as RUSAGE_CHILDREN, once the whole tree is reaped: the program,
the children it waited for and theirs, and orphans that were left to the launcher. A child whose
parent ignores SIGCHLD is reaped by the kernel and accounted to nobody. Wall time runs from just
before the program is forked until the kernel reports its end.

Memory is sampled, as the size of the tree, which can miss a short peak. The mean weighs each sample
by the time that it stands for.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from heapfit.trial.launcher import Ended
from heapfit.trial.source import Source, cost
from heapfit.trial.tree import ProcessTree, children_are_listed

_RUSAGE = "getrusage over the program and all its descendants"
_TREE = "sampled size of the process tree, in which a page that processes share counts once"
_PSS = "sampled sum of /proc/PID/smaps_rollup over the process tree"
_KIB = 1024
_POOLED = (b"Private_Hugetlb:", b"Shared_Hugetlb:")  # in neither of the others


class Resources(Source):
    """What the kernel accounted, by `wait4` and `getrusage`; metrics have the names of fields of
    `Ended`."""

    metrics = (
        cost("wall_s", "Wall time", "s", "monotonic clock from fork to the end of the program"),
        cost("user_s", "User time", "s", _RUSAGE),
        cost("system_s", "System time", "s", _RUSAGE),
        cost("minor_faults", "Minor faults", "count", _RUSAGE),
        cost("major_faults", "Major faults", "count", _RUSAGE),
        cost("voluntary_switches", "Voluntary context switches", "count", _RUSAGE),
        cost("involuntary_switches", "Involuntary context switches", "count", _RUSAGE),
    )

    def figures(self, ended: Ended) -> dict[str, float]:
        return {metric.name: getattr(ended, metric.name) for metric in self.metrics}


class Averaging:
    """The peak and the mean over time of a size that is sampled.

    The mean is that of the line through all samples.
    """

    def __init__(self) -> None:
        self.peak = 0.0
        self._last = 0.0
        self._last_s: float | None = None
        self._area = 0.0  # size times seconds
        self._duration_s = 0.0

    def add(self, now_s: float, size: float) -> None:
        """Take the `size` seen at `now_s`."""
        if self._last_s is not None:
            span_s = now_s - self._last_s
            self._area += span_s * (size + self._last) / 2
            self._duration_s += span_s
        self._last, self._last_s = size, now_s
        self.peak = max(self.peak, size)

    def mean(self) -> float:
        """Return the mean weighted by time; of a single sample, that size; of none, 0."""
        return self._area / self._duration_s if self._duration_s else self._last


class _SampledMemory(Source):
    """A size of the process tree that is sampled while the program runs."""

    def __init__(self) -> None:
        self._tree: ProcessTree | None = None
        self._sizes = Averaging()

    @classmethod
    def unavailable(cls) -> str | None:
        if children_are_listed():
            return None
        return "the kernel does not list a process's children (CONFIG_PROC_CHILDREN)"

    def begin(self, root: int) -> None:
        self._tree = ProcessTree(root)
        self.sample(time.monotonic())

    def sample(self, now_s: float) -> None:
        assert self._tree is not None, "begin() comes first"
        size = self._size(self._tree)
        if size:  # a zombie has none
            self._sizes.add(now_s, size)

    def _size(self, tree: ProcessTree) -> int:
        """Return the size of the tree now."""
        raise NotImplementedError

    def close(self) -> None:
        if self._tree is not None:
            self._tree.close()


# Between two readings of what processes share, their resident sizes may change by this part.
_CHANGE = 0.05
# Processor time for these readings: a part of the time that has passed, and an advance.
_LOOKS_SHARE = 0.01
_LOOKS_AHEAD_S = 0.05


class Memory(_SampledMemory):
    """Resident memory; a page that several processes share counts once.

    The kernel's own high-water mark (ru_maxrss) misses no peak but knows only the largest single
    process. The peak is the larger of the two.

    The proportional sizes of processes take long to read: the kernel walks through all pages. So
    the resident sizes are read often. The ratio of proportional to resident size is read only when
    the sizes or the processes have changed, and is assumed constant in between.
    """

    def __init__(self) -> None:
        super().__init__()
        self._began_s = time.monotonic()
        self._known: dict[int, int] = {}  # the sizes when the share was last read
        self._share = 1.0

    metrics = (
        cost(
            "peak_rss_bytes",
            "Peak resident memory",
            "bytes",
            f"the larger of ru_maxrss and the {_TREE}; a peak of some ms over several processes "
            "may be missed",
        ),
        cost(
            "mean_rss_bytes",
            "Mean resident memory",
            "bytes",
            f"{_TREE}, weighted by time",
        ),
    )

    def _size(self, tree: ProcessTree) -> int:
        sizes = tree.resident()
        resident = sum(sizes.values())
        if len(sizes) < 2:
            return resident
        if self._is_other(sizes) and self._may_look():
            before_s = time.thread_time()
            if total := _proportional(tree, sizes):
                self._known, self._share = sizes, total / resident
            self.limited_s += time.thread_time() - before_s
        if sizes.keys() != self._known.keys():
            return 0  # What these share is not known; a later sample finds time for it.
        return int(resident * self._share)

    def _is_other(self, sizes: dict[int, int]) -> bool:
        known, resident = sum(self._known.values()), sum(sizes.values())
        return sizes.keys() != self._known.keys() or abs(resident - known) > _CHANGE * known

    @property
    def most_threads(self) -> int | None:
        """Of one process at the same time, as far as was seen; None: nothing was."""
        return (self._tree and self._tree.most_threads) or None

    def _may_look(self) -> bool:
        passed_s = time.monotonic() - self._began_s
        return self.limited_s <= _LOOKS_AHEAD_S + _LOOKS_SHARE * passed_s

    def figures(self, ended: Ended) -> dict[str, float]:
        figures = {"peak_rss_bytes": max(self._sizes.peak, float(ended.max_rss_bytes))}
        if self._sizes.peak:
            figures["mean_rss_bytes"] = self._sizes.mean()
        return figures


class ProportionalMemory(_SampledMemory):
    """Proportional set size.

    Resident size counts a page that ten processes share ten times; the proportional size counts a
    tenth in each. It is the honest figure for a server that forks workers. The kernel adds it up
    anew for each sample (/proc/PID/smaps_rollup), page by page, and holds the program's memory map
    meanwhile. That is why it is optional, and sampled more rarely the larger the program is. The
    kernel keeps no high-water mark of it.
    """

    metrics = (
        cost("peak_pss_bytes", "Peak proportional memory", "bytes", _PSS),
        cost("mean_pss_bytes", "Mean proportional memory", "bytes", f"{_PSS}, weighted by time"),
    )

    @classmethod
    def unavailable(cls) -> str | None:
        if not Path("/proc/self/smaps_rollup").exists():
            return "the kernel has no /proc/PID/smaps_rollup (CONFIG_PROC_PAGE_MONITOR)"
        return super().unavailable()

    def _size(self, tree: ProcessTree) -> int:
        return _proportional(tree, {})

    def figures(self, ended: Ended) -> dict[str, float]:
        if not self._sizes.peak:
            return {}  # it ended before the first sample
        return {"peak_pss_bytes": self._sizes.peak, "mean_pss_bytes": self._sizes.mean()}


def _proportional(tree: ProcessTree, otherwise: Mapping[int, int]) -> int:
    """Return the sum of the processes' proportional sizes; where one cannot be read, that of
    `otherwise` counts. 0: one has begun or ended meanwhile, so that pages were counted twice."""
    rollups: dict[int, Rollup] = {}
    total = 0
    processes = tree.processes()
    for parent, process in processes:
        rollup = read_rollup(process)
        if rollup is None:
            size = otherwise.get(process, 0)
            if size and _has_ended(process):  # What it shared, others have: until it is waited for.
                return 0
            total += size
            continue
        rollups[process] = rollup
        if not rollup.is_twin(rollups.get(parent)):
            total += rollup.proportional
    return total if tree.processes() == processes else 0


def _has_ended(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/statm").read_bytes().startswith(b"0 ")
    except OSError:
        return True


@dataclass(frozen=True)
class Rollup:
    """A process's resident and proportional size, in bytes, each with what it has of the huge-page
    pool."""

    resident: int
    proportional: int

    def is_twin(self, parent: Rollup | None) -> bool:
        """Tell whether this child merely borrows its parent's address space (vfork).

        A child that has just been forked looks like its parent too, but shares every page, so that
        at most half of each is its own.
        """
        return self == parent and self.proportional > self.resident / 2


def read_rollup(process: int) -> Rollup | None:
    """Return the sizes of `process`, or None when it has ended or is not ours to look at."""
    try:
        fd = os.open(f"/proc/{process}/smaps_rollup", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        text = os.read(fd, os.sysconf("SC_PAGE_SIZE"))
    except OSError:  # it has ended since
        return None
    finally:
        os.close(fd)
    sizes = {
        line.split(b":")[0]: int(line.split()[1]) * _KIB
        for line in text.splitlines()
        if line.startswith((b"Rss:", b"Pss:", *_POOLED))
    }
    if b"Pss" not in sizes:  # a zombie's lacks it
        return None
    pooled = sum(sizes.get(name.rstrip(b":"), 0) for name in _POOLED)
    return Rollup(resident=sizes[b"Rss"] + pooled, proportional=sizes[b"Pss"] + pooled)
