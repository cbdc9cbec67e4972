"""Profiles with known answers, for the tests of what is said about one and how it looks.

`calm()` is a small program that needs nothing; a test of a rule changes the figures that the rule
looks at. `server()` is a busy one, of which most sections have something to say.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from heapfit.profile import analyse
from heapfit.profile.model import (
    Amount,
    Bursts,
    Calls,
    Course,
    Distribution,
    Flow,
    FrequentSize,
    Growth,
    Leaks,
    LeakSite,
    LifetimeCell,
    LifetimeRow,
    Lifetimes,
    Part,
    Peak,
    Point,
    Profile,
    Quantiles,
    Reallocs,
    Recording,
    Rounding,
    Sharing,
    Site,
    Sites,
    SizePart,
    Sizes,
    Totals,
    Transactions,
    Waste,
)
from trace_data import service, write_tables

S, MS, US = 10**9, 10**6, 10**3
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def amount(objects: float, size: float = 64) -> Amount:
    """So many objects of this mean size."""
    return Amount(objects=int(objects), bytes=int(objects * size))


def changed(record: Any, **update: Any) -> Any:
    """The record with other fields, checked again. `a__b` is field `b` of field `a`."""
    for path, value in update.items():
        first, _, rest = path.partition("__")
        new = changed(getattr(record, first), **{rest: value}) if rest else value
        record = record.model_copy(update={first: new})
    return record


# ------------------------------------------------------------------------ the calm


def course(
    live: Sequence[int], resident: Sequence[int | None], step_ns: int = S // 10, rate: int = 500
) -> Course:
    steps = len(live)
    return Course(
        step_ns=step_ns,
        allocations=[rate] * steps,
        allocated_bytes=[rate * 64] * steps,
        frees=[rate] * steps,
        live_bytes=list(live),
        live_objects=[each // 64 for each in live],
        resident=[None if each is None else each + 4 * MIB for each in resident],
        resident_anonymous=list(resident),
    )


def recording(**changes: Any) -> Recording:
    """Ten seconds of a program that holds 4 MiB and lets go of it."""
    live = [4 * MIB] * 80 + [MIB] * 20
    made = Recording(
        name="calm.hft",
        program="/usr/bin/calm",
        arguments=["calm", "--quietly"],
        pid=4711,
        allocator="/lib/x86_64-linux-gnu/libc.so.6",
        arch="x86_64",
        cores=2,
        page_size=4096,
        started_unix_ns=1_795_000_000 * S,
        environment={},
        duration_ns=10 * S,
        sample=0,
        sites=8,
        threads=1,
        events=100_000,
        allocations=amount(50_000),
        peak=Amount(objects=60_000, bytes=4 * MIB),
        peak_ns=5 * S,
        end=Amount(objects=16_000, bytes=MIB),
        resident_most=9 * MIB,
        problems=[],
        course=course(live, [each + MIB for each in live]),
    )
    return changed(made, **changes)


def distribution(name: str, median: int, objects: int, spread: float = 2.0) -> Distribution:
    """Sizes scattered about a median, evenly on a logarithmic scale but for the most frequent."""
    points, size = [], 8.0
    while size <= 4 * MIB:
        at = math.log2(size / median) / spread
        share = 1 / (1 + math.exp(-1.7 * at))
        by_bytes = 1 / (1 + math.exp(-1.7 * (at - 1.5)))
        points.append(Point(size=int(size), objects=min(share, 1.0), bytes=min(by_bytes, 1.0)))
        size *= 2**0.25
    points[-1] = changed(points[-1], objects=1.0, bytes=1.0)
    shares = [0.31, 0.14, 0.08, 0.06, 0.05, 0.04, 0.03, 0.02]
    sizes = [24, 48, 64, 17, 32, 128, 1024, 16384]
    frequent = [
        FrequentSize(
            size=each,
            amount=amount(objects * share, each),
            share=share,
            cumulative=sum(shares[: i + 1]),
        )
        for i, (each, share) in enumerate(zip(sizes, shares, strict=True))
    ]
    return Distribution(
        name=name,
        threads=1,
        amount=amount(objects, 1.5 * median),
        mean=1.5 * median,
        median=median,
        p90=4 * median,
        p99=64 * median,
        largest=4 * MIB,
        points=points,
        frequent=frequent,
        distinct=412,
    )


def lifetime_row(size: int, objects: int, lasting: float = 0.01, **changes: Any) -> LifetimeRow:
    made = LifetimeRow(
        size=size,
        amount=amount(objects, 0.8 * size),
        ns=Quantiles(p50=3.0 * US, p90=2.0 * MS, p99=None),
        bytes=Quantiles(p50=2048.0, p90=1.0 * MIB, p99=None),
        living=amount(objects * lasting, 0.8 * size),
    )
    return changed(made, **changes)


def calm() -> Profile:
    """A program of one thread that needs nothing."""
    sizes = [16, 32, 64, 128, 256, 1024]
    rows = [lifetime_row(each, 8_000) for each in sizes]
    return Profile(
        heapfit="0.1.0",
        recordings=[recording()],
        totals=Totals(
            events=100_000,
            duration_ns=10 * S,
            allocations=amount(50_000),
            frees=amount(49_000),
            failed=0,
            unmatched_frees=0,
            lost_events=0,
            mean_size=64.0,
            per_second=5_000.0,
            per_second_most=6_000.0,
            calls=[
                Calls(kind="malloc", amount=amount(48_000), share=0.96),
                Calls(kind="calloc", amount=amount(2_000), share=0.04),
            ],
            calloc=amount(2_000),
            calloc_share=0.04,
            calloc_pages=amount(0),
            aligned=amount(0),
            large=amount(10, 100 * KIB),
            large_local=amount(10, 100 * KIB),
        ),
        sizes=Sizes(programs=[distribution("calm", 48, 50_000)], threads=[]),
        lifetimes=Lifetimes(
            rows=rows,
            by_time=lived(rows),
            by_bytes=[],
            all=lifetime_row(1024, 48_000),
            young_share=0.95,
        ),
        sharing=Sharing(
            threads=["calm"],
            flow=[Flow(born=0, died=0, amount=amount(49_000))],
            freed=amount(49_000),
            remote=amount(0),
            remote_share=0.0,
            remote_bytes_share=0.0,
        ),
        reallocs=Reallocs(
            calls=amount(500),
            share=0.01,
            known=500,
            in_place=400,
            in_place_share=0.8,
            copied_bytes=MIB,
            copied_huge_bytes=0,
            largest=64 * KIB,
            grown=480,
            shrunk=20,
            growth=[
                Growth(ratio=1.0, calls=20),
                Growth(ratio=1.1, calls=80),
                Growth(ratio=2.0, calls=380),
                Growth(ratio=None, calls=20),
            ],
            blocks=100,
            per_block=5.0,
        ),
        peak=Peak(
            amount=Amount(objects=60_000, bytes=4 * MIB),
            usable_bytes=int(4.2 * MIB),
            sizes=[
                SizePart(size=each, amount=Amount(objects=10_000, bytes=4 * MIB // 6), share=1 / 6)
                for each in sizes
            ],
            threads=[Part(name="calm", amount=Amount(objects=60_000, bytes=4 * MIB), share=1.0)],
            sites=[part("parse (calm.c:7)", 0.3, 4 * MIB), part("load (calm.c:9)", 0.2, 4 * MIB)],
            ages=[part("10 %", 0.1, 4 * MIB), part("100 %", 0.9, 4 * MIB)],
        ),
        transactions=Transactions(threads=[], examples=[], share=0.0),
        sites=Sites(
            recorded=True,
            distinct=12,
            by_bytes=[site("parse (calm.c:7)", 0.4), site("load (calm.c:9)", 0.2)],
            by_interleaving=[],
            interleaving=0.1,
            without_lines={},
        ),
        waste=Waste(
            allocators=[
                rounding("jemalloc", 0.04),
                rounding("heapfit", 0.05),
                rounding("glibc", 0.06, True),
            ],
            unknown=[],
        ),
        leaks=Leaks(
            amount=Amount(objects=16_000, bytes=MIB),
            share=0.3,
            sizes=[SizePart(size=64, amount=Amount(objects=16_000, bytes=MIB), share=1.0)],
            sites=[leak("load (calm.c:9)", 0.9, MIB, late=0.02)],
            born=[amount(n) for n in (15_000, 200, 100, 100, 100, 100, 100, 100, 100, 100)],
        ),
    )


def part(name: str, share: float, whole: int) -> Part:
    taken = int(whole * share)
    return Part(name=name, amount=Amount(objects=taken // 64, bytes=taken), share=share)


def leak(name: str, share: float, whole: int, late: float) -> LeakSite:
    taken = int(whole * share)
    return LeakSite(
        name=name, amount=Amount(objects=taken // 64, bytes=taken), share=share, late_share=late
    )


def rounding(
    allocator: str, waste: float, recorded: bool = False, peak: int = 4 * MIB, title: str = ""
) -> Rounding:
    return Rounding(
        allocator=allocator,
        title=title or allocator,
        version="1.0",
        recorded=recorded,
        waste=0.8 * waste,
        peak_waste=waste,
        peak_bytes=int(peak * waste),
    )


def site(name: str, share: float, callers: Sequence[str] = (), **changes: Any) -> Site:
    made = Site(
        chain=[name, *callers],
        module="calm",
        amount=amount(50_000 * share),
        share=share,
        smallest=16,
        largest=64,
        small_share=1.0,
        interleaving=0.1,
        remote_share=0.0,
        median_ns=3.0 * US,
        peak=amount(100),
        end=amount(0),
    )
    return changed(made, **changes)


def bursts(thread: str, **changes: Any) -> Bursts:
    made = Bursts(
        thread=thread,
        bursts=5200,
        share=0.83,
        allocations=412.0,
        bytes=61_000.0,
        frees=405.0,
        reallocs=21.0,
        most_live_bytes=21_000.0,
        duration_ns=4.1 * MS,
        duration_median_ns=3.2 * MS,
        duration_most_ns=41 * MS,
        survivors=7.2,
        survivor_share=0.017,
        remote_share=0.03,
    )
    return changed(made, **changes)


def lived(rows: Sequence[LifetimeRow]) -> list[LifetimeCell]:
    """Lifetimes of what did not live on: most die after microseconds, larger blocks later."""
    cells = []
    for number, row in enumerate(rows):
        centre = 11 + number * 0.9
        columns = range(6, 33)
        weights = [
            math.exp(-(((k - centre) / 2.2) ** 2)) + 0.25 * math.exp(-(((k - 26) / 2.0) ** 2))
            for k in columns
        ]
        dead = row.amount.objects - row.living.objects
        cells += [
            LifetimeCell(
                size=row.size, lifetime=1 << k, amount=amount(dead * w / sum(weights), row.size)
            )
            for k, w in zip(columns, weights, strict=True)
            if dead * w / sum(weights) >= 1
        ]
    return cells


# ------------------------------------------------------------------------ the busy


def server(folder: Path) -> Profile:
    """Of workers with bursts, whose blocks another thread frees, with call sites and leaks."""
    found = analyse.profile(analyse.count(write_tables(service(400), folder / "server.tables")))
    return changed(
        found, transactions__threads=[bursts("worker-1")], totals__per_second=1_270_000.0
    )


def several(folder: Path) -> Profile:
    """Two processes of one service."""
    one = server(folder)
    [first] = one.recordings
    return changed(one, recordings=[first, changed(first, pid=4712, name="server.hft.4712")])
