"""Which call sites hold free memory of a process, in sentences, and how to find out."""

from itertools import islice, takewhile
from math import inf

from heapfit.live.figures import share
from heapfit.live.profile import OLD_S, Estimate, LiveProfile, Site
from heapfit.text import counted, size

# The 95 % interval of a site with one sample spans a factor of 220, with two one of 30.
LEAST_SAMPLES = 2
_MOST = 3
# Of all that sites hold: less is not worth a sentence.
_WORTH = 0.05
_MINUTE_S = 60
_SAMPLE = "512k"
# Where that gives too few samples: so many times as many.
_FINER, _FINEST = 8, 4 << 10


def told(profile: LiveProfile, whole: float = inf) -> list[str]:
    """Return a sentence for each of the sites that hold most, the largest first; of `whole` bytes,
    if that is known, no more.

    The ranking ends where a site has too few samples: those behind it may hold more.
    """
    ranked = profile.pinners()
    least = _WORTH * sum(each.pinned.value for each in ranked)
    known = takewhile(
        lambda each: len(each.samples) >= LEAST_SAMPLES and each.pinned.value >= least, ranked
    )
    return [in_words(each, whole) for each in islice(known, _MOST)]


def in_words(site: Site, whole: float = inf) -> str:
    """Return what a site's objects hold, how sure that is, and how old they are."""
    known = site.pinned
    pinned = Estimate(*(min(each, whole) for each in (known.value, known.low, known.high)))
    old = f"; {share(site.old_share)} of them are older than {OLD_S / _MINUTE_S:.0f} minutes"
    return (
        f"About {size(pinned.value)} of free memory ({interval(pinned)}, from "
        f"{counted(len(site.samples), 'sample')}) is pinned by {size(site.bytes.value)} of objects "
        f"that {site.short} allocates{old if site.old_share else ''}."
    )


def interval(estimate: Estimate) -> str:
    """Return its ends."""
    return f"{size(estimate.low)} to {size(estimate.high)}"


def next_step(profile: LiveProfile, pid: int) -> tuple[str, str] | None:
    """Return what to do where no site is told, and its command; None where one is."""
    if not profile.mean:
        if profile.sites:
            return None
        return (
            "Which call sites pin it is not known without samples. For blocks that exist already, "
            f"start the program again under `heapfit run --control --set sample={_SAMPLE} --`; for "
            "those that are allocated from now on, turn sampling on.",
            f"heapfit ctl {pid} set sample={_SAMPLE}",
        )
    finer = max(profile.mean // _FINER, _FINEST)
    if told(profile) or profile.mean <= finer:
        return None
    return (
        "There are too few samples to say which call sites pin it. Sample more of the objects that "
        "are allocated from now on.",
        f"heapfit ctl {pid} set sample={finer}",
    )
