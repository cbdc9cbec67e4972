"""Metric source: resident memory of the whole process tree, at its peak and on average over time.

The sum over the tree is sampled, which can miss a short peak; the kernel's own high-water mark
(ru_maxrss) misses nothing but knows only the largest single process. The peak is the larger of the
two. The mean weighs each sample by the time that it stands for. Shared pages count once per
process.
"""

from __future__ import annotations

import time

from heapfit.records import Metric
from heapfit.trial.launcher import Ended
from heapfit.trial.source import Source
from heapfit.trial.tree import ProcessTree, children_are_listed


class Memory(Source):
    metrics = (
        Metric(
            name="peak_rss_bytes",
            label="Peak resident memory",
            unit="bytes",
            better="lower",
            source="the larger of ru_maxrss and the sampled sum over the process tree",
        ),
        Metric(
            name="mean_rss_bytes",
            label="Mean resident memory",
            unit="bytes",
            better="lower",
            source="sampled sum over the process tree, weighted by time",
        ),
    )

    def __init__(self) -> None:
        self._tree: ProcessTree | None = None
        self._peak = 0
        self._last = 0
        self._last_s = 0.0
        self._area = 0.0  # byte seconds
        self._duration_s = 0.0

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
        resident = self._tree.resident_bytes()
        if not resident:  # already a zombie: its memory went before we looked
            return
        if self._last:
            span_s = now_s - self._last_s
            self._area += span_s * (resident + self._last) / 2
            self._duration_s += span_s
        self._last, self._last_s = resident, now_s
        self._peak = max(self._peak, resident)

    def figures(self, ended: Ended) -> dict[str, float]:
        if self._tree is not None:
            self._tree.close()
        figures = {"peak_rss_bytes": float(max(self._peak, ended.max_rss_bytes))}
        if self._duration_s:
            figures["mean_rss_bytes"] = self._area / self._duration_s
        elif self._last:
            figures["mean_rss_bytes"] = float(self._last)
        return figures
