"""Lifetimes: how long objects live, in time and in bytes that the program asks for meanwhile.

What lives at the end has not been seen to die. It counts as living until then and no further, by
the product-limit estimate (Kaplan and Meier, 1958): leaving it out would make a program that keeps
things look like one that does not.

A sample does not tell how much was allocated meanwhile: what it notes advances that clock by as
much as a whole noted block stands for, and most blocks live between two of those.
"""

from collections.abc import Mapping

from heapfit.profile.bins import life_bounds, life_power
from heapfit.profile.model import YOUNG_BYTES, LifetimeCell, LifetimeRow, Lifetimes, Quantiles
from heapfit.profile.tally import ADDENDS, Table, Tally, add_up, amount, grouped, share
from heapfit.profile.trace import Trace

_CLOCKS = ("ns", "bytes")


def count(trace: Trace, tally: Tally) -> None:
    """Count objects by size and lifetime on both clocks; those that live apart."""
    ends = {"ns": trace.summary.duration_ns, "bytes": _bytes_at_end(trace)}
    for clock in _CLOCKS:
        end = f"coalesce(died_{clock}, {ends[clock]})"
        lived = trace.lived_bytes(end) if clock == "bytes" else f"{end} - born_{clock}"
        rows = trace.query(
            f"SELECT size_power(size), life_bin({lived}), died_ns IS NULL, {trace.amount()} "
            "FROM object GROUP BY ALL"
        )
        for size, lifetime, living, *row in rows:
            tally.add(f"life_{clock}", (size, lifetime, living), map(int, row))


def _bytes_at_end(trace: Trace) -> int:
    found = trace.query("SELECT max(greatest(born_bytes, coalesce(died_bytes, 0))) FROM object")
    return found[0][0] or 0


def finish(tally: Tally) -> Lifetimes:
    """Return lifetimes by size, and of all."""
    by_time, by_bytes = (tally.sums[f"life_{clock}"] for clock in _CLOCKS)
    is_sample = any(each.recording.sample for each in tally.recordings)
    if is_sample:
        by_bytes = {}
    sizes = sorted({size for size, _, _ in by_time})
    whole = add_up(by_time.values(), ADDENDS)
    young = [
        row
        for (_, lifetime, living), row in by_bytes.items()
        if not living and life_bounds(lifetime)[1] <= YOUNG_BYTES
    ]
    return Lifetimes(
        rows=[_row(size, _of(by_time, size), _of(by_bytes, size)) for size in sizes],
        by_time=_cells(by_time),
        by_bytes=_cells(by_bytes),
        all=_row(sizes[-1] if sizes else 0, by_time, by_bytes),
        young_share=None if is_sample else share(add_up(young, ADDENDS)[0], whole[0]),
    )


def _of(table: Table, size: int) -> Table:
    return {key: row for key, row in table.items() if key[0] == size}


def _row(size: int, by_time: Table, by_bytes: Table) -> LifetimeRow:
    living = [row for (_, _, lives), row in by_time.items() if lives]
    return LifetimeRow(
        size=size,
        amount=amount(add_up(by_time.values(), ADDENDS)),
        ns=_quantiles(by_time),
        bytes=_quantiles(by_bytes),
        living=amount(add_up(living, ADDENDS)),
    )


def _cells(table: Table) -> list[LifetimeCell]:
    died = {key: row for key, row in table.items() if not key[2]}
    cells = grouped(died, lambda size, lifetime, _: (size, life_power(lifetime)), ADDENDS)
    return [
        LifetimeCell(size=size, lifetime=lifetime, amount=amount(row))
        for (size, lifetime), row in sorted(cells.items())
    ]


def _quantiles(table: Table) -> Quantiles:
    bins = grouped(table, lambda _, lifetime, living: (life_bounds(lifetime), living), ADDENDS)
    died = {bounds: row[0] for (bounds, living), row in bins.items() if not living}
    lived = {bounds: row[0] for (bounds, living), row in bins.items() if living}
    p50, p90, p99 = (survival_quantile(died, lived, part) for part in (0.5, 0.9, 0.99))
    return Quantiles(p50=p50, p90=p90, p99=p99)


def survival_quantile(
    died: Mapping[tuple[int, int], int], lived: Mapping[tuple[int, int], int], part: float
) -> float | None:
    """Return the lifetime that `part` of the objects do not outlive, or None if it is not known.

    Both arguments are numbers of objects by the bounds of their lifetime: those that died, and
    those that had lived so long at the end. Within a bin lifetimes count as spread evenly.

    >>> survival_quantile({(0, 10): 50, (10, 20): 50}, {}, 0.75)
    15.0
    >>> survival_quantile({(0, 10): 50}, {(10, 20): 50}, 0.75) is None
    True
    """
    at_risk, survive = sum(died.values()) + sum(lived.values()), 1.0
    for lowest, bound in sorted({*died, *lived}):
        deaths = died.get((lowest, bound), 0)
        after = survive * (1 - deaths / at_risk) if at_risk else survive
        if deaths and after <= 1 - part:
            return lowest + (bound - lowest) * (survive - (1 - part)) / (survive - after)
        survive = after
        at_risk -= deaths + lived.get((lowest, bound), 0)
    return None
