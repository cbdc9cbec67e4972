"""What a process answers, as records.

The members have the names of the structures in `heapfit.h`, where each is explained. The library
in a process may be of another version than this package: a member that this one does not know is
passed over, a figure that an older library does not give is 0. The process need not be heapfit's at
all: a figure that no library gives makes an answer that is not understood.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

# What the library counts in, uint64_t; and int64_t, for what may be none.
Count = Annotated[int, Field(ge=0, lt=1 << 64)]
Signed = Annotated[int, Field(ge=-1 << 63, lt=1 << 63)]
_Positive = Annotated[int, Field(ge=1, lt=1 << 64)]
# A file and an address in it, or an address alone.
_Place = Annotated[str, StringConstraints(pattern=r"(?s)^(?:.*\+)?0x[0-9a-f]{1,16}$")]


class LiveRecord(BaseModel):
    """Base of all parts of an answer."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Totals(LiveRecord):
    """`hf_stats`. In bytes, unless the name says otherwise."""

    live_objects: Count = 0
    live_bytes: Count = 0
    large_objects: Count = 0
    large_bytes: Count = 0
    free_bytes: Count = 0
    dirty_bytes: Count = 0
    own_bytes: Count = 0
    footprint: Count = 0
    committed: Count = 0
    reserved: Count = 0
    purged: Count = 0
    purges: Count = 0
    heaps: Count = 0
    heaps_idle: Count = 0
    orphan_spans: Count = 0
    contexts: Count = 0
    context_bytes: Count = 0
    resident: Count = 0
    cached_bytes: Count = 0
    zeroed_bytes: Count = 0
    zeroed_hits: Count = 0
    zeroed_misses: Count = 0
    huge_bytes: Count = 0
    commits: Count = 0
    advices: Count = 0
    refills: Count = 0
    remote_batches: Count = 0
    remote_blocks: Count = 0
    threads_sharing: Count = 0
    nodes: Count = 0
    guard_slots: Count = 0
    guard_objects: Count = 0
    guard_samples: Count = 0
    guard_missed: Count = 0


class SizeClass(LiveRecord):
    """`hf_class_stats`."""

    block_size: Count
    spans: Count = 0
    live_objects: Count = 0
    free_objects: Count = 0


class Heap(LiveRecord):
    """`hf_heap_stats`."""

    number: Count
    thread: Signed = 0
    spans: Count = 0
    live_bytes: Count = 0
    free_bytes: Count = 0
    cached_bytes: Count = 0
    refills: Count = 0


class Node(LiveRecord):
    """`hf_node_stats`."""

    node: Count
    dirty_bytes: Count = 0
    zeroed_bytes: Count = 0
    crossings: Count = 0


class Stats(LiveRecord):
    """Everything that a process says of its heap at one moment."""

    format: Literal["heapfit-stats/1"]
    version: str
    pid: Count
    time_ms: Count = 0
    shrunk: bool = False
    total: Totals
    classes: list[SizeClass] = []
    heaps: list[Heap] = []
    nodes: list[Node] = []


class LedgerRow(LiveRecord):
    """`hf_ledger_row`: so much memory of one cause."""

    cause: str
    name: str = ""
    in_heap: bool
    heap: Signed = -1
    thread: Signed = 0
    resident: Count
    swapped: Count = 0


class ProfileSample(LiveRecord):
    """An object that lives and was sampled, with so many bytes between two points."""

    site: Count
    bytes: _Positive
    mean: _Positive
    age_ms: Count = 0
    pinned: Count = 0


class ProfileSite(LiveRecord):
    """A call site: `FILE+0xADDRESS` of each call, the innermost first."""

    site: Count
    calls: list[_Place] = []


class ProfileAnswer(LiveRecord):
    """The sampled objects that live."""

    mean: Count
    taken: Count = 0
    missed: Count = 0
    samples: list[ProfileSample] = []
    sites: list[ProfileSite] = []
    complete: bool = True


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
    minimum: Count = 0
    maximum: Count = 0
    unlimited: bool = False
    choices: list[str] = []
