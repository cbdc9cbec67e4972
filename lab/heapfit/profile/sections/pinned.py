"""Free memory on pages with live blocks: how much there was, and whose blocks held it.

A recording has every block's address, so at any moment it is known what is live on each page. The
rest of such a page is free, and its allocator cannot give it back. Looked at are a few moments, and
told is the one of them at which most was held. What is free on a page is divided evenly among the
blocks on it, as the live profile does (`allocator/heap/sample_look.c`).
"""

from __future__ import annotations

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
    trace.make("held", _held(end, info.page_size or PAGE_BYTES, _header(info.allocator)))
    most = trace.query(
        "SELECT moment, sum(held) AS total FROM held GROUP BY moment ORDER BY total DESC, moment "
        "LIMIT 1"
    )
    if not most:
        return
    [(moment, _)] = most
    keys = sites.keys(trace)
    at = moment * end // MOMENTS
    rows = trace.query(
        f"SELECT site, {trace.amount()}, sum(held), sum({at} - born_ns) // 1000000 "
        f"FROM (SELECT site, size, held, born_ns FROM held WHERE moment = {moment}) GROUP BY site"
    )
    for site, *row in rows:
        tally.add("pinned", keys.get(site, sites.REST), map(int, row))
    tally.add("pinned_at", (), (at,))


def _header(allocator: str) -> int:
    name = Path(allocator).name
    return next((size for start, size in _HEADER.items() if name.startswith(start)), 0)


def _held(end: int, page: int, header: int) -> str:
    """Return the query for what each block that lives at a moment holds then.

    A block has free memory beside it on its first page and on its last one.
    """
    lived = f"""
        SELECT id, site, size, born_ns, CAST(address AS BIGINT) AS start,
            start + greatest(size, usable, 1) AS past,
            unnest(range((born_ns * {MOMENTS} + {end - 1}) // {end},
                CASE WHEN died_ns IS NULL THEN {MOMENTS + 1}
                ELSE (died_ns * {MOMENTS} + {end - 1}) // {end} END)) AS moment
        FROM object WHERE address < {1 << 62}"""
    first, last = f"start // {page}", f"(past - 1) // {page}"
    return f"""
        WITH lived AS ({lived}), parts AS (
            SELECT id, moment, {first} AS page,
                least(past + {header}, ({first} + 1) * {page}) - start AS taken FROM lived
            UNION ALL SELECT id, moment, {last}, past - {last} * {page} FROM lived
            WHERE {last} > {first}
        ), pages AS (
            SELECT moment, page, greatest({page} - sum(taken), 0) // count(*) AS each
            FROM parts GROUP BY moment, page
        ), shares AS (
            SELECT id, moment, sum(each) AS held FROM parts JOIN pages USING (moment, page)
            GROUP BY id, moment
        )
        SELECT moment, site, size, born_ns, held FROM lived JOIN shares USING (id, moment)"""


def finish(tally: Tally) -> Pinned:
    """Return the sites that held most."""
    rows = sorted(tally.sums["pinned"].items(), key=lambda item: (-item[1][HELD], item[0]))
    several = len(tally.recordings) > 1
    [at] = tally.sums["pinned_at"].get((), (0,))
    total = tally.total("pinned", WIDTH)
    return Pinned(
        known=bool(rows),
        bytes=total[HELD],
        amount=amount(total),
        at_ns=None if several else at,
        sites=[_site(key, row, total[HELD]) for key, row in rows[:SITES_TOLD] if row[HELD]],
    )


def _site(key: Key, row: tuple[int, ...], of: int) -> PinningSite:
    return PinningSite(
        name=sites.name(key),
        bytes=row[HELD],
        share=share(row[HELD], of) or 0.0,
        amount=amount(row),
        mean_age_ns=1e6 * row[AGES] / max(whole(row[0]), 1),
    )
