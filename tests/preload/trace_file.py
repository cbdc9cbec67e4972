"""A recording as the lab reads it, whole, and in plain Python."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import starmap
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from heapfit.trace.native import DELETE, FAILED, FREE, Problems, Reader, Thread

_BATCH = 1 << 14
_COLUMNS = ("kind", "address", "old", "size", "usable", "site")
_DAMAGE = ("cut_short", "damaged_bytes", "damaged_blocks", "unknown_blocks", "missing_blocks")


class Event(NamedTuple):
    """Of an event those columns."""

    kind: int
    address: int  # 0: failed
    old: int
    size: int
    usable: int
    site: int


@dataclass
class Trace:
    info: dict[str, Any] = field(default_factory=dict)
    end: dict[str, Any] = field(default_factory=dict)  # empty where there is none
    threads: list[Thread] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    modules: list[str] = field(default_factory=list)
    sites: list[tuple[int, int]] = field(default_factory=list)  # caller and address, by number
    problems: Problems = field(default_factory=Problems)

    def sizes(self) -> list[int]:
        """Of all allocations that succeeded."""
        return [
            each.size for each in self.events if each.kind not in (FREE, DELETE) and each.address
        ]

    def is_damaged(self) -> bool:
        return any(getattr(self.problems, name) for name in _DAMAGE)


def read_trace(path: Path) -> Trace:
    with Reader(path) as reader:
        events = list(_events(reader))
        sites = [(0, 0), *((caller, address) for caller, _, address in reader.sites().tolist())]
        return Trace(
            reader.info,
            reader.end or {},
            reader.threads,
            events,
            reader.modules,
            sites,
            reader.problems,
        )


def _events(reader: Reader) -> Iterator[Event]:
    for batch in reader.events(_BATCH):
        batch["kind"] = batch["kind"] & ~np.uint8(FAILED)
        yield from starmap(Event, zip(*(batch[name].tolist() for name in _COLUMNS), strict=True))
