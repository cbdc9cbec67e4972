"""What went on between two moments: counters become rates."""

from __future__ import annotations

from dataclasses import dataclass

from heapfit.live.records import Stats

_MS_PER_S = 1000.0


@dataclass(frozen=True)
class Rates:
    """Per second, over `seconds`. A share is None when there was nothing to have a share of."""

    seconds: float
    purges: float
    purged_bytes: float
    commits: float
    advices: float
    refills: float
    remote_batches: float
    remote_blocks: float
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
    "advices": "advices",
    "refills": "refills",
    "remote_batches": "remote_batches",
    "remote_blocks": "remote_blocks",
}


def _refills_of_heaps(before: Stats, after: Stats, seconds: float) -> dict[int, float]:
    """Return the refills per second of each heap that was there before, by its number."""
    earlier = {heap.number: heap.refills for heap in before.heaps}
    return {
        heap.number: max(heap.refills - earlier[heap.number], 0) / seconds
        for heap in after.heaps
        if heap.number in earlier
    }
