"""The recommendation: a ranking under weights, and who cannot be told apart from the best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from heapfit.advice.costs import Costs, costs_of
from heapfit.advice.front import pareto_front
from heapfit.advice.goals import Goal, goals
from heapfit.advice.words import other_winners, reasons
from heapfit.findings import Advice, Analysis, SettingWinner, Standing
from heapfit.statistics.assumptions import SIGNIFICANT
from heapfit.statistics.comparisons import Compared
from heapfit.statistics.observations import Floats, Readings


def recommend(
    readings: Readings, analyses: Sequence[Analysis], weights: Mapping[str, float]
) -> Advice:
    """Return the ranking of the allocators under `weights` for time, memory and fragmentation.

    An allocator's score is the weighted geometric mean of its costs; each cost is the geometric
    mean, over all settings (cores, sizes) with the same weight, of the allocator's ratio to the
    best. The logarithm of the score is analysed like any metric: the best is recommended when
    Tukey's test (Games and Howell's, where variances differ) tells it apart from another; those
    that it does not tell apart are tied. `analyses` (of the same trials) say which trade-offs are
    significant and are named in the reasons. Empty weights: all goals weigh the same.

    References: in `costs.py` for the score, `statistics/tukey.py` for the test, `front.py` for the
    front. Raises ValueError for an unknown goal or a negative weight.
    """
    wanted, notes = goals(readings, weights)
    costs = costs_of(readings, wanted) if wanted else None
    counted = {goal.name: goal.weight for goal in wanted}
    metrics = {goal.name: goal.metric.name for goal in wanted}
    if costs is None:
        return Advice(
            weights=counted,
            metrics=metrics,
            standings=[],
            recommended=None,
            reasons="There is nothing to recommend yet. Fewer than two allocators have trials with "
            "figures to compare.",
            notes=notes,
        )
    standings = _standings(costs, wanted)
    winners = _winners(costs)
    decided = any(not standing.tied_with_best for standing in standings)
    return Advice(
        weights=counted,
        metrics=metrics,
        standings=standings,
        recommended=standings[0].allocator if decided else None,
        reasons=reasons(readings.study, wanted, standings, analyses, tested=_tested(costs)),
        by_setting=winners,
        notes=[*notes, *costs.sample.left_out, *other_winners(standings[0].allocator, winners)],
    )


def _tested(costs: Costs) -> bool:
    return costs.exact or costs.fitted is not None


def _standings(costs: Costs, wanted: Sequence[Goal]) -> list[Standing]:
    """Best first. Scores and costs over all settings."""
    scores = np.exp(costs.log_scores(wanted).mean(axis=0))
    by_goal = {
        goal.name: _relative(np.exp(costs.by_goal[goal.name].mean(axis=0))) for goal in wanted
    }
    front = pareto_front(np.array(list(by_goal.values())).T.tolist())
    order = np.argsort(scores, kind="stable").tolist()
    tied = _tied_overall(costs, order[0], scores)
    total = sum(goal.weight for goal in wanted)
    return [
        Standing(
            allocator=costs.allocators[index],
            score=float(np.prod([by_goal[g.name][index] ** (g.weight / total) for g in wanted])),
            costs={name: float(ratios[index]) for name, ratios in by_goal.items()},
            metrics={name: float(figures[index]) for name, figures in costs.figures.items()},
            on_front=front[index],
            tied_with_best=index in tied,
        )
        for index in order
    ]


def _relative(figures: Floats) -> Floats:
    return np.asarray(figures / figures.min())


def _tied_overall(costs: Costs, best: int, scores: Floats) -> set[int]:
    """Who cannot be told apart from the best, which is one of them; everybody without a test."""
    if costs.exact:
        return {i for i, score in enumerate(scores) if np.isclose(score, scores[best])}
    compared = costs.overall()
    if compared is None:
        return set(range(len(scores)))
    return _tied(compared, best)


def _tied(compared: Compared, best: int) -> set[int]:
    pairs = [(i, j) for i, j, _, _, _, p in compared.comparisons.rows() if p >= SIGNIFICANT]
    return {best, *(i + j - best for i, j in pairs if best in (i, j))}


def _winners(costs: Costs) -> list[SettingWinner]:
    """Who is best in each setting; none where there is only one."""
    within = costs.within_settings()
    if len(within) < 2 or costs.fitted is None:
        return []
    winners = []
    for compared in within:
        means = costs.fitted.fit.means[compared.family.cells]
        best = int(np.argmin(means))
        tied = sorted(_tied(compared, best) - {best})
        names = compared.family.levels
        winners.append(
            SettingWinner(
                at=compared.family.at, best=names[best], tied=[names[index] for index in tied]
            )
        )
    return winners
