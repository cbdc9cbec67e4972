"""Which allocators and settings are worth trying on a program, each with the reason."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from heapfit import catalogue
from heapfit.fit import facts as known
from heapfit.fit.facts import Facts
from heapfit.fit.goal import Goal
from heapfit.records import AllocatorSetting, InstalledAllocator
from heapfit.text import join_words

_NO_CALL_SITES = "it depends on call sites, which a replay does not have: try it on the program"
_NO_INTERPRETER = (
    "it changes which calls are made, and a replay repeats the recorded ones: try it on the program"
)


@dataclass(frozen=True)
class Candidate:
    """An allocator, or a setting of one, and why it is tried or not."""

    allocator: InstalledAllocator
    tried: bool
    reason: str
    trades: str = ""
    replayable: bool = True  # a replay of the recorded calls can tell what it does
    applies: bool = True  # to the program, the goal, and how they are tried
    of_idle: bool = False  # for programs that sleep

    @property
    def name(self) -> str:
        return self.allocator.name

    @property
    def is_plain(self) -> bool:
        """Whether it is an allocator, not a setting of one."""
        return self.allocator.variant_of is None

    @property
    def waits(self) -> bool:
        """Whether it is tried only if its allocator does well, where time is short."""
        return not (self.is_plain or self.of_idle)


def candidates(
    installed: Sequence[InstalledAllocator],
    baseline: str,
    facts: Facts,
    goal: Goal,
    *,
    is_replay: bool = False,
    own: Path | None = None,
) -> list[Candidate]:
    """Return the allocators but for the baseline, then what each can be told, in the order in
    which they are tried where time is short. Of a replay what that cannot tell is not tried, nor
    what a program does not use that has an allocator of its `own`."""
    entries = catalogue.load_allocators()
    by_site = {name for name, each in entries.items() if each.by_call_site}
    plain = [
        Candidate(each, True, "installed", replayable=each.name not in by_site)
        for each in installed
        if each.name != baseline
    ]
    settings = [
        (place, _judged(each, setting, facts, goal))
        for each in installed
        if each.name in entries
        for place, setting in enumerate(entries[each.name].settings)
    ]
    # What is for programs that sleep, of one that does; then the first of each allocator before the
    # second of any.
    settings.sort(
        key=lambda each: (
            (each[1].waits, each[0], "") if each[1].tried else (True, 1000, each[1].reason)
        )
    )
    found = [*plain, *(each for _, each in settings)]
    if own is not None:
        found = [_beside_own(each, own, baseline) for each in found]
    return [_without_program(each) for each in found] if is_replay else found


def _beside_own(candidate: Candidate, own: Path, baseline: str) -> Candidate:
    library = candidate.allocator.library
    if library is None and candidate.replayable:  # Not a setting of an interpreter's.
        reason = f"the program uses {own.name}, and not the C library's malloc"
    elif library is not None and candidate.is_plain and library.resolve() == own.resolve():
        reason = f"it is the program's own, which {baseline} stands for"
    else:
        return candidate
    return replace(candidate, tried=False, applies=candidate.is_plain, reason=reason)


def _without_program(candidate: Candidate) -> Candidate:
    if candidate.replayable:
        return candidate
    reason = _NO_INTERPRETER if candidate.allocator.variant_of else _NO_CALL_SITES
    return replace(candidate, tried=False, applies=candidate.is_plain, reason=reason)


def _judged(
    allocator: InstalledAllocator, setting: AllocatorSetting, facts: Facts, goal: Goal
) -> Candidate:
    variant = catalogue.with_setting(allocator, setting)
    when = [known.of_mean(each) if goal.is_of_mean else each for each in setting.when]
    missed = [each for each in when if known.holds(each, facts) is False]
    taken = [name for name in setting.environment if name in os.environ]
    if goal.gives != setting.gives and "both" not in (goal.gives, setting.gives):
        reason = f"it gives {setting.gives}, and the goal is {goal.text}"
    elif missed:
        reason = known.told(missed[0], facts)
    elif taken:
        reason = f"{taken[0]} is set here already, to {os.environ[taken[0]]!r}"
    else:
        reason = ""
    applies = not reason
    open_ones = [each for each in when if known.holds(each, facts) is None]
    if applies and open_ones:
        reason = f"if {join_words([known.asked(each) for each in open_ones])}"
    elif applies:
        seen = "; ".join(known.told(each, facts) for each in when)
        reason = f"{setting.why}{seen and f' Seen: {seen}.'} Price: {setting.trades}."
    replayable = not any(known.is_of_interpreter(each) for each in setting.when)
    of_idle = known.is_of_idle(setting.when)
    return Candidate(variant, applies, reason, setting.trades, replayable, applies, of_idle)


def only(
    found: Sequence[Candidate], names: Collection[str], told: Mapping[str, str], *, so_far: bool
) -> list[Candidate]:
    """Return `found`, of which those of these names alone are tried, `so_far` if settings may
    follow; of others, what is `told` of them is given beside."""
    why = f"there is time for {len(names)}; allow more --time"
    if_well = "tried if its allocator is among the best; to try all, allow more --time"

    def late(each: Candidate) -> Candidate:
        reason = why if each.is_plain or not so_far else if_well
        beside = filter(None, [reason, told.get(each.name)])
        return replace(each, tried=False, reason="; ".join(beside))

    return [late(each) if each.tried and each.name not in names else each for each in found]


def tried_of(found: Iterable[Candidate]) -> list[InstalledAllocator]:
    return [each.allocator for each in found if each.tried]
