"""How much memory there is, and what it is: memory, peak, rounding, end."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

from heapfit.host.interpreters import hiding
from heapfit.profile.advice import (
    DOMINANT,
    KIB,
    MIB,
    Advice,
    S,
    began_late,
    do,
    ended_early,
    given,
    hidden_by,
    largest,
    longest_ns,
    mend,
    none,
    pinned_at_the_end,
    replayed,
    sampled,
    under_heapfit,
)
from heapfit.profile.model import (
    HELD_AFTER,
    LARGE_BYTES,
    UNKNOWN,
    Course,
    Holder,
    Profile,
    Recording,
    Rounding,
)
from heapfit.profile.words import percent, size
from heapfit.text import DASH, capitalised, join_words

# --------------------------------------------------------------------- memory

# Below, the difference may be stacks, libraries' data and the recorder's own buffers.
_NOTICEABLE_EXCESS = 16 * MIB
# Up to half as much again as is live is what rounding and caches of good allocators take.
_EXCESSIVE_RATIO = 1.5
# More than so many times what was live at most is mostly not malloc's, and if it is, no call site
# has it.
_MALLOCS_AT_MOST = 3
# The heap has shrunk when less than this part of the peak is live, ...
_SHRUNK = 0.5
# ... and has stayed so for four times heapfit's decay_ms: no allocator gives back at once.
_SETTLED_NS = 2 * S
# So many calls in that time are enough for heapfit to give back most of what is free.
_FEW_CALLS = 4
BACKGROUND = "background:on"
# Huge pages are used from 8 MiB on (huge_pages:auto); they save time where the TLB's 4 KiB entries,
# some 1,500 on today's processors, reach no further than a part of the heap.
_HUGE_PAGES_PAY = 64 * MIB


def memory(profile: Profile, trace: str) -> Advice:
    most = _most_resident(profile)
    if most is None and began_late(profile):
        return none(
            "No advice: the recording began after the process and lacks earlier allocations."
        )
    if most is None:
        return none("No advice: resident memory was not recorded.")
    return kept_after_peak(profile) or _excess_at_peak(most, trace) or _huge_pages(most)


def _most_resident(profile: Profile) -> Recording | None:
    """The recording with most memory resident, of those that tell all that was."""
    watched = [each for each in profile.recordings if _resident(each) and not each.began_late]
    return max(watched, key=lambda each: each.resident_most or 0, default=None)


def _resident(recording: Recording, first: int = 0) -> list[int]:
    """The anonymous resident memory in each step from `first` on, as far as it was looked at; else
    all resident."""
    course = recording.course
    both = zip(course.resident_anonymous, course.resident, strict=True)
    seen = [resident if anonymous is None else anonymous for anonymous, resident in both]
    return [each for each in seen[first:] if each is not None]


def kept_after_peak(profile: Profile) -> Advice | None:
    """What to do about memory that is resident long after it was needed; None: there is none."""
    recording = _most_resident(profile)
    if recording is None:
        return None
    last_resident = _resident(recording)[-1]
    held = recording.end.bytes
    kept = min(last_resident, int(recording.peak.bytes * _EXCESSIVE_RATIO)) - held
    if not _has_shrunk(recording) or kept < _NOTICEABLE_EXCESS or kept < last_resident / 2:
        return None
    fact = f"At the end {size(last_resident)} was resident for {size(held)} live"
    if under_heapfit(recording):
        return do(
            "decay_ms",
            f"{fact}, under heapfit: `heapfit ctl PID trim` shows whether that is free. If so, "
            "`decay_ms:100` returns it sooner; if not, a few live blocks pin many pages.",
        )
    if _rests(recording):
        return do(
            BACKGROUND,
            f"{fact}, and the program hardly calls malloc any more. heapfit then returns memory in "
            "a background thread, which a single-threaded program has only with background:on. Run "
            "it with `heapfit run --control --set background=on -- CMD` and look with "
            "`heapfit why PID`.",
        )
    return do(
        "heapfit",
        f"{fact}. heapfit returns memory that has been free for `decay_ms` (default 500) as the "
        "program makes further calls. Record it under heapfit "
        "(`heapfit record --allocator heapfit -- CMD`) and compare resident memory "
        "(`heapfit diff OLD NEW`).",
    )


def _rests(recording: Recording) -> bool:
    """Whether a program of one thread ends with too few calls to give memory back by."""
    course = recording.course
    steps = int(_SETTLED_NS) // course.step_ns
    calls = sum(course.allocations[-steps:]) + sum(course.frees[-steps:])
    return recording.threads == 1 and len(course.live_bytes) > steps > 0 and calls < _FEW_CALLS


def _has_shrunk(recording: Recording) -> bool:
    """Whether the recording ends with a stretch in which much less is live than at the peak."""
    low = recording.peak.bytes * _SHRUNK
    steps = 0
    for live in reversed(recording.course.live_bytes):
        if live > low:
            break
        steps += 1
    return steps * recording.course.step_ns >= _SETTLED_NS


def _is_elsewhere(resident: int, live: int) -> bool:
    """Whether most of the memory is in no call site's blocks, so that nobody need look at those."""
    return resident - live >= max(_NOTICEABLE_EXCESS, _MALLOCS_AT_MOST * live)


def _excess_at_peak(recording: Recording, trace: str) -> Advice | None:
    resident, live = max(_resident(recording)), recording.peak.bytes
    excess = resident - live
    if excess < _NOTICEABLE_EXCESS or resident < live * _EXCESSIVE_RATIO:
        return None
    beyond = f"Peak resident memory was {size(resident)}, {size(excess)} more than"
    hidden = hiding(recording.program, recording.environment)
    if hidden is not None:
        return do(
            hidden.variable or "the runtime's own tools",
            f"{beyond} recorded live memory. {capitalised(hidden.keeps)}: {hidden.instead} before "
            "you try another allocator.",
        )
    if _is_elsewhere(resident, live):
        return mend(
            f"peak resident memory was {size(resident)}, but at most {size(live)} of malloc's was "
            "live at once. The rest is the program's mappings, stacks, or malloc's free memory and "
            f"overhead: {replayed([recording], trace)} shows whether an allocator needs less. No "
            "call site below holds it."
        )
    return do(
        "another allocator",
        f"{beyond} peak live memory: {replayed([recording], trace)} shows how much of that each "
        "allocator would need; the rest is the program's own.",
    )


def _huge_pages(recording: Recording) -> Advice:
    live = recording.peak.bytes
    if live >= _HUGE_PAGES_PAY:
        return given(
            "huge_pages",
            f"Nothing to set: heapfit puts the dense parts of a heap of {size(live)} on huge pages "
            "(`huge_pages:auto`) if the kernel's transparent_hugepage is madvise or always.",
        )
    excess = max(max(_resident(recording)) - live, 0)
    little = "half of that" if excess >= _NOTICEABLE_EXCESS else size(_NOTICEABLE_EXCESS)
    return none(
        f"Nothing to do: only {size(excess)} of anonymous memory was resident beyond the "
        f"{size(live)} live (less than {little}), and so small a heap gains nothing from huge "
        "pages."
    )


# ----------------------------------------------------------------------- peak

# A peak is a surge when most of it is of the last tenth of the time before ...
_SURGE = 0.5
# ... and worth a switch when that is more than caches of free memory usually hold.
_WORTH_SHRINKING = 64 * MIB
# What has grown since a third of a program's work was done has at most so much from the later half
# of it; what began later may be a last phase.
_STEADY = 0.75
# Growth is steady by time if so many moments, from one on at which at most this part was there, are
# this part at most aside a line.
_MOMENTS, _AT_FIRST, _ASIDE = 5, 0.25, 0.1
# What is live after so much of a program's work, and of its time, is freed at its end.
_LAST = 0.9


def peak(profile: Profile, trace: str) -> Advice:
    peak = profile.peak
    if not peak.amount.bytes:
        return none("Nothing to do: nothing was live.")
    if began_late(profile):
        return none(
            "This peak covers only what was allocated during the recording, a part of what the "
            "process held."
        )
    return (
        _surge(profile)
        or _grew_until_its_end(profile)
        or _dominant(profile)
        or _large_blocks(profile)
        or _by_many(profile)
    )


def _by_many(profile: Profile) -> Advice:
    if not profile.sites.recorded:
        return none(
            "Which functions hold it is not known, since call sites were not recorded. To see "
            "them: heapfit record -- CMD."
        )
    growing = _growers_at_the_end(profile)
    if growing or _grow_together(growing, profile):
        return none("No single function dominates; what grows is named at the top.")
    return none(
        "Nothing to do: no single function dominates. What the allocator adds is in "
        '"Rounding by allocators".'
    )


def _surge(profile: Profile) -> Advice | None:
    peak = profile.peak
    youngest = peak.ages[0] if peak.ages else None
    left = sum(each.end.bytes for each in profile.recordings)
    if youngest is None or youngest.share < _SURGE or left > peak.amount.bytes * _SHRUNK:
        return None
    if youngest.amount.bytes < _WORTH_SHRINKING or _large_share(profile) >= DOMINANT:
        return None  # of large blocks little is kept free
    return do(
        "hf_footprint_shrink",
        f"{size(youngest.amount.bytes)} of the peak was allocated in the last tenth of the "
        "time before it and did not stay: call `hf_footprint_shrink()` before such a phase "
        "and `hf_footprint_restore()` after it, so that free memory kept for speed does not "
        "add to it.",
    )


def _grew_until_its_end(profile: Profile) -> Advice | None:
    """What grows while a program works, and is freed when it ends, as interpreters free all."""
    first = _freed_at_its_end(profile)
    if first is None:
        return None
    return mend(
        f"{first.name} kept growing, to {size(first.amount.bytes)} just before the program ended, "
        f"{how_it_grew(first, profile)}; it was freed at exit. {_NORMAL}",
        if_lasting=_ends_soon(profile),
    )


def _freed_at_its_end(profile: Profile) -> Holder | None:
    """Return who grows steadily in a program that frees it as it ends."""
    if ended_early(profile) or not _is_freed_at_its_end(largest(profile)):
        return None
    left = {each.name for each in _growers_at_the_end(profile)}  # which did not free it
    steady = [
        each
        for each in profile.peak.functions
        if (each.late_share <= _STEADY or rises_steadily(each)) and each.name not in left
    ]
    return next(iter(_growers(steady)), None)


def _is_freed_at_its_end(recording: Recording) -> bool:
    """Whether most of the peak, which comes after most of the work, stays until the program ends,
    and not longer."""
    course, low = recording.course, recording.peak.bytes * _SHRUNK
    peak = recording.peak_ns // max(course.step_ns, 1)
    worked = sum(course.allocations[: peak + 1])
    freed = [step for step, live in enumerate(course.live_bytes) if step >= peak and live < low]
    return (
        worked >= _LAST * sum(course.allocations)
        and recording.end.bytes < low
        and (not freed or freed[0] >= _LAST * len(course.live_bytes) - 1)
    )


def _dominant(profile: Profile) -> Advice | None:
    first = profile.peak.functions[0] if profile.peak.functions else None
    resident = sum(max(_resident(each), default=0) for each in profile.recordings)
    live = sum(each.peak.bytes for each in profile.recordings)
    if first is None or first.share < DOMINANT or _is_elsewhere(resident, live):
        return None
    matters = first.amount.bytes >= MIB and not _growers_at_the_end(profile)
    look = ", so look there first" if matters else ""
    return none(
        f"{percent(first.share)} of the peak belongs to {first.name}; no allocator makes that "
        f"smaller{look}."
    )


def _large_share(profile: Profile) -> float:
    return sum(part.share for part in profile.peak.sizes if part.size > LARGE_BYTES)


def _large_blocks(profile: Profile) -> Advice | None:
    share = _large_share(profile)
    if share < DOMINANT:
        return None
    return none(
        f"{percent(share)} of the peak is in blocks above {size(LARGE_BYTES)}, which every "
        "allocator serves in whole pages; only the program can hold less."
    )


# ------------------------------------------------------------------- rounding

# A saving that is worth changing an allocator for, as part of the peak, ...
_WORTH_CHANGING = 0.05
# ... and in bytes: below, libraries that come and go weigh more.
_WORTH_CHANGING_BYTES = 1 * MIB
# Allocators within this part of the peak are as good: then heapfit is named.
_AS_GOOD = 0.01
# These are not chosen for what they take.
_FOR_SECURITY = frozenset({"heapfit-hardened"})
# These have a header for each block, which the usable size does not tell.
_WITH_HEADERS = frozenset({"glibc", "dlmalloc", "ptmalloc3", "scudo", "tlsf"})


def rounding(profile: Profile, trace: str) -> Advice:
    known = profile.waste.allocators
    recorded = next((each for each in known if each.recorded), None)
    better = [each for each in known if each.allocator not in _WITH_HEADERS | _FOR_SECURITY]
    if recorded is None or not better or not profile.peak.amount.bytes:
        return none("What the program's own allocator adds is not known here.")
    best = _preferred(better, profile.peak.amount.bytes)
    saved = recorded.peak_bytes - best.peak_bytes
    if saved < max(_WORTH_CHANGING * profile.peak.amount.bytes, _WORTH_CHANGING_BYTES):
        if began_late(profile):
            return none(
                f"{recorded.title} adds {size(recorded.peak_bytes)} to the recorded live memory; "
                "what it adds to earlier allocations is not known."
            )
        return none(
            f"Nothing to do: {recorded.title} adds {size(recorded.peak_bytes)} to the peak by "
            f"rounding, and {_saves_little(recorded, best, known)}."
        )
    return do(
        "another allocator",
        f"{best.title} would add {size(best.peak_bytes)} to the peak by rounding, "
        f"{recorded.title} {size(recorded.peak_bytes)}; {replayed(profile.recordings, trace)} "
        "shows how much of that saving is left after fragmentation.",
    )


def _saves_little(recorded: Rounding, best: Rounding, known: Sequence[Rounding]) -> str:
    saved = recorded.peak_bytes - best.peak_bytes
    if saved > 0:
        return (
            f"{best.title} would add {size(best.peak_bytes)}: {size(saved)} less is too little to "
            "matter"
        )
    if min(each.peak_bytes for each in known) < recorded.peak_bytes:
        return "allocators that round less add block headers"
    return "no allocator whose classes are known adds less"


def _preferred(allocators: Sequence[Rounding], peak: int) -> Rounding:
    """The one that rounds least; heapfit where it is as good."""
    best = min(allocators, key=lambda each: each.peak_bytes)
    heapfit = next((each for each in allocators if each.allocator == "heapfit"), best)
    return heapfit if heapfit.peak_bytes - best.peak_bytes <= _AS_GOOD * peak else best


# ------------------------------------------------------------------------ end

# A leak grows as the program works, which is told by its allocations: it may wait for most of the
# time. What is set up once was born early. What turns over, such as a cache that is full, holds no
# more than it did at three quarters of the work, and what is in use was born just now.
_GROWS, _GAINED, _IN_USE = 0.4, 0.15, 0.5
_TURNS_OVER = 0.6  # of all that lives, where there are no sites
# But what is hardly ever freed was not just in use: that leak began late.
_HARDLY_FREED = 0.05
# Of all that is live, and of the peak; a MiB is worth a look at half of the former.
_LEAK_SHARE, _LEAK_OF_PEAK = 0.1, 0.01
# Few objects grow by chance, but a MiB of them must be no more than a few.
_LEAK_OBJECTS, _LARGE_OBJECTS = 100, 10
_KEPT_FREE = 4  # times what lives at the end: so much free memory it keeps from being returned
_OF_MANY = 0.25  # of all that is live: nobody has more, and all of it grows
_LEAK_BYTES = 64 * KIB
# In a sample, a gain that is smaller than so many standard errors may be chance, and with a larger
# relative error, that of some six samples, nothing is said.
_ERRORS, _LARGEST_ERROR = 2.0, 0.4
_LOSES_NOTHING = 0.1  # of what it holds
_SIX_EIGHTHS = 6  # three quarters of the work
_FOURTH = 3  # of the eighths, which begins the later half
# What has gained this part in each eighth since the fourth, and in each at least this part of what
# it did on average, grows. With less, or in fits and starts, it may.
_RISEN, _EVEN, _MAY_GROW = 0.025, 0.5, 0.05
# Where chance may hide that, this part of the gain is of the later half of those eighths. Of 1,500
# samples of simulated caches that are full or nearly so, batches and sawtooths (8 KiB to 1 MiB a
# sample), 1 in 28 is said to grow, and without this 1 in 7; of those of leaks 2 % fewer are found.
_LATER = 1 / 3
_ABOVE = 0.1  # by this part of it, it holds more at the end than at most in the first half
# What somebody has gained while all that is live did not grow by this part of it took the place of
# others' blocks, which another line allocated.
_HALF, _THREE_QUARTERS, _OF_ALL_LIVE = 0.5, 0.75, 0.5
# What a recording that began late has of live blocks may have taken the place of older ones, whose
# sizes it does not know. It has not where resident memory grew by this part of it; and one of
# several may have grown where resident memory grew by this part of the smallest.
_ALL_STAYED, _ONE_STAYED, _MANY_STEPS = 0.75, 0.5, 8
# Older blocks are few beside a holder's at up to this part of their number.
_FEW_FREED = 0.01
_NAMED = 3
# What is left by a program that ends sooner matters from this part of its resident memory on.
_SOON_NS, _MATTERS = 60 * S, 0.05
_NORMAL = (
    "In a program that builds up a result and ends, this is normal. In a service it may be recent "
    "data, an unbounded cache, or a leak: record longer, under load, to tell."
)


def end(profile: Profile, trace: str) -> Advice:
    found, more = _end(profile), unseen(profile)
    if more is None:
        return found
    if not found.act:
        return mend(more)
    return found.model_copy(update={"sentence": f"{found.sentence} Besides, {more}"})


def _end(profile: Profile) -> Advice:
    """What to do about what is left, by what the recordings have."""
    leaks = profile.leaks
    growing = _growers_at_the_end(profile)
    if _grow_together(growing, profile):
        return mend(_even_growth(profile), if_lasting=_ends_soon(profile))
    if growing and _are_little(growing, profile):
        return none(_little(growing[0], profile))
    if growing:
        return _grew(growing, profile)
    young = [
        each for each in leaks.functions if each.share >= _LEAK_SHARE and each.late_share >= _GROWS
    ]
    if young:
        return none(_no_leak(max(young, key=lambda each: each.amount.bytes), profile))
    hidden = hidden_by(profile.recordings)
    if hidden is not None:
        return none(f"Not known: {hidden.keeps}, and these are not recorded.")
    if ended_early(profile):
        return none(
            "No sign of a leak: no call site with a large part of it kept allocating without "
            "freeing. Slower growth needs a longer recording."
        )
    if not leaks.amount.objects:
        return none("Nothing to do: nothing is left.")
    return none("Nothing to do: what lives at the end has not kept growing.")


def unseen(profile: Profile) -> str | None:
    """Return what to say of recordings that ended before their programs, where these gained much
    more memory than the recordings tell of; else None.

    What is live at the end may have taken the place of blocks from before, whose sizes nobody
    knows: it is the whole gain at most, but in the second half of the time no more than it grew by.
    """
    if not ended_early(profile):
        return None
    # What was recorded from its start has no blocks from before.
    seen = [
        each
        for each in profile.recordings
        if len(_resident(each)) > 1
        and (each.began_late or hiding(each.program, each.environment) is not None)
    ]
    in_all = _gained(seen, 0)
    in_half = _gained(seen, 2)
    gained, told = next((each for each in (in_all, in_half) if _is_unseen(*each)), (0, 0))
    if not gained:
        return None
    hidden = hidden_by(seen)
    why = (
        f"{hidden.keeps[0].upper()}{hidden.keeps[1:]}: {hidden.instead}."
        if hidden is not None
        else "The rest may be older blocks now used more fully, free memory, or the program's own "
        "mappings: record it from its start to tell."
    )
    return (
        f"resident memory grew by {size(gained)} "
        f"{'during' if in_all[0] == gained else 'in the second half of'} the recording, which has "
        f"at most {size(told)} of it, so it cannot show what grows. {why}"
    )


def _gained(recordings: Iterable[Recording], part: int) -> tuple[int, int]:
    """How much more was resident at the end than at the start, or than after one part of so many,
    and how much more of what was recorded was live."""
    gained = told = 0
    for each in recordings:
        resident, live = _resident(each), each.course.live_bytes
        after = len(live) // part if part else 0
        looked = [at for at, seen in enumerate(each.course.resident) if seen is not None]
        first = next((i for i, at in enumerate(looked) if at >= after), len(looked) - 1)
        gained += resident[-1] - resident[first]
        told += live[-1] - live[looked[first]] if part else each.end.bytes
    return gained, max(told, 0)


def _is_unseen(gained: int, told: int) -> bool:
    return gained - told >= _NOTICEABLE_EXCESS / 2 and gained >= _EXCESSIVE_RATIO * told


def grows(profile: Profile) -> bool:
    """Whether the program is to be looked at for what grows, which no allocator stops."""
    found = _end(profile)
    return found.act and not found.if_lasting


def grower(profile: Profile) -> Holder | None:
    """Return who is shown to hold more and more as the program works, by the advice on what is left
    at the end, or on the peak; None: nobody."""
    growing = _growers_at_the_end(profile)
    if _grow_together(growing, profile) or (growing and not _is_shown(growing[0], profile)):
        return None
    return growing[0] if growing else _freed_at_its_end(profile)


def _growers_at_the_end(profile: Profile) -> list[Holder]:
    # Of a function that holds other things as well, one line may grow.
    least = 0 if ended_early(profile) else _LEAK_OF_PEAK * profile.peak.amount.bytes
    leaks = profile.leaks
    if _matters_by_what_it_pins(profile):
        return []
    growing = _growers(leaks.functions, least) or _growers(leaks.sites, least)
    return [each for each in growing if not _replaces_others(each, profile)]


def _matters_by_what_it_pins(profile: Profile) -> bool:
    """Whether what lives at the end is little beside the free memory that live blocks keep."""
    if pinned_at_the_end(profile):
        return False
    return profile.leaks.amount.bytes * _KEPT_FREE <= profile.pinned.bytes


def _replaces_others(holder: Holder, profile: Profile) -> bool:
    """Whether a holder has gained more than all that is live rose by in the same time."""
    gained = holder.gained_since(_SIX_EIGHTHS) * holder.amount.bytes
    return gained * _OF_ALL_LIVE > sum(_rise(each.course) for each in profile.recordings)


def _growers(holders: Iterable[Holder], least: float = 0.0) -> list[Holder]:
    """Return the holders that have gained as the program worked and have `least` bytes, those that
    gained most late first: a large cache grows slower than a leak."""
    growing = [each for each in holders if each.name != UNKNOWN and _is_growing(each, least)]
    return sorted(growing, key=lambda each: (-_gained_late(each), -each.amount.bytes))


def _is_growing(holder: Holder, least: float) -> bool:
    held = holder.amount
    is_large = held.bytes >= MIB
    return (
        (_grows_by_age(holder) or rises_steadily(holder))
        and _relative_error(holder) <= _LARGEST_ERROR
        and holder.share >= (_LEAK_SHARE / 2 if is_large else _LEAK_SHARE)
        and held.objects >= (_LARGE_OBJECTS if is_large else _LEAK_OBJECTS)
        and held.bytes >= max(_LEAK_BYTES, least)
    )


def _error_of_gain(holder: Holder) -> float:
    # At two moments no block may be the same.
    return _ERRORS * math.sqrt(2) * holder.amount.bytes_error


def _relative_error(holder: Holder) -> float:
    return holder.amount.bytes_error / max(holder.amount.bytes, 1)


def rises_steadily(holder: Holder) -> bool:
    """Whether the most and the least that a holder has rise in each eighth of the later half of all
    allocations, whatever it replaces: the blocks of a cache that grows are as young as those of one
    that is full. What comes and goes rises in neither, or is back at the end."""
    # As a program ends, it may free all: the last eighth's least tells nothing.
    lowest = holder.lowest[_FOURTH:-1]
    return (
        _rises(holder.highest[_FOURTH:], _error_of_gain(holder))
        and _rises(lowest, _error_of_gain(holder))
        and lowest[-1] <= holder.amount.bytes + _error_of_gain(holder)
    )


def _rises(levels: Sequence[int], error: float) -> bool:
    gained = levels[-1] - levels[0]
    steps = [after - before for before, after in pairwise(levels)]
    least = _EVEN * gained / len(steps)
    if gained < max(len(steps) * _RISEN * levels[-1], error):
        return False
    later = levels[-1] - levels[len(steps) // 2]
    return min(steps) >= least or (
        # In a sample, one step tells little.
        min(steps) >= least - error / 2 and later >= _LATER * gained
    )


def _is_above_its_past(holder: Holder) -> bool:
    """Whether a holder has more than it ever had in the first half of all allocations, and not
    less than later."""
    held = holder.amount.bytes
    before = max(holder.highest[: _FOURTH + 1])
    lost = max(before - (1 - holder.late_share) * held, 0) / max(held, 1)
    error = _ERRORS * _relative_error(holder) * math.sqrt(lost + holder.late_share)
    least = max(_ABOVE, error if lost > _LOSES_NOTHING else 0.0)
    later = max(holder.held_before)
    return held - before >= least * held and later <= held + _error_of_gain(holder)


def _grows_by_age(holder: Holder) -> bool:
    """Whether a holder's blocks are of all the time, and stay."""
    gained_share = holder.gained_since(_SIX_EIGHTHS)
    # Of what the holder had at three quarters of the work it has lost so much since. What is still
    # there cancels out in the gain, and in the gain's error.
    lost = max(holder.recent_share - gained_share, 0.0)
    error = _relative_error(holder)
    error_of_gain = error * math.sqrt(lost + holder.recent_share)
    if lost <= _LOSES_NOTHING:
        # It grows by all that it allocates, of which a sample may have less by chance.
        late, gained = holder.late_share + error, gained_share + error_of_gain
        grows = late >= _GROWS and gained >= _GAINED
    else:
        least_gain = max(_GAINED, _ERRORS * error_of_gain)
        grows = holder.late_share >= _GROWS and gained_share >= least_gain
    return (
        grows
        and _is_above_its_past(holder)
        and (holder.young_share <= _IN_USE or holder.freed_share <= _HARDLY_FREED)
    )


def how_it_grew(holder: Holder, profile: Profile) -> str:
    """Return how a holder that grows has come by what it holds."""
    each_second = _by_time(holder, profile)
    if each_second is not None and holder.late_share > _STEADY:
        return f"which grew steadily, by {size(each_second)} a second"
    if rises_steadily(holder) and not _grows_by_age(holder):
        if holder.amount.bytes < holder.highest[_FOURTH]:
            return (
                f"which rose from {_from_to(holder, _FOURTH)} in the fourth eighth of all "
                f"allocations to {_from_to(holder, -2)} in the seventh"
            )
        return f"up from {size(holder.held_before[0])} after half of all allocations"
    return f"{percent(holder.late_share)} of it from the second half of all allocations"


def _by_time(holder: Holder, profile: Profile) -> float | None:
    """Return by how many bytes a second a holder grew steadily from its first blocks on; None: it
    did not. The first half of all allocations may have been a program's start."""
    ends = profile.recordings[0].eighths_ns
    if len(profile.recordings) > 1 or len(ends) < len(holder.highest):
        return None
    held = holder.amount.bytes
    known = [e for e in zip(ends, holder.highest, strict=True) if e[1]]
    known.append((profile.recordings[0].duration_ns, held))
    (begin, first), (end, _) = known[0], known[-1]
    longest = max((b[0] - a[0] for a, b in pairwise(known)), default=0)
    if len(known) < _MOMENTS or first > _AT_FIRST * held or 2 * longest > end - begin:
        return None
    rate = (held - first) / (end - begin)
    off = max(abs(level - first - rate * (ns - begin)) for ns, level in known)
    return rate * S if off <= max(_ASIDE * held, holder.amount.bytes_error) else None


def _from_to(holder: Holder, eighth: int) -> str:
    return f"{size(holder.lowest[eighth])}{DASH}{size(holder.highest[eighth])}"


def _rise(course: Course) -> int:
    """Return by how many bytes all that is live rose in the last quarter of the work."""
    # From before the step in which the quarter begins, which may be most of the work.
    live = [0, *course.live_bytes][_step_after(course, _THREE_QUARTERS) :]
    return max(now - lowest for now, lowest in zip(live, accumulate(live, min), strict=True))


def _step_after(course: Course, part: float) -> int:
    """Return the step in which so much of the work is done."""
    worked = list(accumulate(course.allocations))
    return bisect_left(worked, part * worked[-1]) if worked else 0


def _resident_growth(profile: Profile, since: float = 0.0) -> int | None:
    """Return by how much resident memory grew in recordings that began late, after this part of the
    work, without the largest step, since a leak grows in many; None: not known."""
    seen = [_resident(each, _step_after(each.course, since)) for each in profile.recordings]
    if not began_late(profile) or not any(seen):
        return None
    steps = ([after - before for before, after in pairwise(each)] for each in seen)
    return max(sum(sum(e) - (max(e) if len(e) >= _MANY_STEPS else 0) for e in steps), 0)


def _all_stayed(profile: Profile) -> bool:
    """Whether what lives at the end has not taken the place of blocks from before the recording."""
    grown = _resident_growth(profile)
    return grown is None or grown >= _ALL_STAYED * profile.leaks.amount.bytes


def _takes_no_place(holder: Holder, profile: Profile) -> bool:
    """Whether hardly any block from before the recording was freed whose place a holder's blocks
    could have taken: none in the second half of the work, few earlier. A sample does not know."""
    is_known = not sampled(profile.recordings) and all(each.whole for each in profile.recordings)
    few = _FEW_FREED * holder.amount.objects
    totals = profile.totals
    return is_known and not totals.unmatched_late and totals.unmatched_frees <= few


def _gained_late(holder: Holder) -> int:
    return round(holder.gained_since(HELD_AFTER[0]) * holder.amount.bytes)


def _is_shown(holder: Holder, profile: Profile) -> bool:
    """Whether a holder has grown, and has not just taken the place of blocks from before."""
    if _all_stayed(profile):
        return True
    grown = _resident_growth(profile, _HALF) or 0
    return rises_steadily(holder) and (
        _takes_no_place(holder, profile) or grown >= _ALL_STAYED * _gained_late(holder)
    )


def _ends_soon(profile: Profile) -> bool:
    """Whether the recording has a short program from its start to its end."""
    return not (ended_early(profile) or began_late(profile)) and (longest_ns(profile) < _SOON_NS)


def _what_to_do(profile: Profile) -> str:
    if _ends_soon(profile):
        return _NORMAL
    return "If it is a leak, fix it in the program; no allocator stops its growth."


def _are_little(holders: Sequence[Holder], profile: Profile) -> bool:
    """Whether a program that soon ends leaves so little that it matters only to one that does not
    end."""
    if not _ends_soon(profile):
        return False
    held = sum(each.amount.bytes for each in holders)
    return held < _MATTERS * (largest(profile).resident_most or 0)


def _little(holder: Holder, profile: Profile) -> str:
    return (
        f"{holder.name} still holds {size(holder.amount.bytes)} at the end, "
        f"{how_it_grew(holder, profile)}. That is little beside "
        f"{size(largest(profile).resident_most or 0)} of resident memory in so short a program. "
        "In a service it may be a leak: record longer."
    )


def _grew(growing: Sequence[Holder], profile: Profile) -> Advice:
    """What those are that hold more and more."""
    first = growing[0]
    if not ended_early(profile):
        return mend(
            f"{first.name} still holds {size(first.amount.bytes)} at the end, "
            f"{how_it_grew(first, profile)}.{_others(growing)} {_what_to_do(profile)}",
            if_lasting=_ends_soon(profile),
        )
    held = (
        f"{first.name} allocated {size(first.amount.bytes)} during the recording that was still "
        f"live at its end, {how_it_grew(first, profile)}"
    )
    grown = _resident_growth(profile) or 0
    if _is_shown(first, profile):
        others = _others([each for each in growing if _is_shown(each, profile)])
        return mend(
            f"{held}.{others}{_into_free_memory(first, profile, grown)} If the program does not "
            "free it later, this is a leak or an unbounded cache: fix it in the program; no "
            "allocator stops its growth."
        )
    if grown < _ONE_STAYED * min(each.amount.bytes for each in growing):
        return none(
            f"{held}, but resident memory grew by at most {size(grown)}: older blocks may have "
            "been freed meanwhile. Record longer to see whether the new ones are freed too."
        )
    fitting = sorted(growing, key=lambda each: abs(each.amount.bytes - grown))
    named = [f"{e.name} ({size(e.amount.bytes)})" for e in fitting[:_NAMED]]
    what = "this may be" if len(growing) == 1 else "one of these may be"
    return mend(
        f"Resident memory grew by {size(grown)} during the recording. These call sites kept what "
        f"they allocated, best match first: {join_words(named)}. Some of it may have replaced "
        f"older, unrecorded blocks, so {what} a leak. Record longer, or from the start, to tell."
    )


def _into_free_memory(holder: Holder, profile: Profile, grown: int) -> str:
    """A sentence on why resident memory, which has `grown` so much, grew less than a holder."""
    if _all_stayed(profile) or not _takes_no_place(holder, profile):
        return ""
    early = profile.totals.unmatched_frees
    before = f"only {early:,} before" if early else "none before"
    unless = ", unless those blocks were large" if early else ""
    return (
        f" It gained {size(_gained_late(holder))} in the second half, in which no older block was "
        f"freed ({before}). Resident memory grew by at most {size(grown)}, as if malloc had reused "
        f"memory that was already free{unless}."
    )


def _others(growing: Sequence[Holder]) -> str:
    """A sentence on those that grow beside the first."""
    named = [f"{each.name} ({size(each.amount.bytes)})" for each in growing[1:_NAMED]]
    return f" {join_words(named)} grew, too." if named else ""


def _grow_together(growing: Sequence[Holder], profile: Profile) -> bool:
    """Whether all that lives at the end grew steadily, though nobody holds much of it."""
    every = profile.leaks.every
    if growing and growing[0].share >= _OF_MANY:
        return False
    # In a recording that began late, it may have taken the place of older blocks.
    if began_late(profile) or _matters_by_what_it_pins(profile):
        return False
    if every is None:
        return _born_evenly(profile)
    least = _LEAK_OF_PEAK * profile.peak.amount.bytes
    return (
        (every.late_share <= _STEADY or rises_steadily(every))
        and _is_growing(every, least)
        and not _replaces_others(every, profile)
    )


def _even_growth(profile: Profile) -> str:
    leaks = profile.leaks
    if leaks.every is None:
        return (
            "What is live at the end was allocated evenly throughout, as in a leak, which no "
            "allocator fixes: record without `--sites 0` to see where."
        )
    named = [e.name for e in leaks.functions if e.name != UNKNOWN][:_NAMED]
    return (
        f"{size(leaks.amount.bytes)} is live at the end, {how_it_grew(leaks.every, profile)}, from "
        f"many call sites, mainly {join_words(named)}. {_what_to_do(profile)}"
    )


def _no_leak(site: Holder, profile: Profile) -> str:
    """Why a site whose blocks are of the later half does not look like a leak."""
    late = f"{percent(site.late_share)} of what {site.name} holds came in the second half"
    if _replaces_others(site, profile):
        return (
            f"No sign of a leak: {late} of all allocations, but total live memory did not grow "
            "meanwhile: blocks replaced each other."
        )
    if site.young_share > _IN_USE:
        return (
            f"Not known: {percent(site.young_share)} of what {site.name} holds came in the last "
            "tenth of all allocations. It is in use, or a leak that has just begun; record longer "
            "to tell."
        )
    is_freed = site.freed_share > _HARDLY_FREED
    if is_freed and site.gained_since(HELD_AFTER[0]) >= _MAY_GROW:
        return (
            f"Not known: {site.name} holds {size(site.amount.bytes)}, "
            f"{size(site.held_before[0])} after half of all allocations, but did not rise "
            "steadily. It may come and go, or be a leak; record longer to tell."
        )
    if is_freed:
        return (
            f"No sign of a leak: {late} of all allocations, and {percent(site.freed_share)} of its "
            "blocks were freed, so blocks come and go."
        )
    return f"Not known: {late} of all allocations, but it is too little to recognise a leak."


def _born_evenly(profile: Profile) -> bool:
    """Whether as much of it was born late as early; the last tenth may just be in use."""
    born = [each.bytes for each in profile.leaks.born][:-1]
    total = sum(born)
    late = sum(born[len(profile.leaks.born) // 2 :])
    return total >= _LEAK_BYTES and _GROWS * total <= late <= _TURNS_OVER * total
