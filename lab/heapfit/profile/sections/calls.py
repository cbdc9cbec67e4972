"""Calls: sums over everything that was recorded, and what reallocations do.

Of a reallocation it is told how blocks grow, and whether the block stays where it is.
"""

from collections.abc import Callable

from heapfit.profile.model import (
    HUGE_BYTES,
    LARGE_BYTES,
    PAGE_BYTES,
    Amount,
    Calls,
    Growth,
    Reallocs,
    Totals,
)
from heapfit.profile.sections.sizes import ALL, END, LOCAL, WIDTH
from heapfit.profile.tally import ADDENDS, Row, Tally, add_up, amount, grouped, share
from heapfit.profile.trace import REALLOC, Trace
from heapfit.trace.schema import KINDS

_CALLOC, _ALIGNED, _NEW_ALIGNED = map(KINDS.index, ("calloc", "aligned", "new_aligned"))
_NS_PER_S = 1e9

# New size to old, at most, as fractions; beyond the last there is one more class.
RATIOS = ((1, 1), (9, 8), (5, 4), (3, 2), (2, 1))

# Places in a row of the table `reallocs`, whose key is the place in RATIOS.
_CALLS, _IN_PLACE, _COPIED, _COPIED_HUGE, _GROWN, _SHRUNK = range(6)


def totals(tally: Tally) -> Totals:
    """Return the sums; they are counted with sizes and recordings."""
    everything = tally.total("sizes", WIDTH)
    events, failed, unmatched, lost, duration, unmatched_late = tally.total("counts", 6)

    def of(chosen: Callable[[int, int], bool], at: int = ALL) -> Amount:
        return amount(_chosen(tally, chosen), at)

    calloc = of(lambda _, kind: kind == _CALLOC)
    allocations = amount(everything)
    return Totals(
        events=events,
        duration_ns=duration,
        allocations=allocations,
        frees=_freed(everything),
        failed=failed,
        unmatched_frees=unmatched,
        unmatched_late=unmatched_late,
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


def _chosen(tally: Tally, chosen: Callable[[int, int], bool]) -> Row:
    """Return the sum of all objects whose size and kind are `chosen`."""
    sizes = tally.sums["sizes"].items()
    return add_up((row for (_, size, kind), row in sizes if chosen(size, kind)), WIDTH)


def _freed(row: Row) -> Amount:
    """Return what does not live at the end."""
    return amount([row[ALL + i] - row[END + i] for i in range(ADDENDS)])


def _calls(tally: Tally, everything: Row) -> list[Calls]:
    kinds = grouped(tally.sums["sizes"], lambda _program, _size, kind: kind, WIDTH)
    calls = [
        Calls(
            kind=KINDS[kind] if kind < len(KINDS) else str(kind),
            amount=amount(row),
            share=share(row[0], everything[0]) or 0.0,
        )
        for kind, row in kinds.items()
    ]
    return sorted(calls, key=lambda each: (-each.amount.objects, each.kind))


def _busiest(tally: Tally) -> float | None:
    if any(each.recording.sample for each in tally.recordings):
        return None
    courses = [each.recording.course for each in tally.recordings]
    return max(
        (max(each.allocations, default=0) * _NS_PER_S / each.step_ns for each in courses),
        default=None,
    )


# ----------------------------------------------------------------- reallocations


def count_reallocs(trace: Trace, tally: Tally) -> None:
    """Count pairs of a block and what it was reallocated to, where both were noted."""
    classes = " ".join(
        f"WHEN new * {below} <= old * {above} THEN {i}" for i, (above, below) in enumerate(RATIOS)
    )
    copied = "coalesce(sum(least(old, new)) FILTER (WHERE {}), 0)"
    rows = trace.query(
        f"SELECT CASE {classes} ELSE {len(RATIOS)} END AS class, count(*), "
        f"count(*) FILTER (WHERE stays), {copied.format('NOT stays')}, "
        f"{copied.format(f'NOT stays AND least(old, new) >= {HUGE_BYTES}')}, "
        "count(*) FILTER (WHERE new > old), count(*) FILTER (WHERE new < old) "
        "FROM (SELECT after.size AS new, before.size AS old, after.address = before.address "
        "AS stays FROM object AS after JOIN object AS before ON after.previous = before.id "
        f"WHERE after.previous > 0 AND before.died_kind = {REALLOC}) GROUP BY ALL"
    )
    for ratio, *row in rows:
        tally.add("reallocs", (ratio,), map(int, row))
    [(first, largest)] = trace.query(
        f"SELECT count(*) FILTER (WHERE died_kind = {REALLOC} AND previous = 0), "
        f"coalesce(max(size) FILTER (WHERE born_kind = {REALLOC}), 0) FROM object "
        f"WHERE died_kind = {REALLOC} OR born_kind = {REALLOC}"
    )
    tally.add("reallocated", (), (first,))
    tally.raise_to("reallocs", (), (largest,))


def reallocs(tally: Tally) -> Reallocs:
    """Return what reallocations do."""
    table = tally.sums["reallocs"]
    whole = tally.total("reallocs", 6)
    calls = _chosen(tally, lambda _, kind: kind == REALLOC)
    blocks = tally.total("reallocated", 1)[0]
    bounds = [above / below for above, below in RATIOS]
    return Reallocs(
        calls=amount(calls),
        share=share(calls[0], tally.total("sizes", WIDTH)[0]),
        known=whole[_CALLS],
        in_place=whole[_IN_PLACE],
        in_place_share=share(whole[_IN_PLACE], whole[_CALLS]),
        copied_bytes=whole[_COPIED],
        copied_huge_bytes=whole[_COPIED_HUGE],
        largest=tally.most["reallocs"].get((), (0,))[0],
        grown=whole[_GROWN],
        shrunk=whole[_SHRUNK],
        growth=[
            Growth(ratio=ratio, calls=table.get((i,), (0,))[0])
            for i, ratio in enumerate([*bounds, None])
        ],
        blocks=blocks,
        per_block=share(whole[_CALLS], blocks),
    )
