"""One sentence of advice for each section of a profile.

It names a feature of heapfit, or says that none is needed. A rule fires only on figures that are in
the profile, past a threshold that has a name and a reason; where the figures do not decide, the
sentence says what would. What the features do, and what they cost, is in docs/tuning.md,
docs/contexts.md and docs/pools.md. Within a section the first rule that fits decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from heapfit.profile.model import (
    LARGE_BYTES,
    SMALL_BYTES,
    YOUNG_BYTES,
    Bursts,
    LifetimeRow,
    Profile,
    Recording,
    Rounding,
    Site,
)
from heapfit.profile.words import count, percent, size
from heapfit.records import Record
from heapfit.report.text import counted

_S = 1e9
_KIB, _MIB = 1 << 10, 1 << 20


class Advice(Record):
    """What a section's figures ask for. `feature` is as the documentation calls it, None where
    none is needed or none helps; `act` says whether somebody has to do something."""

    feature: str | None
    act: bool
    sentence: str

    @property
    def label(self) -> str:
        """What the advice is about, in a word or two; empty where nothing is to be done."""
        return self.feature or (_PROGRAM if self.act else "")


def advice(profile: Profile, trace: str = "TRACE") -> dict[str, Advice]:
    """Return the advice by section, in the order of the sections. `trace` is what commands name."""
    return {name: rule(profile, trace) for name, rule in _RULES.items()}


_PROGRAM = "the program"


def _do(feature: str, sentence: str) -> Advice:
    return Advice(feature=feature, act=True, sentence=sentence)


def _given(feature: str, sentence: str) -> Advice:
    """A feature that serves the program as it is: nothing is to be set."""
    return Advice(feature=feature, act=False, sentence=sentence)


def _mend(sentence: str) -> Advice:
    """No feature helps: it is the program's to change."""
    return Advice(feature=None, act=True, sentence=sentence)


def _none(sentence: str) -> Advice:
    return Advice(feature=None, act=False, sentence=sentence)


# ------------------------------------------------------------------------- memory

# Below, the difference may be stacks, libraries' data and the recorder's own buffers.
_NOTICEABLE_EXCESS = 16 * _MIB
# Peak memory is the live heap and as much as half again before another allocator may change it much.
_EXCESSIVE_RATIO = 1.5
# The heap has shrunk when less than this part of the peak is live, ...
_SHRUNK = 0.5
# ... and has stayed so for four times heapfit's decay_ms: no allocator gives back at once.
_SETTLED_NS = 2 * _S
# Huge pages are used from 8 MiB on (huge_pages:auto); they save time where the TLB's 4 KiB entries,
# some 1,500 on today's processors, reach no further than a part of the heap.
_HUGE_PAGES_PAY = 64 * _MIB


def _memory(profile: Profile, trace: str) -> Advice:
    watched = [each for each in profile.recordings if _resident(each)]
    if not watched:
        return _none(
            "None can be given: how much memory was resident is not in this recording, and a "
            "program's heap alone does not tell it."
        )
    most = max(watched, key=lambda each: each.resident_most or 0)
    return _kept_after_peak(most) or _excess_at_peak(most, trace) or _huge_pages(most)


def _resident(recording: Recording) -> list[int]:
    """The anonymous resident memory in each step, as far as it was looked at; else all resident."""
    course = recording.course
    return [
        anonymous if anonymous is not None else resident
        for anonymous, resident in zip(course.resident_anonymous, course.resident, strict=True)
        if anonymous is not None or resident is not None
    ]  # type: ignore[misc]


def _kept_after_peak(recording: Recording) -> Advice | None:
    last_resident = _resident(recording)[-1]
    held = recording.end.bytes
    kept = last_resident - held
    if not _has_shrunk(recording) or kept < _NOTICEABLE_EXCESS or kept < last_resident / 2:
        return None
    fact = f"At the end {size(last_resident)} were resident for {size(held)} live"
    if "libheapfit" in recording.allocator:
        return _do(
            "decay_ms",
            f"{fact}, under heapfit: see by `heapfit ctl PID trim` whether that is free memory; then "
            "`decay_ms:100` gives it back sooner, else few live blocks hold many pages.",
        )
    return _do(
        "decay_ms",
        f"{fact}: heapfit gives back what has been free for `decay_ms` (500 by default) as the program "
        "makes further calls, so record it once under `heapfit run` and compare.",
    )


def _has_shrunk(recording: Recording) -> bool:
    """Whether the recording ends with a stretch in which much less is live than at the peak."""
    low = recording.peak.bytes * _SHRUNK
    steps = 0
    for live in reversed(recording.course.live_bytes):
        if live > low:
            break
        steps += 1
    return steps * recording.course.step_ns >= _SETTLED_NS


def _excess_at_peak(recording: Recording, trace: str) -> Advice | None:
    resident, live = max(_resident(recording)), recording.peak.bytes
    excess = resident - live
    if excess < _NOTICEABLE_EXCESS or resident < live * _EXCESSIVE_RATIO:
        return None
    return _do(
        "another allocator",
        f"At most {size(resident)} were resident, {size(excess)} beyond the most that was live: "
        f"`heapfit replay {trace}` tells how much of that each allocator would need, and what is left "
        "is the program's own.",
    )


def _huge_pages(recording: Recording) -> Advice:
    live = recording.peak.bytes
    if live >= _HUGE_PAGES_PAY:
        return _given(
            "huge_pages",
            f"Nothing to set: heapfit has a heap of {size(live)} on huge pages where it is dense, by "
            "`huge_pages:auto`, as long as the kernel's transparent_hugepage is madvise or always.",
        )
    return _none(
        f"None needed: resident memory exceeds the {size(live)} live by less than half, or by less than "
        f"{size(_NOTICEABLE_EXCESS)}, and so small a heap gains nothing by huge pages."
    )


# --------------------------------------------------------------------------- peak

# A peak is a surge when most of it is of the last tenth of the time before ...
_SURGE = 0.5
# ... and worth a switch when that is more than caches of free memory usually hold.
_WORTH_SHRINKING = 64 * _MIB
# One name for half of the peak is where to look before any allocator.
_DOMINANT = 0.5


def _peak(profile: Profile, trace: str) -> Advice:
    peak = profile.peak
    if not peak.amount.bytes:
        return _none("None: nothing was live.")
    return (
        _surge(profile)
        or _dominant_site(profile)
        or _large_blocks(profile)
        or _none(
            "None needed: the peak is made of many things, of which no allocator can drop one; what "
            "it adds to them stands under rounding."
        )
    )


def _surge(profile: Profile) -> Advice | None:
    peak = profile.peak
    youngest = peak.ages[0] if peak.ages else None
    left = sum(each.end.bytes for each in profile.recordings)
    if youngest is None or youngest.share < _SURGE or left > peak.amount.bytes * _SHRUNK:
        return None
    if youngest.amount.bytes < _WORTH_SHRINKING:
        return None
    return _do(
        "hf_footprint_shrink",
        f"{size(youngest.amount.bytes)} of the peak were allocated in the last tenth of the time "
        "before it and did not stay: call `hf_footprint_shrink()` before such a phase and "
        "`hf_footprint_restore()` after it, so that free memory kept for speed does not add to it.",
    )


def _dominant_site(profile: Profile) -> Advice | None:
    first = profile.peak.sites[0] if profile.peak.sites else None
    if first is None or first.share < _DOMINANT:
        return None
    return _none(
        f"None: {percent(first.share)} of the peak belong to {first.name}, and no allocator makes "
        "that smaller; look there first."
    )


def _large_blocks(profile: Profile) -> Advice | None:
    share = sum(part.share for part in profile.peak.sizes if part.size > LARGE_BYTES)
    if share < _DOMINANT:
        return None
    return _none(
        f"None: {percent(share)} of the peak are in blocks above {size(LARGE_BYTES)}, which every "
        "allocator serves by whole pages; only the program can hold less."
    )


# -------------------------------------------------------------------------- sizes

# Fewer cannot cost a part of a core that anybody sees, at a microsecond each.
_LARGE_PER_S = 10_000
# Four such blocks fill what a thread keeps of free spans by default (256 KiB).
_LARGE_TO_KEEP = 64 * _KIB
# More for each thread is a peak kept, and no cache.
_MOST_KEPT = 64 * _MIB
# What tuning.md suggests; smaller steps are not worth a test.
_LEAST_KEPT = 1 * _MIB


def _sizes(profile: Profile, trace: str) -> Advice:
    totals = profile.totals
    large, local = totals.large, totals.large_local
    often = _per_second(large.objects, profile)
    mean = large.bytes / large.objects if large.objects else 0
    wanted = _power_of_two(int(4 * mean), _LEAST_KEPT)
    if (
        often >= _LARGE_PER_S
        and mean >= _LARGE_TO_KEEP
        and local.objects >= large.objects / 2
        and wanted <= _MOST_KEPT
    ):
        return _do(
            "thread_span_threshold",
            f"{count(often)}/s allocations are above {size(LARGE_BYTES)}, {size(mean)} on average, and "
            f"most die on their thread: `thread_span_threshold:{_option(wanted)}` keeps them there "
            "without a lock, for up to that much memory in each thread.",
        )
    small = _share_up_to(profile, LARGE_BYTES)
    return _none(
        f"None needed: {percent(small)} of the allocations are of at most {size(LARGE_BYTES)}, for "
        "which heapfit has size classes and each thread a heap without locks."
    )


def _share_up_to(profile: Profile, limit: int) -> float:
    objects = profile.totals.allocations.objects
    return 1 - profile.totals.large.objects / objects if objects else 0.0


# ----------------------------------------------------------------------- rounding

# A saving that is worth changing an allocator for, as part of the peak, ...
_WORTH_CHANGING = 0.05
# ... and in bytes: below, libraries that come and go weigh more.
_WORTH_CHANGING_BYTES = 1 * _MIB
# Allocators within this part of the peak are as good: then heapfit is named.
_AS_GOOD = 0.01
# These have a header for each block, which the usable size does not tell.
_WITH_HEADERS = frozenset({"glibc", "dlmalloc", "ptmalloc3", "scudo", "tlsf"})


def _rounding(profile: Profile, trace: str) -> Advice:
    known = profile.waste.allocators
    recorded = next((each for each in known if each.recorded), None)
    better = [each for each in known if each.allocator not in _WITH_HEADERS]
    if recorded is None or not better or not profile.peak.amount.bytes:
        return _none("None: what the program's own allocator adds is not known here.")
    best = _preferred(better, profile.peak.amount.bytes)
    saved = recorded.peak_bytes - best.peak_bytes
    if saved < max(_WORTH_CHANGING * profile.peak.amount.bytes, _WORTH_CHANGING_BYTES):
        return _none(
            f"None needed: {recorded.title} adds {size(recorded.peak_bytes)} to the peak by rounding, "
            "and no allocator of known classes much less."
        )
    return _do(
        "another allocator",
        f"{best.title} would add {size(best.peak_bytes)} to the peak by rounding where "
        f"{recorded.title} adds {size(recorded.peak_bytes)}; `heapfit replay {trace}` tells what is "
        "left of that with fragmentation.",
    )


def _preferred(allocators: Sequence[Rounding], peak: int) -> Rounding:
    """The one that rounds least; heapfit where it is as good."""
    best = min(allocators, key=lambda each: each.peak_bytes)
    heapfit = next((each for each in allocators if each.allocator == "heapfit"), best)
    return heapfit if heapfit.peak_bytes - best.peak_bytes <= _AS_GOOD * peak else best


# --------------------------------------------------------------------------- rate

# What an allocation and its free take together in a slow allocator, without cache misses.
_PAIR_NS = 50
# Of a core's time: below the first nobody sees the difference, from the second on it is worth a test.
_NEGLIGIBLE, _WORTH_A_TEST = 0.01, 0.05


def _rate(profile: Profile, trace: str) -> Advice:
    per_second = profile.totals.per_second or 0.0
    part = per_second * _PAIR_NS / _S
    cost = f"{count(per_second)} allocations a second take, at {_PAIR_NS} ns for each with its free,"
    if part < _NEGLIGIBLE:
        return _none(
            f"None needed: {cost} less than 1 % of a core, so choose the allocator by its memory."
        )
    if part < _WORTH_A_TEST:
        return _none(f"None needed: {cost} {percent(part)} of a core, of which an allocator can save "
                     "a part.")
    return _do(
        "another allocator",
        f"{cost} {percent(part)} of a core: `heapfit replay {trace}` tells how much of that each "
        "allocator really takes.",
    )


# ---------------------------------------------------------------------- lifetimes

# Long-lived: further allocation than any thread's cache of free memory holds has gone by.
_LASTING_BYTES = 256 * YOUNG_BYTES
# What fits into a processor's caches does not get faster or smaller by standing elsewhere.
_WORTH_PLACING = 1 * _MIB
# Of the small objects, those in sizes that mix lifetimes: fewer do not keep many pages.
_MIXED = 0.1
_MOSTLY = 0.9


def _lifetimes(profile: Profile, trace: str) -> Advice:
    small = [row for row in profile.lifetimes.rows if row.size <= SMALL_BYTES]
    mixed = [row for row in small if _is_mixed(row)]
    part = sum(row.amount.objects for row in mixed)
    sizes = {row.size for row in mixed}
    held = sum(each.amount.bytes for each in profile.peak.sizes if each.size in sizes)
    if part > _MIXED * sum(row.amount.objects for row in small) and held >= _WORTH_PLACING:
        return _do(
            "pools",
            f"Of blocks of at most {size(max(sizes))}, half die within {size(YOUNG_BYTES)} of further "
            f"allocation and a tenth outlives {size(_LASTING_BYTES)}, keeping the pages of the others: "
            "`heapfit pools explain -- CMD` tells whether pools can part them.",
        )
    young = profile.lifetimes.young_share
    if young is not None and young >= _MOSTLY:
        return _none(
            f"None needed: {percent(young)} of the blocks die within {size(YOUNG_BYTES)} of further "
            "allocation, so that each is served from one just freed."
        )
    return _none(
        "None needed: no size of small blocks mixes many that die at once with many that last."
    )


def _is_mixed(row: LifetimeRow) -> bool:
    half, tenth = row.bytes.p50, row.bytes.p90
    return half is not None and half <= YOUNG_BYTES and (tenth is None or tenth > _LASTING_BYTES)


# ------------------------------------------------------------------------- bursts

# Transactions recur, and each frees enough that freeing all at once saves something.
_RECURRING = 3
_WORTH_A_CONTEXT = 100
# A context's objects may be freed elsewhere, but not after its end: many that are make it a risk.
_FEW_REMOTE = 0.1
# Nearly all that a burst asks for is live at once: then reuse within it saves nothing.
_HARDLY_REUSED = 0.9


def _bursts(profile: Profile, trace: str) -> Advice:
    found = [each for each in profile.transactions.threads if _fits_context(each)]
    if not found:
        return _none(_why_no_context(profile.transactions.threads))
    first = max(found, key=lambda each: each.bursts * each.allocations)
    if (profile.totals.per_second or 0.0) * _PAIR_NS / _S < _NEGLIGIBLE:
        return _none(
            f"None needed: {first.thread} works in bursts that a context could free at once, but all "
            "allocation takes less than 1 % of a core."
        )
    region = first.most_live_bytes >= _HARDLY_REUSED * first.bytes
    kind = "a region, since hardly anything is freed before" if region else "a defrag-dodging one"
    return _do(
        "contexts",
        f"Give {first.thread} a context ({kind}): of the {count(first.allocations)} allocations of a "
        f"burst all but {count(first.survivors)} are dead at its end, and one call can free them; what "
        "survives must be allocated outside.",
    )


def _fits_context(each: Bursts) -> bool:
    return (
        each.bursts >= _RECURRING
        and each.allocations >= _WORTH_A_CONTEXT
        and (each.share or 0.0) >= _DOMINANT
        and (each.remote_share or 0.0) <= _FEW_REMOTE
    )


def _why_no_context(threads: Sequence[Bursts]) -> str:
    if not threads:
        return "None: no thread allocates in periods at whose end nearly all is dead."
    most = max(threads, key=lambda each: each.bursts * each.allocations)
    if most.bursts < _RECURRING:
        why = f"they are {counted(most.bursts, 'burst')}, and a context pays by being used again"
    elif most.allocations < _WORTH_A_CONTEXT:
        why = f"with {count(most.allocations)} allocations each there is little to free at once"
    elif (most.share or 0.0) < _DOMINANT:
        why = f"only {percent(most.share or 0.0)} of its allocations are within them"
    else:
        why = f"{percent(most.remote_share or 0.0)} of their blocks are freed by other threads"
    return f"None: {most.thread} has bursts, but {why}."


# ------------------------------------------------------------------------ threads

# Below, who frees what does not matter.
_REMOTE_NOTICED = 0.05
# From here on frees by another thread are what the program does.
_REMOTE_MUCH = 0.2
# A thread collects 64 KiB or 256 blocks of others' before it hands them over. Hand-overs of fewer
# blocks than the first, more often than the second, are worth to be made larger.
_BATCH_BYTES, _BATCH_BLOCKS = 64 * _KIB, 256
_SMALL_BATCH = 16
_HAND_OVERS_PER_S = 1_000
# So many threads with so few allocations: a heap for each costs more than locks.
_MANY_THREADS = 256
_FEW_ALLOCATIONS = 1_000
# Two such blocks share a line of a processor's cache.
_PART_OF_A_LINE = 32


def _threads(profile: Profile, trace: str) -> Advice:
    return (
        _many_threads(profile)
        or _one_for_several(profile)
        or _remote_batches(profile)
        or _none("None needed: nearly every block is freed by the thread that allocated it.")
    )


def _many_threads(profile: Profile) -> Advice | None:
    for each in profile.recordings:
        few = each.allocations.objects <= _FEW_ALLOCATIONS * each.threads
        if each.threads >= _MANY_THREADS and few:
            return _do(
                "lockless_threads",
                f"{counted(each.threads, 'thread')} make {count(each.allocations.objects / each.threads)} "
                "allocations each: if they live at the same time, `lockless_threads:64` spares most of "
                "them a heap of their own.",
            )
    return None


def _one_for_several(profile: Profile) -> Advice | None:
    sharing = profile.sharing
    if (sharing.remote_share or 0.0) < _REMOTE_MUCH or _remote_size(profile) > _PART_OF_A_LINE:
        return None
    least = sharing.freed.objects / 10
    for born in range(len(sharing.threads)):
        others = [
            each
            for each in sharing.flow
            if each.born == born and each.died != born and each.amount.objects >= least
        ]
        if len(others) >= 2:
            return _do(
                "cache_line_align",
                f"{sharing.threads[born]} allocates small blocks that {len(others)} other threads free: "
                "if `perf c2c` shows that they contend for cache lines, `cache_line_align:1` parts them, "
                "at 64 bytes for each block.",
            )
    return None


def _remote_batches(profile: Profile) -> Advice | None:
    sharing = profile.sharing
    if (sharing.remote_share or 0.0) < _REMOTE_NOTICED:
        return None
    blocks = min(_BATCH_BLOCKS, _BATCH_BYTES / max(_remote_size(profile), 1.0))
    hand_overs = _per_second(sharing.remote.objects, profile) / max(blocks, 1.0)
    if blocks <= _SMALL_BATCH and hand_overs >= _HAND_OVERS_PER_S:
        return _do(
            "remote_free_bytes",
            f"Blocks that other threads free are {size(_remote_size(profile))} on average, so that a "
            f"batch holds {count(max(blocks, 1.0))}: `remote_free_bytes:1m` makes batches larger, for "
            "that much memory under way in each thread.",
        )
    return _given(
        "remote-free queues",
        f"Nothing to set: heapfit hands blocks of other threads over in batches, here of about "
        f"{count(blocks)} blocks and {count(hand_overs)} times a second.",
    )


def _remote_size(profile: Profile) -> float:
    remote = profile.sharing.remote
    return remote.bytes / remote.objects if remote.objects else 0.0


# ------------------------------------------------------------------------ realloc

# Copying or clearing so much takes about 1 % of a core, at 10 GB/s.
_NOTICED_BYTES_PER_S = 100e6
# Steps by less than a tenth reallocate again and again; by powers of such a ratio they pay anew.
_SMALL_STEP = 1.1


def _realloc(profile: Profile, trace: str) -> Advice:
    calls = profile.reallocs
    if not calls.calls.objects:
        return _none("None: the program reallocates nothing.")
    copied = _per_second(calls.copied_bytes, profile)
    if copied < _NOTICED_BYTES_PER_S:
        return _none(
            f"None needed: moving blocks copies {size(copied)}/s, less than 1 % of a core's time."
        )
    if calls.copied_huge_bytes >= calls.copied_bytes / 2:
        return _do(
            "realloc by mremap",
            f"{percent(calls.copied_huge_bytes, calls.copied_bytes)} of the {size(copied)}/s that moving "
            "blocks copies are in blocks from 4 MiB on, which heapfit (on x86-64) moves by page tables "
            "without a copy: run the program under it.",
        )
    small = sum(each.calls for each in calls.growth if (each.ratio or 9.0) <= _SMALL_STEP)
    if small >= calls.known / 2:
        return _mend(
            f"{size(copied)}/s are copied, mostly for blocks that grow by less than a tenth at a time: "
            "have the program grow them by a factor."
        )
    return _do(
        "another allocator",
        f"Moving blocks copies {size(copied)}/s, and {percent(calls.in_place_share or 0.0)} of the "
        f"reallocations stay in place: `heapfit replay {trace}` tells what that costs under others.",
    )


# ------------------------------------------------------------------------- calloc

# A tenth of all bytes is what a reader would ask about.
_NOTICED_SHARE = 0.1
# A reserve for a tenth of a second's need: a burst, and not a second heap.
_RESERVE_S = 0.1
_LEAST_RESERVE, _MOST_RESERVE = 16 * _MIB, 1 << 30


def _calloc(profile: Profile, trace: str) -> Advice:
    pages = profile.totals.calloc_pages
    cleared = _per_second(pages.bytes, profile)
    if cleared >= _NOTICED_BYTES_PER_S:
        reserve = min(_power_of_two(int(cleared * _RESERVE_S), _LEAST_RESERVE), _MOST_RESERVE)
        return _do(
            "zeroed_reserve",
            f"`calloc` of 4 KiB and more asks for {size(cleared)}/s: if a core is idle, "
            f"`zeroed_reserve:{_option(reserve)}` has another thread clear them, for up to that much "
            "memory.",
        )
    if pages.bytes >= _NOTICED_SHARE * profile.totals.allocations.bytes > 0:
        return _given(
            "known zero pages",
            f"Nothing to set: {percent(pages.bytes, profile.totals.allocations.bytes)} of the bytes are "
            "callocs of 4 KiB and more, and heapfit does not clear again what comes zero from the "
            "kernel.",
        )
    return _none(f"None needed: `calloc` of whole pages asks for {size(cleared)}/s.")


# -------------------------------------------------------------------------- sites

# The judge of pools leaves groups whose neighbours are two thirds their own, ...
_INTERLEAVED = 1 / 3
# ... those with fewer objects (pool_min_objects), and those of which most are free again.
_POOL_OBJECTS = 100
_STAYS = 0.5


def _sites(profile: Profile, trace: str) -> Advice:
    sites = profile.sites
    if not sites.recorded:
        return _none(
            "None can be given: record with `heapfit record --sites 8` to learn who allocates, and "
            "whether pools would help."
        )
    fitting = {tuple(each.chain): each for each in [*sites.by_interleaving, *sites.by_bytes]
               if _fits_pool(each)}
    held = sum(each.peak.bytes for each in fitting.values())
    if held < _WORTH_PLACING:
        return _none(
            "None needed: no call makes many small blocks that last and stand among others' blocks."
        )
    first = max(fitting.values(), key=lambda each: each.peak.bytes)
    return _do(
        "pools",
        f"{_calls(len(fitting), first)} {size(held)} of small blocks that last, with others' blocks "
        "between them: `heapfit pools explain -- CMD` tells which of them pools would put together.",
    )


def _fits_pool(site: Site) -> bool:
    return (
        site.small_share >= _MOSTLY
        and (site.interleaving or 0.0) >= _INTERLEAVED
        and site.peak.objects >= _POOL_OBJECTS
        and site.peak.objects >= _STAYS * site.amount.objects
    )


def _calls(number: int, first: Site) -> str:
    name = first.chain[0]
    return f"{name} holds" if number == 1 else f"{number} calls, first {name}, hold"


# ---------------------------------------------------------------------------- end

# A leak grows all the time; what is set up once is born early, what is in use was born just now.
_GROWS = 0.4
_LEAK_SHARE = 0.1
_LEAK_OBJECTS = 100
_LEAK_BYTES = 64 * _KIB


def _end(profile: Profile, trace: str) -> Advice:
    leaks = profile.leaks
    growing = [
        each
        for each in leaks.sites
        if each.share >= _LEAK_SHARE
        and each.late_share >= _GROWS
        and each.amount.objects >= _LEAK_OBJECTS
        and each.amount.bytes >= _LEAK_BYTES
    ]
    if growing:
        first = max(growing, key=lambda each: each.amount.bytes)
        return _mend(
            f"{first.name} still holds {size(first.amount.bytes)} at the end, and "
            f"{percent(first.late_share)} of it came in the second half: if that is a leak, no allocator "
            "mends it."
        )
    if not leaks.sites and _grows(profile):
        return _mend(
            "What lives at the end has come in evenly all along, as a leak does, which no allocator "
            "mends: `heapfit record --sites 8` tells from where."
        )
    return _none("None needed: nothing that lives at the end has kept growing.")


def _grows(profile: Profile) -> bool:
    """Whether as much of it was born late as early; the last tenth may just be in use."""
    born = [each.bytes for each in profile.leaks.born][:-1]
    total = sum(born)
    late = sum(born[len(profile.leaks.born) // 2 :])
    return total >= _LEAK_BYTES and late >= _GROWS * total


# ------------------------------------------------------------------------ numbers


def _per_second(number: float, profile: Profile) -> float:
    seconds = profile.totals.duration_ns / _S
    return number / seconds if seconds else 0.0


def _power_of_two(number: int, least: int) -> int:
    """The least power of two from `least` on that is no smaller than `number`."""
    while least < number:
        least *= 2
    return least


def _option(number: int) -> str:
    """A size as options of the library are written.

    >>> _option(64 << 20)
    '64m'
    """
    for suffix, unit in (("g", 1 << 30), ("m", 1 << 20), ("k", 1 << 10)):
        if number % unit == 0:
            return f"{number // unit}{suffix}"
    return str(number)


_RULES: dict[str, Callable[[Profile, str], Advice]] = {
    "memory": _memory,
    "peak": _peak,
    "sizes": _sizes,
    "rounding": _rounding,
    "rate": _rate,
    "lifetimes": _lifetimes,
    "bursts": _bursts,
    "threads": _threads,
    "realloc": _realloc,
    "calloc": _calloc,
    "sites": _sites,
    "end": _end,
}
