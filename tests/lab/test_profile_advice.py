"""The advice: which rule fires on which calls of a program, and that a calm one gets none."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from heapfit.fit import look
from heapfit.profile.advice.memory import grower, rises_steadily
from heapfit.profile.answers import ASK, advice, content
from heapfit.profile.model import Pinned, PinningSite, Rounding
from heapfit.text import DASH
from profile_tables import (
    CALLOC,
    REALLOC,
    Block,
    SiteRow,
    Tables,
    as_recorded,
    changed,
    complete,
    profile_of,
    requests,
)
from trace_data import server

S = 1_000_000_000
KIB, MIB = 1 << 10, 1 << 20
GLIBC = {"allocator": "/lib/libc.so.6", "arch": "x86_64", "sites": 1}


def ten_seconds(*blocks: Block, resident: int = 0, **info: Any) -> Tables:
    """A program that ends after ten seconds, with so much memory resident all along."""
    seen = dict.fromkeys(range(0, 10 * S, S // 10), resident * MIB) if resident else {}
    ended = [*blocks, Block(16, 10 * S)]
    return Tables(complete(ended), resident=seen, anonymous=seen, info=GLIBC | info)


def many(number: int, size: int, in_s: float, **more: Any) -> list[Block]:
    """Blocks of one size, one after the other, evenly over so many seconds."""
    step = int(in_s * S / number)
    return [Block(size, step * i, step * i + 10, **more) for i in range(number)]


def program(blocks: Sequence[Block], *sites: SiteRow, threads: int = 1, **info: Any) -> Tables:
    names = [f"thread-{i}" for i in range(threads)]
    return Tables(complete(blocks), names, sites, info=GLIBC | info)


def moves(**info: Any) -> Tables:
    """One block of 8 MiB and more, ten times moved within a tenth of a second."""
    steps = [
        Block(
            (8 + 2 * i) * MIB, S // 100 * i, S // 100 * (i + 1), born_kind=REALLOC,
            died_kind=REALLOC, id=i + 1, previous=i, address=(i + 1) << 30,
        )
        for i in range(10)
    ]  # fmt: skip
    return program(steps, **info)


def full_cache(freed: int, kept: int) -> list[Block]:
    """Blocks each of which is freed when so many have come after it."""
    ends = [1000 * (i + kept) if i < freed else None for i in range(freed + kept)]
    return [Block(64, 1000 * i, end, site=1) for i, end in enumerate(ends)]


def mixed() -> Tables:
    """Of blocks of one size more than half die at once, and the others outlive 32 MiB."""
    lasting = [Block(128, 1000 * i) for i in range(9_000)]
    passing = many(512, 64 * KIB, 0.1)
    later = [replace(e, born_ns=S + e.born_ns, died_ns=S + (e.died_ns or 0)) for e in passing]
    return program([*lasting, *many(12_000, 128, 0.009), *later])


def handed_over(remote: int, of: int) -> Tables:
    """A program of which one thread frees some of the other's blocks."""
    moved = many(remote, 100, 1, died_thread=1)
    return program([*moved, *many(of - remote, 100, 1)], threads=2)


def of_threads(number: int) -> Tables:
    blocks = [Block(64, i, i + S, born_thread=i % number) for i in range(2 * number)]
    return program(blocks, threads=number)


def held(*blocks: Block, switches: int = 0) -> Tables:
    return program(blocks, SiteRow(1, "node_new", file="tree.c", line=5, switches=switches))


def lasting(number: int, first_ns: int = 0, size: int = 64) -> list[Block]:
    return [Block(size, first_ns + 1000 * i, site=1) for i in range(number)]


def replaced(*most: int) -> list[Block]:
    """Blocks of one line, each freed when as many are live as are due; what is due goes evenly from
    each number to the next in a thousand steps of ten blocks."""
    blocks: list[Block] = []
    live: deque[Block] = deque()
    for first, last in pairwise(most):
        for step in range(1000):
            for _ in range(10):
                blocks.append(Block(500, 1000 * len(blocks), site=1))
                live.append(blocks[-1])
            while len(live) > first + (last - first) * step // 1000:
                live.popleft().died_ns = blocks[-1].born_ns + 1
    return blocks


def batches(number: float, kept: int = 0, blocks: int = 400) -> list[Block]:
    """Blocks of one line that are freed whenever so many are live, but for those that are kept."""
    made: list[Block] = []
    live: list[Block] = []
    for i in range(round(number * blocks)):
        if len(live) == blocks:
            for each in live[kept:]:
                each.died_ns = 1000 * i - 1
            live = []
        live.append(Block(2000, 1000 * i, site=1))
        made.append(live[-1])
    return made


def by_many(sites: int) -> Tables:
    """A leak by so many functions in turn."""
    blocks = [replace(each, site=1 + i % sites) for i, each in enumerate(lasting(4000))]
    return program(blocks, *(SiteRow(1 + i, f"f{i}") for i in range(sites)))


def refreshed(number: int) -> Tables:
    """A table of which each entry is replaced by one of another line."""
    ends = (1000 * (number + i) for i in range(number))
    first = [replace(each, died_ns=end) for each, end in zip(lasting(number), ends, strict=True)]
    later = [replace(each, site=2) for each in lasting(number, 1000 * number)]
    return program([*first, *later], SiteRow(1, "load"), SiteRow(2, "refresh"))


def late_leak(number: int) -> list[Block]:
    return lasting(number, 9_001_000)


def surge(number: int, size: int) -> Tables:
    """So many blocks shortly before the peak, of which nothing stays."""
    return ten_seconds(*[Block(size, 9 * S - S // 10, 9 * S)] * number)


def crowd(size: int, seconds: float) -> Tables:
    """A thousand blocks of two threads."""
    return program(many(1000, size, seconds), threads=2)


# The section, the feature that is named (True: that the program is to be changed, None: nothing is
# to be done), what is said, and the program.
RULES = [
    (
        "memory",
        "background:on",
        "At the end 210 MiB was resident for 20 MiB live, and the program hardly calls malloc",
        ten_seconds(Block(180 * MIB, 0, 7 * S), Block(20 * MIB, 0), resident=210),
    ),
    (
        "memory",
        "heapfit",
        "At the end 210 MiB was resident for 20 MiB live. heapfit returns",
        ten_seconds(
            Block(180 * MIB, 0, 7 * S),
            Block(20 * MIB, 0),
            *[Block(64, 7 * S + n * S // 100, 7 * S + n * S // 50) for n in range(1, 150)],
            resident=210,
        ),
    ),
    ("memory", "another allocator", "", ten_seconds(Block(20 * MIB, 0), resident=60)),
    ("memory", True, "the program's mappings", ten_seconds(Block(4 * MIB, 0), resident=40)),
    ("peak", "hf_footprint_shrink", "78.1 MiB of the peak", surge(2500, 32 * KIB)),
    ("peak", None, "above 32 KiB", surge(2, 64 * MIB)),
    ("sizes", "thread_span_threshold", "_threshold:16m`", crowd(1500 * KIB, 0.05)),
    ("sizes", "thread_span_threshold", "_threshold:32m`", crowd(6 * MIB, 0.05)),
    ("sizes", None, "", crowd(100 * KIB, 0.01)),
    ("sizes", None, "", crowd(1500 * KIB, 1)),
    ("sizes", None, "", program(many(1000, 1500 * KIB, 0.01))),
    (
        "rate",
        "another allocator",
        "The program allocates 646 MiB per second in blocks above",
        program(many(100, 64 * MIB, 10)),
    ),
    (
        "rate",
        "another allocator",
        "costs 6 % of a core (about 2M calls per second",
        program(many(2000, 64, 0.001)),
    ),
    ("lifetimes", "pools", "blocks of at most 128 B", mixed()),
    (
        "bursts",
        "contexts",
        "Give thread-0 a context (a defrag-dodging one): all but 2 of a burst's 500",
        program(requests(number=40, objects=500, kept=2)),
    ),
    ("threads", "remote-free queues", "about 256 blocks", handed_over(50, 1000)),
    ("threads", None, "", handed_over(40, 1000)),
    ("threads", "lockless_threads", "300 threads make 2 allocations each", of_threads(300)),
    ("threads", None, "", of_threads(200)),
    ("realloc", "realloc by mremap", "run it under heapfit", moves()),
    ("realloc", "realloc by mremap", "Nothing to set", moves(allocator="/opt/libheapfit.so")),
    ("realloc", "another allocator", "", moves(arch="aarch64")),
    (
        "calloc",
        "zeroed_reserve",
        "`zeroed_reserve:256m`",
        ten_seconds(*many(2000, 10 * MIB, 9.9, born_kind=CALLOC)),
    ),
    (
        "calloc",
        "zeroed_reserve",
        "`zeroed_reserve:128m`",
        ten_seconds(*many(120, 100 * MIB, 9.9, born_kind=CALLOC)),
    ),
    ("calloc", "known zero pages", "", program(many(1000, 10 * MIB, 1, born_kind=CALLOC))),
    (
        "sites",
        "pools",
        "node_new (tree.c:5) holds 1.22 MiB",
        held(*lasting(20_000), switches=10_000),
    ),
    ("sites", None, "", held(*lasting(20_000), switches=1_000)),
    ("end", True, "node_new (tree.c:5) still holds 125 KiB", held(*lasting(2000))),
    # What was set up early, what turns over, what is small.
    ("end", None, "", held(*lasting(2000), *many(4000, 64, 1))),
    ("end", None, "", held(*full_cache(4000, 2000))),
    ("end", None, "", held(*lasting(200))),
    # What is replaced grows, is full, has filled up, comes and goes.
    ("end", True, "1.91 MiB at the end, up from 1.43 MiB", held(*replaced(2000, 4000))),
    ("end", None, "", held(*replaced(4000, 4000))),
    ("end", None, "", held(*replaced(0, 4000, 4000, 4000))),
    ("end", None, "", held(*replaced(0, 4000, 0, 4000, 0, 2000))),
    ("end", None, "did not rise steadily", held(*replaced(9000, 9000, 9000, 10_000, 10_000))),
    ("peak", None, "call sites were not recorded. To see them", program(lasting(4000))),
    # What is built up and freed in turn, whatever the phase; beside a leak, or growing itself.
    *(("end", None, "", held(*batches(number))) for number in (1.9, 3, 8.2, 8.7, 9, 16.6, 24.6)),
    ("end", True, f"which rose from 316 KiB{DASH}1.10 MiB in", held(*batches(20.1, kept=20))),
    (
        "end",
        True,
        "still holds 4 MiB at the end",
        held(*[replace(e, size=MIB // 10) for e in lasting(40)]),
    ),
    ("end", True, "from many call sites, mainly f0, f1 and f10.", by_many(16)),
    ("end", None, "total live memory did not grow", refreshed(4000)),
    ("end", None, "or a leak that has just begun", held(*full_cache(9000, 1), *late_leak(900))),
]


@pytest.mark.parametrize(("section", "feature", "said", "tables"), RULES)
def test_each_rule_fires_on_what_it_is_for(
    tmp_path: Path, section: str, feature: str | bool | None, said: str, tables: Tables
) -> None:
    found = advice(profile_of(tmp_path / "x", tables), "x.hft")[section]
    assert said in found.sentence
    if isinstance(feature, str):
        assert found.feature == feature
        assert found.act is not found.sentence.startswith("Nothing to set")
    else:
        assert (found.feature, found.act) == (None, bool(feature))


def test_what_is_run_to_be_looked_at_can_be_asked(tmp_path: Path) -> None:
    """`heapfit why` said of a process that was run as advised that it cannot be asked."""
    tables = ten_seconds(Block(180 * MIB, 0, 7 * S), Block(20 * MIB, 0), resident=210)
    shown = content(profile_of(tmp_path / "x", tables), "x.hft")
    run = "heapfit run --control --set background=on -- program"
    [section] = [each for each in shown.sections if each.name == "memory"]
    assert run in section.advice.sentence
    assert run in dict(shown.commands).values()


@pytest.mark.parametrize(
    ("recent", "gained", "error", "is_told"),
    [
        (1.0, 0.5, 0.0, True),
        (1.0, 0.5, 0.3, False),  # a ring that is full: two samples that have nothing in common
        (0.18, 0.18, 0.2, True),  # nothing was lost: less than a quarter by chance
        (0.18, 0.18, 0.5, False),
    ],
)
def test_a_gain_in_a_sample_is_set_against_its_error(
    tmp_path: Path, recent: float, gained: float, error: float, is_told: bool
) -> None:
    whole = profile_of(tmp_path / "x", held(*lasting(4000, size=KIB)))
    first = whole.leaks.functions[0]
    sampled = changed(
        first,
        recent_share=recent,
        held_before=[round((1 - gained) * first.amount.bytes)] * 4,
        highest=[round((0.62 if recent == gained else 1 - gained) * first.amount.bytes)] * 8,
        late_share=0.38 if recent == gained else 1.0,
        freed_share=0.5,
        amount__bytes_error=error * first.amount.bytes,
    )
    told = advice(changed(whole, leaks__functions=[sampled], leaks__sites=[], leaks__every=sampled))
    assert told["end"].act is is_told


@pytest.mark.parametrize(
    ("highest", "error", "grows"),
    [
        ([794, 903, 976, 994, 999], 33, False),  # a cache of which nearly every place is taken
        ([794, 903, 976, 960, 999], 33, False),
        ([500, 640, 750, 870, 999], 33, True),
        ([500, 650, 720, 740, 999], 33, True),  # a leak, some of whose steps are small by chance
        ([500, 650, 720, 740, 999], 0, False),
    ],
)
def test_what_fills_up_does_not_rise_because_a_sample_is_uncertain(
    tmp_path: Path, highest: list[int], error: int, grows: bool
) -> None:
    first = profile_of(tmp_path / "x", held(*lasting(4000, size=KIB))).leaks.functions[0]
    holder = changed(
        first,
        amount__bytes=999,
        amount__bytes_error=error,
        highest=[0, 0, 0, *highest],
        lowest=[0, 0, 0, 400, 500, 600, 700, 800],
    )
    assert rises_steadily(holder) is grows


def test_a_calm_program_needs_nothing(tmp_path: Path) -> None:
    found = advice(server(tmp_path))
    assert " ".join(found) == (
        "memory peak pinned sizes rounding rate lifetimes bursts threads realloc calloc sites end"
    )
    assert [name for name, each in found.items() if each.act or each.feature] == []


def test_an_allocator_of_less_rounding_is_named_with_what_it_saves(tmp_path: Path) -> None:
    known = [
        Rounding(
            allocator=name, title=name, version="1", recorded=name == "glibc", waste=share,
            peak_waste=share, peak_bytes=int(share * 100 * MIB),
        )
        for name, share in (("jemalloc", 0.04), ("glibc", 0.12))
    ]  # fmt: skip
    profile = profile_of(tmp_path / "x", ten_seconds(*many(100, MIB, 0.001)))
    found = advice(changed(profile, waste__allocators=known))["rounding"]
    assert found.feature == "another allocator"
    assert "jemalloc would add 4 MiB" in found.sentence
    assert "rounding, glibc 12 MiB" in found.sentence


@pytest.mark.parametrize(
    ("program", "variable", "value"),
    [("python3.11", "PYTHONMALLOC", "malloc"), ("php-fpm8.2", "USE_ZEND_ALLOC", "0")],
)
def test_what_an_interpreter_keeps_for_itself_is_not_the_allocators(
    tmp_path: Path, program: str, variable: str, value: str
) -> None:
    """A service in Python of 4 MiB live and 40 resident was told to try another allocator."""
    tables = ten_seconds(Block(4 * MIB, 0), resident=40, program=f"/usr/bin/{program}")
    profile = profile_of(tmp_path / "x", tables)
    found = advice(profile)["memory"]
    assert found.feature == variable
    assert f"record it with `heapfit record --objects` (`{variable}={value}`) before" in (
        found.sentence
    )
    other = advice(as_recorded(profile, environment={variable: value}))["memory"]
    assert "to learn how much is resident" in other.sentence
    for early in (False, True):
        shown = content(as_recorded(profile, ended_early=early))
        assert shown.nothing_proposed.startswith("This recording cannot show whether")
        assert "To see it, record it with `heapfit record --objects`" in shown.nothing_proposed
        assert "No sign of a leak" not in str(shown)


@pytest.mark.parametrize(
    ("path", "variable", "value"),
    [("python3.11", "PYTHONMALLOC", "malloc"), ("php-fpm8.2", "USE_ZEND_ALLOC", "0")],
)
def test_what_an_interpreter_keeps_after_a_peak_is_told_and_run_as_it_was_recorded(
    tmp_path: Path, path: str, variable: str, value: str
) -> None:
    """Nothing was said to be called for, above a command that lost the variable."""
    environment = {"PYTHONMALLOC": "malloc", "USE_ZEND_ALLOC": "0"}
    tables = ten_seconds(
        Block(180 * MIB, 0, 7 * S), Block(20 * MIB, 0), resident=210, program=f"/usr/bin/{path}",
        arguments=[path, "x.py"], environment=environment,
    )  # fmt: skip
    shown = content(profile_of(tmp_path / "x", tables), "x.hft")
    [memory] = [each for each in shown.proposals if each.name == "memory"]
    run = f"{variable}={value} heapfit run --control --set background=on -- {path} x.py"
    assert "At the end 210 MiB was resident for 20 MiB live" in memory.advice.sentence
    assert f"`{run}`" in memory.advice.sentence
    assert run in dict(shown.commands).values()
    # A replay has no rest, in which memory would be given back.
    assert "replay" not in str(shown)


@pytest.mark.parametrize("is_steady", [True, False])
def test_growth_by_time_after_a_start_that_allocates_much_is_told_as_steady(
    tmp_path: Path, is_steady: bool
) -> None:
    """It was said to have come in the second half of the recording."""
    start = [Block(64, 1000 * i, 1000 * i + 10, site=2) for i in range(4000)]
    every = 10 * S // 4000
    times = [(i + 1) * every if is_steady or i < 3000 else 8 * S + i for i in range(4000)]
    grown = [Block(KIB, each, site=1) for each in times]
    sites = [SiteRow(1, "leak"), SiteRow(2, "start")]
    profile = profile_of(tmp_path / "x", program([*start, *grown], *sites))
    assert ("which grew steadily, by 400 KiB a second" in advice(profile)["end"].sentence) is (
        is_steady
    )


def test_no_allocator_is_proposed_for_what_grows(tmp_path: Path) -> None:
    leak = Tables(complete(lasting(2000, size=KIB)), sites=[SiteRow(1, "leak")], info=GLIBC)
    leak = replace(leak, end={"reason": "the time is over"})
    for late in (False, True):
        profile = as_recorded(profile_of(tmp_path / f"{late}", leak), began_late=late)
        shown = content(profile, "x.hft")
        [section] = shown.proposals
        assert "no allocator stops its growth" in section.advice.sentence
        assert [purpose for purpose, _ in shown.commands] == [ASK]


def test_what_a_sample_cannot_know_is_not_said(tmp_path: Path) -> None:
    """Each is said of a full recording, and was said of a sample just as surely, and was wrong.
    Nor is a sample to be replayed, which has no call for most blocks."""
    known = changed(server(tmp_path), totals__duration_ns=1_000_000)
    full, sample = (content(each, "x.hft") for each in (known, as_recorded(known, sample=64 * KIB)))
    said, unsaid = ({each.name: each for each in shown.sections} for shown in (full, sample))
    assert list(said) == list(unsaid)
    assert "per reallocated block" in " ".join(said["realloc"].sentences)
    assert "per reallocated block" not in " ".join(unsaid["realloc"].sentences)
    assert "Interleaved" in said["sites"].table.columns
    assert "Interleaved" not in unsaid["sites"].table.columns
    assert "Short-lived" in {each.label for each in full.facts}
    assert "Short-lived" not in {each.label for each in sample.facts}
    assert not any("meanwhile" in each for each in unsaid["lifetimes"].table.columns)
    for name in ("lifetimes", "bursts", "realloc", "sites"):
        assert unsaid[name].advice.sentence.startswith("A sample does not show ")
        assert not unsaid[name].advice.act
    in_bursts = profile_of(tmp_path / "b", program(requests(number=40, objects=500, kept=2)))
    for profile, is_table in ((in_bursts, True), (as_recorded(in_bursts, sample=KIB), False)):
        [bursts] = [each for each in content(profile).sections if each.name == "bursts"]
        assert (bursts.table is not None) is is_table
    assert "heapfit replay x.hft" in str(full)
    assert "heapfit replay x.hft" not in str(sample)
    assert "a `heapfit replay` of a recording without `--sample`" in str(sample)


def test_advice_is_the_same_on_a_busy_machine(tmp_path: Path) -> None:
    """On one with seven other programs, "another allocator" became "less than 1 % of a core"."""
    quiet = as_recorded(server(tmp_path), processor_ns=100_000_000)
    busy = changed(quiet, totals__duration_ns=8 * quiet.totals.duration_ns)
    busy = changed(busy, totals__per_second=(quiet.totals.per_second or 0.0) / 8)
    assert advice(busy) == advice(quiet)
    assert "of the program's processor time" in advice(quiet)["rate"].sentence
    unknown = as_recorded(quiet, processor_ns=None)
    assert "of a core" in advice(unknown)["rate"].sentence


def test_rates_of_a_sample_are_told_as_estimates(tmp_path: Path) -> None:
    exact = server(tmp_path)
    sampled = as_recorded(exact, sample=512 * KIB)
    for profile, is_estimate in ((exact, False), (sampled, True)):
        told = content(profile)
        [fact] = [each.note for each in told.facts if each.label == "Allocations"]
        [rate] = [each for each in told.sections if each.name == "rate"]
        for sentence in (fact.split(", ")[0], rate.sentences[0].lower()):
            assert ("about " in sentence) is is_estimate, sentence
    assert exact.totals.per_second_most
    tables = program(many(100, 64, 1), sample=512 * KIB)
    assert profile_of(tmp_path / "x", tables).totals.per_second_most is None


@pytest.mark.parametrize(
    ("kept", "began_late", "grown", "says", "is_said_to_leak"),
    [
        (2000, False, 0, "node_new (tree.c:5) allocated 125 KiB during the recording", True),
        (2000, True, 100 * KIB, "this is a leak or an unbounded cache", True),
        (2000, True, 80 * KIB, "best match first: node_new (tree.c:5) (125 KiB)", True),
        (2000, True, 50 * KIB, "but resident memory grew by at most 50 KiB", False),
        (200, True, 100 * KIB, "too little to recognise a leak", False),
    ],
)
def test_of_a_part_of_a_program_the_call_site_is_named_that_grew(
    tmp_path: Path, kept: int, began_late: bool, grown: int, says: str, is_said_to_leak: bool
) -> None:
    tables = held(*lasting(kept), Block(16, 2_000_000))
    tables.resident = tables.anonymous = {0: MIB, 1_900_000: MIB + grown}
    tables.totals = {"unmatched_frees": 1000}
    whole = profile_of(tmp_path / "x", tables)
    found = advice(as_recorded(whole, ended_early=True, began_late=began_late))["end"]
    assert says in found.sentence
    assert found.act is is_said_to_leak


@pytest.mark.parametrize(
    ("freed", "early", "problems", "says"),
    [
        (0, 0, {}, "62.4 KiB in the second half, in which no older block was freed (none"),
        (0, 0, {}, "(none before). Resident memory grew by at most 0 B, as if malloc"),
        (12, 12, {}, "in which no older block was freed (only 12 before). "),
        (20, 20, {}, "memory that was already free, unless those blocks were large. "),
        (21, 21, {}, "may have been freed meanwhile"),
        (2000, 2000, {}, "may have been freed meanwhile"),
        (12, 11, {}, "may have been freed meanwhile"),
        (0, 0, {"lost_events": 1}, "may have been freed meanwhile"),
    ],
)
def test_what_takes_no_blocks_place_grows_though_resident_memory_does_not(
    tmp_path: Path, freed: int, early: int, problems: dict[str, int], says: str
) -> None:
    """A leak after a peak was said to be nothing, though the recording had no free at all. A cache
    whose few old blocks were large was said to be a leak, and so was one that was emptied and
    filled again with as many blocks."""
    tables = held(*lasting(2000), Block(16, 2_000_000))
    tables.unmatched_early = early
    tables.resident = tables.anonymous = {0: MIB, 1_900_000: MIB}
    tables.totals, tables.problems = {"unmatched_frees": freed}, problems
    whole = profile_of(tmp_path / "x", tables)
    attached = as_recorded(whole, ended_early=True, began_late=True)
    for profile, is_known in ((attached, True), (as_recorded(attached, sample=KIB), False)):
        found = advice(profile)["end"]
        is_shown = is_known and "may have been" not in says
        assert found.act is is_shown
        assert (grower(profile) is not None) is is_shown
        assert not is_known or says in found.sentence


@pytest.mark.parametrize(("grown", "is_said_to_leak"), [(2 * MIB, True), (MIB // 4, False)])
def test_a_cache_that_has_replaced_what_was_there_before_grows_with_resident_memory(
    tmp_path: Path, grown: int, is_said_to_leak: bool
) -> None:
    tables = held(*replaced(0, 4000, 6000))
    tables.resident = {ns: MIB + grown * ns // 20_000_000 for ns in range(0, 20_000_000, 100_000)}
    tables.anonymous, tables.totals = tables.resident, {"unmatched_frees": 1000}
    whole = profile_of(tmp_path / "x", tables)
    found = advice(as_recorded(whole, ended_early=True, began_late=True))["end"]
    assert ("an unbounded cache" in found.sentence) is is_said_to_leak
    assert found.act is is_said_to_leak


def test_who_keeps_free_memory_is_told_first_and_other_allocators_are_tried(tmp_path: Path) -> None:
    whole = profile_of(tmp_path / "x", held(*lasting(2000)))
    live = changed(whole.peak.amount, bytes=MIB)
    site = PinningSite(name="tag (x.c:1)", bytes=58 * MIB, share=1.0, amount=live, mean_age_ns=S)
    pinned = Pinned(known=True, bytes=60 * MIB, amount=live, at_ns=1000, sites=[site])
    shown = content(changed(whole, pinned=pinned), "x.hft")
    [fact] = [each for each in shown.facts if each.label == "Pins free memory"]
    assert fact.value == "58 MiB"
    assert fact.note.startswith("tag (x.c:1): pinned by 1 MiB of its blocks")
    assert shown.facts.index(fact) < [each.label for each in shown.facts].index("Largest holder")
    [section] = [each for each in shown.sections if each.name == "pinned"]
    assert section.advice.feature == "another allocator"
    assert "`heapfit replay x.hft` shows whether" in section.advice.sentence
    at_rest = ten_seconds(Block(180 * MIB, 0, 7 * S), Block(20 * MIB, 0, site=1), resident=210)
    rests = changed(profile_of(tmp_path / "y", at_rest), pinned=pinned, sites=whole.sites)
    assert "may need less. If none does" in advice(rests)["pinned"].sentence
    own = as_recorded(changed(whole, pinned=pinned), allocator="/lib/libheapfit.so")
    assert advice(own)["pinned"].feature == "pools"


def test_growth_that_a_recording_has_not_seen_is_no_all_clear(tmp_path: Path) -> None:
    """A service in Python grew by 32 MiB, of which 15 were recorded: "no sign of a leak"."""
    tables = ten_seconds(Block(15 * MIB, 0), resident=57)
    whole = profile_of(tmp_path / "x", tables)
    course = whole.recordings[0].course
    grown = [57 * MIB] * (len(course.resident) - 1) + [89 * MIB]
    profile = as_recorded(
        whole,
        ended_early=True,
        began_late=True,
        course=course.model_copy(update={"resident": grown, "resident_anonymous": grown}),
    )
    found = advice(profile)["end"]
    assert found.act
    assert "resident memory grew by 32 MiB" in found.sentence
    assert "at most 15 MiB" in found.sentence


def test_growth_beside_a_cache_that_is_replaced_is_told(tmp_path: Path) -> None:
    """What replaces older blocks counted as grown: the mappings that grew were not mentioned."""
    step = 10 * S // 100
    cache = [Block(2 * MIB, i * step, (i + 50) * step if i < 50 else None) for i in range(100)]
    whole = profile_of(tmp_path / "x", Tables(complete(cache), info=GLIBC))
    course = whole.recordings[0].course
    steps = len(course.live_bytes)
    grown = [(120 + 100 * at // steps) * MIB for at in range(steps)]
    profile = as_recorded(
        whole,
        ended_early=True,
        began_late=True,
        course=course.model_copy(update={"resident": grown, "resident_anonymous": grown}),
    )
    assert "in the second half of the recording" in advice(profile)["end"].sentence


@pytest.mark.parametrize(("began_late", "most"), [(False, 90), (True, 40)])
def test_the_kernel_knows_what_was_resident_between_two_looks(
    tmp_path: Path, began_late: bool, most: int
) -> None:
    tables = ten_seconds(Block(4 * MIB, 0), resident=40, began_late=began_late)
    ended = replace(tables, end={"reason": "exit", "resident_most": 90 * MIB})
    [recording] = profile_of(tmp_path / "x", ended).recordings
    assert recording.resident_most == most * MIB


def test_a_leak_is_told_though_the_rest_is_freed_as_the_program_ends(tmp_path: Path) -> None:
    """It was said to be freed, too; that the rest was freed late kept free memory on its pages."""
    cache = [Block(4096, 1000 * i, 4_100_000, site=2) for i in range(2000)]
    found = advice(
        profile_of(
            tmp_path / "x",
            program(
                sorted([*cache, *lasting(4000)], key=lambda each: each.born_ns),
                SiteRow(1, "leak"),
                SiteRow(2, "fill"),
            ),
        )
    )
    assert "leak still holds 250 KiB at the end" in found["end"].sentence
    assert found["end"].if_lasting
    assert "leak" not in found["peak"].sentence


def test_who_grows_fastest_is_named_first(tmp_path: Path) -> None:
    """A cache that had filled stood before the leak."""
    steps = 4000
    cache = [Block(4096, 1000 * at, site=2) for at in range(steps) if at < steps // 2 or at % 2]
    cache += [Block(4096, 1000 * at, site=2) for at in range(0, steps, 4)]
    leak = [Block(4096, 1000 * at, site=1) for at in range(steps) if at % 8]
    blocks = sorted([*cache, *leak], key=lambda each: each.born_ns)
    for sizes, first in (((4096, 4096), "leak"), ((8192, 4096), "fill")):
        of_site = dict(zip((2, 1), sizes, strict=True))
        sized = [replace(each, size=of_site[each.site]) for each in blocks]
        profile = profile_of(
            tmp_path / first, program(sized, SiteRow(1, "leak"), SiteRow(2, "fill"))
        )
        holders = {each.name: each.amount.bytes for each in profile.leaks.functions}
        assert holders["fill"] > holders["leak"]
        assert advice(profile)["end"].sentence.startswith(f"{first} still holds")


def test_fit_says_where_the_program_itself_grows(tmp_path: Path) -> None:
    """It tuned the allocator of a program that does nothing but leak, without a word on that."""
    grows = profile_of(tmp_path / "grows", program(lasting(4000), SiteRow(1, "leak")))
    assert look._growth(grows, Path("x.hft")).startswith("leak keeps growing")
    steady = profile_of(tmp_path / "steady", ten_seconds(Block(20 * MIB, 0)))
    assert look._growth(steady, Path("x.hft")) == ""


def test_of_a_process_that_was_attached_to_no_command_runs_the_program_to_its_end(
    tmp_path: Path,
) -> None:
    tables = program(many(100, 64 * MIB, 10), began_late=True, arguments=["service", "--forever"])
    profile = profile_of(tmp_path / "x", tables)
    said = advice(profile)["rate"].sentence
    commands = " ".join(line for _, line in content(profile).commands)
    assert "`heapfit fit TRACE`" in said
    assert "heapfit fit " in commands
    assert "--forever" not in said + commands
    # A fit replays all calls.
    sample = profile.model_copy(
        update={"recordings": [e.model_copy(update={"sample": 1}) for e in profile.recordings]}
    )
    pid = profile.recordings[0].pid
    line = f"heapfit record --pid {pid} --for 1m -o all.hft && heapfit fit all.hft"
    assert line in [line for _, line in content(sample).commands]
    unnamed = {"recordings": [e.model_copy(update={"pid": 0}) for e in sample.recordings]}
    anonymised = content(sample.model_copy(update=unnamed)).commands
    assert line.replace(f"--pid {pid} ", "--pid PID ") in [line for _, line in anonymised]
    # Of one that allocated nothing there is nothing to play back.
    none = changed(profile.totals.allocations, objects=0)
    idle = changed(profile, totals=changed(profile.totals, allocations=none))
    assert content(idle).headline.endswith("allocated nothing while it was recorded.")
    assert content(idle).commands == [("See what the process holds", f"heapfit why {pid}")]


def test_of_a_script_its_interpreters_functions_are_not_called_lines_that_lack(
    tmp_path: Path,
) -> None:
    sites = [SiteRow(1, "Perl_newSV", module="/usr/bin/perl")]
    for name, program_path, said in (
        ("perl", "/usr/bin/perl", "is an interpreter"),
        ("c", "/usr/bin/other", "install its debug symbols"),
    ):
        tables = program(lasting(4000), *sites, program=program_path)
        [sentence] = content(profile_of(tmp_path / name, tables)).problems
        assert said in sentence


def test_code_without_lines_is_called_as_the_program_was(tmp_path: Path) -> None:
    """One file is redis-server and redis-check-rdb."""
    site = SiteRow(1, "zmalloc", module="/usr/bin/redis-check-rdb")
    called = {"program": "/usr/bin/redis-check-rdb", "arguments": ["/usr/bin/redis-server"]}
    tables = program(lasting(4000), site, **called)
    [said] = content(profile_of(tmp_path / "x", tables)).problems
    assert "in redis-server: install" in said
