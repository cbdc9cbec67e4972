"""Measure the candidates: by successive halving, each round in blocks of its own, until three are
left; these are then measured anew.

A round has a fixed share of the time; the half that does worse by the goal's score goes, so that
those that stay get twice the blocks (K. Jamieson and A. Talwalkar, "Non-stochastic best arm
identification and hyperparameter optimization", AISTATS 2016, 240-248). Who has been selected was
lucky, too: the verdict is therefore on new blocks, and no trial of a round counts in it.

Everything follows from the journals: how many blocks a step has from what trials before it took,
who is in a round from the round before. So an interrupted search goes on by being done again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, median

from heapfit.advice import failed_trials, failing, recommend
from heapfit.advice.goals import title_of
from heapfit.advice.noise import blocks_to_show
from heapfit.errors import HeapfitError, UsageError
from heapfit.findings import Advice
from heapfit.fit.goal import Goal
from heapfit.gate import verdicts
from heapfit.gate.condition import Condition, parse
from heapfit.records import InstalledAllocator, Study, Trial, Workload
from heapfit.replay import measured_by_replay
from heapfit.report import Reading
from heapfit.statistics import Readings, summarise
from heapfit.statistics import read as read_trials
from heapfit.study import DEFAULT_SEED, load, plan
from heapfit.study.journal import STUDY_FILE
from heapfit.text import bytes_text, counted, join_words

FINALISTS = 3
REPLAY = "replay"  # the folder of a first round on a recording
CONFIRM = "confirm"  # that of the verdict
# Of the whole time, what the rounds have together; most of the rest is the verdict's.
_SCREENING = 0.45
# One block has no spread, so that a slow moment would decide. More than ten are the verdict's.
_BLOCKS = (2, 10)
# More than thirty only where the scatter of the screening asks for it.
_CONFIRM_BLOCKS = (6, 30, 100)
_LAST_STEP = 100  # beyond the number of any round
# What a setting's cost has to be of its allocator's without it, so that nobody deploys a setting
# that does nothing.
_EARNED = 0.99
# Where it is no more than this, it is measured without that where there is no time for both.
_EARNED_ALONE = 0.9
LOOK_BLOCKS = 2  # after a warm-up; one more run is recorded
# To look at the program, and to compare one candidate with what there is.
FEWEST_RUNS = LOOK_BLOCKS + 2 + 2 * (1 + _CONFIRM_BLOCKS[0])
# A run is given up that takes so many times as long as today's, and at least that part of the time:
# of a short one a moment in which the machine is busy is many times its length.
_HANGS, _HANGS_OF_TIME = 4, 1 / 30
# What a first run takes more than others, which find the program's files in memory.
_FIRST_RUN = 4

# Runs the missing trials of a study in its folder.
Run = Callable[[Study, Path], None]


@dataclass(frozen=True)
class Setup:
    """What all steps share."""

    workload: Workload
    baseline: InstalledAllocator
    cores: int
    goal: Goal
    keep: Sequence[Condition]
    time_s: float
    timeout_s: float  # of a run
    command: str
    compare: Callable[[str, int], str]  # the line that measures these allocators in so many blocks
    run: Run | None = None
    is_replay: bool = False  # the program is a recording's replay
    is_timeout_given: bool = False  # by --timeout

    def study(
        self, title: str, names: Sequence[InstalledAllocator], blocks: int, warmups: int, step: int
    ) -> Study:
        """Return the study of a step; steps differ in the seed of their random order."""
        return plan(
            self.workload,
            [self.baseline, *names],
            baseline=self.baseline.name,
            cores=[self.cores],
            replicates=blocks,
            warmups=warmups,
            seed=DEFAULT_SEED + step,
            timeout_s=self.timeout_s,
            measured=[each.metric for each in self.keep],
            reproduce=self.command,
            title=f"{self.workload.title}: {title}",
            weights=self.goal.weights,
            only=measured_by_replay() if self.is_replay else None,
        )

    def measure(self, study: Study, folder: Path) -> None:
        """Run what a step still lacks."""
        assert self.run is not None, "nothing is to be run"
        self.run(study, folder)


def conditions(texts: Sequence[str]) -> list[Condition]:
    """Return the bounds of `--keep`; UsageError for what is none."""
    found = [parse(text, "--keep", "<= >=", "wall_s<=1.01") for text in texts]
    if named := next((each for each in found if each.treatment), None):
        raise UsageError(f"--keep applies to every candidate; leave out {named.treatment}:")
    return found


def check(setup: Setup, found: list[InstalledAllocator]) -> None:
    """Raise an error where there is nothing to try, or a bound can never be judged."""
    if not found:
        raise UsageError(
            f"there is nothing to try beside {setup.baseline.name}: name more --allocators"
        )
    verdicts.check(setup.keep, setup.study("", found, 1, 0, 0))


@dataclass
class Dropped:
    """Who is out, after how much, and why."""

    name: str
    after: str
    reason: str
    adds_nothing: bool = False  # to its allocator alone


@dataclass
class Screened:
    """Who is left, best first, and who is not."""

    left: list[InstalledAllocator]
    dropped: list[Dropped] = field(default_factory=list)
    late: list[str] = field(default_factory=list)  # those that there was no time to run
    unjudged: list[str] = field(default_factory=list)  # nor to measure anew after the screening
    joined: list[str] = field(default_factory=list)  # settings, since their allocator did well
    alone: set[str] = field(default_factory=set)  # settings that their plain allocator cannot match
    enough_s: float = 0.0  # a `--time` that includes both


def sizes(count: int) -> list[int]:
    """Return how many candidates each round has.

    >>> sizes(20), sizes(3)
    ([20, 10, 5], [])
    """
    rounds = []
    while count > FINALISTS:
        rounds.append(count)
        count = max(FINALISTS, (count + 1) // 2)
    return rounds


def blocks_of(rounds: Sequence[int], trial_s: float, time_s: float) -> list[int]:
    """Return how many blocks each round has where a trial takes `trial_s`.

    >>> blocks_of([20, 10, 5], 1.0, 400)
    [2, 5, 10]
    """
    least, most = _BLOCKS
    share = _SCREENING * time_s / max(len(rounds), 1)
    return [min(max(int(share / (trial_s * (n + 1))), least), most) for n in rounds]


def room(count: int, trial_s: float, time_s: float) -> int:
    """Return how many of `count` candidates can be tried in the time: two at least, since one block
    tells which of them is worth the rest of it.

    >>> room(20, 1.0, 900), room(20, 10.0, 900), room(20, 30.0, 900), room(20, 3.0, 60)
    (20, 12, 5, 2)
    """
    wanted = range(count, 2, -1)
    return next((n for n in wanted if enough_s(n, trial_s) <= time_s), min(count, 2))


def enough_s(count: int, trial_s: float) -> float:
    """Return in how much time `count` candidates can be tried."""
    if rounds := sizes(count):
        return sum(_BLOCKS[0] * (n + 1) * trial_s for n in rounds) / _SCREENING
    return (FEWEST_RUNS + (count - 1) * (1 + _CONFIRM_BLOCKS[0])) * trial_s


def _spare(trial_s: float, time_s: float) -> int:
    """Return for how many runs there is time beyond the fewest."""
    return int(time_s / trial_s) - FEWEST_RUNS


def check_time(trial_s: float, time_s: float, *, is_first: bool = False) -> None:
    """Raise HeapfitError where the time is too short to compare anything."""
    needed = FEWEST_RUNS * trial_s
    if needed > time_s * (_FIRST_RUN if is_first else 1):
        raise HeapfitError(
            f"one run takes {trial_s:.1f} s, and {FEWEST_RUNS} are the fewest that tell anything: "
            f"allow {time_option(needed)}, or give the program less to do"
        )


def with_timeout(setup: Setup, trial_s: float) -> Setup:
    """Return `setup` with the time-out of a candidate where a run takes `trial_s` today."""
    if setup.is_timeout_given:
        return setup
    hangs_s = max(_HANGS * trial_s, _HANGS_OF_TIME * setup.time_s)
    return replace(setup, timeout_s=min(round(hangs_s, 1), setup.timeout_s))


def time_option(seconds: float) -> str:
    """Return the option that allows so much time.

    >>> time_option(61.0)
    '--time 2m'
    """
    return f"--time {max(1, -(-seconds // 60)):.0f}m"


def rounds_of(count: int, trial_s: float, time_s: float) -> list[tuple[int, int]]:
    """Return how many candidates and blocks each round of the screening has; empty: all can be
    measured for the verdict.

    >>> rounds_of(20, 1.0, 400), rounds_of(1, 1.0, 60), rounds_of(2, 3.1, 60)
    ([(20, 2), (10, 5), (5, 10)], [], [(2, 1)])
    """
    rounds = sizes(count)
    spare = _spare(trial_s, time_s)
    if not rounds and count > max(1, 1 + spare // (1 + _CONFIRM_BLOCKS[0])):
        # Which of them there is time for is found out by what the verdict of one leaves.
        blocks = min(max(spare // (1 + count), 1), _BLOCKS[1])  # one where there is no time for two
        return [(count, blocks)]
    return list(zip(rounds, blocks_of(rounds, trial_s, time_s), strict=True))


def first_round(count: int, trial_s: float, time_s: float) -> int:
    """Return how many of `count` allocators have half of the screening before their settings do.

    >>> first_round(12, 1.0, 900), first_round(12, 5.0, 300)
    (12, 5)
    """
    return min(count, max(2, int(_SCREENING * time_s / 2 / (_BLOCKS[0] * trial_s)) - 1))


def screen(
    setup: Setup,
    found: list[InstalledAllocator],
    folder: Path,
    trial_s: float,
    waiting: Sequence[InstalledAllocator] = (),
) -> Screened:
    """Run the rounds in folders below `folder`. Of the settings that are `waiting`, those whose
    allocator has done well join after a first round, as far as there is time."""
    state, time_s, done = Screened(found), setup.time_s, 0
    if any(each.variant_of for each in waiting):
        done = 1
        _round(setup, state, folder, done, _BLOCKS[0], FINALISTS + 1, trial_s)
        time_s -= _spent_s([folder / "screen-1"]) / _SCREENING
        joining = _joining(setup, state.left, waiting, trial_s, time_s)
        state.joined = [each.name for each in joining]
        state.left += joining
    state.late = [each.name for each in waiting if each.name not in state.joined]
    rounds = rounds_of(len(state.left), trial_s, time_s)
    for number, (_, blocks) in enumerate(rounds, start=1):
        keep = rounds[number][0] if number < len(rounds) else FINALISTS
        if len(state.left) > keep or len(rounds) == 1:
            _round(setup, state, folder, done + number, blocks, keep, trial_s)
    return state


def _round(
    setup: Setup,
    state: Screened,
    folder: Path,
    number: int,
    blocks: int,
    keep: int,
    trial_s: float,
) -> None:
    """Measure those that are left in so many blocks; in fewer where they take longer than planned:
    as long as today's, in `trial_s`."""
    where = folder / f"screen-{number}"

    def measure(blocks: int) -> None:
        study = setup.study(f"screening, round {number}", state.left, blocks, 0, number)
        setup.measure(study, where)

    measure(done := min(blocks, _BLOCKS[0]))
    if blocks > done:
        first = [each for each in trials_of([where]) if each.planned.block <= done]
        planned_s = blocks * (len(state.left) + 1) * trial_s
        if (blocks := min(blocks, int(planned_s / _block_s(setup, state, first)))) > done:
            measure(blocks)
    _halve(setup, state, where, keep)


def _joining(
    setup: Setup,
    left: Sequence[InstalledAllocator],
    waiting: Sequence[InstalledAllocator],
    trial_s: float,
    time_s: float,
) -> list[InstalledAllocator]:
    """Return the settings that join those that are `left`: of these, and of what is there today."""
    names = {setup.baseline.name, *(each.name for each in left)}
    able = [e for e in waiting if e.variant_of and e.name.partition("+")[0] in names]
    places = room(len(left) + len(able), trial_s, time_s) - len(left)
    return able[: max(places, 0)]


def _halve(setup: Setup, state: Screened, where: Path, keep: int) -> None:
    study, trials = load(where)
    taken = _taken(each for each in trials if not each.planned.warmup)
    readings = read_trials(study, trials)
    by_name = {each.name: each for each in state.left}
    # A step of few trials may be one in which today's allocator is lucky.
    earlier = trials_of(each for each in steps(where.parent) if each.name < where.name)
    failed = why_failing([*earlier, *trials], setup.baseline.name, lenient=True)
    out = {name: why for name, why in failed.items() if name in by_name}
    base = setup.baseline.name
    conditions = [each.forbidden() for each in setup.keep]
    if len(readings.block):
        for decision in verdicts.judge(conditions, readings, summarise(readings)):
            if decision.outcome == "failed" and decision.verdict:
                out.setdefault(decision.verdict.first, f"{decision.condition}: {decision.why}")
    advice = recommend(readings, setup.goal.weights, earlier, lenient=True)
    order = {each.allocator: each.score for each in advice.standings}
    over = _over(setup.goal, readings)
    broken = set(out)
    idle = set()
    of_goal = join_words([title_of(each) for each in setup.goal.weights])
    together = " together" if len(setup.goal.weights) > 1 else ""
    for name in by_name:
        for plain in plainer(name):
            if plain in over or plain in broken or not {name, plain} <= set(order):
                continue
            beside = order[name] / order[plain]
            if beside > _EARNED:
                idle.add(name)
                more = f"worse than {plain} alone: {_needed(advice, name, plain)}"
                less = f"less than 1 % better than {plain} alone in {of_goal}{together}"
                out.setdefault(name, more if beside * _EARNED > 1 else less)
    good = [name for name in order if name in by_name and name not in out]
    # Where nothing is within a limit, the nearest to it is what is to be told of.
    good.sort(key=lambda name: over.get(name, 0.0))
    kept, displaced = _with_plain(good, keep)
    for name in (each for each in good if each not in kept):
        if name in over:
            out[name] = f"{bytes_text(round(over[name]))} is above {setup.goal.text}"
        elif name in good[:keep]:
            out[name] = displaced[name]
        else:
            needed, best = (_needed(advice, each, base) for each in (name, good[0]))
            out[name] = f"it needed {needed} of {base}, and {good[0]} {best}"
    for name in by_name:
        if name not in good:
            out.setdefault(name, "it has no figures to compare")
    state.dropped += [
        Dropped(name, f"{where.name}, {_blocks(taken.get(name, []))}", why, name in idle)
        for name, why in out.items()
    ]
    state.left = [by_name[name] for name in kept]
    state.alone = {
        name
        for name in kept
        if (costs := [order[each] for each in plainer(name) if each in order])
        and order[name] <= _EARNED_ALONE * min(costs)
    }


def why_failing(trials: Sequence[Trial], baseline: str, *, lenient: bool = False) -> dict[str, str]:
    """Return of each allocator that fails more often than the baseline (`advice.failing`) how often
    it does. A screening is lenient, since the program may fail now and then whatever serves it; the
    verdict is not."""
    taken = {name: len(each) for name, each in _taken(trials).items()}
    accepted = len(failed_trials(trials).get(baseline, []))
    return {
        name: f"{len(failed)} of {counted(taken[name], 'run')} failed "
        f"({accepted} of {taken.get(baseline, 0)} with {baseline}): {failed[0].reason}"
        for name, failed in failing(trials, baseline, lenient=lenient).items()
    }


def _needed(advice: Advice, name: str, beside: str) -> str:
    """Return a candidate's costs in what the goal weighs: `1.475x the memory`."""
    costs = {each.allocator: each.costs for each in advice.standings}
    base = costs.get(beside, {})
    return join_words(
        [
            f"{cost / base.get(of, 1.0):.3f}x the {of.replace('-', ' ')}"
            for of, cost in costs[name].items()
        ]
    )


def plainer(name: str) -> list[str]:
    """Return what a setting or a variant goes without, the plainest first.

    >>> plainer("heapfit-pools+decay"), plainer("glibc")
    (['heapfit', 'heapfit-pools'], [])
    """
    allocator = name.partition("+")[0]
    found = dict.fromkeys([allocator.removesuffix("-pools"), allocator])
    return [each for each in found if each != name]


def _with_plain(good: Sequence[str], keep: int) -> tuple[list[str], dict[str, str]]:
    """Return those that stay, of all in their order, and why of the others the better ones do not:
    a setting or a variant stays only together with what it goes without, or the verdict could not
    tell whether it brings anything."""
    kept: dict[str, str] = {}  # for the sake of whom
    displaced = {}
    for name in (each for each in good if each not in kept):
        lacking = [each for each in plainer(name) if each in good and each not in kept]
        if len(kept) + 1 + len(lacking) <= keep:
            kept |= dict.fromkeys([name, *lacking], name)
        elif lacking and len(kept) < keep:
            displaced[name] = (
                f"there was no place for it and {join_words(lacking)}, which tells what it brings"
            )
        else:
            for plain, by in kept.items():
                if plain != by and good.index(plain) > good.index(name):
                    displaced[name] = f"{plain} took its place, since {by} is judged against it"
    return sorted(kept, key=good.index), displaced


def _over(goal: Goal, readings: Readings) -> dict[str, float]:
    """Return, of those whose memory is above the goal's limit, what it is."""
    if goal.limit is None:
        return {}
    metric = goal.limit.metric(readings.study)
    return {
        each.allocator: each.median
        for each in summarise(readings).estimates
        if each.metric == metric and each.median > goal.limit.size
    }


def _left_s(setup: Setup, folder: Path) -> float:
    """Return how many seconds of the time are left for the verdict."""
    return setup.time_s - _spent_s([*_there(folder, REPLAY), *steps(folder)])


def trials_of(parts: Iterable[Path]) -> list[Trial]:
    """Return the trials of the studies in these folders."""
    return [trial for part in parts for trial in load(part)[1]]


def _spent_s(parts: Iterable[Path]) -> float:
    """Return how long they took."""
    return sum(trial.took_s or 0.0 for trial in trials_of(parts))


def _taken(trials: Iterable[Trial]) -> dict[str, list[Trial]]:
    """Return each allocator's trials."""
    taken: dict[str, list[Trial]] = {}
    for trial in trials:
        taken.setdefault(trial.planned.allocator, []).append(trial)
    return taken


def _blocks(trials: Sequence[Trial]) -> str:
    return counted(len({each.planned.block for each in trials}), "block")


def _block_s(setup: Setup, state: Screened, trials: Iterable[Trial]) -> float:
    """Return how long a block of those that are left takes: each as its own trials took, or as the
    baseline's where it has none yet."""
    taken = _taken(trials)
    base = taken[setup.baseline.name]
    return _expected_s(base) + sum(_expected_s(taken.get(each.name, base)) for each in state.left)


def _expected_s(trials: Sequence[Trial]) -> float:
    """Return how long another trial takes on average, so that those that hang now and then count;
    without warm-ups, the first of which may wait for the disk, unless these are all."""
    usual = [each for each in trials if not each.planned.warmup]
    return fmean(each.took_s or 0.0 for each in usual or trials)


def limit_finalists(setup: Setup, state: Screened, folder: Path) -> None:
    """Drop those that are left as long as there is no time to measure all: the best last, or the
    plain allocator of that, without which a setting stays only where it was much better."""
    left_s = _left_s(setup, folder)
    least = _CONFIRM_BLOCKS[0]
    late = state.unjudged if screens(folder) else state.late
    trials = trials_of(steps(folder))
    for_all_s = needed_s(folder, (1 + least) * _block_s(setup, state, trials))
    found = _screened(setup, folder)
    while len(state.left) > 1 and (1 + least) * _block_s(setup, state, trials) > left_s:
        settings = [each.name for each in state.left if each.name not in state.alone]
        needed = {plain for each in settings for plain in plainer(each)}
        out = [each for each in state.left if each.name not in needed][-1]
        state.left.remove(out)
        reason = f"time was up{found.get(out.name, '')}"
        state.dropped.append(Dropped(out.name, "the screening", reason))
        late.append(out.name)
        state.enough_s = max(state.enough_s, for_all_s)


def _screened(setup: Setup, folder: Path) -> dict[str, str]:
    """Return what the last round had of each candidate, as the end of a sentence."""
    if not (rounds := screens(folder)):
        return {}
    advice = recommend(read_trials(*load(rounds[-1])), setup.goal.weights)
    base = setup.baseline.name
    names = [each.allocator for each in advice.standings if each.allocator != base]
    return {name: f"; it needed {_needed(advice, name, base)} of {base}" for name in names}


def confirm(setup: Setup, state: Screened, folder: Path) -> Path | None:
    """Measure the finalists and the baseline in new blocks; return the study's folder, None where
    nobody is left."""
    if not state.left:
        return None
    least, usual, most = _CONFIRM_BLOCKS
    where = folder / CONFIRM

    def measure(blocks: int) -> None:
        setup.measure(setup.study("the verdict", state.left, blocks, 1, _LAST_STEP), where)

    done, trials = 0, trials_of(steps(folder))
    if {each.name for each in state.left} - set(_taken(trials)):
        measure(done := least)  # what has not run yet may be slower by far
        # Of a verdict that is there already, no more, so that it stays as long as it was.
        trials += [each for each in trials_of([where]) if each.planned.block <= least]
    blocks = int(_left_s(setup, folder) / _block_s(setup, state, trials)) - 1
    wanted = min(max(usual, _wanted(setup, folder)), most)
    if (blocks := min(max(blocks, least), wanted)) > done:
        measure(blocks)
    return where


def time_for(setup: Setup, folder: Path, reading: Reading, blocks: int) -> float | None:
    """Return what `--time` gives the verdict so many blocks, by what all steps took; None: more
    time gives it no more than it had."""
    if blocks > _CONFIRM_BLOCKS[-1]:
        return None
    block_s = sum(each.took_s or 0.0 for each in reading.trials) / (reading.blocks + 1)
    needed = needed_s(folder, (blocks + 1) * block_s)
    return needed if needed > setup.time_s else None


def needed_s(folder: Path, verdict_s: float) -> float:
    """Return what `--time` leaves the verdict so many seconds, by what the steps before it took."""
    screened_s = _spent_s(screens(folder))
    others_s = _spent_s([*_there(folder, REPLAY), *_there(folder, "look")]) + verdict_s
    # With more time the screening, too, has more blocks, within its share.
    return max(others_s + screened_s, others_s / (1 - _SCREENING))


def _wanted(setup: Setup, folder: Path) -> int:
    """How many blocks would show a gain that matters, by the scatter of the last screening: the
    figures of the verdict have no part in how many there are."""
    if not (screened := screens(folder)):
        return _CONFIRM_BLOCKS[-1]
    readings = read_trials(*load(screened[-1]))
    found = [
        blocks_to_show(readings, metric, each.name)
        for metric in recommend(readings, setup.goal.weights).metrics.values()
        for each in readings.study.allocators
        if each.name != setup.baseline.name
    ]
    return max((each for each in found if each), default=0)


def steps(folder: Path) -> list[Path]:
    """Return the folders of the studies before the verdict."""
    return [*_there(folder, "look"), *screens(folder)]


def screens(folder: Path) -> list[Path]:
    """Return those of the screening's rounds, the first of them first."""
    return _there(folder, "screen-*")


def _there(folder: Path, pattern: str) -> list[Path]:
    """Return the folders of studies that have begun."""
    return sorted(each for each in folder.glob(pattern) if (each / STUDY_FILE).exists())


def began(step: Path) -> datetime:
    """Return when a step began that measured what is there today."""
    return load(step)[0].sessions[-1].began


def outdated(folder: Path) -> list[Path]:
    """Return the folders of steps that are older than one before them, which was measured anew
    since the program, an allocator or the machine had changed."""
    found, newest = [], datetime.min.replace(tzinfo=UTC)
    parts = ("look", REPLAY, "screen-*", CONFIRM)
    for step in (each for part in parts for each in _there(folder, part)):
        if (at := began(step)) < newest:
            found.append(step)
        newest = max(newest, at)
    return found


def median_s(trials: Sequence[Trial]) -> float:
    """Return how long a trial takes, with what goes before and after the program."""
    return median(each.took_s or 0.0 for each in trials)
