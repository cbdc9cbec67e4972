"""The end: what nobody has freed. A cache fills early, a leak goes on."""

from __future__ import annotations

from heapfit.profile.model import Leaks, LeakSite
from heapfit.profile.sections import sites
from heapfit.profile.sections.peak import by_power
from heapfit.profile.sections.sizes import END, WIDTH
from heapfit.profile.tally import ADDENDS, Tally, amount, share
from heapfit.profile.trace import Trace

TENTHS = 10
SITES_TOLD = 20


def count(trace: Trace, tally: Tally) -> None:
    """Count what lives at the end by the tenth of the recording in which it was born."""
    tenth = f"least({TENTHS - 1}, born_ns * {TENTHS} // {max(trace.summary.duration_ns, 1)})"
    rows = trace.query(
        f"SELECT {tenth}, {trace.amount()} FROM object WHERE died_ns IS NULL GROUP BY ALL"
    )
    for number, *row in rows:
        tally.add("born_of_living", (number,), map(int, row))


def finish(tally: Tally) -> Leaks:
    """Return what lives at the end."""
    whole = tally.total("sizes", WIDTH)
    born = tally.sums["born_of_living"]
    living = [(key, row) for key, row in sites.rows(tally) if row[sites.END]]
    living.sort(key=lambda item: (-item[1][sites.END + 1], item[0]))
    return Leaks(
        amount=amount(whole, END),
        share=share(whole[END + 1], whole[1]),
        sizes=by_power(tally, END),
        sites=[
            LeakSite(
                name=sites.name(key),
                amount=amount(row, sites.END),
                share=share(row[sites.END + 1], whole[END + 1]) or 0.0,
                late_share=share(row[sites.LATE], row[sites.END]) or 0.0,
            )
            for key, row in living[:SITES_TOLD]
        ],
        born=[amount(born.get((number,), (0,) * ADDENDS)) for number in range(TENTHS)],
    )
