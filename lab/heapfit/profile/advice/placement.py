"""Where blocks stand and who frees them: lifetimes, bursts, threads, sites."""

from collections.abc import Sequence

from heapfit.profile.advice import (
    DOMINANT,
    KIB,
    MOSTLY,
    NEGLIGIBLE,
    PAIR_NS,
    WORTH_PLACING,
    Advice,
    S,
    do,
    each_second,
    given,
    none,
    of_its_time,
    per_second,
    pinned_at_the_end,
    replayed,
    under_heapfit,
)
from heapfit.profile.advice.memory import kept_after_peak
from heapfit.profile.model import SMALL_BYTES, YOUNG_BYTES, Bursts, LifetimeRow, Profile, Site
from heapfit.profile.words import count, percent, size
from heapfit.text import counted

# ------------------------------------------------------------------ lifetimes

# Long-lived: further allocation than any thread's cache of free memory holds has gone by.
_LASTING_BYTES = 256 * YOUNG_BYTES
# Of the small objects, those in sizes that mix lifetimes: fewer do not keep many pages.
_MIXED = 0.1


def lifetimes(profile: Profile, trace: str) -> Advice:
    small = [row for row in profile.lifetimes.rows if row.size <= SMALL_BYTES]
    mixed = [row for row in small if _is_mixed(row)]
    part = sum(row.amount.objects for row in mixed)
    sizes = {row.size for row in mixed}
    held = sum(each.amount.bytes for each in profile.peak.sizes if each.size in sizes)
    if part > _MIXED * sum(row.amount.objects for row in small) and _is_most(held, profile):
        return do(
            "pools",
            f"Of blocks of at most {size(max(sizes))}, half die within {size(YOUNG_BYTES)} of "
            f"further allocation, and a tenth outlive {size(_LASTING_BYTES)} and pin the others' "
            "pages: `heapfit pools explain -- CMD` shows whether pools can separate them.",
        )
    young = profile.lifetimes.young_share
    if young is not None and young >= MOSTLY:
        return none(
            f"Nothing to do: {percent(young)} of the blocks die within {size(YOUNG_BYTES)} of "
            "further allocation, so new ones are served from those just freed."
        )
    return none(
        "Nothing to do: small blocks of sizes that mix short and long lifetimes are not most of "
        "live memory."
    )


# What pools would place is most of what is live, or they cost more than they bring: in the programs
# that they make faster it is half to nine tenths, in large programs of many kinds of object a few
# per cent, and clang and Inkscape took 4 to 8 % more memory with them.
def _is_most(held: int, profile: Profile) -> bool:
    return held >= max(WORTH_PLACING, DOMINANT * profile.peak.amount.bytes)


def _is_mixed(row: LifetimeRow) -> bool:
    half, tenth = row.bytes.p50, row.bytes.p90
    return half is not None and half <= YOUNG_BYTES and (tenth is None or tenth > _LASTING_BYTES)


# ---------------------------------------------------------------------- pinned

# Of the peak: what is held beside more live memory than this does not change what a machine needs.
_HELD = 0.1


def pinned(profile: Profile, trace: str) -> Advice:
    found = profile.pinned
    least = max(WORTH_PLACING, _HELD * profile.peak.amount.bytes)
    if not found.known:
        return none("No advice: the recording does not show it.")
    if found.bytes < least or pinned_at_the_end(profile):
        return none("Nothing to do: live blocks pin little free memory.")
    first = found.sites[0]
    if not profile.sites.recorded or first.bytes < least:
        return none("Nothing to do: no single call site's blocks pin much of it.")
    held = (
        f"{size(first.amount.bytes)} of blocks from {first.name} pin {size(first.bytes)} of free "
        "memory"
    )
    apart = "allocate them apart from what is freed around them, in a pool or a context"
    if all(map(under_heapfit, profile.recordings)):
        return do("pools", f"{held}, which no option returns: {apart}.")
    elsewhere = "an allocator that places blocks differently"
    if kept_after_peak(profile) is not None:  # A replay does not tell what is kept at rest.
        return do("another allocator", f"{held}: {elsewhere} may need less. If none does, {apart}.")
    return do(
        "another allocator",
        f"{held}: {replayed(profile.recordings, trace)} shows whether {elsewhere} needs less. If "
        f"none does, {apart}.",
    )


# --------------------------------------------------------------------- bursts

# Transactions recur as requests do, and not as the phases of a program, and each frees enough that
# freeing all at once saves something.
_RECURRING = 20
_WORTH_A_CONTEXT = 100
# A context's objects may be freed elsewhere, but not after its end: many that are make it a risk.
_FEW_REMOTE = 0.1
# Nearly all that a burst asks for is live at once: then reuse within it saves nothing.
_HARDLY_REUSED = 0.9


def bursts(profile: Profile, trace: str) -> Advice:
    found = [each for each in profile.transactions.threads if _fits_context(each)]
    if not found:
        return none(_why_no_context(profile.transactions.threads))
    first = max(found, key=lambda each: each.bursts * each.allocations)
    if per_second(profile.totals.allocations.objects, profile) * PAIR_NS / S < NEGLIGIBLE:
        return none(
            f"Nothing to do: {first.thread} works in bursts that a context could free at once, but "
            f"all allocation takes less than 1 % {of_its_time(profile)}."
        )
    region = first.most_live_bytes >= _HARDLY_REUSED * first.bytes
    kind = "a defrag-dodging one"
    if region:
        kind = "a region, since hardly anything is freed before the end"
    return do(
        "contexts",
        f"Give {first.thread} a context ({kind}): all but {count(first.survivors)} of a burst's "
        f"{count(first.allocations)} allocations are dead at its end, and one call can free them; "
        "allocate the survivors outside it.",
    )


def _fits_context(each: Bursts) -> bool:
    return (
        each.bursts >= _RECURRING
        and each.allocations >= _WORTH_A_CONTEXT
        and (each.share or 0.0) >= DOMINANT
        and (each.remote_share or 0.0) <= _FEW_REMOTE
    )


def _why_no_context(threads: Sequence[Bursts]) -> str:
    if not threads:
        return "Nothing to do: no thread works in bursts."
    most = max(threads, key=lambda each: each.bursts * each.allocations)
    if most.bursts < _RECURRING:
        why = f"only {most.bursts:,}: a context pays off over many requests"
    elif most.allocations < _WORTH_A_CONTEXT:
        why = f"with {count(most.allocations)} allocations each there is little to free at once"
    elif (most.share or 0.0) < DOMINANT:
        why = f"only {percent(most.share or 0.0)} of its allocations are within them"
    else:
        why = f"{percent(most.remote_share or 0.0)} of their blocks are freed by other threads"
    return f"Nothing to do: {most.thread} has bursts, but {why}."


# -------------------------------------------------------------------- threads

# Below, who frees what does not matter.
_REMOTE_NOTICED = 0.05
# From here on frees by another thread are what the program does.
_REMOTE_MUCH = 0.2
# A thread collects 64 KiB or 256 blocks of others' before it hands them over. Hand-overs of fewer
# blocks than the first, more often than the second, are worth to be made larger.
_BATCH_BYTES, _BATCH_BLOCKS = 64 * KIB, 256
_SMALL_BATCH = 16
_HAND_OVERS_PER_S = 1_000
# So many threads with so few allocations: a heap for each costs more than locks.
_MANY_THREADS = 256
_FEW_ALLOCATIONS = 1_000
# Two such blocks share a line of a processor's cache.
_PART_OF_A_LINE = 32


def threads(profile: Profile, trace: str) -> Advice:
    return (
        _many_threads(profile)
        or _one_for_several(profile)
        or _remote_batches(profile)
        or none("Nothing to do: nearly every block is freed by the thread that allocated it.")
    )


def _many_threads(profile: Profile) -> Advice | None:
    for each in profile.recordings:
        few = each.allocations.objects <= _FEW_ALLOCATIONS * each.threads
        if each.threads >= _MANY_THREADS and few:
            return do(
                "lockless_threads",
                f"{counted(each.threads, 'thread')} make "
                f"{count(each.allocations.objects / each.threads)} allocations each: if they "
                "live at the same time, heapfit's `lockless_threads:64` avoids a separate heap for "
                "most of them.",
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
            return do(
                "cache_line_align",
                f"{sharing.threads[born]} allocates small blocks that {len(others)} other "
                "threads free: if `perf c2c` shows that they contend for cache lines, "
                "heapfit's `cache_line_align:1` separates them, at 64 bytes per block.",
            )
    return None


def _remote_batches(profile: Profile) -> Advice | None:
    sharing = profile.sharing
    if (sharing.remote_share or 0.0) < _REMOTE_NOTICED:
        return None
    blocks = min(_BATCH_BLOCKS, _BATCH_BYTES / max(_remote_size(profile), 1.0))
    hand_overs = per_second(sharing.remote.objects, profile) / max(blocks, 1.0)
    if blocks <= _SMALL_BATCH and hand_overs >= _HAND_OVERS_PER_S:
        return do(
            "remote_free_bytes",
            f"Blocks that other threads free are {size(_remote_size(profile))} on average, so "
            f"that a batch holds {count(max(blocks, 1.0))}: heapfit's `remote_free_bytes:1m` "
            "makes batches larger, at a cost of up to that much memory in transit per thread.",
        )
    return given(
        "remote-free queues",
        f"Nothing to set: heapfit hands blocks of other threads over in batches, here of about "
        f"{count(blocks)} blocks and {count(hand_overs)} times {each_second(profile)}.",
    )


def _remote_size(profile: Profile) -> float:
    remote = profile.sharing.remote
    return remote.bytes / remote.objects if remote.objects else 0.0


# ---------------------------------------------------------------------- sites

# The judge of pools leaves groups whose neighbours are two thirds their own, ...
_INTERLEAVED = 1 / 3
# ... those with fewer objects (pool_min_objects), and those of which most are free again.
_POOL_OBJECTS = 100
_STAYS = 0.5
# Wrappers of malloc come first in a chain; the third call is seldom one.
_NAMED_CALLS = 3


def sites(profile: Profile, trace: str) -> Advice:
    sites = profile.sites
    if not sites.recorded:
        return none(
            "No advice can be given: record without `--sites 0` to learn what allocates, and "
            "whether pools would help."
        )
    fitting = {
        tuple(each.chain): each
        for each in [*sites.by_interleaving, *sites.by_bytes]
        if _fits_pool(each)
    }
    held = sum(each.peak.bytes for each in fitting.values())
    if not _is_most(held, profile):
        little = f" ({size(held)} at the peak)" if held else ""
        return none(
            "Nothing to do: long-lived small blocks interleaved with other sites' are not most of "
            f"live memory{little}."
        )
    first = max(fitting.values(), key=lambda each: each.peak.bytes)
    return do(
        "pools",
        f"{_calls(len(fitting), first)} {size(held)} of long-lived small blocks, interleaved with "
        "others' blocks: `heapfit pools explain -- CMD` shows which of them pools would place "
        "together.",
    )


def _fits_pool(site: Site) -> bool:
    return (
        site.small_share >= MOSTLY
        and (site.interleaving or 0.0) >= _INTERLEAVED
        and site.peak.objects >= _POOL_OBJECTS
        and site.peak.objects >= _STAYS * site.amount.objects
    )


def _calls(number: int, first: Site) -> str:
    name = " < ".join(first.chain[:_NAMED_CALLS])
    return f"{name} holds" if number == 1 else f"{number} call sites, {name} first, hold"
