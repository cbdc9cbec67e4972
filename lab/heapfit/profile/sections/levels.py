"""The most and the least that each call site has live within each eighth of all allocations.

What comes and goes is as high in each, whatever it holds at their ends. Live bytes are looked at
LOOKS times in an eighth, once within each so many of its allocated bytes, at random: at even
distances, what comes and goes nearly in step with the looks would seem to grow.
"""

from collections import defaultdict
from itertools import pairwise

from heapfit.profile.model import EIGHTHS
from heapfit.profile.tally import Row
from heapfit.profile.trace import Trace

LOOKS = 256
_STEPS = 64  # of a random distance

WIDTH = 2 * EIGHTHS  # of a row: the most within each eighth, and then the least


def of_sites(trace: Trace, site: str) -> defaultdict[int | None, Row]:
    """Return a row for each site as `site`, an SQL expression, tells it; None: all together."""
    objects = trace.query(
        f"SELECT {trace.allocated_part(EIGHTHS)} AS eighth, min(born_bytes), max(born_bytes) "
        "FROM object GROUP BY eighth ORDER BY eighth"
    )
    found: defaultdict[int | None, Row] = defaultdict(lambda: (0,) * WIDTH)
    if not objects:
        return found
    seen = _seen(trace, site, objects)
    for told in {told for told, _ in seen}:
        highest, lowest, last = [], [], 0
        for eighth in range(EIGHTHS):
            most, least, after = seen.get((told, eighth), (last, last, last))
            highest.append(max(most, last))
            lowest.append(min(least, last))
            last = after
        found[told] = (*highest, *lowest)
    return found


def _seen(
    trace: Trace, site: str, eighths: list[tuple[int, int, int]]
) -> dict[tuple[int | None, int], tuple[int, int, int]]:
    """Return the most that was live, the least, and what was at last, by site and eighth, where
    anything has changed."""
    last = eighths[-1][2]
    # What is freed after the last allocation, as a program ends, is in no eighth.
    clocks = {"born": "born_bytes", "died": f"CASE WHEN died_bytes < {last} THEN died_bytes END"}
    steps = ", ".join(f"{_step(eighths, clock)} AS {name}" for name, clock in clocks.items())
    looks = ", ".join(
        f"{name} // {_STEPS} + CAST({name} % {_STEPS} >= hash({name} // {_STEPS}) % {_STEPS} "
        f"AS INTEGER) AS {name}"
        for name in clocks
    )
    changes = " UNION ALL ".join(
        f"SELECT told, {name} AS look, {trace.total('size')} * {sign} AS bytes FROM looked "
        f"WHERE {name} IS NOT NULL AND born IS DISTINCT FROM died GROUP BY ALL"
        for name, sign in (("born", 1), ("died", -1))
    )
    rows = trace.query(
        f"WITH stepped AS (SELECT *, {site} AS told, {steps} FROM object), "
        f"looked AS (SELECT * REPLACE ({looks}) FROM stepped), changes AS ({changes}), "
        "lives AS (SELECT told, look, sum(sum(bytes)) OVER (PARTITION BY told ORDER BY look) "
        "AS live FROM changes GROUP BY GROUPING SETS ((told, look), (look))) "
        f"SELECT told, least(look // {LOOKS}, {EIGHTHS - 1}) AS eighth, max(live), min(live), "
        "arg_max(live, look) FROM lives GROUP BY told, eighth"
    )
    return {(told, eighth): (int(m), int(n), int(last)) for told, eighth, m, n, last in rows}


def _step(eighths: list[tuple[int, int, int]], clock: str) -> str:
    """Return the step that this count of allocated bytes is in."""
    begins = [*(begin for _, begin, _ in eighths), eighths[-1][2] + 1]
    steps = LOOKS * _STEPS
    cases = " ".join(
        f"WHEN {clock} < {end} THEN {eighth * steps} + "
        f"least({steps - 1}, "
        # A number with an exponent is a DOUBLE; without, it is a far slower DECIMAL.
        f"CAST(floor(({clock} - {begin}) * {steps / (end - begin):.17e}) AS INTEGER))"
        for (eighth, _, _), (begin, end) in zip(eighths, pairwise(begins), strict=True)
        if end > begin
    )
    return f"CASE {cases} END"
