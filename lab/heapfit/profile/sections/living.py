"""What was live at two moments: at the peak, when most bytes were, and at the end.

Both are told by size and by call site, the peak by thread and age too; of the end, which nobody has
freed, when it was born. A cache fills early, a leak goes on.
"""

from collections.abc import Sequence

from heapfit.profile.bins import size_power
from heapfit.profile.model import HELD_AFTER, Holder, Leaks, Part, Peak, SizePart
from heapfit.profile.sections import levels, sites
from heapfit.profile.sections.sizes import END, PEAK, USABLE_PEAK, WIDTH, thread_names, thread_sums
from heapfit.profile.tally import ADDENDS, Row, Tally, add_up, amount, grouped, share, whole
from heapfit.profile.trace import Trace

TENTHS = 10
THREADS_TOLD = 12
SITES_TOLD = 20
_MENTIONED = 0.25  # of the peak


def count_peak(trace: Trace, tally: Tally) -> None:
    """Count what was live at the peak by age; all else of it is counted with sizes and sites."""
    age = f"greatest(0, {trace.peak_ns} - born_ns) * {TENTHS} // {max(trace.peak_ns, 1)}"
    _count_tenths(trace, tally, "peak_ages", age, trace.at_peak())


def count_end(trace: Trace, tally: Tally) -> None:
    """Count what lives at the end by the tenth of all allocations that it is of.

    Not of the time: a program that leaks as it works, and then waits, leaks all the same.
    """
    born = trace.allocated_part(TENTHS)
    _count_tenths(trace, tally, "born_of_living", born, "died_ns IS NULL")


def _count_tenths(trace: Trace, tally: Tally, table: str, tenth: str, where: str) -> None:
    rows = trace.query(
        f"SELECT least({TENTHS - 1}, {tenth}), {trace.amount(where)} FROM object WHERE {where} "
        "GROUP BY ALL"
    )
    for number, *row in rows:
        tally.add(table, (number,), map(int, row))


def _tenths(tally: Tally, table: str) -> list[Row]:
    found = tally.sums[table]
    return [found.get((number,), (0,) * ADDENDS) for number in range(TENTHS)]


def peak(tally: Tally) -> Peak:
    """Return the composition of the peak."""
    all_rows = tally.total("sizes", WIDTH)
    threads = thread_sums(tally)
    names = thread_names(tally)
    of = all_rows[PEAK + 1]
    return Peak(
        amount=amount(all_rows, PEAK),
        usable_bytes=whole(all_rows[USABLE_PEAK]),
        sizes=_by_power(tally, PEAK),
        threads=_leading(
            [_part(names[key], row[PEAK:], of) for key, row in threads.items()], THREADS_TOLD
        ),
        sites=_leading(
            [
                _part(sites.name(key), row[sites.PEAK :], of, key[1])
                for key, row in sites.rows(tally)
            ],
            SITES_TOLD,
        ),
        functions=_functions(tally, sites.PEAK, sites.OF_PEAK),
        rival=_rival(tally, of),
        ages=[
            _part(f"{(tenth + 1) * 100 // TENTHS} %", row, of)
            for tenth, row in enumerate(_tenths(tally, "peak_ages"))
        ],
    )


def _rival(tally: Tally, of: int) -> Part | None:
    """Return which site holds more, by a large part of the peak, when that may have been, too."""
    found = sites.rows(tally) if len(tally.recordings) == 1 else []
    more = [(row[sites.RIVAL + 1] - row[sites.PEAK + 1], key, row) for key, row in found]
    most, key, row = max(more, default=(0, sites.REST, ()))
    return (
        None
        if not most or most < _MENTIONED * of
        else _part(sites.name(key), row[sites.RIVAL :], of, key[1])
    )


def end(tally: Tally) -> Leaks:
    """Return what lives at the end."""
    everything = tally.total("sizes", WIDTH)
    living = [(key, row) for key, row in sites.rows(tally) if row[sites.END]]
    living.sort(key=lambda item: (-item[1][sites.END + 1], item[0]))
    return Leaks(
        amount=amount(everything, END),
        share=share(everything[END + 1], everything[1]),
        sizes=_by_power(tally, END),
        sites=[
            _holder(sites.name(key), row, everything[END + 1], sites.END, sites.OF_END, key[1])
            for key, row in living[:SITES_TOLD]
        ],
        functions=_functions(tally, sites.END, sites.OF_END),
        every=_every(tally),
        born=[amount(row) for row in _tenths(tally, "born_of_living")],
    )


def _functions(tally: Tally, at: int, born: int) -> list[Holder]:
    """Return who holds most by function; `at` and `born` are places in a row of sites."""
    of = sum(row[at + 1] for _, row in sites.rows(tally))
    found = sites.by_function(tally, at)[:SITES_TOLD]
    return [_holder(name, row, of, at, born) for name, row in found]


def _every(tally: Tally) -> Holder | None:
    row = add_up((row for _, row in sites.rows(tally)), sites.WIDTH)
    row = (*row[: sites.HIGHEST], *tally.total("levels", levels.WIDTH))
    return _holder("", row, row[sites.END + 1], sites.END, sites.OF_END) if row[0] else None


def _holder(name: str, row: Row, of: int, at: int, born: int, chain: Sequence[str] = ()) -> Holder:
    live = row[at + 1]
    return Holder(
        name=name,
        amount=amount(row, at),
        share=share(live, of) or 0.0,
        late_share=share(row[born + sites.LATE], live) or 0.0,
        recent_share=share(row[born + sites.RECENT], live) or 0.0,
        young_share=share(row[born + sites.YOUNG], live) or 0.0,
        held_before=[whole(each) for each in row[sites.HELD : sites.HELD + len(HELD_AFTER)]],
        highest=[whole(each) for each in row[sites.HIGHEST : sites.LOWEST]],
        lowest=[whole(each) for each in row[sites.LOWEST : sites.WIDTH]],
        freed_share=share(row[0] - row[at], row[0]) or 0.0,
        chain=tuple(chain),
    )


def _by_power(tally: Tally, at: int) -> list[SizePart]:
    """Return the amounts at place `at` of the table `sizes`, by powers of two of the size."""
    powers = grouped(tally.sums["sizes"], lambda _program, size, _kind: size_power(size), WIDTH)
    of = sum(row[at + 1] for row in powers.values())
    return [
        SizePart(size=size, amount=amount(row, at), share=share(row[at + 1], of) or 0.0)
        for size, row in sorted(powers.items())
        if row[at]
    ]


def _leading(parts: list[Part], most: int) -> list[Part]:
    """Return the parts with most bytes, most first, without empty ones."""
    parts = [part for part in parts if part.amount.objects]
    return sorted(parts, key=lambda part: (-part.amount.bytes, part.name))[:most]


def _part(name: str, row: Row, of: int, chain: Sequence[str] = ()) -> Part:
    found = share(row[1], of) or 0.0
    return Part(name=name, amount=amount(row), share=found, chain=tuple(chain))
