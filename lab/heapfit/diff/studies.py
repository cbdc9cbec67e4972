"""Two studies side by side: what is the program's own, and the ratios within each."""

import shlex
from collections.abc import Collection, Iterator
from itertools import product
from pathlib import Path

from heapfit.diff.model import Change, Diff, Figure, Span, facts, figure
from heapfit.meaning import is_of_program
from heapfit.records import Identity, Metric, Setting, Study
from heapfit.report import read
from heapfit.report.labels import machine_facts
from heapfit.report.results import FEWEST_TRIALS, Results
from heapfit.settings import setting_label
from heapfit.text import counted, join_words, readable, visible

# As many trials that are all alike show that a figure does not vary: of a figure with two values,
# two such studies differ by chance in one of 500 cases at most. A single trial shows nothing.
_FEWEST_ALIKE = 5
_MEMORY_DEPENDS_ON = ("Kernel", "C library", "Transparent huge pages", "Swap", "Memory")


def of_studies(old: Path, new: Path) -> Diff:
    """Return what the studies in two folders are to each other.

    Raises `UsageError` for a folder that holds none.
    """
    both = Results(read(old).summary), Results(read(new).summary)
    figures = list(_figures(*both))
    ratios = list(_ratios(*both))
    shared = set(both[0].allocators) & set(both[1].allocators)
    recorded = all(each.study.sessions for each in both)
    changed = facts(*(_described(each.study, shared, recorded=recorded) for each in both))
    said = [
        *_counts(figures),
        *_because([each.name for each in changed]),
        *_times(*both, ratios),
        *_missing(*both),
    ]
    return Diff(
        kind="results",
        old=readable(str(old)),
        new=readable(str(new)),
        began=[each.study.created for each in both],
        changed=changed,
        figures=figures,
        ratios=ratios,
        conclusions=said,
    )


def _described(study: Study, treatments: Collection[str], *, recorded: bool) -> dict[str, str]:
    """What is known of a study beside its figures; of its treatments, those that both have.

    `recorded`: of both it is known what they measured.
    """
    described = {
        "command": shlex.join(study.command),
        "baseline": study.baseline,
        "trials that count": f"{study.replicates} of each",
        "heapfit": study.heapfit_version,
        **{f"set: {name}": value for name, value in study.parameters.items()},
    }
    for each in (each for each in study.allocators if each.name in treatments):
        content = f", {each.sha256[:12]}" if each.sha256 else ""
        described[f"version of {each.name}"] = f"{each.version}{content}"
        for name, value in {**each.environment, **each.options, **each.parameters}.items():
            described[f"{name} of {each.name}"] = value
    described |= {name: text for name, text in machine_facts(study.machine) if name != "Note"}
    for session in study.sessions[-1:] if recorded else ():
        described |= _contents(session.identity)
        described |= {f"set: {n}": value for n, value in session.identity.environment.items()}
    for index, note in enumerate(study.machine.notes):
        described[f"note {index + 1}"] = note
    return {visible(name): visible(text) for name, text in described.items()}


def _contents(identity: Identity) -> dict[str, str]:
    """The checksums of what was measured, by the names of the files: builds may share one."""
    found: dict[str, dict[str, None]] = {}
    for file in identity.files:
        if file.role != "allocator" and file.sha256:
            found.setdefault(f"content of {file.path.name}", {})[file.sha256[:12]] = None
    return {name: ", ".join(checksums) for name, checksums in found.items()}


def _shared(old: Results, new: Results) -> Iterator[tuple[Setting, str, Metric, Metric]]:
    """Yield what both have: settings, allocators, and metrics that were measured in the same way,
    as the old and as the new study knows them."""
    others = {each.name: each for each in new.metrics}
    pairs = [(each, others[each.name]) for each in old.metrics if each.name in others]
    metrics = [(a, b) for a, b in pairs if (a.unit, a.source) == (b.unit, b.source)]
    settings = [setting for setting in old.settings if setting in new.settings]
    names = [name for name in old.allocators if name in new.allocators]
    for setting, name, (metric, other) in product(settings, names, metrics):
        yield setting, name, metric, other


def _where(setting: Setting, name: str) -> str:
    return f"{visible(name)}, {setting_label(setting)}"


def _figures(old: Results, new: Results) -> Iterator[Figure]:
    for setting, name, metric, other in _shared(old, new):
        before = old.estimate(setting, metric, name)
        after = new.estimate(setting, other, name)
        if before is None or after is None:
            continue
        both = before, after
        spans = [Span(value=each.median, low=each.low, high=each.high) for each in both]
        fewest = min(before.n, after.n)
        never_varies = all(each.minimum == each.maximum for each in both)
        known = fewest >= (_FEWEST_ALIKE if never_varies else FEWEST_TRIALS)
        of, own = _where(setting, name), is_of_program(metric)
        yield figure(of, visible(metric.label), metric.unit, spans, known=known, own=own)


def _ratios(old: Results, new: Results) -> Iterator[Figure]:
    """What each treatment is to the baseline in each run, of what is the machine's as well."""
    if old.baseline != new.baseline:
        return
    for setting, name, metric, other in _shared(old, new):
        before = old.against_baseline(setting, metric, name)
        after = new.against_baseline(setting, other, name)
        if is_of_program(metric) or before is None or after is None:
            continue
        if {before.subject, after.subject} != {"ratio"}:
            continue
        if None in (before.low, before.high, after.low, after.high):
            continue
        spans = [
            Span(value=each.estimate, low=each.low or 0.0, high=each.high or 0.0)
            for each in (before, after)
        ]
        yield figure(_where(setting, name), visible(metric.label), "ratio", spans)


# -------------------------------------------------------------- what it means


def _counts(figures: list[Figure]) -> Iterator[str]:
    own = [each for each in figures if each.change is not Change.NOT_COMPARABLE]
    if not own:
        yield "The two have no figure in common that can be compared."
        return
    differ = [each for each in own if each.change in (Change.LESS, Change.MORE)]
    if not differ:
        yield "Counts and memory can be compared; no difference is shown in any of them."
    else:
        told = counted(len(differ), "figure")
        yield f"Counts and memory can be compared: {told} of {len(own)} differ."


def _because(changed: list[str]) -> Iterator[str]:
    """Name what else may be the cause of a difference in counts and memory."""
    causes = [name for name in changed if name in _MEMORY_DEPENDS_ON]
    causes += [name for name in changed if name.startswith("version of ")]
    if causes:
        yield (
            "A difference may come from what has changed besides the program: "
            f"{join_words(causes)}."
        )
    if "command" in changed:
        yield "The commands differ: their figures can be compared only if they do the same work."


def _times(old: Results, new: Results, ratios: list[Figure]) -> Iterator[str]:
    yield (
        "Times cannot be compared: each run saw the machine in another state, about which "
        "nothing is known. To compare times, measure both in one run: heapfit compare "
        "--programs, or --allocators."
    )
    if old.baseline != new.baseline:
        yield "The baselines differ, so ratios to them cannot be compared, either."
    elif ratios:
        moved = sum(each.change in (Change.LESS, Change.MORE) for each in ratios)
        told = f"{moved} of {len(ratios)} moved" if moved else "none is shown to have moved"
        yield (
            f"Ratios to {visible(old.baseline)} within each run can be compared, as long as "
            f"{visible(old.baseline)} itself is what it was: {told}."
        )


def _missing(old: Results, new: Results) -> Iterator[str]:
    for which, mine, others in (("old", old, new), ("new", new, old)):
        if mine.summary.trials_done < mine.summary.trials_planned:
            yield f"The {which} study is not finished."
        names = [visible(name) for name in mine.allocators if name not in others.allocators]
        names += [setting_label(each) for each in mine.settings if each not in others.settings]
        if names:
            yield f"In the {which} study alone: {join_words(names)}."
        if mine.study.replicates < FEWEST_TRIALS:
            yield (
                f"The {which} study has fewer than {FEWEST_TRIALS} trials of each: it shows "
                "nothing about figures that vary."
            )
