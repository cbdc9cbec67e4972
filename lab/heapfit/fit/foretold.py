"""A first round on a replay of the program's recording, where the program is too long for all
candidates to be tried on it.

A replay foretells memory and page faults; by these alone it puts candidates in order. Allocators
come before settings. What goes by call sites or changes what an interpreter calls is not in a
replay, and comes after what is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path

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
from heapfit.text import ratio
from heapfit.trial.outcome import Rejected

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
# By which figures somebody goes, the higher the worse: where by two, by the places in both, since
# so many bytes and so many faults are nothing together. With a limit of memory, both count.
_BY = {
    MEMORY: (PEAK_METRICS[0],),
    MEAN: (MEAN_METRICS[0],),
    TIME: (_FAULTS,),
    BALANCE: (PEAK_METRICS[0], _FAULTS),
}
_LABELS = {PEAK_METRICS[0]: "memory", MEAN_METRICS[0]: "mean memory", _FAULTS: "page faults"}


def contenders(found: Sequence[Candidate], room: int) -> list[Candidate]:
    """Return those of which only some can be tried, as far as a replay tells of them: of the
    allocators, or of the settings where there is room for all of those."""
    tried = [each for each in found if each.tried]
    plain = [each for each in tried if each.is_plain]
    rest = [each for each in tried if not each.is_plain] if len(plain) < room else []
    return [each for each in (plain if len(plain) > room else rest) if each.replayable]


def why_not(setup: Setup, facts: Facts, tried: int) -> str | None:
    """Return why no replay tells who is to be left out; None: one does."""
    if look.is_of_idle_time(facts, setup.goal):
        return "the program is idle for most of its time, and a replay has no idle time"
    events = _EVENTS_OF_A_BLOCK * (facts.allocations or 0.0)
    if not events:
        return "nothing was recorded"
    if events > _MOST_EVENTS:
        return f"a recording of all {events:,.0f} calls would be too long"
    needed_s = _BLOCKS * (tried + 1) * (events * _S_OF_AN_EVENT + _S_OF_A_START)
    return None if needed_s <= _SHARE * setup.time_s else "the replays would take too long"


def recorded_in_full(setup: Setup, folder: Path, data: Path | None) -> Plan:
    """Return the plan of a recording of every call, made now unless it is there.

    Raises HeapfitError where there is none.
    """
    whole = folder / look.FULL / look.RECORDING
    if not whole.exists():
        whole.parent.mkdir(exist_ok=True)
        try:
            look.record(setup.study("as it is", [], 1, 0, 0), whole.parent, data, "0")
        except Rejected as error:
            raise HeapfitError(f"it could not be recorded: {error.reason}") from error
    return make_plan(whole)


def in_order(
    setup: Setup,
    found: Sequence[Candidate],
    judged: Sequence[Candidate],
    made: Plan,
    folder: Path,
) -> tuple[list[Candidate], dict[str, str]]:
    """Return `found`, those that are `judged` by a replay in its order, and what it tells of them.

    It gives the order to try them in where there is no time for all."""
    figures = _figures(setup, [each.allocator for each in judged], made, folder)
    base = figures.pop(setup.baseline.name, {})
    metrics = _by(setup)
    ranked = {
        metric: sorted(own[metric] for own in figures.values() if metric in own)
        for metric in metrics
    }
    each_place = {
        name: [ranked[each].index(own[each]) for each in metrics]
        for name, own in figures.items()
        if len(own) == len(metrics)
    }
    places = {name: (sum(own), own[0]) for name, own in each_place.items()}  # memory breaks a tie
    order = sorted(
        found,
        key=lambda each: (
            not each.is_plain,
            each.waits,
            not each.replayable,
            places.get(each.name, (inf,)),
        ),
    )
    return order, {each.name: _told(figures.get(each.name, {}), base) for each in judged}


def _told(own: Mapping[str, float], base: Mapping[str, float]) -> str:
    said = [
        f"{label} {ratio(own[each] / base[each])}"
        for each, label in _LABELS.items()
        if each in own and base.get(each)
    ]
    return f"its replay beside today's: {', '.join(said)}" if own else "its replay failed"


def _by(setup: Setup) -> tuple[str, ...]:
    return _BY[BALANCE if setup.goal.limit else setup.goal.text]


def _figures(
    setup: Setup, tried: Sequence[InstalledAllocator], made: Plan, folder: Path
) -> dict[str, dict[str, float]]:
    """Return by allocator, the baseline among them, what it costs in the replay."""
    on_replay = replace(setup, workload=replay_workload(made), keep=[], is_replay=True)
    where = folder / REPLAY
    setup.measure(on_replay.study("first round", tried, _BLOCKS, 0, _STEP), where)
    figures: dict[str, dict[str, float]] = {}
    for each in summarise(read_trials(*load(where))).estimates:
        if each.metric in _by(setup):
            figures.setdefault(each.allocator, {})[each.metric] = each.median
    return figures
