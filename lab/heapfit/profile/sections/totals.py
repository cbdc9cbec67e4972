"""Sums over everything that was recorded."""

from __future__ import annotations

from collections.abc import Callable

from heapfit.profile.model import LARGE_BYTES, PAGE_BYTES, Amount, Calls, Totals
from heapfit.profile.sections.sizes import ALL, END, LOCAL, WIDTH
from heapfit.profile.tally import ADDENDS, Row, Tally, add_up, amount, grouped, share
from heapfit.trace.schema import KINDS

_CALLOC, _ALIGNED, _NEW_ALIGNED = map(KINDS.index, ("calloc", "aligned", "new_aligned"))
_NS_PER_S = 1e9


def finish(tally: Tally) -> Totals:
    """Return the sums; they are counted with sizes and recordings."""
    everything = tally.total("sizes", WIDTH)
    events, failed, unmatched, lost, duration = tally.total("counts", 5)

    def of(chosen: Callable[[int, int], bool], at: int = ALL) -> Amount:
        rows = [row for (_, size, kind), row in tally.sums["sizes"].items() if chosen(size, kind)]
        return amount(add_up(rows, WIDTH), at)

    calloc = of(lambda _, kind: kind == _CALLOC)
    allocations = amount(everything)
    return Totals(
        events=events,
        duration_ns=duration,
        allocations=allocations,
        frees=_freed(everything),
        failed=failed,
        unmatched_frees=unmatched,
        lost_events=lost,
        mean_size=share(everything[1], everything[0]),
        per_second=share(allocations.objects * _NS_PER_S, duration),
        per_second_most=_busiest(tally),
        calls=_calls(tally, everything),
        calloc=calloc,
        calloc_share=share(calloc.objects, allocations.objects),
        calloc_pages=of(lambda size, kind: kind == _CALLOC and size >= PAGE_BYTES),
        aligned=of(lambda _, kind: kind in (_ALIGNED, _NEW_ALIGNED)),
        large=of(lambda size, _: size > LARGE_BYTES),
        large_local=of(lambda size, _: size > LARGE_BYTES, LOCAL),
    )


def _freed(row: Row) -> Amount:
    """Return what does not live at the end."""
    return amount([row[ALL + i] - row[END + i] for i in range(ADDENDS)])


def _calls(tally: Tally, everything: Row) -> list[Calls]:
    kinds = grouped(tally.sums["sizes"], [2], WIDTH)
    calls = [
        Calls(
            kind=KINDS[kind] if kind < len(KINDS) else str(kind),
            amount=amount(row),
            share=share(row[0], everything[0]) or 0.0,
        )
        for (kind,), row in kinds.items()
    ]
    return sorted(calls, key=lambda each: (-each.amount.objects, each.kind))


def _busiest(tally: Tally) -> float | None:
    courses = [each.recording.course for each in tally.recordings]
    return max(
        (max(each.allocations, default=0) * _NS_PER_S / each.step_ns for each in courses),
        default=None,
    )
