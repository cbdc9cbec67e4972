"""Metric source: proportional set size of the whole process tree, at its peak and on average.

Resident size counts a page that ten processes share ten times; the proportional size counts a tenth
in each. It is the honest figure for a server that forks workers. The kernel adds it up anew at each
look (/proc/PID/smaps_rollup), page by page, and holds the program's memory map meanwhile: that is
why it is to be asked for, and is looked at the rarer the larger the program is. The kernel keeps no
high-water mark of it, so a short peak can be missed.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from heapfit.records import Metric
from heapfit.trial.averaging import Averaging
from heapfit.trial.launcher import Ended
from heapfit.trial.source import Source
from heapfit.trial.tree import ProcessTree, children_are_listed

_SOURCE = "sampled sum of /proc/PID/smaps_rollup over the process tree"
_KIB = 1024


@dataclass(frozen=True)
class Rollup:
    """What a process has resident, and its proportional part of it. In bytes."""

    resident: int
    proportional: int

    def is_twin(self, parent: Rollup | None) -> bool:
        """Tell whether this child merely borrows its parent's address space (vfork).

        A child that has just been forked looks like its parent too, but shares every page, so that
        at most half of each is its own.
        """
        return self == parent and self.proportional > self.resident / 2


class ProportionalMemory(Source):
    metrics = (
        Metric(
            name="peak_pss_bytes",
            label="Peak proportional memory",
            unit="bytes",
            better="lower",
            source=_SOURCE,
        ),
        Metric(
            name="mean_pss_bytes",
            label="Mean proportional memory",
            unit="bytes",
            better="lower",
            source=f"{_SOURCE}, weighted by time",
        ),
    )

    def __init__(self) -> None:
        self._tree: ProcessTree | None = None
        self._sizes = Averaging()

    @classmethod
    def unavailable(cls) -> str | None:
        if not Path("/proc/self/smaps_rollup").exists():
            return "the kernel has no /proc/PID/smaps_rollup (CONFIG_PROC_PAGE_MONITOR)"
        if not children_are_listed():
            return "the kernel does not list a process's children (CONFIG_PROC_CHILDREN)"
        return None

    def begin(self, root: int) -> None:
        self._tree = ProcessTree(root)
        self.sample(time.monotonic())

    def sample(self, now_s: float) -> None:
        assert self._tree is not None, "begin() comes first"
        rollups: dict[int, Rollup] = {}
        total = 0
        for parent, process in self._tree.processes():
            rollup = read_rollup(process)
            if rollup is None:
                continue
            rollups[process] = rollup
            if not rollup.is_twin(rollups.get(parent)):
                total += rollup.proportional
        if total:  # nothing: it is a zombie already
            self._sizes.add(now_s, total)

    def figures(self, ended: Ended) -> dict[str, float]:
        if not self._sizes.peak:
            return {}  # it ended before the first look
        return {"peak_pss_bytes": self._sizes.peak, "mean_pss_bytes": self._sizes.mean()}


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
    return parse_rollup(text)


def parse_rollup(text: bytes) -> Rollup | None:
    """Return the sizes in the text of a smaps_rollup, which a zombie's lacks."""
    sizes = {
        line.split(b":")[0]: int(line.split()[1]) * _KIB
        for line in text.splitlines()
        if line.startswith((b"Rss:", b"Pss:"))
    }
    if len(sizes) < 2:
        return None
    return Rollup(resident=sizes[b"Rss"], proportional=sizes[b"Pss"])
