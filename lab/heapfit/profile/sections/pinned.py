"""Free memory on pages with live blocks: how much there was, and whose blocks held it.

A recording has every block's address, so at any moment it is known what is live on each page. The
rest of such a page is free, and its allocator cannot give it back. Looked at are a few moments, and
told is the one of them at which most was held. What is free on a page is divided evenly among the
blocks on it, as the live profile does (`allocator/heap/sample_look.c`).
"""

from pathlib import Path

from heapfit.profile.model import PAGE_BYTES, Pinned, PinningSite
from heapfit.profile.sections import sites
from heapfit.profile.tally import Key, Tally, amount, share, whole
from heapfit.profile.trace import Trace

# At equal distances; the last one is the end.
MOMENTS = 8
SITES_TOLD = 20
# glibc has its own word before each block (malloc/malloc.c, "Minimum overhead"); what Debian has
# beside it keeps nothing there.
_HEADER = {"libc": 8, "ld-musl": 8}

# Places in a row of the table `pinned`: an amount, what it holds, and the ages of its blocks in ms.
HELD, AGES = 4, 5
WIDTH = 6


def count(trace: Trace, tally: Tally) -> None:
    """Count what each site's blocks held; nothing of a sample, or beside unknown blocks."""
    info, end = trace.summary.info, trace.summary.duration_ns
    if trace.sampled or info.began_late or not end:
        return
    page = info.page_size or PAGE_BYTES
    trace.make("parts", _parts(end, page, _header(info.allocator)))
    most = trace.query(
        f"SELECT moment, sum(free) AS free FROM (SELECT moment, {page} - sum(taken) AS free "
        "FROM parts GROUP BY moment, page) WHERE free > 0 GROUP BY moment "
        "ORDER BY free DESC, moment LIMIT 1"
    )
    moment = most[0][0] if most else 0
    at = moment * end // MOMENTS
    tally.add("pinned_at", (), (at,))
    keys = sites.keys(trace)
    rows = trace.query(
        f"SELECT site, {trace.amount('first')}, sum(held), "
        f"sum({at} - born_ns) FILTER (WHERE first) // 1000000 FROM (SELECT *, "
        f"greatest({page} - sum(taken) OVER here, 0) // count(*) OVER here AS held FROM parts "
        f"WHERE moment = {moment} WINDOW here AS (PARTITION BY page)) GROUP BY site"
    )
    for site, *row in rows:
        tally.add("pinned", keys.get(site, sites.REST), map(int, row))


def _header(allocator: str) -> int:
    name = Path(allocator).name
    return next((size for start, size in _HEADER.items() if name.startswith(start)), 0)


def _parts(end: int, page: int, header: int) -> str:
    """Return the query for what each block that lives at a moment takes of its first page, and of
    its last one: between these nothing is free."""

    def number(ns: str) -> str:
        """The first moment that is not before this time."""
        return f"({ns} * {MOMENTS} + {end - 1}) // {end}"

    past_all = f"CASE WHEN died_ns IS NULL THEN {MOMENTS + 1} ELSE {number('died_ns')} END"
    lived = f"""
        SELECT site, size, born_ns, CAST(address AS BIGINT) AS start,
            start + greatest(size, usable, 1) AS past,
            unnest(range({number("born_ns")}, {past_all})) AS moment
        FROM object WHERE address < {1 << 62} AND {number("born_ns")} < {past_all}"""
    return f"""
        WITH lived AS ({lived})
        SELECT moment, site, size, born_ns, true AS first, start // {page} AS page,
            least(past + {header}, (page + 1) * {page}) - start AS taken FROM lived
        UNION ALL
        SELECT moment, site, size, born_ns, false, (past - 1) // {page} AS page,
            past - page * {page} FROM lived WHERE page > start // {page}"""


def finish(tally: Tally) -> Pinned:
    """Return the sites that held most."""
    rows = sorted(tally.sums["pinned"].items(), key=lambda item: (-item[1][HELD], item[0]))
    several = len(tally.recordings) > 1
    [at] = tally.sums["pinned_at"].get((), (0,))
    total = tally.total("pinned", WIDTH)
    return Pinned(
        known=bool(tally.sums["pinned_at"]),
        bytes=total[HELD],
        amount=amount(total),
        at_ns=None if several else at,
        sites=[_site(key, row, total[HELD]) for key, row in rows[:SITES_TOLD] if row[HELD]],
    )


def _site(key: Key, row: tuple[int, ...], of: int) -> PinningSite:
    return PinningSite(
        name=sites.name(key),
        chain=key[1],
        bytes=row[HELD],
        share=share(row[HELD], of) or 0.0,
        amount=amount(row),
        mean_age_ns=1e6 * row[AGES] / max(whole(row[0]), 1),
    )
