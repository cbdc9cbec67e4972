"""Metric source: how often the kernel had to break up memory of another kind for this program.

The kernel keeps free pages apart by how movable their content will be. When a kind has run out, it
takes a block from another kind, and physical memory gets more fragmented: that is the tracepoint
kmem:mm_page_alloc_extfrag, which studies of allocators have counted with SystemTap. Counted here
are the events that the program's own requests for memory caused, not those of the whole machine.

It costs nothing while no event happens. It is to be asked for all the same, since it needs root on
most machines, and a program that touches little memory on a machine with much has a plain zero.
"""

from __future__ import annotations

from collections.abc import Mapping

from heapfit.records import Metric
from heapfit.trial import perf
from heapfit.trial.perf_source import PerfSource

TRACEPOINT = "kmem:mm_page_alloc_extfrag"


class KernelFragmentation(PerfSource):
    metrics = (
        Metric(
            name="fragmentation_events",
            label="Kernel fragmentation events",
            unit="count",
            better="lower",
            source=f"tracepoint {TRACEPOINT} over the process tree",
        ),
    )

    @classmethod
    def events(cls) -> Mapping[str, perf.Event]:
        return {"fragmentation_events": perf.tracepoint(TRACEPOINT)}
