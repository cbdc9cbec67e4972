"""The advice, rule by rule: when it is given, when it is not, and that a calm program gets none.

Each case changes only the figures that its rule looks at.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from heapfit.profile.advice import Advice
from heapfit.profile.answers import advice, content
from heapfit.profile.model import Amount, Profile, Quantiles, Sites, SizePart
from profile_data import (
    KIB,
    MIB,
    amount,
    bursts,
    calm,
    changed,
    course,
    leak,
    part,
    recording,
    rounding,
    server,
    several,
    site,
)

SECTIONS = [
    "memory",
    "peak",
    "sizes",
    "rounding",
    "rate",
    "lifetimes",
    "bursts",
    "threads",
    "realloc",
    "calloc",
    "sites",
    "end",
]


def given(section: str, **figures: Any) -> Advice:
    """The advice in a section for the calm program with other figures; all else stays calm."""
    return advice(changed(calm(), **figures), "x.hft")[section]


def for_recording(section: str, **figures: Any) -> Advice:
    return given(section, recordings=[recording(**figures)])


# ------------------------------------------------------------------------ in general


def test_a_calm_program_needs_nothing() -> None:
    found = advice(calm())
    assert list(found) == SECTIONS
    assert [name for name, each in found.items() if each.act or each.feature] == []


# --------------------------------------------------------------------------- memory


def kept(allocator: str = "/lib/libc.so.6", low_steps: int = 30) -> Advice:
    """A program that has let go of its peak so many tenths of a second ago, and stays large."""
    live = [200 * MIB] * (100 - low_steps) + [20 * MIB] * low_steps
    return for_recording(
        "memory",
        allocator=allocator,
        peak=Amount(objects=1000, bytes=200 * MIB),
        end=Amount(objects=100, bytes=20 * MIB),
        resident_most=214 * MIB,
        course=course(live, [210 * MIB] * 100),
    )


def test_memory_that_stays_after_the_peak_is_a_matter_of_decay() -> None:
    found = kept()
    assert found.feature == "decay_ms"
    assert "At the end 210 MiB were resident for 20 MiB live" in found.sentence
    assert "`decay_ms` (500 by default)" in found.sentence


# ----------------------------------------------------------------------------- peak


def surge(share: float, end: int, peak: int = 200 * MIB, **changes: Any) -> Advice:
    return given(
        "peak",
        recordings=[recording(end=Amount(objects=1, bytes=end))],
        peak__amount=Amount(objects=1000, bytes=peak),
        peak__ages=[part("10 %", share, peak), part("100 %", 1 - share, peak)],
        **changes,
    )


def test_a_surge_that_does_not_stay_is_what_the_footprint_switch_is_for() -> None:
    found = surge(0.5, end=50 * MIB)
    assert found.feature == "hf_footprint_shrink"
    assert "100 MiB of the peak" in found.sentence


# ---------------------------------------------------------------------------- sizes


def large(per_second: int, mean: int, local: float = 1.0) -> Advice:
    return given(
        "sizes",
        totals__large=amount(per_second * 10, mean),
        totals__large_local=amount(per_second * 10 * local, mean),
    )


def test_frequent_large_blocks_ask_for_a_larger_thread_cache() -> None:
    found = large(10_000, 100 * KIB)
    assert found.feature == "thread_span_threshold"
    assert "`thread_span_threshold:1m`" in found.sentence
    assert "`thread_span_threshold:8m`" in large(10_000, 1500 * KIB).sentence


def test_large_blocks_that_come_again_may_cost_page_faults() -> None:
    found = given("rate", totals__large=amount(100, 64 * MIB))  # in ten seconds
    assert found.feature == "another allocator"
    assert "640 MiB/s" in found.sentence
    assert not given("rate", totals__large=amount(1, 64 * MIB)).act


def test_a_surge_of_large_blocks_is_no_matter_of_free_memory_kept() -> None:
    few = [SizePart(size=64 * MIB, amount=Amount(objects=2, bytes=128 * MIB), share=0.99)]
    assert surge(0.9, end=0, peak__sizes=few).feature is None


# ------------------------------------------------------------------------- rounding


def rounded(*shares: tuple[str, float], recorded: str = "glibc") -> Advice:
    known = [rounding(name, share, name == recorded, peak=100 * MIB) for name, share in shares]
    return given(
        "rounding", waste__allocators=known, peak__amount=Amount(objects=10**6, bytes=100 * MIB)
    )


def test_an_allocator_of_less_rounding_is_named_with_what_it_saves() -> None:
    found = rounded(("jemalloc", 0.04), ("glibc", 0.12))
    assert found.feature == "another allocator"
    assert "jemalloc would add 4 MiB" in found.sentence
    assert "glibc adds 12 MiB" in found.sentence


# ------------------------------------------------------------------------ lifetimes


def mixed(size: int = 64, held: int = 2 * MIB, **quantiles: Any) -> Advice:
    """Blocks of one size of which half die at once and a tenth lives on."""
    lived = Quantiles(p50=1_000.0, p90=64.0 * MIB, p99=None)
    rows = [
        changed(row, bytes=changed(lived, **quantiles)) if row.size == size else row
        for row in calm().lifetimes.rows
    ]
    sizes = [SizePart(size=size, amount=Amount(objects=1, bytes=held), share=1.0)]
    return given("lifetimes", lifetimes__rows=rows, peak__sizes=sizes)


def test_one_size_of_short_and_long_lives_is_what_pools_part() -> None:
    found = mixed()
    assert found.feature == "pools"
    assert "blocks of at most 64 B" in found.sentence
    assert "heapfit pools explain -- CMD" in found.sentence
    assert mixed(p90=None).feature == "pools"


# --------------------------------------------------------------------------- bursts


def in_bursts(per_second: float = 1e6, **figures: Any) -> Advice:
    found = changed(calm().transactions, threads=[bursts("worker", **figures)], share=0.8)
    return given("bursts", transactions=found, totals__per_second=per_second)


def test_bursts_whose_objects_die_together_fit_a_context() -> None:
    found = in_bursts()
    assert found.feature == "contexts"
    assert "Give worker a context (a defrag-dodging one)" in found.sentence
    assert "412 allocations" in found.sentence
    assert "all but 7.2" in found.sentence


# -------------------------------------------------------------------------- threads


def remote(share: float, size: int = 100, per_second: int = 1_000, **figures: Any) -> Advice:
    moved = amount(per_second * 10, size)
    return given(
        "threads",
        sharing__remote=moved,
        sharing__remote_share=share,
        sharing__freed=amount(moved.objects / max(share, 0.01), size),
        **figures,
    )


def test_blocks_that_other_threads_free_go_back_in_batches_by_themselves() -> None:
    found = remote(0.05)
    assert (found.feature, found.act) == ("remote-free queues", False)
    assert "about 256 blocks" in found.sentence
    assert remote(0.04).feature is None


def test_hundreds_of_idle_threads_can_share_heaps() -> None:
    few = recording(threads=300, allocations=amount(200_000))
    found = given("threads", recordings=[few])
    assert found.feature == "lockless_threads"
    assert "300 threads make 667 allocations each" in found.sentence
    busy = changed(few, allocations=amount(400_000))
    assert given("threads", recordings=[busy]).feature is None
    assert given("threads", recordings=[changed(few, threads=200)]).feature is None


# -------------------------------------------------------------------------- realloc


def moved(mib_per_s: float, huge: float = 0.0, **figures: Any) -> Advice:
    copied = int(mib_per_s * MIB * 10)
    return given(
        "realloc",
        reallocs__copied_bytes=copied,
        reallocs__copied_huge_bytes=int(copied * huge),
        **figures,
    )


def test_very_large_blocks_move_without_a_copy() -> None:
    found = moved(200, huge=0.6)
    assert found.feature == "realloc by mremap"
    assert "60 % of the 200 MiB/s" in found.sentence
    under = recording(allocator="/opt/lib/libheapfit.so")
    assert moved(200, huge=0.6, recordings=[under]).act is False
    elsewhere = recording(arch="aarch64")
    assert moved(200, huge=0.6, recordings=[elsewhere]).feature != "realloc by mremap"


# --------------------------------------------------------------------------- calloc


def cleared(mib_per_s: float) -> Advice:
    return given(
        "calloc", totals__calloc_pages=Amount(objects=1000, bytes=int(mib_per_s * MIB * 10))
    )


def test_much_cleared_memory_can_be_cleared_ahead() -> None:
    assert "`zeroed_reserve:16m`" in cleared(100).sentence
    assert "`zeroed_reserve:128m`" in cleared(1000).sentence
    assert "`zeroed_reserve:1g`" in cleared(1_000_000).sentence
    assert cleared(100).feature == "zeroed_reserve"


# ---------------------------------------------------------------------------- sites


def lasting(**changes: Any) -> Sites:
    held = {"amount": amount(30_000), "peak": amount(20_000), "interleaving": 0.5} | changes
    return changed(calm().sites, by_interleaving=[site("node_new (tree.c:5)", 0.1, **held)])


def test_small_lasting_blocks_among_others_fit_pools() -> None:
    found = given("sites", sites=lasting())
    assert found.feature == "pools"
    assert "node_new (tree.c:5) holds 1.22 MiB" in found.sentence


# ------------------------------------------------------------------------------ end


def left(late: float, share: float = 0.5, whole: int = 10 * MIB) -> Advice:
    return given("end", leaks__sites=[leak("open_file (io.c:2)", share, whole, late)])


def test_what_keeps_growing_is_named_as_a_leak_may_be() -> None:
    found = left(0.5)
    assert (found.act, found.label) == (True, "the program")
    assert "open_file (io.c:2) still holds 5 MiB" in found.sentence


def test_what_was_set_up_early_or_is_small_is_no_leak() -> None:
    assert not left(0.3).act
    assert not left(0.5, share=0.05).act
    assert not left(0.5, whole=100 * KIB).act
    assert not left(0.8).act  # what turns over is young at any time


# ------------------------------------------------------- of an interpreter's own memory


@pytest.mark.parametrize(
    ("program", "variable", "value"),
    [("python3.11", "PYTHONMALLOC", "malloc"), ("php-fpm8.2", "USE_ZEND_ALLOC", "0")],
)
def test_what_an_interpreter_keeps_for_itself_is_not_the_allocators(
    program: str, variable: str, value: str
) -> None:
    """A service in Python of 4 MiB live and 40 resident was told to try another allocator."""
    resident = course([4 * MIB] * 10, [40 * MIB] * 10)
    of = {"program": f"/usr/bin/{program}", "course": resident}
    found = for_recording("memory", **of)
    assert found.feature == variable
    assert f"record it with `heapfit record --objects` (`{variable}={value}`) before" in (
        found.sentence
    )
    assert for_recording("memory", **of, environment={variable: value}).feature != variable
    assert "that the program maps itself" in for_recording("memory", course=resident).sentence
    larger = {
        "peak": Amount(objects=1, bytes=20 * MIB),
        "course": course([0] * 10, [60 * MIB] * 10),
    }
    assert for_recording("memory", **larger).feature == "another allocator"


# ---------------------------------------------------------------------- of a sample


def sample_of(profile: Profile) -> Profile:
    recordings = [each.model_copy(update={"sample": 64 * KIB}) for each in profile.recordings]
    return profile.model_copy(update={"recordings": recordings})


def test_what_a_sample_cannot_know_is_not_said(tmp_path: Path) -> None:
    """Each is said of a full recording, and was said of a sample just as surely, and was wrong."""
    known = server(tmp_path)
    full, sample = content(known, "x.hft"), content(sample_of(known), "x.hft")
    said, unsaid = ({each.name: each for each in shown.sections} for shown in (full, sample))
    assert list(said) == list(unsaid)
    assert said["bursts"].table is not None
    assert unsaid["bursts"].table is None
    assert "for each block" in " ".join(said["realloc"].sentences)
    assert "for each block" not in " ".join(unsaid["realloc"].sentences)
    assert "Interleaved" in said["sites"].table.columns
    assert "Interleaved" not in unsaid["sites"].table.columns
    for name in ("bursts", "realloc", "sites"):
        assert unsaid[name].advice.sentence.startswith("A sample does not tell ")
        assert not unsaid[name].advice.act


def test_rates_of_a_sample_are_told_as_estimates() -> None:
    exact, sampled = calm(), changed(calm(), recordings=[recording(sample=512 * KIB)])
    for profile, is_estimate in ((exact, False), (sampled, True)):
        told = content(profile)
        [fact] = [each.note for each in told.facts if each.label == "Allocations"]
        [rate] = [each for each in told.sections if each.name == "rate"]
        for sentence in (*fact.split(", "), rate.sentences[0].lower(), rate.advice.sentence):
            assert ("about " in sentence) is is_estimate, sentence


def test_a_sample_is_not_to_be_replayed(tmp_path: Path) -> None:
    """`heapfit replay` refuses one: it has no call for most blocks."""
    for profile in (server(tmp_path), several(tmp_path)):
        assert "heapfit replay x.hft" in str(content(profile, "x.hft"))
        shown = str(content(sample_of(profile), "x.hft"))
        assert "heapfit replay x.hft" not in shown
        assert "a recording without `--sample`, played back by `heapfit replay`" in shown
