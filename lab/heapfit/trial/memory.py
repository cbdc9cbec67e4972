"""Metric source: resident memory of the whole process tree, at its peak and on average over time.

The sum over the tree is sampled, which can miss a short peak; the kernel's own high-water mark
(ru_maxrss) misses nothing but knows only the largest single process. The peak is the larger of the
two. The mean weighs each sample by the time that it stands for. Shared pages count once per
process.
"""

from __future__ import annotations

import time

from heapfit.records import Metric
from heapfit.trial.averaging import Averaging
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
        resident = self._tree.resident_bytes()
        if resident:  # nothing: already a zombie, its memory went before we looked
            self._sizes.add(now_s, resident)

    def figures(self, ended: Ended) -> dict[str, float]:
        figures = {"peak_rss_bytes": max(self._sizes.peak, float(ended.max_rss_bytes))}
        if self._sizes.peak:
            figures["mean_rss_bytes"] = self._sizes.mean()
        return figures

    def close(self) -> None:
        if self._tree is not None:
            self._tree.close()
