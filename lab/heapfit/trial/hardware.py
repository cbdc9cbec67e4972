"""Metric sources: what the processor counts while it runs the program's own code.

Each counter is a source of its own, for a processor may have one and lack the other. User code
alone is counted, which needs no root. Virtual machines often show no counters at all; then
`simulation.py` gives some of the same figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from heapfit.records import Metric
from heapfit.trial import perf
from heapfit.trial.perf_source import PerfSource

_CYCLES, _INSTRUCTIONS, _CACHE_MISSES = 0, 1, 3
_L1D, _DTLB = 0, 3


def _metric(name: str, label: str, what: str) -> Metric:
    return Metric(
        name=name,
        label=label,
        unit="count",
        better="lower",
        source=f"counter of the processor: {what}, user code of the process tree",
    )


class _Hardware(PerfSource):
    event: ClassVar[perf.Event]

    @classmethod
    def events(cls) -> Mapping[str, perf.Event]:
        return {cls.metrics[0].name: cls.event}


class Instructions(_Hardware):
    metrics = (_metric("instructions", "Instructions", "instructions retired"),)
    event = perf.Event(perf.HARDWARE, _INSTRUCTIONS)


class Cycles(_Hardware):
    metrics = (_metric("cycles", "Cycles", "cycles while not halted"),)
    event = perf.Event(perf.HARDWARE, _CYCLES)


class L1DataMisses(_Hardware):
    metrics = (_metric("l1d_misses", "L1 data cache misses", "loads that missed the L1 cache"),)
    event = perf.Event(perf.HARDWARE_CACHE, perf.cache_read_misses(_L1D))


class LastLevelMisses(_Hardware):
    metrics = (_metric("llc_misses", "Last-level cache misses", "misses of the last level"),)
    event = perf.Event(perf.HARDWARE, _CACHE_MISSES)


class DataTlbMisses(_Hardware):
    metrics = (_metric("dtlb_misses", "Data TLB misses", "loads that missed the TLB"),)
    event = perf.Event(perf.HARDWARE_CACHE, perf.cache_read_misses(_DTLB))


COUNTERS = (Instructions, Cycles, L1DataMisses, LastLevelMisses, DataTlbMisses)
