"""The recommendation in words: what is recommended, why, and the lines that put it to use."""

from collections.abc import Iterator

from heapfit import catalogue, options
from heapfit.advice.goals import TIME, title_of
from heapfit.advice.noise import is_vague
from heapfit.advice.values import values_of
from heapfit.findings import Advice, Standing
from heapfit.meaning import PROCESSOR, WALL, is_replay
from heapfit.records import InstalledAllocator, Metric, Study, Verdict
from heapfit.report.results import Results, change
from heapfit.report.tables import Cell, Row, Table
from heapfit.settings import setting_label
from heapfit.text import (
    TERMINAL_DIGITS,
    TIMES,
    Scale,
    join_words,
    mid_sentence,
    shell_word,
    shell_words,
    visible,
    with_variables,
)
from heapfit.trial.placeholders import BUILTIN_NAMES
from heapfit.trial.preload import environment_changes

_UNBEATEN = "unbeaten"
UNBEATEN = "unbeaten: no other is shown to be better in one respect without being worse in another"
DEPLOYMENT = "To use the recommended allocator:"

# In place of a command that only means something within a trial.
_SOME_COMMAND = "CMD"


def headline(advice: Advice) -> str:
    """Return the recommendation in a few words."""
    if not advice.told:
        return "Too little data yet"
    if advice.recommended is None and not advice.differs:
        return "Inconclusive" if advice.untold else "No difference shown that matters"
    by = ", by processor time" if PROCESSOR in advice.metrics.values() else ""
    if advice.recommended is None:
        return f"No recommendation{by}"
    verb = "Keep" if advice.keeps else "Recommended:"
    return f"{verb} {visible(advice.recommended)}{by}"


def weights_text(advice: Advice) -> str:
    """Return what counted how much, for example `time 2, memory 1`."""
    return ", ".join(f"{visible(name)} {weight:g}" for name, weight in advice.weights.items())


def is_weighed(advice: Advice) -> bool:
    """Whether the reasons have to do with the weights of goals."""
    return len(advice.weights) > 1 and "weights" in advice.reasons


def one_line(advice: Advice) -> str:
    """Return the recommendation with its reasons as one paragraph."""
    return f"{headline(advice)}. {reasons_of(advice)}"


def reasons_of(advice: Advice) -> str:
    """Return the reasons, what cannot be told, and why processor time decides where it does; before
    them, that the program is small."""
    said = (advice.small, advice.reasons, *advice.untold, advice.basis)
    return visible(" ".join(filter(None, said)))


def _standing_notes(advice: Advice, standing: Standing) -> str:
    """Return what is to be said of an allocator's place beside its figures."""
    is_tied = standing.tied_with_best and standing is not advice.standings[0]
    return join_words([*[_UNBEATEN] * standing.unbeaten, *["tied with the first"] * is_tied])


def _costs_of(advice: Advice) -> list[str]:
    """Return the costs that any allocator has, in the order of the weights."""
    found = dict.fromkeys([*advice.weights, *(c for s in advice.standings for c in s.costs)])
    return [name for name in found if any(name in each.costs for each in advice.standings)]


def titles(advice: Advice, study: Study) -> dict[str, str]:
    """Return what each cost is called, in the order of the weights."""
    metrics = {each.name: each for each in study.metrics}
    return {
        cost: title_of(cost, metrics.get(advice.metrics.get(cost, "")))
        for cost in _costs_of(advice)
    }


def ranking(advice: Advice, study: Study) -> Table:
    """Return the ranking: each allocator or program with its score, its costs, and what is to be
    said of it."""
    costs = titles(advice, study)
    return Table(
        title="Ranking",
        corner=study.noun,
        columns=["score", *costs.values(), ""],
        rows=[
            Row(
                each.allocator,
                [
                    Cell(f"{each.score:.3f}", is_best=each.allocator == advice.recommended),
                    *(Cell(_cost_text(each, cost)) for cost in costs),
                    Cell(_standing_notes(advice, each)),
                ],
            )
            for each in advice.standings
        ],
    )


def _cost_text(standing: Standing, cost: str) -> str:
    """Return a cost as a ratio to the best, nothing where there is none."""
    return f"{standing.costs[cost]:.3f}{TIMES}" if cost in standing.costs else ""


def deciding(results: Results, advice: Advice) -> list[str]:
    """Return the metrics that decide, and after time wall time where that says otherwise."""
    names = list(advice.metrics.values())
    time = advice.metrics.get(TIME, WALL)
    known = {each.name: each for each in results.metrics}
    if time != WALL and {time, WALL} <= known.keys():
        setting = results.settings[0] if len(results.settings) == 1 else None
        for name in results.allocators:
            wall = results.verdict(setting, known[WALL], name, results.baseline)
            told = results.verdict(setting, known[time], name, results.baseline)
            if wall and told and _says_otherwise(wall, told, known[time].better):
                return [*names[: (at := names.index(time) + 1)], WALL, *names[at:]]
    return names


def _says_otherwise(wall: Verdict, time: Verdict, better: str) -> bool:
    """Whether wall time is shown to differ, and `time` is not, or is in the other direction."""
    slower = time.shown and (time.beyond > 0) == (better == "lower")
    quicker = time.shown and not slower
    return wall.shown and not wall.trivial and not (slower if wall.beyond > 0 else quicker)


def against_baseline(results: Results, advice: Advice) -> str:
    """Return what the recommended allocator is to the baseline in each of the metrics that decide,
    over all settings and in those that show the opposite; empty: there is nothing to say."""
    name = advice.recommended
    setting = results.settings[0] if len(results.settings) == 1 else None
    if name is None or name == results.baseline:
        return ""
    by_name = {metric.name: metric for metric in results.metrics}
    said: list[str] = []
    opposite: list[str] = []
    for metric in (by_name[each] for each in deciding(results, advice) if each in by_name):
        verdict = results.verdict(setting, metric, name, results.baseline)
        if verdict is not None:
            undecided = "" if verdict.shown else ", which may be chance"
            scale = results.scale(metric, TERMINAL_DIGITS)
            found = f"{change(verdict, scale)}{undecided}"
            found = "inconclusive" if is_vague(verdict) else found
            said.append(f"{mid_sentence(metric.label)} {found}")
            opposite += _opposite(results, metric, name, verdict, scale)
    if not said:
        return ""
    baseline = visible(results.baseline)
    lines = [f"Compared with {baseline}: {'; '.join(said)}."]
    if opposite:
        lines.append(f"This is the mean of all settings. The opposite holds {'; '.join(opposite)}.")
    return " ".join(lines)


def _opposite(
    results: Results, metric: Metric, name: str, overall: Verdict, scale: Scale
) -> Iterator[str]:
    """Yield the settings in which `name` is shown to change `metric` the other way."""
    for setting in results.settings if len(results.settings) > 1 else []:
        verdict = results.against_baseline(setting, metric, name)
        if verdict and verdict.shown and _rises(verdict) != _rises(overall):
            found = f"{mid_sentence(metric.label)} {change(verdict, scale)}"
            yield f"with {visible(setting_label(setting))}: {found}"


def _rises(verdict: Verdict) -> bool:
    return verdict.estimate > (1 if verdict.subject == "ratio" else 0)


def deployment(study: Study, advice: Advice | None) -> list[str]:
    """Return the command lines that run what is recommended.

    There are none where nothing changes, or where no line would do it.
    """
    if advice is None or advice.recommended is None or advice.keeps:
        return []
    values = values_of(study)
    chosen = next(each for each in values or study.allocators if each.name == advice.recommended)
    # Of a tool there is no such line, and of programs under one allocator nothing but the choice.
    if chosen.record is not None or chosen.wrapper or study.noun == "program":
        return []
    command = _command(study, chosen)
    lines = []
    if not values:  # The name of a value is no allocator's.
        word = shell_word(catalogue.treatment_word(chosen))
        lines.append(f"heapfit run --allocator {word} -- {command}")
    # Its own options alone: those that the reader's environment has are not of the study.
    changes = environment_changes(chosen, {options.VARIABLE: ""})
    if variables := {name: value for name, value in changes.items() if value}:
        lines.append(with_variables(variables, command))
    return [visible(line) for line in lines]


def _command(study: Study, chosen: InstalledAllocator) -> str:
    """Return the study's command as a shell takes it, if it stands on its own and is not the
    replayer of a recording."""
    words = study.command
    if is_replay(study):
        return _SOME_COMMAND
    if chosen.program is not None:
        own = chosen.parameters[catalogue.PROGRAM]
        words = [word.replace(catalogue.PLACEHOLDER, own) for word in words]
    names = {*BUILTIN_NAMES, *study.workload.parameters}
    if any(f"{{{name}}}" in word for name in names for word in words):
        return _SOME_COMMAND
    return shell_words(words)
