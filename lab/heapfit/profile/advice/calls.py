"""What calls cost: sizes, rate, realloc, calloc."""

from heapfit.profile.advice import (
    MIB,
    NEGLIGIBLE,
    PAIR_NS,
    WORTH_A_TEST,
    Advice,
    S,
    began_late,
    do,
    each_second,
    fit_line,
    given,
    longest_ns,
    mend,
    none,
    of_its_time,
    per_second,
    power_of_two,
    replayed,
    under_heapfit,
)
from heapfit.profile.model import LARGE_BYTES, PAGE_BYTES, Profile
from heapfit.profile.words import count, percent, size
from heapfit.text import capitalised, suffixed

# ---------------------------------------------------------------------- sizes

# Fewer for each second of processor time cost nothing that anybody sees, at a microsecond each
# where threads wait for each other. A program of one thread waits for nobody.
_LARGE_PER_S = 10_000
# Four such blocks fill what a thread keeps of free spans at most by default (4 MiB).
_LARGE_TO_KEEP = 1 * MIB
# More for each thread is a peak kept, and no cache.
_MOST_KEPT = 64 * MIB
# What tuning.md suggests; smaller steps are not worth a test.
_LEAST_KEPT = 16 * MIB


def sizes(profile: Profile, trace: str) -> Advice:
    totals = profile.totals
    large, local = totals.large, totals.large_local
    often = per_second(large.objects, profile)
    mean = large.bytes / large.objects if large.objects else 0
    wanted = power_of_two(int(4 * mean), _LEAST_KEPT)
    if (
        _has_threads(profile)
        and often >= _LARGE_PER_S
        and mean >= _LARGE_TO_KEEP
        and local.objects >= large.objects / 2
        and wanted <= _MOST_KEPT
    ):
        return do(
            "thread_span_threshold",
            f"{count(often)} allocations {each_second(profile)} are above {size(LARGE_BYTES)}, "
            f"{size(mean)} on average, and most are freed by the thread that allocated them: "
            f"heapfit's `thread_span_threshold:{suffixed(wanted)}` keeps them there without a "
            "lock, at a cost of up to that much memory per thread.",
        )
    every = totals.allocations.objects
    small = 1 - large.objects / every if every else 0.0
    return none(
        f"Nothing to do: {percent(small)} of the allocations are at most {size(LARGE_BYTES)}, "
        "which heapfit serves from size classes in per-thread heaps without locks."
    )


def _has_threads(profile: Profile) -> bool:
    return any(each.threads > 1 for each in profile.recordings)


# ----------------------------------------------------------------------- rate


# The kernel's work for a page that is touched for the first time, with clearing it.
_FAULT_NS = 500


def _faults(profile: Profile) -> float:
    """The part of the program's time that page faults of large blocks may take: of as much as there
    ever was at once, each page is touched for the first time anyway."""
    again = max(profile.totals.large.bytes - profile.peak.amount.bytes, 0)
    page = max(each.page_size for each in profile.recordings) or PAGE_BYTES
    return per_second(again / page, profile) * _FAULT_NS / S


def _compared(profile: Profile, trace: str) -> str:
    """What compares allocators. A process that was attached to may be a service, which does not end
    by itself."""
    if began_late(profile):
        return f"`{fit_line(profile, trace)}`, or `heapfit compare` with a workload that ends"
    return "`heapfit compare -- CMD`"


def rate(profile: Profile, trace: str) -> Advice:
    faults = _faults(profile)
    if faults >= WORTH_A_TEST:
        asked = size(per_second(profile.totals.large.bytes, profile))
        return do(
            "another allocator",
            f"The program allocates {asked} {each_second(profile)} in blocks above "
            f"{size(LARGE_BYTES)}. If it fills them and the allocator returns them to the kernel "
            f"at once, page faults take up to {percent(min(faults, 1.0))} {of_its_time(profile)}. "
            "heapfit and tcmalloc keep them for a while, at the cost of that memory: compare page "
            f"faults with {_compared(profile, trace)}.",
        )
    often = per_second(profile.totals.allocations.objects, profile)
    part = min(often * PAIR_NS / S, 1.0)
    share = "less than 1 %" if part < NEGLIGIBLE else percent(part)
    cost = (
        f"allocation probably costs {share} {of_its_time(profile)} (about {count(often)} calls "
        f"{each_second(profile)}, at an assumed {PAIR_NS} ns for each and its free)"
    )
    if part < NEGLIGIBLE:
        return none(f"Nothing to do: {cost}, so choose the allocator by its memory.")
    if part < WORTH_A_TEST:
        return none(f"Nothing to do: {cost}, of which an allocator can save a part.")
    return do(
        "another allocator",
        f"{capitalised(cost)}: {replayed(profile.recordings, trace)} shows how much of that each "
        "allocator really takes.",
    )


# -------------------------------------------------------------------- realloc

# Copying or clearing so much for each second of processor time takes about 1 % of it, at 10 GB/s.
_NOTICED_BYTES_PER_S = 100e6
# Steps by less than a tenth reallocate again and again; by powers of such a ratio they pay anew.
_SMALL_STEP = 1.1


def realloc(profile: Profile, trace: str) -> Advice:
    calls = profile.reallocs
    if not calls.calls.objects:
        return none("Nothing to do: the program reallocates nothing.")
    copied = per_second(calls.copied_bytes, profile)
    if copied < _NOTICED_BYTES_PER_S:
        return none(
            f"Nothing to do: moving blocks copies {size(copied)} {each_second(profile)}, which is "
            f"less than 1 % {of_its_time(profile)}."
        )
    if calls.copied_huge_bytes >= calls.copied_bytes / 2 and _moves_by_tables(profile):
        return _by_tables(profile, copied)
    small = sum(each.calls for each in calls.growth if (each.ratio or 9.0) <= _SMALL_STEP)
    if small >= calls.known / 2:
        return mend(
            f"{size(copied)} {each_second(profile)} are copied, mostly for blocks that grow by "
            "less than a tenth at a time: have the program grow them by a factor."
        )
    return do(
        "another allocator",
        f"Moving blocks copies {size(copied)} {each_second(profile)}; "
        f"{percent(calls.in_place_share or 0.0)} of the reallocations stay in place. "
        f"{capitalised(replayed(profile.recordings, trace))} shows what moving costs under other "
        "allocators.",
    )


def _moves_by_tables(profile: Profile) -> bool:
    """Whether heapfit moves very large blocks without a copy there: mremap does so on x86-64."""
    return all(each.arch == "x86_64" for each in profile.recordings)


def _by_tables(profile: Profile, copied: float) -> Advice:
    huge = percent(profile.reallocs.copied_huge_bytes, profile.reallocs.copied_bytes)
    feature = "realloc by mremap"
    what = (
        f"moving blocks copies {size(copied)} {each_second(profile)}, {huge} of it in blocks of "
        "4 MiB or more"
    )
    if all(map(under_heapfit, profile.recordings)):
        return given(
            feature,
            f"Nothing to set: {what}, which heapfit has moved with mremap, without copying.",
        )
    how = "which heapfit moves with mremap, without copying: run it under heapfit"
    return do(feature, f"{capitalised(what)}, {how}.")


# --------------------------------------------------------------------- calloc

# A tenth of all bytes is what a reader would ask about.
_NOTICED_SHARE = 0.1
# Clearing takes a tenth of the program's time, in a program that lasts: what the reserve holds
# comes on top of what the program needs, and one that soon ends never uses it.
_CLEARED_BYTES_PER_S, _LASTS_NS = 1e9, 10 * S
# A reserve for a tenth of a second's need: a burst, and not a second heap.
_RESERVE_S = 0.1
_LEAST_RESERVE, _MOST_RESERVE = 16 * MIB, 1 << 30


def calloc(profile: Profile, trace: str) -> Advice:
    pages = profile.totals.calloc_pages
    asked = per_second(pages.bytes, profile)
    # As much as there ever was at once comes from the kernel, which has cleared it.
    cleared = per_second(max(pages.bytes - profile.peak.amount.bytes, 0), profile)
    if cleared >= _CLEARED_BYTES_PER_S and longest_ns(profile) >= _LASTS_NS:
        reserve = min(power_of_two(int(cleared * _RESERVE_S), _LEAST_RESERVE), _MOST_RESERVE)
        return do(
            "zeroed_reserve",
            f"`calloc`s of 4 KiB or more request {size(asked)} {each_second(profile)}: if a core "
            f"is idle, heapfit's `zeroed_reserve:{suffixed(reserve)}` has another thread clear the "
            "memory, at a cost of up to that much memory.",
        )
    if pages.bytes >= _NOTICED_SHARE * profile.totals.allocations.bytes > 0:
        return given(
            "known zero pages",
            f"Nothing to set: {percent(pages.bytes, profile.totals.allocations.bytes)} of the "
            "bytes are callocs of 4 KiB or more, and heapfit does not clear memory that the kernel "
            "has already zeroed.",
        )
    if not pages.objects:
        return none("Nothing to do: no `calloc` requests a whole page.")
    return none(
        f"Nothing to do: `calloc` of whole pages requests {size(asked)} {each_second(profile)}."
    )
