"""The live heap profile of a process: who asked for what lives, and for what pins free memory.

The process tells its sampled objects one by one (`sample` in `docs/reference.md`). Of one of n
bytes, sampled with so many bytes between two points, the chance was p = 1 - exp(-n / mean); so it
stands for 1 / p objects, and a sum over such is without bias what a sum over all would be (D. G.
Horvitz and D. J. Thompson, 1952). Intervals are those of weighted.py, which hold for few samples,
too.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import expm1
from pathlib import Path

from heapfit.live.records import ProfileAnswer, ProfileSample
from heapfit.symbols import Files, Frame, told
from heapfit.weighted import interval

# What has not been freed for so long is not about to be.
OLD_S = 600.0
_MS_PER_S = 1000.0
_UNKNOWN_SITE = "a caller that is not known"
_CALLERS_TOLD = 3
# One caller of a call is named alone that has so much of what the call pins, with less than so much
# of its bytes.
_NEARLY_ALL, _FEW = 0.8, 0.5


@dataclass(frozen=True)
class Estimate:
    """A sum over all objects, as samples tell it, and its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Site:
    """A call site, and the sampled objects of it that live."""

    calls: tuple[tuple[str, int], ...]  # file and address in it, the innermost first
    places: tuple[tuple[Frame, ...], ...]  # of each, the functions, inlined ones included
    samples: tuple[ProfileSample, ...]
    called: int = 1  # so many calls tell it from others

    @property
    def frames(self) -> list[Frame]:
        """The functions, the innermost first."""
        return [frame for place in self.places for frame in place]

    @property
    def bytes(self) -> Estimate:
        """What all objects of the site have."""
        return estimate(self.samples, lambda each: each.bytes)

    @property
    def blocks(self) -> Estimate:
        """How many there are."""
        return estimate(self.samples, lambda _: 1)

    @property
    def pinned(self) -> Estimate:
        """The free bytes on their pages, as far as they fall to them."""
        return estimate(self.samples, lambda each: each.pinned)

    @property
    def old_share(self) -> float:
        """Which part of the objects has lived for more than OLD_S."""
        old = sum(weight(each) for each in self.samples if each.age_ms > OLD_S * _MS_PER_S)
        return old / sum(map(weight, self.samples))

    @property
    def median_age_s(self) -> float:
        """What half of the objects have lived for, at least."""
        left = sum(map(weight, self.samples)) / 2
        for each in sorted(self.samples, key=lambda each: each.age_ms):
            left -= weight(each)
            if left <= 0:
                break
        return each.age_ms / _MS_PER_S

    @property
    def words(self) -> list[str]:
        """The calls as people look for them, the innermost first."""
        return told(self.frames) or [_UNKNOWN_SITE]

    @property
    def short(self) -> str:
        """As many of these as tell it from others."""
        return " ← ".join(self.words[: self.called])

    @property
    def name(self) -> str:
        """The first of these, and who called it."""
        return " ← ".join(self.words[:_CALLERS_TOLD])


@dataclass(frozen=True)
class LiveProfile:
    """What the sampled objects of a process say at one moment."""

    mean: int  # bytes between two samples, as the process is set now; 0: it takes none
    missed: int  # objects that there was no room to remember
    complete: bool
    sites: list[Site]

    def largest(self) -> list[Site]:
        """Return the sites by what lives of them, the largest first."""
        return sorted(self.sites, key=lambda each: -each.bytes.value)

    def pinners(self) -> list[Site]:
        """Return whose objects pin anything by what they pin, the largest first.

        These are told by the call alone, whoever called that; where one of several callers pins
        nearly all of it with less than half of the blocks, by that.
        """
        found = [self._narrowed(each) for each in _merged(self.sites, 1) if each.pinned.value]
        return sorted(found, key=lambda each: -each.pinned.value)

    def _narrowed(self, site: Site) -> Site:
        chains = [each for each in self.sites if each.words[:1] == site.words[:1]]
        first = max(chains, key=lambda each: each.pinned.value)
        is_most = first.pinned.value >= _NEARLY_ALL * site.pinned.value
        is_few = first.bytes.value < _FEW * site.bytes.value
        return replace(first, called=_CALLERS_TOLD) if is_most and is_few else site


def weight(sample: ProfileSample) -> float:
    """Return how many objects a sampled one stands for.

    >>> round(weight(ProfileSample(site=1, bytes=64, mean=512 * 1024)))
    8193
    """
    return 1 / -expm1(-sample.bytes / sample.mean)


def estimate(
    samples: Iterable[ProfileSample], amount: Callable[[ProfileSample], float]
) -> Estimate:
    """Return the sum of an amount over all objects that the samples stand for.

    >>> sample = ProfileSample(site=1, bytes=64, mean=512 * 1024)
    >>> found = estimate([sample] * 4, lambda each: each.bytes)
    >>> [round(each / 1024) for each in (found.low, found.value, found.high)]
    [558, 2048, 5244]
    """
    pairs = [(weight(each), amount(each)) for each in samples]
    total = sum(times * each for times, each in pairs)
    # That of an object that is sampled for certain does not vary.
    variance = sum(times * (times - 1) * each**2 for times, each in pairs)
    most = max(((times - 1) * each for times, each in pairs), default=0.0)
    return Estimate(total, *interval(total, variance, most))


def profile(answer: ProfileAnswer, root: Path | None = None) -> LiveProfile:
    """Return what a process has told, its files looked for below `root` if it sees others."""
    files = Files(root)
    by_site: dict[int, list[ProfileSample]] = {}
    for sample in answer.samples:
        by_site.setdefault(sample.site, []).append(sample)
    chains = {each.site: each.calls for each in answer.sites}
    sites = []
    for number, samples in by_site.items():
        calls = tuple(map(_placed, chains.get(number, [])))
        places = tuple(tuple(files.inlined(*call)) for call in calls)
        sites.append(Site(calls, places, tuple(samples)))
    return LiveProfile(answer.mean, answer.missed, answer.complete, _merged(sites))


def _merged(sites: Iterable[Site], calls: int | None = None) -> list[Site]:
    """Make one of the sites that are one to people: the same functions and lines, of so many."""
    found: dict[tuple[str, ...], Site] = {}
    for each in sites:
        key = tuple(each.words[:calls])
        samples = (*found[key].samples, *each.samples) if key in found else each.samples
        found[key] = Site(each.calls, each.places, samples)
    return list(found.values())


def _placed(call: str) -> tuple[str, int]:
    """Return the file of a call and its address there; of no file, an address alone.

    >>> _placed("/usr/bin/x+y+0x12"), _placed("0x7f00")
    (('/usr/bin/x+y', 18), ('', 32512))
    """
    path, plus, address = call.rpartition("+")
    return (path, int(address, 16)) if plus else ("", int(call, 16))
