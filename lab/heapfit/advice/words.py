"""The reasons for a recommendation, in two sentences, and notes on the settings."""

from __future__ import annotations

from collections.abc import Sequence

from heapfit.advice.goals import Goal
from heapfit.findings import Analysis, SettingWinner, Standing
from heapfit.records import Study
from heapfit.statistics.assumptions import SIGNIFICANT

# Ratios closer to 1 are written as "the same": no reader acts on half a per cent.
_SMALLEST = 1.005


def reasons(
    study: Study,
    wanted: Sequence[Goal],
    standings: Sequence[Standing],
    analyses: Sequence[Analysis],
    tested: bool,
) -> str:
    """Return two sentences: who leads and by how much, and what that costs elsewhere."""
    if not tested:
        return (
            f"{standings[0].allocator} has the lowest cost, but these few trials do not say "
            "whether that is chance. Run more replicates before deciding."
        )
    if all(standing.tied_with_best for standing in standings):
        return f"{_no_difference(standings)} {_trade_off(wanted, standings, analyses)}"
    return f"{_lead(study, standings)} {_trade_off(wanted, standings, analyses)}"


def other_winners(leader: str, winners: Sequence[SettingWinner]) -> list[str]:
    """Return a note on each setting in which the leader is significantly worse than the best."""
    return [
        f"At {_setting(winner.at)}, {winner.best} costs significantly less than {leader}."
        for winner in winners
        if leader != winner.best and leader not in winner.tied
    ]


def _setting(at: dict[str, str]) -> str:
    return ", ".join(f"{factor} {level}" for factor, level in at.items())


def _no_difference(standings: Sequence[Standing]) -> str:
    last = standings[-1]
    return (
        "There is no significant difference between the allocators under these weights: from the "
        f"lowest cost, {standings[0].allocator}'s, to the highest, {last.allocator}'s, is "
        f"{_percent(last.score / standings[0].score)}, which may be chance."
    )


def _lead(study: Study, standings: Sequence[Standing]) -> str:
    best = standings[0]
    tied = [standing.allocator for standing in standings[1:] if standing.tied_with_best]
    lead = f"{best.allocator} costs least under these weights"
    if tied:
        lead += f", though it cannot be told apart from {_listed(tied)}"
    against = _reference(study, standings)
    if against is None:
        return lead + "."
    return f"{lead}: {against.allocator} costs {_percent(against.score / best.score)} more."


def _reference(study: Study, standings: Sequence[Standing]) -> Standing | None:
    """Whom to name for comparison: the baseline if it is worse, else the first that is."""
    worse = [standing for standing in standings if not standing.tied_with_best]
    baseline = [standing for standing in worse if standing.allocator == study.baseline]
    return next(iter([*baseline, *worse]), None)


def _trade_off(
    wanted: Sequence[Goal], standings: Sequence[Standing], analyses: Sequence[Analysis]
) -> str:
    """What the leader gives up in each goal to the best in it."""
    leader = standings[0]
    given = []
    for goal in wanted:
        best = min(standings, key=lambda standing: standing.costs[goal.name])
        ratio = leader.costs[goal.name]
        if ratio > _SMALLEST and _significant(leader.allocator, best.allocator, goal, analyses):
            given.append(f"{_percent(ratio)} more {goal.name} than {best.allocator}")
    names = _listed([goal.name for goal in wanted])
    if not given:
        return f"No other allocator is significantly better in {names.replace(' and ', ' or ')}."
    return f"The price, against the best in each, is {_listed(given)}."


def _significant(first: str, second: str, goal: Goal, analyses: Sequence[Analysis]) -> bool:
    """Whether the analysis of the goal's metric tells two allocators apart; yes without one."""
    for analysis in analyses:
        if analysis.metric == goal.metric.name:
            for difference in analysis.overall:
                if {difference.first, difference.second} == {first, second}:
                    return difference.p < SIGNIFICANT
    return True


def _percent(ratio: float) -> str:
    """
    >>> _percent(1.034), _percent(1.2), _percent(3.5)
    ('3.4 %', '20 %', '250 %')
    """
    share = 100 * (ratio - 1)
    return f"{share:.1f} %" if share < 10 else f"{share:.0f} %"


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
