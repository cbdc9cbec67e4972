"""One sentence of advice for each section of a profile.

It names a feature of heapfit, or says that none is needed. A rule fires only on figures that are in
the profile, past a threshold that has a name and a reason; where the figures do not decide, the
sentence says what would. What the features do, and what they cost, is in docs/tuning.md,
docs/contexts.md and docs/pools.md. Within a section the first rule that fits decides.

Here is what all rules share: the advice itself, and figures per second.
"""

from collections.abc import Iterable

from heapfit.host.interpreters import Interpreter, hiding
from heapfit.profile.model import Profile, Recording
from heapfit.records import Record
from heapfit.text import shell_word

S = 1e9
KIB, MIB = 1 << 10, 1 << 20

# What an allocation and its free take together, without cache misses: 10 ns where blocks are used
# again at once, 50 in a slow allocator.
PAIR_NS = 30
# Of the program's processor time: below the first nobody sees it, from the second a test pays.
NEGLIGIBLE, WORTH_A_TEST = 0.01, 0.05
# One name for half of a whole is where to look first.
DOMINANT = 0.5
MOSTLY = 0.9
# What fits into a processor's caches does not get faster or smaller by standing elsewhere.
WORTH_PLACING = 1 * MIB

_PROGRAM = "the program"


class Advice(Record):
    """What a section's figures ask for. `feature` is as the documentation calls it, None where
    none is needed or none helps; `act` says whether somebody has to do something, and `if_lasting`
    that they have to only if the program is one that runs on, such as a service."""

    feature: str | None
    act: bool
    sentence: str
    if_lasting: bool = False

    @property
    def label(self) -> str:
        """What the advice is about, in a word or two; empty where nothing is to be done."""
        return self.feature or (_PROGRAM if self.act else "")


def do(feature: str, sentence: str) -> Advice:
    return Advice(feature=feature, act=True, sentence=sentence)


def given(feature: str, sentence: str) -> Advice:
    """A feature that serves the program as it is: nothing is to be set."""
    return Advice(feature=feature, act=False, sentence=sentence)


def mend(sentence: str, *, if_lasting: bool = False) -> Advice:
    """No feature helps: it is the program's to change."""
    return Advice(feature=None, act=True, sentence=sentence, if_lasting=if_lasting)


def none(sentence: str) -> Advice:
    return Advice(feature=None, act=False, sentence=sentence)


def under_heapfit(recording: Recording) -> bool:
    """Whether heapfit served the program that was recorded."""
    return "libheapfit" in recording.allocator


def sampled(recordings: Iterable[Recording]) -> bool:
    """Whether one of the recordings noted a sample of the allocations alone."""
    return any(each.sample for each in recordings)


def largest(profile: Profile) -> Recording:
    """The recording with the highest peak."""
    return max(profile.recordings, key=lambda each: each.peak.bytes)


def ended_early(profile: Profile) -> bool:
    """Whether one of the recordings ended before its program, which might have freed more."""
    return any(each.ended_early for each in profile.recordings)


def began_late(profile: Profile) -> bool:
    """Whether one of the recordings began in the middle of its process: there was memory of which
    it knows nothing."""
    return any(each.began_late for each in profile.recordings)


def hidden_by(recordings: Iterable[Recording]) -> Interpreter | None:
    """The interpreter that kept objects from one of the recordings; None: none did."""
    found = (hiding(each.program, each.environment) for each in recordings)
    return next(filter(None, found), None)


def longest_ns(profile: Profile) -> int:
    """How long the longest of the recordings took."""
    return max(each.duration_ns for each in profile.recordings)


def pinned_at_the_end(profile: Profile) -> bool:
    """Whether most memory was pinned as the program freed all that it had, and ended."""
    at, course = profile.pinned.at_ns, largest(profile).course
    last_ns = (len(course.live_bytes) - 2) * course.step_ns
    return at is not None and not ended_early(profile) and at >= last_ns


def replayed(recordings: Iterable[Recording], trace: str) -> str:
    """What compares allocators on these calls: a replay, which needs all of them."""
    if sampled(recordings):
        return "a `heapfit replay` of a recording without `--sample`"
    return f"`heapfit replay {shell_word(trace)}`"


def fit_line(profile: Profile, trace: str) -> str:
    """Return the command that tries allocators on a process that was attached to. A fit to a
    recording needs all calls, and takes one file."""
    if len(profile.recordings) == 1 and not sampled(profile.recordings):
        return f"heapfit fit {shell_word(trace)}"
    pid = largest(profile).pid or "PID"  # anonymised
    return f"heapfit record --pid {pid} --for 1m -o all.hft && heapfit fit all.hft"


# What noting an event takes of the program's threads, without and with call sites: 75 and 332
# instructions (docs/results/record.md), and with these some 60 ns where that was measured. What
# calls themselves take, and half of all, is never taken for the recorder's.
_EVENT_NS, _EVENT_WITH_SITE_NS = 19, 60
_LEAST_OWN = 0.5


def _own_ns(recording: Recording) -> float:
    """Processor time of the program without what recording took."""
    used = recording.processor_ns or 0
    noting = recording.events * (_EVENT_WITH_SITE_NS if recording.sites else _EVENT_NS)
    calls = min(recording.allocations.objects * PAIR_NS, used)
    return max(used - noting, _LEAST_OWN * used, calls)


def _by_processor_time(profile: Profile) -> bool:
    return all(each.processor_ns for each in profile.recordings)


def per_second(number: float, profile: Profile) -> float:
    """So many of the whole recording, for each second of the program's processor time, which does
    not depend on how busy the machine was; where a recording does not tell that, a second."""
    own = sum(map(_own_ns, profile.recordings))
    ns = own if _by_processor_time(profile) else profile.totals.duration_ns
    return number * S / ns if ns else 0.0


def each_second(profile: Profile) -> str:
    """What `per_second` is for, in words."""
    return "per second of processor time" if _by_processor_time(profile) else "per second"


def of_its_time(profile: Profile) -> str:
    """What a part of `per_second`'s second is a part of."""
    return "of the program's processor time" if _by_processor_time(profile) else "of a core"


def power_of_two(number: int, least: int) -> int:
    """The least power of two from `least`, which is one, on that is no smaller than `number`."""
    return max(least, 1 << max(number - 1, 0).bit_length())
