"""A first round on a replay of the program's recording, where the program is too long for all
candidates to be tried on it.

A replay foretells memory and page faults; by these alone somebody goes. What goes by call sites or
changes what an interpreter calls is not in it, and goes on to the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean

from heapfit.errors import HeapfitError
from heapfit.fit import look
from heapfit.fit.candidates import Candidate
from heapfit.fit.facts import Facts
from heapfit.fit.goal import BALANCE, MEAN, MEAN_METRICS, MEMORY, PEAK_METRICS, TIME
from heapfit.fit.search import REPLAY, Setup
from heapfit.records import InstalledAllocator
from heapfit.replay import Plan, make_plan, replay_workload
from heapfit.statistics import read as read_trials
from heapfit.statistics import summarise
from heapfit.study import load
from heapfit.trial.outcome import Rejected

FULL = "recording-in-full"  # the folder of a recording of every call
_BLOCKS = 2
_STEP = 99  # beyond the number of any round
# A recording of so many events is read within a minute, and takes some hundred megabytes.
_MOST_EVENTS = 2e7
_EVENTS_OF_A_BLOCK = 2  # that it is allocated, and that it is freed
# Of the whole time, what the replays may take. An event takes some 60 ns, twice: once without a
# call. The program's start and the plan come on top.
_SHARE = 0.15
_S_OF_AN_EVENT, _S_OF_A_START = 1.5e-7, 0.3

_FAULTS = "replay_faults"
# By which figures somebody goes, the higher the worse. With a limit of memory, both count.
_BY = {
    MEMORY: (PEAK_METRICS[0],),
    MEAN: (MEAN_METRICS[0],),
    TIME: (_FAULTS,),
    BALANCE: (PEAK_METRICS[0], _FAULTS),
}


def why_not(facts: Facts, tried: int, time_s: float) -> str | None:
    """Return why no replay tells who is to be left out; None: one does."""
    events = _EVENTS_OF_A_BLOCK * (facts.allocations or 0.0)
    if not events:
        return "nothing was recorded"
    if events > _MOST_EVENTS:
        return f"a recording of all {events:,.0f} calls would be too long"
    needed_s = _BLOCKS * (tried + 1) * (events * _S_OF_AN_EVENT + _S_OF_A_START)
    return None if needed_s <= _SHARE * time_s else "the replays would take too long"


def recorded_in_full(setup: Setup, folder: Path, data: Path | None) -> Plan:
    """Return the plan of a recording of every call, made now unless it is there.

    Raises HeapfitError where there is none.
    """
    whole = folder / FULL / look.RECORDING
    if not whole.exists():
        whole.parent.mkdir(exist_ok=True)
        try:
            look.record(setup.study("as it is", [], 1, 0, 0), whole.parent, data, "0")
        except Rejected as error:
            raise HeapfitError(f"it could not be recorded: {error.reason}") from error
    return make_plan(whole)


def thin_out(
    setup: Setup, found: Sequence[Candidate], room: int, made: Plan, folder: Path
) -> list[Candidate]:
    """Return `found`, of which no more than `room` are tried: those that the replay foretells
    least memory and faults of, and those that it cannot tell of."""
    on_replay = [each for each in found if each.tried and each.replayable]
    others = sum(each.tried and not each.replayable for each in found)
    costs = _costs(setup, [each.allocator for each in on_replay], made, folder)
    base = costs.pop(setup.baseline.name, None)
    order = sorted(costs, key=lambda name: costs[name])
    kept = {*order[: max(room - others, 1)]}
    return [_told(each, costs, kept, base) if each in on_replay else each for each in found]


def _told(
    each: Candidate, costs: dict[str, float], kept: set[str], base: float | None
) -> Candidate:
    if each.name in kept:
        return each
    if each.name not in costs:
        return replace(each, tried=False, reason="its replay failed")
    beside = f"{costs[each.name] / base:.3f}x of today's" if base else "the higher"
    reason = f"there is no time for all, and its memory and faults in a replay were {beside}"
    return replace(each, tried=False, reason=reason)


def _costs(
    setup: Setup, tried: Sequence[InstalledAllocator], made: Plan, folder: Path
) -> dict[str, float]:
    """Return by allocator, the baseline among them, what it costs in the replay."""
    on_replay = replace(setup, workload=replay_workload(made), keep=[], is_replay=True)
    where = folder / REPLAY
    setup.measure(on_replay.study("first round", tried, _BLOCKS, 0, _STEP), where)
    wanted = _BY[BALANCE if setup.goal.limit else setup.goal.text]
    figures: dict[str, dict[str, float]] = {}
    for each in summarise(read_trials(*load(where))).estimates:
        if each.metric in wanted:
            figures.setdefault(each.allocator, {})[each.metric] = each.median
    return {
        name: geometric_mean(1 + value for value in found.values())
        for name, found in figures.items()
        if len(found) == len(wanted)
    }
