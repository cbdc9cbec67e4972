"""Profiles with known answers, for the tests of what is said about one and how it looks.

`calm()` is a small program that needs nothing; a test of a rule changes the figures that the rule
looks at. `server()` is a busy one, of which nearly every section has something to say.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from heapfit.profile.model import (
    Amount,
    Burst,
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

THREADS = ["server", "worker", "worker", "worker", "worker", "io", "log", "others"]
_PEAK = 640 * MIB


def server() -> Profile:
    """A server under load: workers with bursts, an I/O thread whose blocks others free, a leak."""
    sizes = [16 << k for k in range(17)]
    rows = [lifetime_row(each, int(9e6 / (1 + k) ** 1.6)) for k, each in enumerate(sizes)]
    mixed = Quantiles(p50=900.0, p90=64.0 * MIB, p99=None)
    rows[2] = changed(rows[2], bytes=mixed, amount=amount(4e6, 60), living=amount(1.1e6, 60))
    calls = {"malloc": 0.62, "new": 0.24, "realloc": 0.06, "calloc": 0.07, "aligned": 0.01}
    return changed(
        calm(),
        recordings=[busy_recording()],
        totals=Totals(
            events=25_400_000,
            duration_ns=60 * S,
            allocations=amount(12_700_000, 190),
            frees=amount(9_600_000, 120),
            failed=0,
            unmatched_frees=12,
            lost_events=0,
            mean_size=190.0,
            per_second=1_270_000.0,
            per_second_most=3_100_000.0,
            calls=[
                Calls(
                    kind=kind, amount=amount(12.7e6 * v, 100 + 9_700 * (kind == "calloc")), share=v
                )
                for kind, v in calls.items()
            ],
            calloc=amount(890_000, 10_800),
            calloc_share=0.07,
            calloc_pages=amount(140_000, 64 * KIB),
            aligned=amount(120_000, 256),
            large=amount(900_000, 96 * KIB),
            large_local=amount(800_000, 96 * KIB),
        ),
        sizes=Sizes(
            programs=[distribution("server", 56, 12_700_000)],
            threads=[
                distribution(name, 24 + 30 * i, int(4e6 / (i + 1)), 1 + i / 3)
                for i, name in enumerate(THREADS)
            ],
        ),
        lifetimes=Lifetimes(
            rows=rows,
            by_time=lived(rows),
            by_bytes=[],
            all=lifetime_row(1 << 20, 12_700_000, 0.21),
            young_share=0.71,
        ),
        sharing=busy_sharing(),
        reallocs=changed(
            calm().reallocs,
            calls=amount(760_000, 9_000),
            share=0.06,
            known=755_000,
            in_place=210_000,
            in_place_share=0.28,
            copied_bytes=14 * GIB,
            copied_huge_bytes=9 * GIB,
            largest=48 * MIB,
            grown=740_000,
            shrunk=20_000,
            growth=[
                Growth(ratio=1.0, calls=20_000),
                Growth(ratio=1.1, calls=110_000),
                Growth(ratio=2.0, calls=600_000),
                Growth(ratio=None, calls=25_000),
            ],
            blocks=160_000,
            per_block=4.75,
        ),
        peak=busy_peak(sizes),
        transactions=busy_transactions(),
        sites=busy_sites(),
        waste=Waste(
            allocators=[
                rounding("dlmalloc", 0.041, peak=_PEAK),
                rounding("heapfit", 0.052, peak=_PEAK),
                rounding("snmalloc", 0.055, peak=_PEAK),
                rounding("jemalloc", 0.061, peak=_PEAK),
                rounding("mimalloc", 0.062, peak=_PEAK, title="mimalloc 3"),
                rounding("google-tcmalloc", 0.071, peak=_PEAK, title="TCMalloc (Google)"),
                rounding("glibc", 0.128, True, peak=_PEAK, title="glibc malloc (ptmalloc2)"),
                rounding("hoard", 0.31, peak=_PEAK, title="Hoard"),
            ],
            unknown=["rpmalloc is not installed: heapfit allocators install rpmalloc"],
        ),
        leaks=Leaks(
            amount=Amount(objects=3_000_000, bytes=180 * MIB),
            share=0.07,
            sizes=[
                SizePart(size=64, amount=amount(2_500_000, 60), share=0.8),
                SizePart(size=1024, amount=amount(40_000, 800), share=0.2),
            ],
            sites=[
                leak("session_new (session.c:118)", 0.62, 180 * MIB, late=0.51),
                leak("dict_expand (dict.c:240)", 0.25, 180 * MIB, late=0.08),
                leak("libcrypto.so.3+0x1a2b40", 0.02, 180 * MIB, late=0.0),
            ],
            born=[amount(n * 30_000) for n in (22, 9, 9, 10, 9, 10, 9, 10, 9, 14)],
        ),
    )


def busy_recording(**changes: Any) -> Recording:
    """A minute: it fills, breathes, has a surge of a reload at 38 s, and keeps too much after."""
    live, resident, rates = [], [], []
    for step in range(600):
        at = step / 10
        base = 180 * MIB * min(1.0, at / 12) + 24 * MIB * math.sin(at * 1.3) * min(1.0, at / 12)
        surge = 470 * MIB * math.exp(-(((at - 38) / 3.2) ** 2))
        live.append(int(max(base + surge, 0)))
        rates.append(int(127_000 * (1 + 0.4 * math.sin(at * 2.1)) * (2.1 if 34 < at < 40 else 1)))
    for step in range(600):
        most = max(live[: step + 1])
        resident.append(int(most * (1.14 if step < 400 else 1.09) + 9 * MIB))
    made = course(live, list(resident), S // 10)
    busy = recording(
        name="server.hft",
        program="/usr/sbin/server",
        arguments=["/usr/sbin/server", "--port", "7000", "--workers", "4"],
        duration_ns=60 * S,
        threads=11,
        events=25_400_000,
        allocations=amount(12_700_000, 190),
        peak=Amount(objects=4_100_000, bytes=_PEAK),
        peak_ns=int(38.1 * S),
        end=Amount(objects=3_000_000, bytes=180 * MIB),
        resident_most=int(_PEAK * 1.16),
        problems=["12 frees were of blocks from before the recording"],
        course=changed(made, allocations=rates),
    )
    return changed(busy, **changes)


def busy_sharing() -> Sharing:
    flow = [Flow(born=i, died=i, amount=amount(6e6 / (i + 1) ** 1.5, 80)) for i in range(8)]
    flow += [Flow(born=5, died=i, amount=amount(420_000, 200)) for i in (1, 2, 3, 4)]
    flow += [Flow(born=1, died=6, amount=amount(60_000, 300))]
    freed, remote = amount(9_600_000, 110), amount(1_740_000, 204)
    return Sharing(
        threads=THREADS,
        flow=sorted(flow, key=lambda each: -each.amount.objects),
        freed=freed,
        remote=remote,
        remote_share=remote.objects / freed.objects,
        remote_bytes_share=remote.bytes / freed.bytes,
    )


def busy_peak(sizes: Sequence[int]) -> Peak:
    weights = [1 + 4 * math.exp(-(((k - 3) / 2) ** 2)) + 3 * (k == 14) for k in range(len(sizes))]
    shares = [each / sum(weights) for each in weights]
    return Peak(
        amount=Amount(objects=4_100_000, bytes=_PEAK),
        usable_bytes=int(_PEAK * 1.128),
        sizes=[
            SizePart(size=s, amount=amount(_PEAK * w / s, s), share=w)
            for s, w in zip(sizes, shares, strict=True)
        ],
        threads=[part(name, 0.3 / (i + 1), _PEAK) for i, name in enumerate(THREADS[:4])],
        sites=[
            part("index_build (index.c:77)", 0.44, _PEAK),
            part("session_new (session.c:118)", 0.17, _PEAK),
            part("dict_expand (dict.c:240)", 0.11, _PEAK),
            part("std::vector<Row>::_M_realloc_insert (vector.tcc:459)", 0.06, _PEAK),
            part("libcrypto.so.3+0x1a2b40", 0.02, _PEAK),
        ],
        ages=[part("10 %", 0.58, _PEAK), part("20 %", 0.08, _PEAK), part("100 %", 0.34, _PEAK)],
    )


def busy_transactions() -> Transactions:
    threads = [
        bursts(f"worker {i + 1}", bursts=5200 - 900 * i, share=0.83 - 0.04 * i) for i in range(4)
    ]
    examples = [
        Burst(
            thread=i,
            recording=0,
            start_ns=int((0.4 + n * 0.48 + 0.05 * i) * S),
            end_ns=int((0.4 + n * 0.48 + 0.05 * i) * S) + (3 + 7 * ((n * 7 + i) % 5)) * 4 * MS,
        )
        for i in range(4)
        for n in range(120)
    ]
    return Transactions(threads=threads, examples=examples, share=0.64)


def busy_sites() -> Sites:
    lasting = {"median_ns": None, "end": amount(900_000), "peak": amount(1_000_000)}
    found = [
        site(
            "index_build (index.c:77)",
            0.31,
            ["reload (server.c:310)", "main (server.c:900)"],
            interleaving=0.02,
        ),
        site(
            "session_new (session.c:118)",
            0.21,
            ["accept_client (net.c:61)"],
            interleaving=0.57,
            amount=amount(1_200_000),
            **lasting,
        ),
        site(
            "std::vector<Row>::_M_realloc_insert (vector.tcc:459)",
            0.16,
            smallest=64,
            largest=2 * MIB,
            small_share=0.2,
            remote_share=0.4,
        ),
        site(
            "dict_expand (dict.c:240)",
            0.11,
            ["dict_add (dict.c:291)"],
            interleaving=0.4,
            smallest=1024,
            largest=16 * MIB,
            small_share=0.0,
        ),
        site("reply_append (reply.c:33)", 0.08, interleaving=0.71, remote_share=0.9),
        site("libcrypto.so.3+0x1a2b40", 0.01),
    ]
    return Sites(
        recorded=True,
        distinct=1841,
        by_bytes=found[:4],
        by_interleaving=[found[1], found[4], found[3]],
        interleaving=0.38,
        without_lines={"libcrypto.so.3": 0.01},
    )


def several() -> Profile:
    """Three processes of one service, of which one forked the others."""
    one = server()
    others = [
        busy_recording(pid=4712 + i, name=f"server.hft.{4712 + i}", program=f"/usr/sbin/{name}")
        for i, name in enumerate(["gateway", "data"])
    ]
    programs = [
        distribution(name, 24 * (i + 1), 4_000_000)
        for i, name in enumerate(["server", "gateway", "data"])
    ]
    return changed(one, recordings=[one.recordings[0], *others], sizes__programs=programs)
