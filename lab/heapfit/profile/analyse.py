"""From tables to a tally, and from a tally to a profile."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import heapfit
from heapfit.profile.model import Profile
from heapfit.profile.rounding import Ask, usable_sizes, waste
from heapfit.profile.sections import (
    bursts,
    calls,
    flames,
    lifetimes,
    living,
    pinned,
    recording,
    sharing,
    sites,
    sizes,
)
from heapfit.profile.tally import Tally
from heapfit.profile.trace import Trace
from heapfit.records import InstalledAllocator

# What is counted, in this order: the course of time before what is live at its peak, sizes before
# the recording that they belong to, and the recording before the examples of its bursts.
_COUNTS: dict[str, Callable[[Trace, Tally], None]] = {
    "the course of time": recording.count_steps,
    "sizes": sizes.count,
    "the recording": recording.count,
    "lifetimes": lifetimes.count,
    "threads": sharing.count,
    "reallocations": calls.count_reallocs,
    "the peak": living.count_peak,
    "call sites": sites.count,
    "stacks": flames.count,
    "the end": living.count_end,
    "pinned memory": pinned.count,
    "bursts": bursts.count,
}

# Called with how many parts are done, of how many, and what comes now.
OnPart = Callable[[int, int, str], None]


def count(folder: Path, on_part: OnPart | None = None) -> Tally:
    """Return the tally of the converted trace in `folder`.

    Raises UsageError when it is none, HeapfitError when it cannot be read.
    """
    tally = Tally()
    aside = tempfile.TemporaryDirectory(prefix="heapfit-profile-")
    with aside, Trace(folder, Path(aside.name)) as trace:
        for done, (name, part) in enumerate(_COUNTS.items()):
            if on_part:
                on_part(done, len(_COUNTS), name)
            part(trace, tally)
    return tally


def profile(
    tally: Tally, allocators: Sequence[InstalledAllocator] = (), ask: Ask = usable_sizes
) -> Profile:
    """Return the profile of a tally, with what the size classes of `allocators` add."""
    return Profile(
        heapfit=heapfit.__version__,
        recordings=[each.recording for each in tally.recordings],
        totals=calls.totals(tally),
        sizes=sizes.finish(tally),
        lifetimes=lifetimes.finish(tally),
        sharing=sharing.finish(tally),
        reallocs=calls.reallocs(tally),
        peak=living.peak(tally),
        pinned=pinned.finish(tally),
        transactions=bursts.finish(tally),
        sites=sites.finish(tally),
        waste=waste(tally, allocators, ask),
        leaks=living.end(tally),
        flames=flames.finish(tally),
    )
