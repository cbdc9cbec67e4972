"""The recommendation: what verdicts show to be better, weighed; and who cannot be told apart.

An allocator is *better* than another when it is shown to be so in some goal, and is either shown to
be worse in none, or costs less under the weights, which must be shown too. What is too little to
matter counts as no difference. What may be too little is no reason for an allocator, but may be one
against it: then the weights decide. Who has nobody better is *unbeaten*. Somebody is recommended
only where some allocator is better than another one: the baseline, if it is unbeaten, since nobody
gives up what they have without a reason; else the unbeaten one of the lowest score.

Time is one metric (`statistics.time_metric` says which). Where it cannot tell, and another figure
of time shows who would not be recommended to be better, nothing is recommended. Where processor
time decides, who is shown to lose wall time is better only if the weights say so with wall time in
its place: waits that an allocator causes are in no processor time. Both can only withdraw a
recommendation, so that no more of them are false.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import comb, inf

import numpy as np

from heapfit.advice import noise
from heapfit.advice.costs import SCORE, Costs, costs_of, has_ratios, pareto_front, score_verdicts
from heapfit.advice.goals import TIME, Goal, goals
from heapfit.advice.values import between_values
from heapfit.advice.words import (
    OF_FIXED_DURATION,
    Dispute,
    Known,
    by_processor_time,
    disputed,
    other_winners,
    reasons,
    slower,
    small_program,
    telling_words,
    untold_words,
    wall_time_lost,
)
from heapfit.findings import Advice, SettingWinner, Standing
from heapfit.meaning import (
    NO_IDLE_TIME,
    PROCESSOR,
    PROCESSOR_TIME,
    RESIDENT_PEAK,
    SMALL_PEAK,
    TOO_SMALL,
    WALL,
    is_replay,
    is_time,
)
from heapfit.records import SIGNIFICANT, Metric, Study, Trial, TrialStatus, Verdict
from heapfit.settings import varied_levels
from heapfit.statistics.observations import Floats, Readings, figures_of
from heapfit.statistics.time_metric import waits_of
from heapfit.statistics.verdict import in_settings, overall
from heapfit.text import capitalised, counted, mid_sentence

TIMES_OF_A_RUN = (WALL, PROCESSOR, *PROCESSOR_TIME)


@dataclass(frozen=True)
class Contest:
    """What is shown of each goal, and of the scores, in one setting or over all of them."""

    goals: Sequence[tuple[Metric, Known]]
    weighable: bool  # whether the scores hold all goals
    score: Known
    # Where processor time decides: what is shown of it, of wall time, and of the scores with that
    # in its place.
    processor: Known
    wall: Known
    score_by_wall: Known

    def _wins(self, first: str, second: str) -> bool:
        return any(_is_better(metric, known, first, second) for metric, known in self.goals)

    def _leads(self, first: str, second: str) -> bool:
        """Whether `first` is shown to be better in some goal, be it by what may be too little to
        matter."""
        return any(_is_ahead(metric, known, first, second) for metric, known in self.goals)

    def dominates(self, first: str, second: str) -> bool:
        """Whether `first` is shown to be better in some goal and worse in none."""
        wins = self._wins(first, second) and not self._leads(second, first)
        return wins and self.lost_wall_time(first, second) is None

    def lost_wall_time(self, first: str, second: str) -> Verdict | None:
        """The verdict that `first` takes more wall time than `second`, and more of it than of
        processor time, where that decides."""
        wall, processor = self.wall.get((first, second)), self.processor.get((first, second))
        if wall is None or not wall.counts or wall.beyond < 0:
            return None
        if processor and processor.shown and processor.beyond > 0:
            return None if (wall.low or 0.0) <= (processor.high or inf) else wall
        return wall

    def better(self, first: str, second: str) -> bool:
        if self.lost_wall_time(first, second) is None:
            return self.would_be_better(first, second)
        return self._wins(first, second) and self._costs_less(self.score_by_wall, first, second)

    def would_be_better(self, first: str, second: str) -> bool:
        """Whether `first` is better by the goals, whatever wall time it loses."""
        if not self._wins(first, second):
            return False
        if not self._leads(second, first):
            return True
        return self._costs_less(self.score, first, second)

    def _costs_less(self, score: Known, first: str, second: str) -> bool:
        weighed = score.get((first, second))
        return self.weighable and weighed is not None and weighed.shown and weighed.beyond < 0

    def prefers(self, first: str, second: str) -> bool:
        """Whether nothing that is known of wall time forbids to prefer `first` to `second`."""
        return self.lost_wall_time(first, second) is None or self.better(first, second)

    def unbeaten(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if not any(self.better(other, name) for other in names)]

    def tied(self, best: str, names: Sequence[str]) -> list[str]:
        """Return whom `best` is not better than, itself among them."""
        return [name for name in names if not self.better(best, name)]

    def decides(self, names: Sequence[str]) -> bool:
        return any(self.better(first, second) for first in names for second in names)


def recommend(
    readings: Readings,
    weights: Mapping[str, float],
    earlier: Sequence[Trial] = (),
    *,
    lenient: bool = False,
) -> Advice:
    """Return the ranking of the allocators under `weights` for time, memory and fragmentation.

    An allocator's score is the weighted geometric mean of its costs; each cost is the geometric
    mean, over all settings (cores, sizes) with the same weight, of the allocator's ratio to the
    best. Empty weights: all goals weigh the same. A goal in which all are shown to be within too
    little to matter has no part in the score.

    In a study of one option's values under one allocator, these are ranked. Who fails is judged by
    the trials of `earlier` studies as well, and if `lenient` only by what is beyond chance.

    References: in `costs.py`. Raises ValueError for an
    unknown goal or a negative weight.
    """
    readings = between_values(readings)
    wanted, notes = goals(readings, weights)
    weighed, little = _that_matter(readings, wanted)
    costs = costs_of(readings, weighed) if weighed else None
    counted = {goal.name: goal.weight for goal in weighed}
    metrics = {goal.name: goal.metric.name for goal in weighed}
    if costs is None:
        return Advice(
            weights=counted,
            metrics=metrics,
            standings=[],
            recommended=None,
            reasons="There is nothing to recommend yet. Fewer than two "
            f"{readings.study.noun}s have trials with figures to compare.",
            notes=notes,
        )
    failing = failing_words(readings, earlier, lenient=lenient)
    every = [allocator.name for allocator in readings.study.allocators]
    costs = replace(costs, kept=[place for place in costs.kept if every[place] not in failing])
    if len(costs.kept) < 2:
        return Advice(
            weights=counted,
            metrics=metrics,
            standings=[],
            recommended=None,
            reasons="There is nothing to recommend: only one "
            f"{readings.study.noun} is left that fails no more often than the baseline.",
            notes=[*notes, *failing.values()],
        )
    # A note on any setting, for any goal, is to be false in 5 % of studies.
    times = len(weighed) * len(readings.study.settings())
    on_scores, in_each = score_verdicts(readings, costs, times)
    study = readings.study
    names = [every[index] for index in costs.kept]
    contest, by_setting = _contests(readings, weighed, on_scores, in_each, names, times)
    scores = _scores(costs, weighed)
    in_order = sorted(names, key=lambda name: scores[every.index(name)])
    best, recommended = _chosen(contest, in_order, study.baseline)
    order = [best, *(name for name in in_order if name != best)]
    tied = set(contest.tied(best, names))
    beaten = {n for n in names if any(contest.dominates(other, n) for other in names)}
    standings = _standings(costs, weighed, every, order, tied, beaten, scores)
    winners = _winners(readings, by_setting, in_order)
    slow = _slow(study, contest, names)
    disputes = _disputes(readings, weighed, contest, names, recommended)
    dispute = disputed(study, disputes) if disputes else ""
    if slow and recommended in (None, study.baseline):
        dispute = slower(weighed, [known for _, known in contest.goals], slow)
    if dispute:
        recommended = None
    stays = recommended in (None, study.baseline) and not dispute
    untold = _untold(readings, weighed, contest, names) if stays else []
    return Advice(
        weights=counted,
        metrics=metrics,
        standings=standings,
        recommended=recommended,
        keeps=recommended == study.baseline,
        differs=bool(dispute)
        or any(e.counts or e.contradicts for _, known in contest.goals for e in known.values()),
        told=any(each.told for _, known in contest.goals for each in known.values()),
        untold=untold,
        scores=on_scores,
        slow=[each.first for each in slow],
        reasons=dispute
        or " ".join(
            [
                reasons(
                    study,
                    weighed,
                    standings,
                    recommended,
                    [known for _, known in contest.goals],
                    contest.score,
                    untold=bool(untold),
                ),
                *_waits(contest, recommended, study.baseline),
            ]
        ),
        small=_small(contest, standings),
        basis=_basis(readings) if metrics.get(TIME) == PROCESSOR else "",
        by_setting=winners,
        notes=[
            *notes,
            *little,
            *_without_ratio(readings, weighed),
            *failing.values(),
            *_left_out([each for each in every if each not in failing], names),
            *other_winners(best, winners),
            *_idle(study),
        ],
    )


def _basis(readings: Readings) -> str:
    """Why time is processor time."""
    if not _has_wall_time(readings):
        return OF_FIXED_DURATION
    return by_processor_time(waits_of(readings))


def _idle(study: Study) -> list[str]:
    """What a replay that does not keep to the recorded times leaves out."""
    if not is_replay(study) or "real" in study.command:
        return []
    return [
        f"{NO_IDLE_TIME}, so it does not tell what a process keeps while it rests: look at that "
        "with heapfit why."
    ]


def _that_matter(readings: Readings, wanted: Sequence[Goal]) -> tuple[list[Goal], list[str]]:
    """The goals in which any two allocators may be further apart than too little, and a note on
    each other one. Where there is no such goal all count, so that the ranking can be shown.

    Time counts, too, where processor time decides and wall time shows a difference that may matter:
    it is in the table beside the note."""
    kept: list[Goal] = []
    little: list[Goal] = []
    for goal in wanted:
        found = overall(readings, figures_of(readings, goal.metric.name), goal.metric)
        is_little = bool(found) and all(each.trivial for each in found)
        if is_little and goal.metric.name == PROCESSOR and _has_wall_time(readings):
            is_little = not any(e.shown and not e.trivial for e in _of_wall_time(readings))
        (little if is_little else kept).append(goal)
    start = "{} does not count: in" if kept else "In"
    notes = [
        f"{capitalised(start.format(goal.title))} {mid_sentence(goal.metric.label)} all "
        f"{readings.study.noun}s are shown to be within {_little(goal.metric)} of each other, "
        "which is too little to matter."
        for goal in little
    ]
    return (kept or little), notes


def _without_ratio(readings: Readings, weighed: Sequence[Goal]) -> list[str]:
    return [
        f"No ratio is taken of {mid_sentence(goal.metric.label)}, which can be 0 or less: the "
        "differences are compared, and not weighed against other goals."
        for goal in weighed
        if not has_ratios(goal, figures_of(readings, goal.metric.name))
    ]


def _little(metric: Metric) -> str:
    return "1 MiB" if metric.unit == "bytes" else f"{1000 * TOO_SMALL[metric.unit]:g} ms"


def _contests(
    readings: Readings,
    wanted: Sequence[Goal],
    on_scores: Sequence[Verdict],
    in_each: Sequence[Sequence[Verdict]],
    names: Collection[str],
    times: int,
) -> tuple[Contest, list[Contest]]:
    """What is shown of those that take part: nobody else's differences are a reason. In single
    settings it is adjusted for so many `times` as many pairs."""
    figures = [(goal.metric, figures_of(readings, goal.metric.name)) for goal in wanted]
    everywhere = [
        (metric, _known(overall(readings, each, metric), names)) for metric, each in figures
    ]
    settings = [
        [(metric, _known(found, names)) for found in in_settings(readings, each, metric, times)]
        for metric, each in figures
    ]
    weighable = all(has_ratios(g, figures_of(readings, g.metric.name)) for g in wanted)
    nothing: list[list[Verdict]] = [[] for _ in in_each]
    wall, walls, by_wall, each_by_wall = [], nothing, [], nothing
    if any(metric.name == PROCESSOR for metric, _ in figures) and _has_wall_time(readings):
        scores = _scores_by_wall_time(readings, wanted)
        wall, by_wall = _of_wall_time(readings), overall(readings, scores, SCORE)
        walls = in_settings(readings, figures_of(readings, WALL), _wall_time(readings), times)
        each_by_wall = in_settings(readings, scores, SCORE, times)

    def contest(
        of_goals: Sequence[tuple[Metric, Known]],
        *of_scores_and_wall: Sequence[Verdict],
    ) -> Contest:
        processor = next((known for metric, known in of_goals if metric.name == PROCESSOR), {})
        score, wall, by_wall = (_known(each, names) for each in of_scores_and_wall)
        return Contest(of_goals, weighable, score, processor, wall, by_wall)

    within = zip(zip(*settings, strict=True), in_each, walls, each_by_wall, strict=True)
    return contest(everywhere, on_scores, wall, by_wall), [contest(*each) for each in within]


def _has_wall_time(readings: Readings) -> bool:
    """Whether wall time counts beside processor time: not where the workload fixes it."""
    return WALL in readings.figures


def _wall_time(readings: Readings) -> Metric:
    return next(each for each in readings.study.metrics if each.name == WALL)


def _of_wall_time(readings: Readings) -> list[Verdict]:
    return overall(readings, figures_of(readings, WALL), _wall_time(readings))


def _scores_by_wall_time(readings: Readings, wanted: Sequence[Goal]) -> Floats:
    """Each trial's score with wall time in place of processor time."""
    wall = _wall_time(readings)
    by_wall = [replace(e, metric=wall) if e.metric.name == PROCESSOR else e for e in wanted]
    costs = costs_of(readings, by_wall)
    return costs.scores if costs else np.full(len(readings.block), np.nan)


def _known(verdicts: Iterable[Verdict], names: Collection[str]) -> Known:
    between = [each for each in verdicts if each.first in names and each.second in names]
    either_way = [each for verdict in between for each in (verdict, verdict.turned())]
    return {(each.first, each.second): each for each in either_way}


def _is_better(metric: Metric, known: Known, first: str, second: str) -> bool:
    verdict = known.get((first, second))
    return verdict is not None and verdict.counts and _is_ahead(metric, known, first, second)


def _is_ahead(metric: Metric, known: Known, first: str, second: str) -> bool:
    verdict = known.get((first, second))
    if verdict is None or not verdict.shown or verdict.trivial:
        return False
    return (verdict.beyond < 0) == (metric.better == "lower")


def _chosen(contest: Contest, names: Sequence[str], baseline: str) -> tuple[str, str | None]:
    """Who stands first, and who is recommended; `names` are in the order of their scores."""
    if not contest.decides(names):
        return names[0], None
    unbeaten = contest.unbeaten(names)
    if baseline in unbeaten:
        return baseline, baseline
    if baseline not in names:
        best = (unbeaten or names)[0]
    else:
        # Where scores and single goals go in a circle, everybody has somebody better.
        able = [name for name in names if contest.better(name, baseline)]
        # Of these, too, none is preferred that loses wall time by it.
        quick = [name for name in able if all(contest.prefers(name, other) for other in able)]
        able = quick or able
        best = next((name for name in able if name in unbeaten), able[0])
    return best, best


def _scores(costs: Costs, wanted: Sequence[Goal]) -> Floats:
    """Each allocator's score, of its costs over all settings; NaN: left out."""
    weighed = [goal for goal in wanted if goal.name in costs.by_goal]
    total = sum(goal.weight for goal in weighed)
    parts = [goal.weight / total * np.log(costs.of(goal.name)) for goal in weighed]
    first = next(iter(costs.figures.values()))
    return np.exp(np.sum(parts, axis=0)) if parts else np.ones(len(first))


def _slow(study: Study, contest: Contest, names: Sequence[str]) -> list[Verdict]:
    """The verdicts on wall time that forbid to prefer another to the baseline, or the reverse."""
    pairs = [pair for name in names for pair in ((name, study.baseline), (study.baseline, name))]
    found = [
        contest.lost_wall_time(*pair)
        for pair in pairs
        if contest.would_be_better(*pair) and not contest.better(*pair)
    ]
    return [each for each in found if each is not None]


def _waits(contest: Contest, recommended: str | None, baseline: str) -> list[str]:
    """A sentence where who is recommended loses wall time to the baseline."""
    if recommended is None:
        return []
    lost = contest.lost_wall_time(recommended, baseline)
    return [wall_time_lost(lost, contest.score_by_wall[recommended, baseline])] if lost else []


def _disputes(
    readings: Readings,
    weighed: Sequence[Goal],
    contest: Contest,
    names: Sequence[str],
    recommended: str | None,
) -> list[Dispute]:
    """Where time decides and cannot tell, the other figures of time that show somebody to be better
    than the baseline, if that is kept, or the baseline to be better than who is recommended."""
    baseline = readings.study.baseline
    times = (goal for goal in weighed if goal.name == TIME and is_time(goal.metric))
    time = next(times, None)
    if time is None or baseline not in names:
        return []
    of_time = next(known for metric, known in contest.goals if metric is time.metric)
    others = [
        (metric, _known(overall(readings, figures_of(readings, metric.name), metric), names))
        for metric in readings.study.metrics
        if metric.name in TIMES_OF_A_RUN and metric.name != time.metric.name
    ]
    chosen = baseline if recommended is None else recommended
    rivals = [name for name in names if name != baseline] if chosen == baseline else [baseline]
    found = []
    for rival in rivals:
        told = of_time.get((chosen, rival))
        if told is None or told.shown or told.p is None:
            continue
        if contest.lost_wall_time(chosen, rival) and contest.better(chosen, rival):
            continue  # Wall time has been weighed.
        against = [
            known[rival, chosen]
            for metric, known in others
            if _is_better(metric, known, rival, chosen)
        ]
        for_it = any(_is_better(metric, known, chosen, rival) for metric, known in others)
        if against and not for_it:
            labels = {metric.name: metric.label for metric, _ in others}
            ahead = [
                goal.title
                for goal, (metric, known) in zip(weighed, contest.goals, strict=True)
                if _is_better(metric, known, chosen, rival)
            ]
            found.append(Dispute(time.metric.label, against[0], labels[against[0].metric], ahead))
    return found


def _untold(
    readings: Readings, weighed: Sequence[Goal], contest: Contest, names: Sequence[str]
) -> list[str]:
    """What the intervals of each goal leave open beside the baseline, and at last what would tell;
    empty: a gain of `WORTH` would have been shown in all of them."""
    study = readings.study
    said: list[str] = []
    needed: list[int | None] = []
    for goal, (_, known) in zip(weighed, contest.goals, strict=True):
        beside = [known.get((name, study.baseline)) for name in names if name != study.baseline]
        untold = [e for e in beside if e and noise.is_untold(readings, goal.metric, e)]
        if untold:
            said.append(untold_words(study, goal, untold, is_first=not said))
            metric = goal.metric.name
            needed += [noise.blocks_to_show(readings, metric, each.first) for each in untold]
    if not said:
        return []
    blocks = None if None in needed else max(each for each in needed if each)
    return [*said[:-1], f"{said[-1]} {telling_words(blocks)}"]


def _small(contest: Contest, standings: Sequence[Standing]) -> str:
    """What is to be said of a difference in memory of a small program; empty: there is none."""
    for metric, known in contest.goals:
        if metric.name == RESIDENT_PEAK and any(each.counts for each in known.values()):
            least = min(each.metrics[metric.name] for each in standings)
            return small_program(least) if least < SMALL_PEAK else ""
    return ""


def _standings(
    costs: Costs,
    wanted: Sequence[Goal],
    every: Sequence[str],
    order: Sequence[str],
    tied: set[str],
    beaten: set[str],
    scores: Floats,
) -> list[Standing]:
    """Best first. Scores and costs over all settings."""
    by_goal = {goal.name: costs.of(goal.name) for goal in wanted if goal.name in costs.by_goal}
    places = [every.index(name) for name in order]
    fronts = pareto_front([_goods(costs, wanted, by_goal, place) for place in places])
    return [
        Standing(
            allocator=every[place],
            score=float(scores[place]),
            costs={name: float(ratios[place]) for name, ratios in by_goal.items()},
            metrics={name: float(figures[place]) for name, figures in costs.figures.items()},
            on_front=front,
            unbeaten=every[place] not in beaten,
            tied_with_best=every[place] in tied,
        )
        for place, front in zip(places, fronts, strict=True)
    ]


def _goods(
    costs: Costs, wanted: Sequence[Goal], by_goal: Mapping[str, Floats], place: int
) -> list[float]:
    """What the front is drawn by: costs, and the figures themselves where there are none."""
    return [
        float(by_goal.get(goal.name, costs.figures[goal.metric.name])[place]) for goal in wanted
    ]


def _left_out(every: Sequence[str], kept: Sequence[str]) -> list[str]:
    names = [name for name in every if name not in kept]
    said = "Left out, since they have no good run in every setting"
    return [f"{said}: {', '.join(names)}."] if names else []


def failing_words(
    readings: Readings, earlier: Sequence[Trial] = (), *, lenient: bool = False
) -> dict[str, str]:
    """Return who fails more often than the baseline, each with a sentence that says so, of these
    trials and those of `earlier` studies.

    Nobody is to deploy what fails, however good the trials that are left.
    """
    trials_of_all = [*earlier, *readings.trials]
    failed = failed_trials(trials_of_all)
    accepted = len(failed.get(readings.study.baseline, []))
    return {
        name: f"{name} is left out: {_trials_failed(len(trials))}, "
        + (f"and {accepted} of the baseline." if accepted else "and none of the baseline.")
        for name, trials in failing(trials_of_all, readings.study.baseline, lenient=lenient).items()
    }


def failed_trials(trials: Iterable[Trial]) -> dict[str, list[Trial]]:
    """Return the failed trials of each allocator that has some."""
    failed: dict[str, list[Trial]] = {}
    for trial in trials:
        if trial.status is not TrialStatus.OK:
            failed.setdefault(trial.planned.allocator, []).append(trial)
    return failed


def failing(
    trials: Iterable[Trial], baseline: str, *, lenient: bool = False
) -> dict[str, list[Trial]]:
    """Return the failed trials of each allocator that fails more often than the baseline: at all,
    where that never does, unless this is `lenient`; else by more than may be chance, since one that
    fails as often has more failed trials in every other study."""
    trials = list(trials)
    failed = failed_trials(trials)
    runs = Counter(each.planned.allocator for each in trials)
    accepted = len(failed.pop(baseline, []))
    return {
        name: found
        for name, found in failed.items()
        if not (accepted or lenient)
        or _by_chance(len(found), runs[name], accepted, runs[baseline]) < SIGNIFICANT
    }


def _by_chance(failed: int, runs: int, accepted: int, baseline_runs: int) -> float:
    """Return how likely so many of the failures of both, or more, are the first one's if both fail
    as often: R. A. Fisher's exact test, "The design of experiments" (1935), one-sided."""
    total = failed + accepted
    ways = [comb(runs, n) * comb(baseline_runs, total - n) for n in range(failed, total + 1)]
    return sum(ways) / comb(runs + baseline_runs, total)


def _trials_failed(count: int) -> str:
    return f"{counted(count, 'trial')} of it failed"


def _winners(
    readings: Readings, contests: Sequence[Contest], names: Sequence[str]
) -> list[SettingWinner]:
    """Who is best in each setting; none where there is only one."""
    settings = readings.study.settings()
    if len(settings) < 2:
        return []
    winners = []
    for contest, setting in zip(contests, settings, strict=True):
        present = [n for n in names if any(n == first for first, _ in contest.score)]
        if not present:
            continue
        best = (contest.unbeaten(_by_score(contest, present)) or present)[0]
        winners.append(
            SettingWinner(
                at=varied_levels(readings.study, setting),
                best=best,
                tied=sorted(set(contest.tied(best, present)) - {best}),
            )
        )
    return winners


def _by_score(contest: Contest, names: Sequence[str]) -> list[str]:
    """Names in the order of their scores in a setting."""
    reference = names[0]
    known = {name: contest.score.get((name, reference)) for name in names}
    return sorted(names, key=lambda name: each.estimate if (each := known[name]) else 1.0)
