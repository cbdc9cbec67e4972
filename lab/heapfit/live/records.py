"""What a process answers, as records.

The members have the names of the structures in `heapfit.h`, where each is explained. The library
in a process may be of another version than this package: a member that this one does not know is
passed over, a figure that an older library does not give is 0.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict


class LiveRecord(BaseModel):
    """Base of all parts of an answer."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Totals(LiveRecord):
    """`hf_stats`. In bytes, unless the name says otherwise."""

    live_objects: int = 0
    live_bytes: int = 0
    large_objects: int = 0
    large_bytes: int = 0
    free_bytes: int = 0
    dirty_bytes: int = 0
    own_bytes: int = 0
    footprint: int = 0
    committed: int = 0
    reserved: int = 0
    purged: int = 0
    purges: int = 0
    heaps: int = 0
    heaps_idle: int = 0
    orphan_spans: int = 0
    contexts: int = 0
    context_bytes: int = 0
    resident: int = 0
    cached_bytes: int = 0
    zeroed_bytes: int = 0
    zeroed_hits: int = 0
    zeroed_misses: int = 0
    huge_bytes: int = 0
    commits: int = 0
    advices: int = 0
    refills: int = 0
    remote_batches: int = 0
    remote_blocks: int = 0
    threads_sharing: int = 0
    nodes: int = 0
    guard_slots: int = 0
    guard_objects: int = 0
    guard_samples: int = 0
    guard_missed: int = 0


class SizeClass(LiveRecord):
    """`hf_class_stats`."""

    block_size: int
    spans: int = 0
    live_objects: int = 0
    free_objects: int = 0


class Heap(LiveRecord):
    """`hf_heap_stats`."""

    number: int
    thread: int = 0
    spans: int = 0
    live_bytes: int = 0
    free_bytes: int = 0
    cached_bytes: int = 0
    refills: int = 0


class Node(LiveRecord):
    """`hf_node_stats`."""

    node: int
    dirty_bytes: int = 0
    zeroed_bytes: int = 0
    crossings: int = 0


class Stats(LiveRecord):
    """Everything that a process says of its heap at one moment."""

    format: Literal["heapfit-stats/1"]
    version: str
    pid: int
    time_ms: int = 0
    shrunk: bool = False
    total: Totals
    classes: list[SizeClass] = []
    heaps: list[Heap] = []
    nodes: list[Node] = []


class LiveOption(LiveRecord):
    """An option of the library in the process: the value that it is set to, and what is in force.

    That is less while the heap is shrunk.
    """

    name: str
    description: str = ""
    kind: Literal["number", "size", "flag", "choice"]
    live: bool = False
    value: str
    in_force: str
    initial: str = ""
    minimum: int = 0
    maximum: int = 0
    unlimited: bool = False
    choices: list[str] = []
