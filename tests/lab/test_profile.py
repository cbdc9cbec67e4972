"""A profile says of known objects what going through them one by one says."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import profile_tables
import pytest
from heapfit.diff import of_recordings
from heapfit.profile import analyse
from heapfit.profile.advice import memory
from heapfit.profile.answers import content
from heapfit.profile.model import Amount, Profile
from heapfit.profile.sections import recording
from heapfit.profile.tally import merged
from heapfit.trace.native import Problems
from heapfit.trace.problems import sentences
from profile_tables import CALLOC, REALLOC, Block, SiteRow, Tables, complete, profile_of, write

Made = Callable[..., Profile]
S = 1_000_000_000


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Writes a trace's tables and returns their profile."""

    def of_blocks(blocks: Sequence[Block], **more: object) -> Profile:
        folder = tmp_path / f"trace-{len(list(tmp_path.iterdir()))}"
        return profile_of(folder, Tables(list(blocks), **more))

    return of_blocks


def plain(amount: Amount) -> tuple[int, int]:
    assert amount.objects_error == amount.bytes_error == 0
    return amount.objects, amount.bytes


BLOCKS = profile_tables.random_blocks(seed=1, count=3000)
NAMES = ("main", "worker", "worker")


def test_totals_and_calls_are_those_of_the_objects(made: Made) -> None:
    totals = made(BLOCKS, threads=NAMES).totals
    assert plain(totals.allocations) == profile_tables.each(BLOCKS, lambda block: True)
    assert plain(totals.frees) == profile_tables.each(BLOCKS, lambda b: b.died_ns is not None)
    for calls in totals.calls:
        assert plain(calls.amount) == profile_tables.each(
            BLOCKS, lambda block, kind=calls.kind: profile_tables.KINDS[block.born_kind] == kind
        )
    assert plain(totals.calloc) == profile_tables.each(BLOCKS, lambda b: b.born_kind == CALLOC)
    assert plain(totals.calloc_pages) == profile_tables.each(
        BLOCKS, lambda b: b.born_kind == CALLOC and b.size >= 4096
    )
    assert plain(totals.large) == profile_tables.each(BLOCKS, lambda b: b.size > 32768)
    assert plain(totals.large_local) == profile_tables.each(
        BLOCKS, lambda b: b.size > 32768 and b.died_thread == b.born_thread
    )


def test_quantiles_of_lifetimes_count_what_lives_as_living_until_the_end(made: Made) -> None:
    lifetimes = made(BLOCKS, threads=NAMES).lifetimes
    end = max(max(b.born_ns, b.died_ns or 0) for b in BLOCKS)
    lived = [((b.died_ns or end) - b.born_ns, b.died_ns is None) for b in BLOCKS]
    for part in (0.5, 0.9, 0.99):
        expected = product_limit(lived, part)
        found = getattr(lifetimes.all.ns, f"p{part * 100:.0f}")
        assert found == (expected and pytest.approx(expected, rel=0.13))


def product_limit(lived: Sequence[tuple[int, bool]], part: float) -> float | None:
    """The time that `part` do not outlive, one object after the other."""
    survive, at_risk = 1.0, len(lived)
    for time, censored in sorted(lived):
        if not censored:
            survive *= 1 - 1 / at_risk
            if survive <= 1 - part:
                return time
        at_risk -= 1
    return None


def test_reallocations_grow_in_place_or_are_copied(made: Made) -> None:
    blocks = [
        Block(100, 0, 10, died_kind=REALLOC, id=1, address=4096),
        Block(200, 10, 20, born_kind=REALLOC, died_kind=REALLOC, id=2, previous=1, address=4096),
        Block(300, 20, 30, born_kind=REALLOC, died_kind=REALLOC, id=3, previous=2, address=8192),
        Block(50, 30, 40, born_kind=REALLOC, id=4, previous=3, address=12288),
        Block(8 << 20, 31, 40, died_kind=REALLOC, id=5, address=1 << 30),
        Block(9 << 20, 40, 50, born_kind=REALLOC, id=6, previous=5, address=2 << 30),
        Block(70, 50, 60, born_kind=REALLOC, id=7),  # of a block from before the recording
        Block(80, 50, 60, id=8),
    ]
    reallocs = made(complete(blocks)).reallocs
    assert reallocs.calls.objects == 5
    assert reallocs.share == 5 / 8
    assert (reallocs.known, reallocs.in_place, reallocs.grown, reallocs.shrunk) == (4, 1, 3, 1)
    assert reallocs.copied_bytes == 200 + 50 + (8 << 20)
    assert reallocs.copied_huge_bytes == 8 << 20
    assert (reallocs.blocks, reallocs.per_block) == (2, 2.0)
    assert reallocs.largest == 9 << 20
    assert [(each.ratio, each.calls) for each in reallocs.growth] == [
        (1.0, 1),
        (1.125, 1),
        (1.25, 0),
        (1.5, 1),
        (2.0, 1),
        (None, 0),
    ]


def test_the_peak_is_what_was_live_then(made: Made) -> None:
    profile = made(BLOCKS, threads=NAMES)
    at, most = profile_tables.peak_of(BLOCKS)
    live = [b for b in BLOCKS if b.born_ns <= at and (b.died_ns is None or b.died_ns > at)]
    assert sum(block.size for block in live) == most
    assert plain(profile.peak.amount) == (len(live), most)
    assert profile.recordings[0].peak_ns == at
    assert profile.peak.usable_bytes == sum(block.usable for block in live)
    for part in profile.peak.sizes:
        least = part.size // 2 if part.size > 16 else -1
        own = [block.size for block in live if least < block.size <= part.size]
        assert plain(part.amount) == (len(own), sum(own))
    young = [block for block in live if at - block.born_ns < at / 10]
    assert profile.peak.ages[0].amount.objects == len(young)
    assert sum(part.amount.objects for part in profile.peak.threads) == len(live)


def test_where_a_recording_began_late_what_is_resident_is_not_set_against_what_is_live(
    made: Made,
) -> None:
    found = made(
        [Block(48, 0, S)],
        resident=dict.fromkeys((50_000, S), 240 << 20),
        anonymous=dict.fromkeys((50_000, S), 230 << 20),
        info={"began_late": True},
    )
    shown = content(found)
    assert shown.problems[0].startswith(
        "The recording started while the process was running, when 230 MiB of its own memory was"
    )
    assert "resident" not in shown.headline
    assert not shown.proposals
    advised = {each.name: each.advice.sentence for each in shown.sections}
    assert advised["memory"].startswith("No advice: the recording began after the process")
    assert advised["peak"].startswith("This peak covers only what was")


def test_a_title_that_a_program_wrote_over_its_command_is_told_as_it_is(made: Made) -> None:
    title = {"arguments": ["redis-server *:7631", *[""] * 27]}
    assert content(made([Block(48, 0, S)], info=title)).command == "redis-server *:7631"
    command = {"arguments": ["cp", "a b", ""]}
    assert content(made([Block(48, 0, S)], info=command)).command == "cp 'a b' ''"


def test_what_blocks_hold_is_what_is_free_on_their_pages(made: Made) -> None:
    page = 4096
    # On each of ten pages a block is left of those that were there; on others, none or all.
    kept = [Block(48, 10, site=1, address=page * (16 + i)) for i in range(10)]
    beside = [
        Block(48, 11, 500, site=2, address=page * (16 + i) + 48 * j)
        for i in range(20)
        for j in range(1, 85)
    ]
    dense = [Block(1024, 12, site=3, address=page * 64 + 1024 * i) for i in range(40)]
    across = [Block(page, 13, site=4, address=page * 128 + page // 2)]
    rows = [SiteRow(number, name) for number, name in enumerate(("keep", "free", "fill", "lie"), 1)]
    blocks = [*kept, *beside, *dense, *across, Block(16, 790, 800, address=page * 256)]
    found = made(complete(blocks), sites=rows).pinned
    assert found.at_ns == 500
    assert [(each.name, each.bytes) for each in found.sites] == [
        ("keep", 10 * (page - 48)),
        ("lie", page),
    ]
    assert found.bytes == sum(each.bytes for each in found.sites)
    assert (found.sites[0].amount.objects, found.sites[0].amount.bytes) == (10, 480)
    assert not made(complete(blocks), sites=rows, info={"sample": 512}).pinned.known


def test_call_sites_have_their_chains_and_their_sums(made: Made) -> None:
    blocks = profile_tables.random_blocks(seed=3, count=2000, sites=3)
    sites = [
        SiteRow(1, "node_new", caller=4, file="/src/list.c", line=7, switches=5),
        SiteRow(2, None, module="/lib/libx.so", offset=0x1F0, switches=600),
        SiteRow(3, None, module=None, offset=None, address=0xABC),
        SiteRow(4, "main", caller=0),
    ]
    profile = made(blocks, threads=NAMES, sites=sites, info={"sites": 2})
    found = {each.chain[0]: each for each in profile.sites.by_bytes}
    assert set(found) == {"node_new (list.c:7)", "libx.so+0x1f0", "0xabc"}
    first = found["node_new (list.c:7)"]
    own = [block for block in blocks if block.site == 1]
    freed = [block for block in own if block.died_ns is not None]
    assert first.chain == ["node_new (list.c:7)", "main"]
    assert plain(first.amount) == (len(own), sum(block.size for block in own))
    assert (first.smallest, first.largest) == (min(b.size for b in own), max(b.size for b in own))
    assert first.small_share == pytest.approx(sum(b.size <= 128 for b in own) / len(own))
    assert first.interleaving == pytest.approx(5 / len(own))
    assert first.remote_share == pytest.approx(
        sum(b.died_thread != b.born_thread for b in freed) / len(freed)
    )
    assert plain(first.end) == profile_tables.each(own, lambda block: block.died_ns is None)
    assert profile.sites.by_interleaving[0].chain == ["libx.so+0x1f0"]
    assert sum(part.amount.objects for part in profile.peak.sites) == profile.peak.amount.objects
    late = [b for b in own if b.died_ns is None and b.id > len(blocks) / 2]
    told = {each.name: each for each in profile.leaks.sites}["node_new (list.c:7) < main"]
    assert told.late_share == pytest.approx(
        sum(b.size for b in late) / told.amount.bytes, abs=0.001
    )


def test_inlined_functions_do_not_use_up_a_chain(made: Made) -> None:
    own = [
        SiteRow(1, "std::grow()", caller=2),
        *(SiteRow(i, "std::f()", i + 1) for i in range(2, 99)),
    ]
    profile = made(complete([Block(10, born_ns=5, site=1)]), sites=[*own, SiteRow(99, "work")])
    assert [each.chain for each in profile.sites.by_bytes] == [["work (std::f)"]]


def test_who_leaks_and_then_waits_leaks(made: Made) -> None:
    blocks = [Block(1000, born_ns=1000 * i, site=1) for i in range(1000)]
    waited = Block(16, born_ns=10**9, died_ns=10**9 + 10, site=2)
    sites = [SiteRow(1, "session_open"), SiteRow(2, "main")]
    profile = made([*complete(blocks), *complete([waited])], sites=sites, info={"sites": 1})
    found = memory.end(profile, "x.hft")
    assert found.act
    assert found.sentence.startswith("session_open still holds 977 KiB at the end, 50 % of it")


def test_lines_of_one_function_are_one_holder_that_grows_though_all_is_freed_at_exit(
    made: Made,
) -> None:
    lines = [SiteRow(each, "handle", caller=4, file="/srv/svc.py", line=each) for each in (1, 2, 3)]
    blocks = [Block(1000, 1000 * i, 10**9 + i, site=1 + i % 3) for i in range(1000)]
    other = [Block(100_000, 1, 10**9, site=5), Block(16, 10**9, 10**9, site=5)]
    sites = [*lines, SiteRow(4, "main"), SiteRow(5, "setup")]
    profile = made(complete([*blocks, *other]), sites=sites, info={"sites": 2})
    assert {each.label: each for each in content(profile).facts}["Largest holder"].note == (
        "handle (svc.py, lines 1, 2 and 3) < main: 91 % at the peak"
    )
    found = memory.peak(profile, "x.hft")
    assert found.act
    assert found.sentence.startswith("handle (svc.py, lines 1, 2 and 3) < main kept growing, to ")
    assert memory.peak(made(complete(blocks[:500] + other)), "x.hft").act is False
    large = [Block(5_000_000, 1, site=5), *(Block(1000, 1000 * i, site=1) for i in range(1, 1000))]
    kept = made(complete(large), sites=sites, info={"sites": 2})
    labels = ("Grew", "Largest holder")
    first, second = [each for each in content(kept).facts if each.label in labels]
    assert first.note.startswith("handle (svc.py:1) < main: 50 % of it from the second half of")
    assert (first.label, second.label) == labels
    assert second.note == "setup: 83 % at the end"


@pytest.mark.parametrize("why", ["no space left on the device", "the time is over"])
def test_what_lives_when_a_recording_ends_early_need_not_be_a_leak(made: Made, why: str) -> None:
    blocks = complete([Block(1000, born_ns=1000 * i, site=1) for i in range(1000)])
    sites = [SiteRow(1, "session_open")]
    profile = made(blocks, sites=sites, info={"sites": 1}, end={"reason": why})
    told = content(profile)
    end = next(each for each in told.sections if each.name == "end")
    assert end.title == "Live when the recording ended"
    assert "If the program does not free it later" in end.advice.sentence
    assert "blocks were live when the recording ended" in end.sentences[0]
    assert "Live when the recording ended" in [fact.label for fact in told.facts]
    assert why in told.problems[0]


def test_of_problems_only_those_that_there_are_are_told() -> None:
    passed_over = "Damage in the file was skipped: "
    between, blocks = Problems(damaged_bytes=12), Problems(damaged_blocks=1)
    assert sentences(between) == [f"{passed_over}12 bytes between blocks."]
    assert sentences(blocks) == [f"{passed_over}1 block."]
    [gap] = sentences(Problems(gap_ns=2_300_000_000))
    assert gap.startswith("Nothing was recorded for 2.3 s between the parts that were merged.")
    assert sentences(Problems()) == recording._older(2) == []
    [older] = recording._older(100)
    assert (
        "older than the recording, or whose allocation was lost: 100. What was allocated" in older
    )
    assert "dynamic linker" in older


def test_requests_that_free_all_they_have_are_bursts(made: Made) -> None:
    blocks = complete(profile_tables.requests(number=40, objects=500, kept=0))
    [thread] = (transactions := made(blocks).transactions).threads
    assert thread.bursts == 40
    assert thread.share == transactions.share == 1
    assert (thread.allocations, thread.bytes) == (500, 500 * 64)
    assert (thread.survivors, thread.frees) == (0, 500)
    assert thread.duration_ns == pytest.approx(500_000, rel=0.05)
    assert thread.duration_median_ns == pytest.approx(500_000, rel=0.13)
    assert len(transactions.examples) == 40
    second = transactions.examples[1]
    assert second.start_ns == pytest.approx(600_000, abs=5000)
    assert second.end_ns == pytest.approx(1_100_000, abs=5000)


def test_estimates_of_a_sample_are_unbiased_and_know_their_error(tmp_path: Path) -> None:
    every = profile_tables.random_blocks(seed=11, count=8000)
    true = profile_tables.each(every, lambda block: True)
    off: list[tuple[float, float]] = []
    for seed in range(12):
        copies = [Block(**vars(block)) for block in every]
        noted = complete(profile_tables.sampled(copies, mean=8192, seed=seed))
        tables = Tables(noted, threads=NAMES, info={"sample": 8192})
        found = profile_of(tmp_path / str(seed), tables).totals.allocations
        off.append(
            (
                (found.objects - true[0]) / found.objects_error,
                (found.bytes - true[1]) / found.bytes_error,
            )
        )
        assert len(noted) < len(every) / 2
    for errors in zip(*off, strict=True):
        assert max(map(abs, errors)) < 4
        assert abs(sum(errors) / len(errors)) < 4 / math.sqrt(len(errors))
        assert 0.3 < math.sqrt(sum(e * e for e in errors) / len(errors)) < 2


def test_the_peak_of_a_sample_is_not_the_highest_of_many_estimates(tmp_path: Path) -> None:
    """As many blocks live all the time: chance alone makes one moment the highest."""
    live, size, interval_ns = 500, 1000, 1000
    off = []
    for seed in range(12):
        every = [
            Block(born_ns=i * interval_ns, died_ns=(i + live) * interval_ns, size=size)
            for i in range(20_000)
        ]
        noted = complete(profile_tables.sampled(every, mean=16_384, seed=seed))
        tables = Tables(noted, threads=NAMES, info={"sample": 16_384})
        peak = profile_of(tmp_path / str(seed), tables).peak.amount
        off.append((peak.bytes - live * size) / (peak.bytes_error or 1.0))
    assert abs(sum(off) / len(off)) < 4 / math.sqrt(len(off))


def test_a_block_that_is_known_well_is_in_the_peak_of_a_sample(tmp_path: Path) -> None:
    """It is of one half alone, and the other chose a moment at which it did not live."""
    small = [Block(1000, i * 1000, (i + 500) * 1000) for i in range(20_000)]
    for seed in range(8):
        large = Block(50_000_000, 5_000_000, 9_000_000)
        every = sorted([*(replace(each) for each in small), large], key=lambda each: each.born_ns)
        noted = complete(profile_tables.sampled(every, mean=16_384, seed=seed))
        tables = Tables(noted, threads=NAMES, info={"sample": 16_384})
        assert profile_of(tmp_path / str(seed), tables).peak.amount.bytes > 50_000_000


@pytest.mark.parametrize(
    ("times", "together", "size"), [(300, 1, 200_000), (300, 10, 51_200), (5, 3, 100_000)]
)
def test_the_peak_of_few_blocks_in_a_sample_is_never_nothing(
    tmp_path: Path, times: int, together: int, size: int
) -> None:
    """Blocks take turns, and each part of the sample is another turn's."""
    mean, off = 1 << 19, []
    for seed in range(12):
        every = [Block(size, 1000 * i, 1000 * i + 900) for i in range(times)] * together
        noted = complete(profile_tables.sampled([replace(e) for e in every], mean, seed))
        if not noted:
            continue
        tables = Tables(noted, threads=NAMES, info={"sample": mean})
        profile = profile_of(tmp_path / str(seed), tables)
        peak = profile.peak.amount
        assert peak.objects >= 1
        assert peak.bytes >= size * 0.99
        assert "The peak is uncertain" in "".join(profile.recordings[0].problems)
        off.append((peak.bytes - together * size) / peak.bytes_error)
    assert max(map(abs, off)) < 2
    assert abs(sum(off) / len(off)) < 1


def test_what_may_have_been_live_is_no_less_than_what_was(tmp_path: Path) -> None:
    """Of 2.3 blocks of a sample that are expected, there may be one, or none."""
    told = []
    for seed in range(16):
        every = [Block(100, 1000 + i) for i in range(3000)]
        noted = complete(profile_tables.sampled(every, 1 << 17, seed))
        if not noted:
            continue
        tables = Tables(noted, threads=NAMES, info={"sample": 1 << 17})
        problems = "".join(profile_of(tmp_path / str(seed), tables).recordings[0].problems)
        if most := re.search(r"up to ([\d.]+) (KiB|MiB) may have been live", problems):
            told.append(float(most[1]) * {"KiB": 1024, "MiB": 1 << 20}[most[2]])
    assert len(told) >= 8
    assert min(told) >= 300_000


def test_a_sample_has_a_peak_though_its_blocks_live_for_less_than_a_step(tmp_path: Path) -> None:
    every = [Block(100_000, 1_000_000 * i, 1_000_000 * i + 1) for i in range(300)]
    noted = complete(profile_tables.sampled(every, mean=1 << 19, seed=1))
    peak = profile_of(tmp_path / "x", Tables(noted, info={"sample": 1 << 19})).peak.amount
    assert 100_000 <= peak.bytes <= 100_000 + 2 * peak.bytes_error


def _two_phases(folder: Path, seed: int) -> Path:
    """A sample of a program of two phases that hold as much, each by another line."""
    every = [
        Block(1000, phase * 4_000_000 + i * 1000, phase * 4_000_000 + 3_000_000, site=1 + phase)
        for phase in (0, 1)
        for i in range(2000)
    ]
    noted = complete(profile_tables.sampled(every, mean=16_384, seed=seed))
    sites = [SiteRow(1, "parse"), SiteRow(2, "render")]
    info = {"sample": 16_384, "sites": 1}
    return profile_tables.write(folder, Tables(noted, threads=NAMES, sites=sites, info=info))


def test_the_peak_of_a_sample_is_of_one_moment_and_the_other_that_may_be_it_is_named(
    tmp_path: Path,
) -> None:
    folders = [_two_phases(tmp_path / str(seed), seed) for seed in range(8)]
    profiles = [analyse.profile(analyse.count(each)) for each in folders]
    holders = [[each.name for each in profile.peak.functions] for profile in profiles]
    assert {tuple(each) for each in holders} == {("parse",), ("render",)}
    for profile, (holder,) in zip(profiles, holders, strict=True):
        assert profile.peak.rival
        assert profile.peak.rival.name == ("render" if holder == "parse" else "parse")
        [section] = [each for each in content(profile).sections if each.name == "peak"]
        said = [each for each in section.sentences if "within sampling error" in each]
        assert [profile.peak.rival.name in each for each in said] == [True]
    first = folders[holders.index(["parse"])], folders[holders.index(["render"])]
    assert not of_recordings(*first).sites


def test_the_error_of_a_short_peak_in_a_sample_holds_the_peak(tmp_path: Path) -> None:
    live, size, extra = 500, 1000, 250
    off = []
    for seed in range(12):
        steady = [Block(size, i * 1000, (i + live) * 1000) for i in range(4000)]
        peak = [Block(size, 2_000_000 + i, 2_005_000) for i in range(extra)]
        every = sorted([*steady, *peak], key=lambda each: each.born_ns)
        noted = complete(profile_tables.sampled(every, mean=16_384, seed=seed))
        tables = Tables(noted, threads=NAMES, info={"sample": 16_384})
        found = profile_of(tmp_path / str(seed), tables).peak.amount
        off.append((found.bytes - (live + extra) * size) / found.bytes_error)
    assert max(map(abs, off)) < 3
    assert math.sqrt(sum(each**2 for each in off) / len(off)) < 1.5


def test_tallies_add_up_whatever_their_order(tmp_path: Path) -> None:
    tallies = []
    for seed in range(3):
        blocks = profile_tables.random_blocks(seed, 1000, sites=2)
        sites = [SiteRow(1, "f"), SiteRow(2, "g", switches=seed)]
        program = {"program": f"/bin/p{seed % 2}", "sites": 1}
        tables = Tables(blocks, threads=NAMES, sites=sites, info=program)
        tallies.append(analyse.count(write(tmp_path / str(seed), tables)))
    forwards, backwards = merged(tallies), merged(reversed(tallies))
    assert forwards.sums == backwards.sums
    assert forwards.most == backwards.most
    profile = analyse.profile(forwards)
    assert profile.totals.allocations.objects == 3000
    assert [each.name for each in profile.recordings] == ["0.hft", "1.hft", "2.hft"]
    assert {each.name: each.amount.objects for each in profile.sizes.programs} == {
        "p0": 2000,
        "p1": 1000,
    }
    assert profile.sizes.threads[0].name.startswith("p0: ")
    parts = [analyse.profile(each) for each in tallies]
    assert profile.peak.amount.bytes == sum(part.peak.amount.bytes for part in parts)
