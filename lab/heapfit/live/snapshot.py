"""Everything that can be known of one process at one moment, and what went on between two."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from heapfit.errors import HeapfitError
from heapfit.host.proc import Gone, Process
from heapfit.live.client import Client
from heapfit.live.ledger import Ledger
from heapfit.live.records import LiveOption, Stats

_KIB = 1024
_MS_PER_S = 1000.0


@dataclass(frozen=True)
class Snapshot:
    """The process's own figures, its options, and what the kernel says of its memory."""

    process: Process
    stats: Stats
    options: list[LiveOption]
    memory: ProcessMemory | None
    ledger: Ledger | None = None  # which takes longer than all the rest


def take(client: Client, ledger_timeout_s: float | None = None) -> Snapshot:
    """Ask a process for all of it; for the ledger if there is time for one."""
    return Snapshot(
        process=client.process,
        stats=client.stats(),
        options=client.options(),
        memory=read_memory(client.process.pid),
        ledger=_ledger(client, ledger_timeout_s) if ledger_timeout_s else None,
    )


def _ledger(client: Client, timeout_s: float) -> Ledger | None:
    """Return it; None from a library that has none, or that needs more time."""
    try:
        return client.ledger(timeout_s)
    except Gone:
        raise
    except HeapfitError:
        return None


# ------------------------------------------------------------------- the kernel's figures


@dataclass(frozen=True)
class ProcessMemory:
    """Of the whole process, not of its heap alone. In bytes."""

    resident: int
    huge: int

    @property
    def huge_share(self) -> float:
        """The part of the resident memory that huge pages back, from 0 to 1."""
        return self.huge / self.resident if self.resident else 0.0


def read_memory(pid: int) -> ProcessMemory | None:
    """Return the sizes; None when the process has ended or is not ours to look at."""
    try:
        return parse_memory(Path(f"/proc/{pid}/smaps_rollup").read_bytes())
    except OSError:
        return None


def parse_memory(rollup: bytes) -> ProcessMemory | None:
    """Return the sizes in the text of a smaps_rollup.

    >>> parse_memory(b"00400000-7fff [rollup]\\nRss: 4096 kB\\nAnonHugePages: 2048 kB\\n")
    ProcessMemory(resident=4194304, huge=2097152)
    """
    lines = (line.split() for line in rollup.splitlines())
    sizes = {words[0]: int(words[1]) * _KIB for words in lines if words[-1:] == [b"kB"]}
    if b"Rss:" not in sizes:
        return None
    # Pages of the kernel's pool are not in Rss.
    pool = sizes.get(b"Private_Hugetlb:", 0) + sizes.get(b"Shared_Hugetlb:", 0)
    huge = sizes.get(b"AnonHugePages:", 0) + pool
    return ProcessMemory(resident=sizes[b"Rss:"] + pool, huge=huge)


# ----------------------------------------------------------------- between two moments


@dataclass(frozen=True)
class Rates:
    """Per second, over `seconds`. A share is None when there was nothing to have a share of."""

    seconds: float
    purges: float
    purged_bytes: float
    commits: float
    refills: float
    remote_batches: float
    zeroed_hit_share: float | None
    refills_of_heaps: dict[int, float]


def rates_between(before: Stats, after: Stats) -> Rates | None:
    """Return the rates; None when no time has passed, or the process runs another program now."""
    seconds = (after.time_ms - before.time_ms) / _MS_PER_S
    started_anew = after.total.commits < before.total.commits
    if before.pid != after.pid or seconds <= 0 or started_anew:
        return None
    # The threads go on while their counters are added up, so that a sum can lag behind itself.
    grown = {
        name: max(getattr(after.total, name) - getattr(before.total, name), 0)
        for name in (*_COUNTERS, "zeroed_hits", "zeroed_misses")
    }
    per_s = {field: grown[counter] / seconds for counter, field in _COUNTERS.items()}
    asked = grown["zeroed_hits"] + grown["zeroed_misses"]
    return Rates(
        seconds=seconds,
        **per_s,
        zeroed_hit_share=grown["zeroed_hits"] / asked if asked else None,
        refills_of_heaps=_refills_of_heaps(before, after, seconds),
    )


# Each counter of `hf_stats`, and the rate that it becomes.
_COUNTERS = {
    "purges": "purges",
    "purged": "purged_bytes",
    "commits": "commits",
    "refills": "refills",
    "remote_batches": "remote_batches",
}


def _refills_of_heaps(before: Stats, after: Stats, seconds: float) -> dict[int, float]:
    """Return the refills per second of each heap that was there before, by its number."""
    earlier = {heap.number: heap.refills for heap in before.heaps}
    return {
        heap.number: max(heap.refills - earlier[heap.number], 0) / seconds
        for heap in after.heaps
        if heap.number in earlier
    }
