"""The reasons for a recommendation, in two sentences, and notes on the settings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heapfit.advice import noise
from heapfit.advice.goals import Goal
from heapfit.findings import SettingWinner, Standing
from heapfit.records import Study, Verdict
from heapfit.settings import levels_label
from heapfit.text import join_words, mid_sentence, percent, size

# The verdicts of a metric by pair, each either way round.
Known = Mapping[tuple[str, str], Verdict]

# More allocators than these are counted, not named.
_MOST_NAMED = 3


@dataclass(frozen=True)
class Dispute:
    """A figure of time that is against a recommendation, where the one that decides cannot tell."""

    time: str  # the label of that
    verdict: Verdict  # between who is better and who would be recommended
    label: str  # of its metric
    ahead: list[str]  # the goals in which the latter is better


def disputed(study: Study, disputes: Sequence[Dispute]) -> str:
    """Return why nothing is recommended although something is shown to differ."""
    first = disputes[0]
    chosen = first.verdict.second
    rivals = _some([each.verdict.first for each in disputes], len(study.allocators) - 1)
    ahead = list(dict.fromkeys(name for each in disputes for name in each.ahead))
    but = f", and {chosen} is better in {join_words(ahead)}" if ahead else ""
    return (
        f"{first.time} cannot tell {rivals} from {chosen}, but {_less_time(disputes)}{but}. Choose "
        "by what matters more to you, or measure again on a quieter machine."
    )


def _less_time(disputes: Sequence[Dispute]) -> str:
    verdicts = [each.verdict for each in disputes]
    labels = {mid_sentence(each.label) for each in disputes}
    if len(disputes) > 1 and len(labels) == 1 and all(e.subject == "ratio" for e in verdicts):
        return f"they take {_range([1 - each.estimate for each in verdicts])} less {labels.pop()}"
    said = []
    for verdict, each in zip(verdicts, disputes, strict=True):
        less = percent(1 - verdict.estimate) if verdict.subject == "ratio" else "significantly"
        said.append(f"{verdict.first} takes {less} less {mid_sentence(each.label)}")
    return join_words(said)


def slower(wanted: Sequence[Goal], known: Sequence[Known], slow: Sequence[Verdict]) -> str:
    """Return why those are not recommended that are better by the goals: they lose wall time."""
    said = []
    for wall in slow:
        gains = [
            f"{percent(1 - found.estimate) if found.subject == 'ratio' else ''} less "
            f"{mid_sentence(goal.metric.label)}".strip()
            for goal, of_goal in zip(wanted, known, strict=True)
            for found in [of_goal[wall.first, wall.second]]
            if found.counts and found.beyond < 0
        ]
        more = percent(wall.estimate - 1)
        but = f"but {more} more wall time than {wall.second}"
        said.append(f"{wall.first} needs {join_words(gains)}, {but}.")
    return f"{' '.join(said)} Choose by what matters more to you."


def wall_time_lost(wall: Verdict, score: Verdict) -> str:
    """Return what is paid in wall time by who is better all the same, by the score with that."""
    return (
        f"{wall.first} takes {percent(wall.estimate - 1)} more wall time than {wall.second}, but "
        f"still costs {percent(1 - score.estimate)} less when wall time replaces processor time."
    )


def untold_words(study: Study, goal: Goal, verdicts: Sequence[Verdict], *, is_first: bool) -> str:
    """Return that a goal says nothing of some; of a goal after the first, in fewer words."""
    names = _some([each.first for each in verdicts], len(study.allocators) - 1)
    verb = "differs" if len(verdicts) == 1 or names.startswith("any of") else "differ"
    label = mid_sentence(goal.metric.label)
    said = f"Whether {names} {verb} from {study.baseline} in {label} is not known"
    if any(map(noise.is_vague, verdicts)):
        return f"{said}: the runs vary too much." if is_first else f"Nor is it in {label}."
    low, high = min(e.low or 0.0 for e in verdicts), max(e.high or 0.0 for e in verdicts)
    change = f"{_signed(low - 1)} to {_signed(high - 1)}"
    if not is_first:
        return f"In {label} it may be {change} for {names}."
    return f"{said}: the true change may be anywhere from {change}."


def telling_words(blocks: int | None) -> str:
    """Return what would tell: so many `blocks`, or no number that anybody would run (None)."""
    if blocks is None:
        return "Only a quieter machine or more work in each run would settle it."
    return (
        f"--replicates {blocks} would show {percent(noise.WORTH)}; a quieter machine needs fewer."
    )


def _some(names: Sequence[str], of: int, every: str = "any") -> str:
    """Name some of so many others; where there are many, say how many."""
    if len(names) <= _MOST_NAMED:
        return join_words(names)
    return f"{every if len(names) == of else len(names)} of the {of}"


def _signed(share: float) -> str:
    return f"{'+' if share > 0 else ''}{percent(share)}"


def _range(shares: Sequence[float]) -> str:
    low, high = percent(min(shares)), percent(max(shares))
    return low if low == high else f"{low} to {high}"


def small_program(peak: float) -> str:
    """Return what a difference in memory may be in a program that can do with such a `peak`."""
    return (
        f"The program is small (peak memory {size(peak)}): a difference in memory may be a fixed "
        "cost of each process, or may grow with the heap. Measure it with more data before you "
        "decide by memory."
    )


OF_FIXED_DURATION = (
    "Time is processor time (user and system) here, because the workload fixes how long a trial "
    "runs."
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
    untold: bool = False,
) -> str:
    """Return two sentences: who leads and by how much, and what that costs elsewhere; none where
    nothing is shown and what is `untold` says the rest.

    `known` are the verdicts on the goals' metrics, `score` those on the scores. Who cannot be told
    from the baseline is left out where sentences on what is `untold` follow.
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
        weighed = _under_weights(wanted)
        return _undecided(several, standings, verdicts, weighed, untold=untold)
    price, costs_something = _trade_off(one, wanted, standings, known)
    if recommended == study.baseline and any(s.tied_with_best for s in standings[1:]):
        kept = _kept(one, wanted, standings, known, untold=untold)
        return f"{kept} {price}" if costs_something else kept
    lead = _lead(study, wanted, standings, known, score)
    return f"{lead} {price}" if costs_something or len(wanted) > 1 else lead


def _under_weights(wanted: Sequence[Goal]) -> str:
    """What a cost depends on; of a single goal, nothing."""
    return " under these weights" if len(wanted) > 1 else ""


def _undecided(
    several: str,
    standings: Sequence[Standing],
    verdicts: Sequence[Verdict],
    weighed: str,
    *,
    untold: bool,
) -> str:
    if any(each.counts for each in verdicts):
        return (
            f"Some {several} are better in one respect and worse in another, and no significant "
            f"difference remains{weighed}. Choose by what matters more to you."
        )
    if any(each.contradicts for each in verdicts):
        return (
            "Which is better depends on the setting: the one with the lower ratio has the higher "
            "mean. Choose by the settings that matter to you."
        )
    shown = [each for each in verdicts if each.shown]
    if shown:
        size = "are" if all(each.trivial for each in shown) else "may be"
        return (
            f"The differences {size} too small to notice. Keep what you have, or measure a longer "
            "run."
        )
    if untold:
        return ""
    return f"{_no_difference(several, standings, weighed)} Keep what you have."


def _kept(
    one: str,
    wanted: Sequence[Goal],
    standings: Sequence[Standing],
    known: Sequence[Known],
    *,
    untold: bool,
) -> str:
    kept = standings[0].allocator
    if untold:
        return f"No {one} is shown to be better."
    start = f"No {one} is shown to be better than {kept}"
    alike, *others = _near(standings, known)
    if alike and not any(others):
        names = _some(alike, len(standings) - 1, "all")
        goals = join_words([goal.title for goal in wanted])
        return f"{start}: {names} and {kept} need the same {goals}, as far as this can tell."
    return f"{start}, which {_beside(wanted, standings, known)}."


def _beside(wanted: Sequence[Goal], standings: Sequence[Standing], known: Sequence[Known]) -> str:
    """How the first stands to those that it is tied with, as a predicate; empty: there are none."""
    best = standings[0].allocator
    alike, near, unclear, other = _near(standings, known)
    others = len(standings) - 1
    said = [f"cannot be told apart from {_some(alike, others)}"] if alike else []
    if near:
        goals = _differing(best, near, wanted, known)
        said.append(f"differs from {_some(near, others)} by too little to notice in {goals}")
    if unclear:
        goals = _differing(best, unclear, wanted, known)
        said.append(
            f"differs from {_some(unclear, others)} in {goals}, perhaps by too little to notice"
        )
    if other:
        said.append(f"is better than {_some(other, others)} in one respect and worse in another")
    return ", and ".join(said)


def _near(standings: Sequence[Standing], known: Sequence[Known]) -> tuple[list[str], ...]:
    """Those that the first is tied with: without any difference that is shown, with one that is too
    little, with one that may be too little, with some that decide nothing together."""
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
    return alike, near, unclear, other


def _differing(
    best: str, names: Sequence[str], wanted: Sequence[Goal], known: Sequence[Known]
) -> str:
    """Name the goals in which the first is shown to differ from some of `names`."""
    pairs = [(best, name) for name in names]
    return join_words(
        [
            goal.title
            for goal, of_goal in zip(wanted, known, strict=True)
            if any(_is_shown(of_goal, *pair) for pair in pairs)
        ]
    )


def other_winners(leader: str, winners: Sequence[SettingWinner]) -> list[str]:
    """Return a note on each setting in which the best is better than the leader."""
    return [
        f"At {levels_label(winner.at.items())}, {winner.best} is shown to be better than {leader}."
        for winner in winners
        if leader != winner.best and leader not in winner.tied
    ]


def _no_difference(several: str, standings: Sequence[Standing], weighed: str) -> str:
    last = standings[-1]
    return (
        f"There is no significant difference between the {several}{weighed}: the lowest "
        f"cost ({standings[0].allocator}) and the highest ({last.allocator}) differ by "
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
    name = best.allocator
    beside = _beside(wanted, standings, known)
    worse = _reference(study, standings)
    if worse and not all(_is_shown(score, name, each.allocator) for each in worse):
        # A lower score that may be chance is no reason: what is shown of single goals is.
        though = f", though it {beside}" if beside else ""
        return f"{name} {_ahead(wanted, known, name, worse)}{though}."
    others = [each.allocator for each in worse]
    names = _some(others, len(standings) - 1, "all")
    more = _more(best, worse, score)
    if len(wanted) == 1 and more:
        verb = "needs" if len(others) == 1 else "need"
        lead = f"{names} {verb} {more} more {wanted[0].cost} than {name}."
        return f"{lead} {name} {beside}." if beside else lead
    is_cheapest = best.score == min(standing.score for standing in standings)
    least = f"costs least{_under_weights(wanted)}"
    lead = f"{name} {least if is_cheapest else 'leads in the shown differences'}"
    lead += f", though it {beside}" if beside else ""
    if not more:
        return f"{lead}."
    verb = "costs" if len(others) == 1 else "cost"
    titles = [each.title for each in wanted if each.name in best.costs]
    together = f"{join_words(titles)} taken together" if titles[1:] else f"in {titles[0]} alone"
    return f"{lead}: {names} {verb} {more} more, {together}."


def _more(best: Standing, worse: Sequence[Standing], score: Known) -> str:
    """By how much each of `worse` costs more than the best; empty: not all do."""
    if not worse or any(each.score <= best.score for each in worse):
        return ""
    weighed = [(score.get((each.allocator, best.allocator)), each) for each in worse]
    return _range([(e.estimate if e else each.score / best.score) - 1 for e, each in weighed])


def _is_shown(known: Known, first: str, second: str) -> bool:
    return (first, second) in known and known[first, second].shown


def _ahead(
    wanted: Sequence[Goal], known: Sequence[Known], best: str, others: Sequence[Standing]
) -> str:
    """Return of each goal than whom `best` is shown to be better in it, as a predicate."""
    found: dict[str, list[Goal]] = {}  # by whom
    for goal, of_goal in zip(wanted, known, strict=True):
        names = []
        for verdict in (of_goal.get((best, each.allocator)) for each in others):
            is_less = verdict and (verdict.beyond < 0) == (goal.metric.better == "lower")
            if verdict and verdict.counts and is_less:
                names.append(verdict.second)
        if names:
            found.setdefault(_some(names, len(others)), []).append(goal)
    said = []
    for verb, is_turned in (("needs", False), ("has", True)):
        than = []
        for who, goals in found.items():
            if those := [each for each in goals if each.is_turned == is_turned]:
                than.append(f"{_better(those)} than {who}")
        if than:
            said.append(f"{verb} {join_words(than)}")
    return join_words(said)


def _better(goals: Sequence[Goal]) -> str:
    found: dict[str, list[str]] = {}
    for each in sorted(goals, key=lambda goal: not goal.is_counted):
        word = "higher" if each.is_turned else "fewer" if each.is_counted else "less"
        found.setdefault(word, []).append(each.title)
    return join_words([f"{word} {join_words(those)}" for word, those in found.items()])


def _reference(study: Study, standings: Sequence[Standing]) -> list[Standing]:
    """Whom to name for comparison: the baseline if it is worse, else all that are."""
    worse = [standing for standing in standings if not standing.tied_with_best]
    return [each for each in worse if each.allocator == study.baseline] or worse


def _trade_off(
    one: str, wanted: Sequence[Goal], standings: Sequence[Standing], known: Sequence[Known]
) -> tuple[str, bool]:
    """What the leader gives up in each goal to the best of those that are shown to be better, and
    whether it gives up anything, be it too little to matter."""
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
        names = join_words([goal.title for goal in wanted]).replace(" and ", " or ")
        enough = "shown to be better by enough to matter" if little else "significantly better"
        return f"No other {one} is {enough} in {names}.", little
    return f"The price is {join_words(given)}.", True


def _price(goal: Goal, verdict: Verdict) -> str:
    if verdict.subject == "difference":
        word = "lower" if goal.is_turned else "more"
        return f"{word} {goal.title} than {verdict.second}"
    ratio = verdict.estimate if goal.metric.better == "lower" else 1 / verdict.estimate
    return f"{percent(ratio - 1)} more {goal.cost} than {verdict.second}"
