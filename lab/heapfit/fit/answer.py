"""What is chosen, by the verdict on the last blocks alone, what it gains and what it costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from pathlib import Path

from pydantic import Field

from heapfit.advice import failed_trials, noise, recommend
from heapfit.catalogue import treatment_word
from heapfit.findings import Advice
from heapfit.fit.goal import BALANCE, MEAN, MEAN_METRICS, PEAK_METRICS, Goal, Limit, first_of, parse
from heapfit.fit.search import (
    Screened,
    Setup,
    plainer,
    screens,
    steps,
    time_for,
    time_option,
    trials_of,
    why_failing,
)
from heapfit.gate import verdicts
from heapfit.gate.decision import CANNOT_BE_TOLD, Decision, Outcome, exit_code
from heapfit.meaning import PROCESSOR, WALL, too_small
from heapfit.records import Metric, Record, Study, Summary, Trial, Verdict
from heapfit.report import Reading, read
from heapfit.text import bytes_text, counted, join_words, scale_for

# Of what was screened alone, where the interval has to end, or without one the ratio has to be.
_HINT = 1 - noise.WORTH
# So many that there was no time for are named in a sentence.
_MOST_NAMED = 3
# What the time of a program is called, where it is one of these.
TIMES = {WALL: "wall time", PROCESSOR: "processor time"}
_WORST: tuple[Outcome, ...] = ("broken", "failed", "untold", "passed")


class Standing(Record):
    """A finalist beside what there is today."""

    name: str
    time: Verdict | None  # None: no figure
    memory: Verdict | None
    mean: Verdict | None = None  # of resident memory, over time
    unbeaten: bool  # of time and memory taken together
    keeps: Outcome  # the bounds of --keep
    gains: bool  # it is shown to be better by the goal, by more than is too little to matter
    shortfall: str = ""  # why that is not so
    limited: float | None = None  # what the goal limits, as it is judged, in bytes
    untold: list[str] = Field(
        default=[]
    )  # metrics of the goal in which it may be the same, or well better


class NotChosen(Record):
    """Something that was tried and did not pay."""

    name: str
    after: str
    reason: str
    adds_nothing: bool = False  # to its allocator alone


class Answer(Record):
    """A choice with its evidence; without a choice: stay with what there is."""

    choice: str | None
    goal: str
    baseline: str
    today: str | None = None  # what the baseline stands for, where that is not its name
    is_replay: bool = False  # it rests on a recording's replay, not on the program
    why: list[str]  # sentences
    late: str = ""  # that of these which says what there was no time for
    standings: list[Standing]  # the best by the goal first
    decisions: list[verdicts.RatioDecision]
    not_chosen: list[NotChosen]
    exit_code: int
    study: str | None  # the folder with the evidence

    @property
    def time_word(self) -> str:
        """What the time of the standings is."""
        metrics = {each.time.metric for each in self.standings if each.time}
        return TIMES.get(metrics.pop() if len(metrics) == 1 else "", "time")

    @property
    def headline(self) -> str:
        """The answer in a few words."""
        if self.choice:
            return f"Choose {self.choice}"
        more = " for now: inconclusive"
        return f"Stay with {self.baseline}{more if self.exit_code == CANNOT_BE_TOLD else ''}"


ON_A_REPLAY = (
    "This rests on a replay of the recorded calls. It predicts peak memory well and time in the "
    "allocator less well. It does not predict memory kept while the program idles, or the rest of "
    "the program, so no figure is promised for the process. Watch it after deploying."
)


def answered(
    setup: Setup, where: Path | None, screened: Screened, today: str | None = None
) -> tuple[Answer, Reading | None]:
    """Return the answer that the study in `where` gives, and that study as it was read."""
    others = [NotChosen(**vars(each)) for each in screened.dropped]
    start = Answer(
        choice=None,
        goal=setup.goal.text,
        baseline=setup.baseline.name,
        today=today,
        is_replay=setup.is_replay,
        why=["Every candidate failed or broke a bound."],
        standings=[],
        decisions=[],
        not_chosen=others,
        exit_code=int(bool(setup.keep or setup.goal.limit)),
        study=None,
    )
    reading = None if where is None else read(where)
    found = start if where is None or reading is None else judged(setup, where, reading, start)
    return with_late(found, screened), reading


def with_late(found: Answer, screened: Screened) -> Answer:
    """Return an answer that says of how many candidates there was no time for. It begins with that
    where allocators are among them, or settings that were much better in the screening, since it
    then cannot be told that nothing is better."""
    late_ones = [*screened.late, *screened.unjudged]
    if not late_ones:
        return found
    able = [each for each in late_ones if "+" not in each or each in screened.alone]

    def named(names: Sequence[str]) -> str:
        ours = [each for each in names if each in able]
        counts = (len(ours[_MOST_NAMED:]), "other"), (len(names) - len(ours), "setting")
        return join_words([*ours[:_MOST_NAMED], *(counted(*each) for each in counts if each[0])])

    said = [f"run {named(screened.late)}"] if screened.late else []
    if screened.unjudged:
        said.append(f"measure {named(screened.unjudged)} again after the screening")
    enough = time_option(screened.enough_s)
    late = f"There was no time to {join_words(said, 'or to')}; {enough} would be enough."
    untold = bool(able) and found.choice is None
    return found.model_copy(
        update={
            "why": [late, *found.why] if able else [*found.why, late],
            "late": late,
            "exit_code": CANNOT_BE_TOLD if untold else found.exit_code,
        }
    )


def judged(setup: Setup, where: Path, reading: Reading, start: Answer) -> Answer:
    """Return `start` with what the study that is read, in `where`, says."""
    summary = reading.summary
    weighed = _Weighed(setup, reading, trials_of(steps(where.parent)))
    advice, decisions, of_goals = weighed.advice, weighed.decisions, weighed.of_goals
    standings = weighed.standings()
    failed, highest = weighed.failed, weighed.highest
    lowest = _of_limit(summary, setup.goal.limit, at_least=True)
    is_over = not _meets(setup.goal.limit, lowest.get(setup.baseline.name))
    # What is over the limit today is left for whatever is within, be it no quicker.
    able = [
        each
        for each in standings
        if _meets(setup.goal.limit, each.limited) and (each.gains or is_over)
    ]
    slow = _slower(summary, standings)
    if is_over and of_goals["time"].name == PROCESSOR:
        # To be within the limit was a reason; of these, nobody's waits are to be forgotten.
        able.sort(key=lambda each: slow.get(each.name, 0.0))
    choice = _simplest([each for each in able if each.keeps == "passed"], advice)
    told = [each for each in decisions for one in able if each.name.startswith(f"{one.name} ")]
    # 1 where every gain is shown to break a bound, 3 where of one that cannot be told.
    code = CANNOT_BE_TOLD if any(each.keeps == "untold" for each in able) else exit_code(told)
    code = 0 if choice else code
    shown = [of_goals["time"], of_goals["mean-memory" if setup.goal.text == MEAN else "memory"]]
    if shown[0].name == PROCESSOR and not reading.study.workload.fixes_duration:
        shown.insert(1, _metric(summary, WALL))
    why = _why(summary, choice, able, advice, shown, setup.goal)
    near = [
        name
        for name in (setup.baseline.name, *(e.name for e in standings if e.keeps != "failed"))
        if _meets(setup.goal.limit, lowest.get(name))
        and not _meets(setup.goal.limit, highest.get(name))
    ]
    if choice is None and near and (is_over or setup.baseline.name in near):
        why = [_may_meet(each, setup.goal, lowest[each], highest[each]) for each in near]
        code = CANNOT_BE_TOLD
    elif choice is None and is_over and not able:
        whole = {name: most for name, most in highest.items() if name not in failed}
        why, code = [_nothing_meets(setup.goal, whole)], 1
    elif choice is None and not able and (open_ones := _open(standings, setup.goal)):
        why, code = _untold_words(setup, where, reading, open_ones), CANNOT_BE_TOLD
    elif choice is not None and choice.limited is not None:
        what = setup.goal.limit.what if setup.goal.limit else ""
        why.append(
            f"Its {what} resident memory is {bytes_text(round(choice.limited))} "
            f"{_JUDGED[what]}: within {setup.goal.text}."
        )
    if not standings and failed:
        why, code = start.why, int(bool(setup.keep) or is_over)
    if choice is None and setup.goal.gives != "both":
        idle = {each.name for each in start.not_chosen if each.adds_nothing}
        found = _screened(setup, where.parent, reading)
        screened = [each for each in found if each.name not in idle]
        fast = [each for each in standings if each.name not in slow]
        why = [*why, *_traded(fast, [e for e in screened if e.name not in slow], setup.goal)]
    why = [*why, weighed.both.small, *_fails_today(reading, setup.baseline.name, choice)]
    after = f"{where.name}, {reading.blocks} blocks"
    others = [
        *start.not_chosen,
        # Finalists that fail more often than what is used today are no choice.
        *(
            NotChosen(name=name, after=after, reason=why)
            for name, why in failed.items()
            if name in {each.name for each in reading.study.allocators}
        ),
        *(
            NotChosen(name=each.name, after=after, reason=_reason(each, choice, setup.goal, advice))
            for each in standings
            if each is not choice
        ),
    ]
    return start.model_copy(
        update={
            "choice": choice.name if choice else None,
            "why": [*filter(None, why), *([ON_A_REPLAY] if setup.is_replay else [])],
            "standings": standings,
            "decisions": decisions,
            "not_chosen": others,
            "exit_code": code,
            "study": str(where),
        }
    )


class _Weighed:
    """What the goal and the bounds make of a study."""

    def __init__(self, setup: Setup, reading: Reading, earlier: Sequence[Trial] = ()) -> None:
        self.setup, self.reading = setup, reading
        summary, study = reading.summary, reading.summary.study
        conditions = [each.forbidden() for each in setup.keep]
        self.decisions = list(verdicts.judge(conditions, reading.readings, summary))
        self.advice = recommend(reading.readings, setup.goal.weights, earlier)
        self.both = recommend(reading.readings, parse(BALANCE).weights, earlier)
        known = {"time": _time(study), "memory": first_of(study, PEAK_METRICS), **self.both.metrics,
                 "mean-memory": first_of(study, MEAN_METRICS)}  # fmt: skip
        self.of_goals = {of: _metric(summary, each) for of, each in known.items()}
        self.failed = why_failing([*earlier, *reading.trials], setup.baseline.name)
        self.highest = _of_limit(summary, setup.goal.limit)

    def standings(self) -> list[Standing]:
        """Return who can be chosen, the best by the goal first."""
        summary, advice = self.reading.summary, self.advice
        judged_by = {of: _metric(summary, each) for of, each in advice.metrics.items()}
        wanted = {of: judged_by.get(of, self.of_goals[of]) for of in self.setup.goal.weights}
        unbeaten = {each.allocator for each in self.both.standings if each.unbeaten}
        return [
            Standing(
                name=name,
                time=_cost(summary, self.of_goals["time"], name),
                memory=_found(summary, self.of_goals["memory"], name),
                mean=_found(summary, self.of_goals["mean-memory"], name),
                unbeaten=name in unbeaten,
                keeps=_kept(name, self.decisions),
                gains=not (short := _shortfall(summary, advice, wanted, name)),
                shortfall=short,
                limited=self.highest.get(name),
                untold=_untold(self.reading, advice, name),
            )
            for name in (each.allocator for each in advice.standings)
            if name != self.setup.baseline.name and name not in self.failed
        ]


# ------------------------------------------------------------------- a limit

# A single run above a limit of the peak may be killed.
_JUDGED = {"peak": "in its highest run", "mean": "at the upper end of the 95 % interval"}


def _of_limit(summary: Summary, limit: Limit | None, *, at_least: bool = False) -> dict[str, float]:
    """Return by allocator what the goal limits, as it is judged: `at_least` so much it is, of a
    mean the lower end of its interval."""
    if limit is None:
        return {}
    metric, of_mean = limit.metric(summary.study), "low" if at_least else "high"
    return {
        each.allocator: getattr(each, "maximum" if limit.what == "peak" else of_mean)
        for each in summary.estimates
        if each.metric == metric
    }


def _meets(limit: Limit | None, highest: float | None) -> bool:
    return limit is None or (highest is not None and highest <= limit.size)


def _nothing_meets(goal: Goal, highest: dict[str, float]) -> str:
    if not highest or goal.limit is None:
        return f"Nothing meets {goal.text}: no figure was measured."
    lowest = min(highest, key=lambda name: highest[name])
    return (
        f"Nothing meets {goal.text}: the lowest is {lowest}'s, "
        f"{bytes_text(round(highest[lowest]))} {_JUDGED[goal.limit.what]}."
    )


def _may_meet(name: str, goal: Goal, low: float, high: float) -> str:
    return (
        f"Whether {name} is within {goal.text} is not known: its mean resident memory is "
        f"{bytes_text(round(low))} to {bytes_text(round(high))} (95 % interval). More --time, or a "
        "quieter machine, would narrow that."
    )


# -------------------------------------------------------------- a noisy machine


def _untold(reading: Reading, advice: Advice, name: str) -> list[str]:
    """The goal's metrics of which the intervals say nothing; none where it is shown to be worse."""
    summary = reading.summary
    found = {
        each: _found(summary, _metric(summary, each), name) for each in advice.metrics.values()
    }
    if any(_better(_metric(summary, each), verdict) < 0 for each, verdict in found.items()):
        return []
    return [
        each
        for each, verdict in found.items()
        if noise.is_untold(reading.readings, _metric(summary, each), verdict)
    ]


def _open(standings: Sequence[Standing], goal: Goal) -> list[Standing]:
    """Return those that may be better, and could be chosen if they were."""
    return [
        each
        for each in standings
        if each.untold and each.keeps != "failed" and _meets(goal.limit, each.limited)
    ]


def _untold_words(
    setup: Setup, where: Path, reading: Reading, standings: Sequence[Standing]
) -> list[str]:
    """What cannot be told of each, and what it would take."""
    summary = reading.summary
    lines, needed, words = [], [], []
    for each in standings:
        for name in each.untold:
            metric = _metric(summary, name)
            verdict = _found(summary, metric, each.name)
            assert verdict is not None, "it would not be untold"
            better = "less" if metric.better == "lower" else "more"
            lines.append(
                f"Whether {each.name} has {better} {metric.label.lower()} than "
                f"{setup.baseline.name} is not known: the true ratio may be anywhere from "
                f"{verdict.low or 0.0:.2f}x to {verdict.high or inf:.2f}x."
            )
            needed.append(noise.blocks_to_show(reading.readings, name, each.name))
        if each.untold:
            words.append(treatment_word(reading.study.allocator(each.name)))
    blocks = max((each for each in needed if each), default=None)
    return [*lines, _what_it_takes(setup, where, reading, blocks, ",".join(words))]


def _what_it_takes(
    setup: Setup, where: Path, reading: Reading, blocks: int | None, words: str
) -> str:
    quiet = "a quieter machine, or more work in each run, would need fewer"
    if blocks is None:
        return "No practical number of blocks would settle it: use a quieter machine."
    said = f"About {blocks} blocks would show a gain of {100 * noise.WORTH:.0f} %"
    time_s = time_for(setup, where.parent, reading, blocks)
    if time_s is None:
        return f"{said}, more than fit would run; {quiet}: {setup.compare(words, blocks)}"
    return f"{said}: allow {time_option(time_s)}; {quiet}."


def _time(study: Study) -> str:
    """What stands for time where all are alike in it: processor time where that decides."""
    if any(each.name == PROCESSOR for each in study.metrics):
        return PROCESSOR
    return WALL if study.primary_metric.endswith("_bytes") else study.primary_metric


def _simplest(good: Sequence[Standing], advice: Advice) -> Standing | None:
    """The first, unless it is a setting or a variant (`heapfit-pools`) of an allocator that does as
    well, as far as is shown."""
    tied = {each.allocator for each in advice.standings if each.tied_with_best}
    best = next(iter(good), None)
    if best is None:
        return None
    found = {each.name: each for each in good if each.name in tied}
    return next((found[name] for name in plainer(best.name) if name in found), best)


def _metric(summary: Summary, name: str) -> Metric:
    return next(each for each in summary.study.metrics if each.name == name)


def _found(summary: Summary, metric: Metric, name: str) -> Verdict | None:
    """The verdict on `name` beside the baseline."""
    own = (each for each in summary.verdicts if each.metric == metric.name)
    return _beside(own, name, summary.study.baseline)


def _cost(summary: Summary, metric: Metric, name: str) -> Verdict | None:
    """The verdict on what `name` costs beside the baseline: more requests a second are less time
    for each."""
    found = _found(summary, metric, name)
    return found if found is None or metric.better == "lower" else found.turned()


def _beside(verdicts: Iterable[Verdict], name: str, baseline: str) -> Verdict | None:
    found = next((each for each in verdicts if {each.first, each.second} == {name, baseline}), None)
    return found if found is None or found.first == name else found.turned()


def _better(metric: Metric, verdict: Verdict | None) -> int:
    """1: better by what matters; -1: worse; 0: neither is shown."""
    if verdict is None or not verdict.counts:
        return 0
    return 1 if (verdict.beyond < 0) == (metric.better == "lower") else -1


def _shortfall(summary: Summary, advice: Advice, wanted: Mapping[str, Metric], name: str) -> str:
    """Why it is not better than the baseline as a recommendation has it (`advice.recommend`), in
    what the goal names; nothing where it is."""
    verdicts = {of: _found(summary, metric, name) for of, metric in wanted.items()}
    found = {of: _better(wanted[of], verdict) for of, verdict in verdicts.items()}
    gained, paid = ([of for of, each in found.items() if each == sign] for sign in (1, -1))
    if name in advice.slow:
        return f"better in {join_words(gained)}, but shown to take more wall time"
    if gained and paid and not _pays(summary, advice, name):
        return (
            f"better in {join_words(gained)} and worse in {join_words(paid)}, and not shown to be "
            "better in both taken together"
        )
    if gained:
        return ""
    if paid:
        return f"shown to be worse in {join_words(paid)}"
    little = {of: _little(wanted[of], verdict) for of, verdict in verdicts.items()}
    said = [f"{each} of {of}, too little to matter" for of, each in little.items() if each]
    others = [of for of, each in little.items() if not each]
    if others:
        said.append(f"not shown to be better in {join_words(others, 'or')}")
    return ", and ".join(said)


def _pays(summary: Summary, advice: Advice, name: str) -> bool:
    """Whether its score, of all that the goal names, is shown to be better than the baseline's."""
    found = _beside(advice.scores, name, summary.study.baseline)
    return found is not None and found.shown and found.beyond < 0


def _little(metric: Metric, verdict: Verdict | None) -> str:
    """How a gain that is shown may be too small to matter, as a predicate; nothing of others."""
    if verdict is None or not verdict.shown or verdict.matters:
        return ""
    if (verdict.beyond < 0) != (metric.better == "lower"):
        return ""
    least = scale_for(metric.unit, [too_small(metric)], 1).text(too_small(metric))
    return f"{'saves' if verdict.trivial else 'may save'} under {least}"


def _slower(summary: Summary, standings: Sequence[Standing]) -> dict[str, float]:
    """Return the ratio of wall time of each that is shown to take more of it than the baseline."""
    verdicts = [
        (each.name, metric, _found(summary, metric, each.name))
        for metric in summary.study.metrics
        if metric.name == WALL
        for each in standings
    ]
    return {name: e.estimate for name, metric, e in verdicts if e and _better(metric, e) < 0}


def _kept(name: str, decisions: Sequence[Decision]) -> Outcome:
    own = {each.outcome for each in decisions if each.name.startswith(f"{name} ")}
    return next((each for each in _WORST if each in own), "passed")


def _fails_today(reading: Reading, baseline: str, choice: Standing | None) -> list[str]:
    """A note where the baseline itself fails now and then."""
    failed = failed_trials(reading.trials)
    if baseline not in failed:
        return []
    runs = Counter(each.planned.allocator for each in reading.trials)
    others = [choice.name] if choice else []
    counts = [f"{len(failed.get(name, []))} of {runs[name]} with {name}" for name in others]
    return [
        f"The program failed with {baseline} in {len(failed[baseline])} of {runs[baseline]} runs "
        f"({failed[baseline][0].reason}){''.join(f', in {each}' for each in counts)}: "
        "find out why first."
    ]


def _screened(setup: Setup, folder: Path, verdict: Reading) -> list[Standing]:
    """What the screening has of each candidate that the verdict has not, in its last round, unless
    it failed there."""
    found: dict[str, Standing] = {}
    for reading in [*map(read, screens(folder)), verdict]:
        for each in reading.study.allocators:
            found.pop(each.name, None)
        if reading is not verdict:
            found |= {each.name: each for each in _Weighed(setup, reading).standings()}
    return list(found.values())


def _traded(standings: Sequence[Standing], screened: Sequence[Standing], goal: Goal) -> list[str]:
    """What a goal of memory alone, or of time alone, leaves on the table: the best of all that ran,
    by the screening where it was not measured after that."""
    of_goal = "mean" if goal.text == MEAN else goal.gives
    other = "time" if goal.gives == "memory" else "memory"
    gains = [
        (gained.estimate, each, gained, paid)
        for each in (*standings, *screened)
        if each.keeps != "failed"
        and (gained := getattr(each, other))
        and (paid := getattr(each, of_goal))
        and gained.subject == paid.subject == "ratio"
        and (gained.counts if each in standings else (gained.high or gained.estimate) < _HINT)
        and gained.estimate < 1
    ]
    if not gains:
        return []
    _, best, gained, paid = min(gains, key=lambda each: each[0])
    where = "" if best in standings else " in the screening"
    return [
        f"If {other} matters as well: {best.name} had {other} {interval(gained)} and {of_goal} "
        f"{interval(paid)}{where}; --goal balance judges both."
    ]


def interval(verdict: Verdict | None) -> str:
    """Return a ratio with its interval, of memory with the difference: `0.93x (0.92 to 0.94)`; `~`
    before it: none is shown."""
    more = _more(verdict)
    return f"{_ratio(verdict)}{more and f', {more}'}"


def _more(verdict: Verdict | None) -> str:
    """Return the difference in bytes, with its sign; nothing of other metrics."""
    if verdict is None or not verdict.metric.endswith("_bytes"):
        return ""
    if abs(verdict.absolute) < 2**20:
        return f"{verdict.absolute / 2**20:+.1f} MiB"
    return f"{'-' if verdict.absolute < 0 else '+'}{bytes_text(abs(round(verdict.absolute)))}"


def _ratio(verdict: Verdict | None) -> str:
    if verdict is None or verdict.subject == "difference":
        return "-"
    mark = "" if verdict.shown else "~"
    if verdict.low is None or verdict.high is None:
        return f"{mark}{verdict.estimate:.3f}x"
    return f"{mark}{verdict.estimate:.3f}x ({verdict.low:.3f} to {verdict.high:.3f})"


def _why(
    summary: Summary,
    choice: Standing | None,
    able: Sequence[Standing],
    advice: Advice,
    metrics: Sequence[Metric],
    goal: Goal,
) -> list[str]:
    baseline = summary.study.baseline
    if choice is None:
        if able:
            names = join_words([each.name for each in able])
            return [f"Better by the goal, but {_broken(able)}: {names}."]
        same = f"No allocator is shown to be better than {baseline}, which"
        reasons = advice.reasons.replace(same, baseline)
        if reasons and goal.gives != "both":
            label = metrics[0 if goal.gives == "time" else -1].label.lower()
            reasons = f"Judged by {label} alone: {reasons[0].lower()}{reasons[1:]}"
        said = f"No candidate is shown to be better than {baseline} by enough to matter."
        return [said, *filter(None, [reasons, advice.basis])]
    lines = [advice.basis] if advice.basis else []
    for metric in metrics:
        if verdict := _found(summary, metric, choice.name):
            verb = "takes" if metric.better == "lower" else "reaches"
            start = f"{choice.name} {verb} {_ratio(verdict).lstrip('~')} the {metric.label.lower()}"
            more = f" ({more})" if (more := _more(verdict)) else ""
            lines.append(f"{start} of {baseline}{more}: {_meaning(metric, verdict)}.")
    return lines


def _broken(standings: Sequence[Standing]) -> str:
    """How all of these do with the bounds of --keep, none of which passed them."""
    are_shown = all(each.keeps == "failed" for each in standings)
    return "shown to break --keep" if are_shown else "not shown to meet --keep"


def _meaning(metric: Metric, verdict: Verdict) -> str:
    if not verdict.shown:
        return "no difference is shown"
    if not verdict.matters:
        return "a difference that is, or may be, too little to matter"
    return "a gain" if _better(metric, verdict) > 0 else "a cost"


def _reason(standing: Standing, choice: Standing | None, goal: Goal, advice: Advice) -> str:
    memory = standing.mean if goal.text == MEAN else standing.memory
    figures = f"time {interval(standing.time)}, memory {interval(memory)}"
    if not _meets(goal.limit, standing.limited):
        how = _JUDGED[goal.limit.what] if goal.limit else ""
        return f"above {goal.text}: {bytes_text(round(standing.limited or 0))} {how}"
    if standing.untold and not standing.gains:
        return f"inconclusive: {figures}"
    if not standing.gains:
        return f"{standing.shortfall}: {figures}"
    if standing.keeps != "passed":
        return f"{_broken([standing])}: {figures}"
    if choice is None:
        return f"within {goal.text}, but so is today's allocator: {figures}"
    best = advice.standings[0]
    if standing.name not in {each.allocator for each in advice.standings if each.tied_with_best}:
        return f"also a gain, but shown to be a smaller one than {best.allocator}'s: {figures}"
    simpler = "; the simpler one is preferred" if choice.name in plainer(standing.name) else ""
    return f"also a gain, but not shown to be better than {choice.name}{simpler}: {figures}"
