"""Sizes: how large the objects are that each program and each thread asks for.

The rows of the table `sizes` are what much else is made of, too: calls by kind, the peak and the
end by size, and what allocators' size classes add.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from heapfit.profile.bins import size_point
from heapfit.profile.model import Distribution, FrequentSize, Point, Sizes
from heapfit.profile.tally import Key, Row, Table, Tally, add_up, amount, grouped
from heapfit.profile.trace import Trace

# Places in a row of the tables `sizes` and `thread_sizes`: four amounts, then bytes in UNITS.
ALL, END, PEAK, LOCAL, USABLE, USABLE_PEAK = 0, 4, 8, 12, 16, 17
WIDTH = 18

FREQUENT = 32  # most frequent sizes that are told
THREADS_TOLD = 16


def count(trace: Trace, tally: Tally) -> None:
    """Count objects by size, kind and thread; those live at the end and at the peak apart, and
    those freed by the thread that had allocated them (LOCAL)."""
    columns = (
        trace.amount(),
        trace.amount("died_ns IS NULL"),
        trace.amount(trace.at_peak()),
        trace.amount("NOT remote"),
        trace.total("usable"),
        trace.total("usable", trace.at_peak()),
    )
    names = [f"c{place}" for place in range(WIDTH)]
    sums = ", ".join(f"sum({name})" for name in names)
    trace.make(
        f"by_size(size, thread, kind, {', '.join(names)})",
        "SELECT size_key(size), born_thread, born_kind, "
        f"{', '.join(columns)} FROM object GROUP BY ALL",
    )
    for size, kind, *row in trace.query(f"SELECT size, kind, {sums} FROM by_size GROUP BY ALL"):
        tally.add("sizes", (trace.program, size, kind), map(int, row))
    for thread, size, *row in trace.query(f"SELECT thread, size, {sums} FROM by_size GROUP BY ALL"):
        key = (*trace.thread_key(thread), size_point(size))
        tally.add("thread_sizes", key, map(int, row))
    for index, thread in trace.threads.items():
        if thread.threads:
            tally.add("threads", trace.thread_key(index), (thread.threads,))
    largest = trace.query("SELECT born_thread, max(size) FROM object GROUP BY ALL")
    for thread, size in largest:
        tally.raise_to("largest", trace.thread_key(thread), (size,))


def finish(tally: Tally) -> Sizes:
    """Return the distributions of the programs, and of the threads that allocate most."""
    programs = grouped(tally.sums["sizes"], lambda program, size, _: (program, size), WIDTH)
    by_thread = _by_owner(tally.sums["thread_sizes"], 3)
    leading = sorted(by_thread, key=lambda key: (-_objects(by_thread[key].values()), key))
    names = thread_names(tally)
    return Sizes(
        programs=sorted(
            (_program(key, sizes, tally) for key, sizes in _by_owner(programs, 1).items()),
            key=lambda each: (-each.amount.objects, each.name),
        ),
        threads=[
            _distribution(
                names[key],
                by_thread[key],
                threads=tally.sums["threads"].get(key, (0,))[0],
                largest=tally.most["largest"].get(key, (0,))[0],
            )
            for key in leading[:THREADS_TOLD]
        ],
    )


def thread_sums(tally: Tally) -> Table:
    """Return the sums of each thread's sizes."""
    return grouped(tally.sums["thread_sizes"], lambda *key: key[:3], WIDTH)


def thread_names(tally: Tally) -> dict[Key, str]:
    """Return what to call each thread of the recordings, the same wherever it is named."""
    pairs = tally.sums["flow"]
    seen = (*tally.sums["threads"], *tally.sums["bursts"], *(key for pair in pairs for key in pair))
    return _labels({**dict.fromkeys(thread_sums(tally)), **dict.fromkeys(seen)})


def _labels(keys: Iterable[Key]) -> dict[Key, str]:
    """Return the threads' names, and what else tells them apart.

    >>> _labels([("/bin/a", "main", 1), ("/bin/a", "io", 1), ("/bin/a", "io", 2)]).values()
    dict_values(['main', 'io 1', 'io 2'])
    """
    known = list(keys)
    several = len({program for program, _, _ in known}) > 1
    numbered = {(program, name) for program, name, which in known if which > 1}
    return {
        (program, name, which): "".join(
            (
                f"{Path(program).name}: " if several else "",
                name or "thread",
                f" {which}" if (program, name) in numbered else "",
            )
        )
        for program, name, which in known
    }


def _by_owner(table: Table, width: int) -> dict[Key, dict[int, Row]]:
    """Return the rows by size, by what stands before the size in the keys."""
    owners: dict[Key, dict[int, Row]] = {}
    for key, row in table.items():
        owners.setdefault(key[:width], {})[key[width]] = row
    return owners


def _objects(rows: Iterable[Row]) -> int:
    return sum(row[0] for row in rows)


def _program(key: Key, sizes: Mapping[int, Row], tally: Tally) -> Distribution:
    [program] = key
    threads = sum(row[0] for each, row in tally.sums["threads"].items() if each[0] == program)
    largest = max(row[0] for each, row in tally.most["largest"].items() if each[0] == program)
    whole = _distribution(Path(program).name, sizes, threads=threads, largest=largest)
    return whole.model_copy(update={"frequent": _frequent(sizes), "distinct": len(sizes)})


def _distribution(
    name: str, sizes: Mapping[int, Row], *, threads: int, largest: int
) -> Distribution:
    whole = add_up(sizes.values(), WIDTH)
    return Distribution(
        name=name,
        threads=threads,
        amount=amount(whole),
        mean=whole[1] / whole[0] if whole[0] else 0.0,
        median=_quantile(sizes, 50, largest),
        p90=_quantile(sizes, 90, largest),
        p99=_quantile(sizes, 99, largest),
        largest=largest,
        points=_points(sizes, whole),
        frequent=[],
        distinct=0,
    )


def _quantile(sizes: Mapping[int, Row], percent: int, largest: int) -> int:
    """Return the size that so many percent of the objects do not exceed."""
    wanted = _objects(sizes.values()) * percent
    below = 0
    for size in sorted(sizes):
        below += sizes[size][0] * 100
        if below >= wanted:
            return min(size, largest)
    return largest


def _points(sizes: Mapping[int, Row], whole: Row) -> list[Point]:
    if not sizes or not whole[0]:
        return []
    by_point = grouped({(size,): row for size, row in sizes.items()}, size_point, WIDTH)
    points, objects, bytes_ = [], 0, 0
    point, last = 8, max(by_point)
    while point <= last:
        objects += by_point[point][0] if point in by_point else 0
        bytes_ += by_point[point][1] if point in by_point else 0
        shares = {"objects": objects / whole[0], "bytes": bytes_ / whole[1] if whole[1] else 0.0}
        points.append(Point(size=point, **shares))
        point = size_point(point + 1)
    return points


def _frequent(sizes: Mapping[int, Row]) -> list[FrequentSize]:
    all_objects = _objects(sizes.values())
    leading = sorted(sizes.items(), key=lambda item: (-item[1][0], item[0]))[:FREQUENT]
    told, so_far = [], 0
    for size, row in leading:
        so_far += row[0]
        shares = {"share": row[0] / all_objects, "cumulative": so_far / all_objects}
        told.append(FrequentSize(size=size, amount=amount(row), **shares))
    return told
