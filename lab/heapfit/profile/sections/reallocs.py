"""Reallocations: how often, how they grow, and whether the block stays where it is."""

from __future__ import annotations

from heapfit.profile.model import HUGE_BYTES, Growth, Reallocs
from heapfit.profile.sections.sizes import WIDTH
from heapfit.profile.tally import Tally, add_up, amount, share
from heapfit.profile.trace import REALLOC, Trace

# New size to old, at most, as fractions; beyond the last there is one more class.
RATIOS = ((1, 1), (9, 8), (5, 4), (3, 2), (2, 1))

# Places in a row of the table `reallocs`, whose key is the place in RATIOS.
_CALLS, _IN_PLACE, _COPIED, _COPIED_HUGE, _GROWN, _SHRUNK = range(6)


def count(trace: Trace, tally: Tally) -> None:
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


def finish(tally: Tally) -> Reallocs:
    """Return what reallocations do."""
    table = tally.sums["reallocs"]
    whole = tally.total("reallocs", 6)
    calls = add_up((r for (_, _, k), r in tally.sums["sizes"].items() if k == REALLOC), WIDTH)
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
