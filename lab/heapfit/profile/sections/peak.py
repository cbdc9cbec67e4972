"""The peak: what was live when most bytes were, by size, thread, call site and age."""

from __future__ import annotations

from heapfit.profile.bins import size_power
from heapfit.profile.model import Part, Peak, SizePart
from heapfit.profile.sections import sites
from heapfit.profile.sections.sizes import PEAK, USABLE_PEAK, WIDTH, labels
from heapfit.profile.tally import ADDENDS, Row, Tally, add_up, amount, grouped, share, whole
from heapfit.profile.trace import Trace

AGES = 10
THREADS_TOLD = 12
SITES_TOLD = 20


def count(trace: Trace, tally: Tally) -> None:
    """Count what was live at the peak by age; all else of it is counted with sizes and sites."""
    age = f"least({AGES - 1}, ({trace.peak_ns} - born_ns) * {AGES} // {max(trace.peak_ns, 1)})"
    rows = trace.query(
        f"SELECT {age}, {trace.amount()} FROM object WHERE {trace.at_peak()} GROUP BY ALL"
    )
    for tenth, *row in rows:
        tally.add("peak_ages", (tenth,), map(int, row))


def finish(tally: Tally) -> Peak:
    """Return the composition of the peak."""
    all_rows = tally.total("sizes", WIDTH)
    threads = grouped(tally.sums["thread_sizes"], [0, 1, 2], WIDTH)
    names = labels(threads)
    of = all_rows[PEAK + 1]
    parts = [_part(names[key], row[PEAK : PEAK + ADDENDS], of) for key, row in threads.items()]
    ages = tally.sums["peak_ages"]
    return Peak(
        amount=amount(all_rows, PEAK),
        usable_bytes=whole(all_rows[USABLE_PEAK]),
        sizes=by_power(tally, PEAK),
        threads=leading(parts, THREADS_TOLD),
        sites=leading(
            [_part(sites.name(key), row[sites.PEAK :], of) for key, row in sites.rows(tally)],
            SITES_TOLD,
        ),
        ages=[
            _part(f"{(tenth + 1) * 100 // AGES} %", ages.get((tenth,), (0,) * ADDENDS), of)
            for tenth in range(AGES)
        ],
    )


def by_power(tally: Tally, at: int) -> list[SizePart]:
    """Return the amounts at place `at` of the table `sizes`, by powers of two of the size."""
    powers: dict[int, list[Row]] = {}
    for (_, size, _), row in tally.sums["sizes"].items():
        powers.setdefault(size_power(size), []).append(row[at : at + ADDENDS])
    sums = {size: add_up(rows, ADDENDS) for size, rows in sorted(powers.items())}
    of = sum(row[1] for row in sums.values())
    return [
        SizePart(size=size, amount=amount(row), share=share(row[1], of) or 0.0)
        for size, row in sums.items()
        if row[0]
    ]


def leading(parts: list[Part], most: int) -> list[Part]:
    """Return the parts with most bytes, most first, without empty ones."""
    parts = [part for part in parts if part.amount.objects]
    return sorted(parts, key=lambda part: (-part.amount.bytes, part.name))[:most]


def _part(name: str, row: Row, of: int) -> Part:
    return Part(name=name, amount=amount(row), share=share(row[1], of) or 0.0)
