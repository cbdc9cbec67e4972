"""The reasons for a recommendation, in two sentences, and notes on the settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heapfit.advice import noise
from heapfit.advice.goals import Goal
from heapfit.findings import SettingWinner, Standing
from heapfit.records import Study, Verdict
from heapfit.text import join_words, percent

# The verdicts of a metric by pair, each either way round.
Known = Mapping[tuple[str, str], Verdict]


@dataclass(frozen=True)
class Dispute:
    """A figure of time that is against a recommendation, where the one that decides cannot tell."""

    time: str  # the label of that
    verdict: Verdict  # between who is better and who would be recommended
    label: str  # of its metric
    ahead: list[str]  # the goals in which the latter is better


def disputed(disputes: Sequence[Dispute]) -> str:
    """Return why nothing is recommended although something is shown to differ."""
    first = disputes[0]
    chosen = first.verdict.second
    rivals = join_words([each.verdict.first for each in disputes])
    against = join_words([_less_time(each) for each in disputes])
    ahead = list(dict.fromkeys(name for each in disputes for name in each.ahead))
    but = f", and {chosen} is better in {join_words(ahead)}" if ahead else ""
    return (
        f"{first.time} cannot tell {rivals} from {chosen}, but {against}{but}. Choose by what "
        "matters more to you, or measure again on a quieter machine."
    )


def _less_time(dispute: Dispute) -> str:
    verdict = dispute.verdict
    less = percent(1 - verdict.estimate) if verdict.subject == "ratio" else "significantly"
    return f"{verdict.first} takes {less} less {dispute.label.lower()}"


def untold_words(study: Study, goal: Goal, verdicts: Sequence[Verdict], blocks: int | None) -> str:
    """Return that a goal says nothing of some, and how many `blocks` would (None: no number that
    anybody would run)."""
    names = join_words([each.first for each in verdicts])
    most = max(noise.reach(each) for each in verdicts)
    said = (
        f"Whether {names} {'differs' if len(verdicts) == 1 else 'differ'} from {study.baseline} in "
        f"{goal.metric.label.lower()} cannot be told: the interval reaches {percent(most)} to "
        "either side."
    )
    quiet = "a quieter machine or more work in each run"
    if blocks is None:
        return f"{said} Only {quiet} would tell."
    return (
        f"{said} About {blocks} replicates (--replicates {blocks}) would show a difference of "
        f"{percent(noise.WORTH)}; {quiet} would need fewer."
    )


def by_processor_time(waits: float) -> str:
    """Return why processor time stands for time."""
    return (
        "Time is processor time (user and system) here, because the program uses one processor at "
        f"a time and its waits make wall time vary by {percent(waits)} from run to run."
    )


def reasons(
    study: Study,
    wanted: Sequence[Goal],
    standings: Sequence[Standing],
    recommended: str | None,
    known: Sequence[Known],
    score: Known,
    *,
    untold: bool,
) -> str:
    """Return two sentences: who leads and by how much, and what that costs elsewhere; none where
    nothing is shown and what is `untold` says the rest.

    `known` are the verdicts on the goals' metrics, `score` those on the scores.
    """
    verdicts = [each for of_goal in known for each in of_goal.values()]
    if all(each.p is None for each in verdicts):
        return (
            f"{standings[0].allocator} has the lowest cost, but these few trials do not say "
            "whether that is chance. Run more replicates before deciding."
        )
    # Who is left out may be better or worse than anybody: nothing is said of it here.
    one, several = study.noun, f"{study.noun}s"
    if len(standings) < len(study.allocators):
        one, several = f"{one} that takes part", f"{several} that take part"
    if recommended is None:
        return _undecided(several, standings, verdicts, untold=untold)
    price = _trade_off(one, wanted, standings, known)
    if recommended == study.baseline and any(s.tied_with_best for s in standings[1:]):
        return f"{_kept(one, wanted, standings, known)} {price}"
    return f"{_lead(study, wanted, standings, known, score)} {price}"


def _undecided(
    several: str, standings: Sequence[Standing], verdicts: Sequence[Verdict], *, untold: bool
) -> str:
    if any(each.counts for each in verdicts):
        return (
            f"Some {several} are better in one respect and worse in another, and under these "
            "weights no significant difference remains. Choose by what matters more to you."
        )
    shown = [each for each in verdicts if each.shown]
    if shown:
        size = "is" if all(each.trivial for each in shown) else "may be"
        return (
            f"What difference there is {size} too small to notice. Keep what you have, or measure "
            "a longer run."
        )
    return "" if untold else f"{_no_difference(several, standings)} Keep what you have."


def _kept(
    one: str, wanted: Sequence[Goal], standings: Sequence[Standing], known: Sequence[Known]
) -> str:
    kept = standings[0].allocator
    return f"No {one} is shown to be better than {kept}, which {_beside(wanted, standings, known)}."


def _beside(wanted: Sequence[Goal], standings: Sequence[Standing], known: Sequence[Known]) -> str:
    """How the first stands to those that it is tied with, as a predicate; empty: there are none.

    Tied are also those of which a difference is shown, but decides nothing.
    """
    best = standings[0].allocator
    alike, near, unclear, other = [], [], [], []
    for name in [each.allocator for each in standings[1:] if each.tied_with_best]:
        verdicts = [of_goal[best, name] for of_goal in known if (best, name) in of_goal]
        if any(each.counts for each in verdicts):
            other.append(name)
        elif any(each.shown and not each.trivial for each in verdicts):
            unclear.append(name)
        elif any(each.shown for each in verdicts):
            near.append(name)
        else:
            alike.append(name)
    said = [f"cannot be told apart from {join_words(alike)}"] if alike else []
    if near:
        goals = _differing(best, near, wanted, known)
        said.append(f"differs from {join_words(near)} by too little to notice in {goals}")
    if unclear:
        goals = _differing(best, unclear, wanted, known)
        said.append(
            f"differs from {join_words(unclear)} by perhaps too little to notice in {goals}"
        )
    if other:
        said.append(f"is better than {join_words(other)} in one respect and worse in another")
    return ", and ".join(said)


def _differing(
    best: str, names: Sequence[str], wanted: Sequence[Goal], known: Sequence[Known]
) -> str:
    """Name the goals in which the first is shown to differ from some of `names`."""
    pairs = [(best, name) for name in names]
    return join_words(
        [
            goal.name
            for goal, of_goal in zip(wanted, known, strict=True)
            if any(_is_shown(of_goal, *pair) for pair in pairs)
        ]
    )


def other_winners(leader: str, winners: Sequence[SettingWinner]) -> list[str]:
    """Return a note on each setting in which the leader is significantly worse than the best."""
    return [
        f"At {_setting(winner.at)}, {winner.best} costs significantly less than {leader}."
        for winner in winners
        if leader != winner.best and leader not in winner.tied
    ]


def _setting(at: dict[str, str]) -> str:
    return ", ".join(f"{factor} {level}" for factor, level in at.items())


def _no_difference(several: str, standings: Sequence[Standing]) -> str:
    last = standings[-1]
    return (
        f"There is no significant difference between the {several} under these weights: from the "
        f"lowest cost, {standings[0].allocator}'s, to the highest, {last.allocator}'s, is "
        f"{percent(last.score / standings[0].score - 1)}, which may be chance."
    )


def _lead(
    study: Study,
    wanted: Sequence[Goal],
    standings: Sequence[Standing],
    known: Sequence[Known],
    score: Known,
) -> str:
    best = standings[0]
    against = _reference(study, standings)
    beside = _beside(wanted, standings, known)
    though = f", though it {beside}" if beside else ""
    if against is not None and not _is_shown(score, best.allocator, against.allocator):
        # A lower score that may be chance is no reason: what is shown of single goals is.
        ahead = join_words(_ahead(wanted, known, best.allocator, against.allocator))
        return (
            f"{best.allocator} is shown to be better than {against.allocator} in {ahead}{though}."
        )
    is_cheapest = best.score == min(standing.score for standing in standings)
    lead = f"{best.allocator} " + (
        "costs least under these weights" if is_cheapest else "is ahead in what is shown to differ"
    )
    lead += though
    if against is None or against.score <= best.score:
        return lead + "."
    weighed = score.get((against.allocator, best.allocator))
    ratio = weighed.estimate if weighed else against.score / best.score
    together = f", {join_words([e.name for e in wanted])} taken together" if len(wanted) > 1 else ""
    return f"{lead}: {against.allocator} costs {percent(ratio - 1)} more{together}."


def _is_shown(known: Known, first: str, second: str) -> bool:
    return (first, second) in known and known[first, second].shown


def _ahead(wanted: Sequence[Goal], known: Sequence[Known], best: str, other: str) -> list[str]:
    """Return the goals in which `best` is shown to be better than `other`."""
    found = []
    for goal, of_goal in zip(wanted, known, strict=True):
        verdict = of_goal.get((best, other))
        if verdict and verdict.counts and (verdict.beyond < 0) == (goal.metric.better == "lower"):
            found.append(goal.name)
    return found


def _reference(study: Study, standings: Sequence[Standing]) -> Standing | None:
    """Whom to name for comparison: the baseline if it is worse, else the first that is."""
    worse = [standing for standing in standings if not standing.tied_with_best]
    baseline = [standing for standing in worse if standing.allocator == study.baseline]
    return next(iter([*baseline, *worse]), None)


def _trade_off(
    one: str, wanted: Sequence[Goal], standings: Sequence[Standing], known: Sequence[Known]
) -> str:
    """What the leader gives up in each goal to the best of those that are shown to be better."""
    leader = standings[0].allocator
    given = []
    little = False  # whether somebody is better, by what may be too little to matter
    for goal, of_goal in zip(wanted, known, strict=True):
        sign = 1 if goal.metric.better == "lower" else -1
        shown = [
            each
            for (first, _), each in of_goal.items()
            if first == leader and each.shown and sign * each.beyond > 0
        ]
        worse = [each for each in shown if each.counts]
        little = little or len(worse) < len(shown)
        if worse:
            given.append(_price(goal, max(worse, key=lambda each: sign * each.beyond)))
    if not given:
        names = join_words([goal.name for goal in wanted]).replace(" and ", " or ")
        enough = "shown to be better by enough to matter" if little else "significantly better"
        return f"No other {one} is {enough} in {names}."
    return f"The price, against the best in each, is {join_words(given)}."


def _price(goal: Goal, verdict: Verdict) -> str:
    if verdict.subject == "difference":
        return f"more {goal.name} than {verdict.second}"
    ratio = verdict.estimate if goal.metric.better == "lower" else 1 / verdict.estimate
    return f"{percent(ratio - 1)} more {goal.name} than {verdict.second}"
