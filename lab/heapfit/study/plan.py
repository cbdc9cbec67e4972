"""Lay out a study: which trial runs when.

The design is a full factorial in complete blocks: each block holds every allocator in every setting
(the cores, and the levels of further factors) once. Settings are in random order, and within a
setting all allocators run one after the other, in random order again: two that are compared are one
trial apart or a few, not a round through all settings, so that what is slow in the machine changes
little between them. A block's order depends on the seed and the block's number alone; a study with
more replicates is therefore the same study, continued.

The first trials are warm-ups, which never count. They open with the baseline in each setting: its
output is the reference that all others are judged by, so it must be there before them.
"""

import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import heapfit
from heapfit import options
from heapfit.errors import HeapfitError, UsageError, unknown
from heapfit.files import check_named
from heapfit.host import machine
from heapfit.records import (
    ALLOCATOR,
    CAN_BE_ZERO,
    CORES,
    ENVIRONMENT_PREFIX,
    OPTION_PREFIX,
    Factor,
    InstalledAllocator,
    Machine,
    Metric,
    PlannedTrial,
    PublishedTable,
    Setting,
    StoppingRule,
    Study,
    Workload,
)
from heapfit.study.stopping import first_replicates
from heapfit.text import counted
from heapfit.trial import (
    BUILTIN_METRIC_NAMES,
    BUILTIN_METRICS,
    METRIC_NAMES,
    OPTIONAL_METRIC_NAMES,
    find_metrics,
    unavailable_metrics,
)
from heapfit.trial.cores import allowed_cpus, split_cores
from heapfit.trial.outcome import as_metric
from heapfit.trial.placeholders import BUILTIN_NAMES
from heapfit.trial.preload import takes_options

# Any fixed number will do; a fixed one lets the same command line resume what it began.
DEFAULT_SEED = 20240229

# `stdout` is a placeholder of the commands that run after a trial.
_RESERVED = {*BUILTIN_NAMES, "stdout", ALLOCATOR}
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_VARIABLE = re.compile(r"[^=\0]+")


def plan(
    workload: Workload,
    allocators: Sequence[InstalledAllocator],
    *,
    baseline: str,
    cores: Sequence[int],
    replicates: int | None,
    rule: StoppingRule | None = None,
    warmups: int = 1,
    seed: int = DEFAULT_SEED,
    timeout_s: float | None = None,
    primary_metric: str | None = None,
    reproduce: str | Callable[[Study], str] = "",
    factors: Sequence[Factor] = (),
    parameters: Mapping[str, str] | None = None,
    shown: Sequence[str] = (),
    measured: Sequence[str] = (),
    only: Sequence[str] | None = None,
    name: str | None = None,
    title: str | None = None,
    weights: Mapping[str, float] | None = None,
    published: Sequence[PublishedTable] = (),
    notes: Sequence[str] = (),
) -> Study:
    """Return a study of `workload`; raise `UsageError` for what makes no sense.

    A study has either `replicates` or a `rule` that says when to stop. `name`, `title`, `timeout_s`
    and `primary_metric` default to the workload's. `reproduce` is the command line that repeats the
    study, or makes it from the study, in which every default is filled in. `factors` vary beyond
    the allocators and the cores, `parameters` are set and do not vary. `shown` are the metrics to
    show and analyse. Optional metrics are measured where they are shown, primary or `measured`;
    with `only`, nothing but these metrics is kept, in their order. `weights` are those of the
    recommendation, `notes` are added to the machine's.

    Raises `HeapfitError` where this machine cannot give the primary metric. Other metrics that it
    cannot give are left out, with a note in the study's machine.
    """
    primary_metric = primary_metric or workload.primary_metric
    asked = [primary_metric, *shown, *measured]
    own = [*map(as_metric, workload.metrics), *map(as_metric, workload.command_metrics)]
    missing = _missing([*asked, *BUILTIN_METRIC_NAMES], own)
    optional = [name for name in asked if name in _optional_names(own) and name not in missing]
    metrics = [metric for metric in BUILTIN_METRICS if metric.name not in missing]
    metrics += [*find_metrics(optional), *own]
    if only is not None:
        metrics = sorted((m for m in metrics if m.name in only), key=lambda m: only.index(m.name))
    study = Study(
        heapfit_version=heapfit.__version__,
        created=datetime.now(UTC),
        name=name or workload.name,
        title=title or workload.title,
        command=(workload.server or workload.run).command,
        workload=workload,
        allocators=list(allocators),
        baseline=baseline,
        cores=list(cores),
        factors=list(factors),
        parameters=dict(parameters or {}),
        replicates=_first_replicates(replicates, rule),
        rule=rule,
        warmups=warmups,
        seed=seed,
        timeout_s=workload.run.timeout_s if timeout_s is None else timeout_s,
        metrics=metrics,
        primary_metric=primary_metric,
        shown=[name for name in shown if name not in missing],
        weights=dict(weights or {}),
        machine=_describe_machine(missing, notes),
        plan=[],
        reproduce="",
        directory=f"{Path.cwd()}",
        published=list(published),
    )
    _check(study, missing)
    command = reproduce if isinstance(reproduce, str) else reproduce(study)
    check_named(study.directory)  # The command is text: see command_line.
    return study.model_copy(update={"plan": list(_trials(study)), "reproduce": command})


def default_cores(workload: Workload) -> int:
    """Return how many cores to use unless told: all, but one is left to a server's client."""
    usable = len(allowed_cpus())
    has_client = workload.server is not None and not workload.fixes_duration
    return max(1, usable - 1) if has_client else usable


def extended(study: Study, replicates: int) -> Study:
    """Return `study` with its plan continued to `replicates`, which must not be fewer.

    What is planned stays as it is: another version may have put it in another order.
    """
    longer = study.model_copy(update={"replicates": replicates})
    known = {planned.index: planned for planned in study.plan}
    plan = [known.get(planned.index, planned) for planned in _trials(longer)]
    return longer.model_copy(update={"plan": plan})


def _first_replicates(given: int | None, rule: StoppingRule | None) -> int:
    if given is not None and rule is None:
        return given
    if rule is not None and given is None:
        return first_replicates(rule)
    raise UsageError("a study has either a number of replicates or a rule that says when to stop")


def _describe_machine(missing: dict[str, str], notes: Sequence[str]) -> Machine:
    """Describe the machine, with a note for each metric that it cannot give."""
    described = machine.describe()
    lacking = [f"{name} cannot be measured: {reason}" for name, reason in missing.items()]
    return described.model_copy(update={"notes": [*described.notes, *lacking, *notes]})


def _optional_names(own: Sequence[Metric]) -> set[str]:
    """Return the optional metrics, without those that the workload prints itself."""
    return set(OPTIONAL_METRIC_NAMES) - {metric.name for metric in own}


def _missing(names: Sequence[str], own: Sequence[Metric]) -> dict[str, str]:
    """Return those of the metrics `names` that this machine cannot give, each with the reason."""
    missing = unavailable_metrics(name for name in names if name in METRIC_NAMES)
    printed = {metric.name for metric in own}
    return {name: missing[name] for name in names if name in missing and name not in printed}


# ---------------------------------------------------------------- order of trials


def _trials(study: Study) -> Iterator[PlannedTrial]:
    for index, (block, replicate, warmup, allocator, setting) in enumerate(_cells(study)):
        cores, levels = setting
        yield PlannedTrial(
            index=index,
            block=block,
            replicate=replicate,
            allocator=allocator,
            cores=cores,
            levels=dict(levels),
            warmup=warmup,
        )


def _cells(study: Study) -> Iterator[tuple[int, int, bool, str, Setting]]:
    """Yield (block, replicate, warm-up, allocator, setting) in the order of the trials."""
    names = [allocator.name for allocator in study.allocators]
    warmups = study.warmups or 1  # without any, one block of the baseline alone gives the reference
    for block in range(warmups):
        references = [name for name in names if study.reference_of(name) == name]
        wanted = names if study.warmups else references
        order = list(_shuffled(study, block, wanted))
        order.sort(key=lambda cell: cell[0] not in references)  # stable: the rest stays shuffled
        for name, setting in order:
            yield block, block + 1, True, name, setting
    for replicate in range(1, study.replicates + 1):
        block = warmups + replicate - 1
        for name, setting in _shuffled(study, block, names):
            yield block, replicate, False, name, setting


def _shuffled(study: Study, block: int, names: Sequence[str]) -> Iterator[tuple[str, Setting]]:
    """Yield the cells of a block in its random order, those of a setting one after the other."""
    chance = random.Random(f"{study.seed}/{block}")
    settings = study.settings()
    chance.shuffle(settings)
    for setting in settings:
        order = list(names)
        chance.shuffle(order)
        yield from ((name, setting) for name in order)


# ------------------------------------------------------------------------ checks


def remarks(study: Study) -> list[str]:
    """Return a note if the trials at some levels will differ by chance alone.

    At each level of a factor `option.NAME` every allocator is run, although only heapfit reads its
    options: the analysis needs a complete design, each figure needs its baseline in the same block,
    and copies of figures would pass for measurements. To vary the options alone, a study names
    heapfit as its only allocator.
    """
    others = [each.name for each in study.allocators if not takes_options(each)]
    varied = [
        factor.name
        for factor in study.factors
        if factor.name.startswith(OPTION_PREFIX) and len(factor.levels) > 1
    ]
    if not others or not varied:
        return []
    return [
        f"only heapfit reads {', '.join(varied)}; each level is measured under "
        f"{', '.join(others)} all the same, and differences between those figures are noise"
    ]


def _check(study: Study, missing: Mapping[str, str]) -> None:
    names = [allocator.name for allocator in study.allocators]
    if len(set(names)) < len(names):
        raise UsageError(f"an allocator is named twice: {', '.join(names)}")
    if study.baseline not in names:
        raise unknown("baseline", study.baseline, names)
    known = [metric.name for metric in study.metrics]
    if len(set(known)) < len(known):
        raise UsageError(f"workload {study.name!r} redefines one of the metrics {', '.join(known)}")
    if study.primary_metric in missing:
        raise HeapfitError(
            f"{study.primary_metric} cannot be measured on this machine: "
            f"{missing[study.primary_metric]}"
        )
    for name in [study.primary_metric, *study.shown]:
        if name not in known:
            raise unknown("metric", name, {*known, *missing, *OPTIONAL_METRIC_NAMES})
    if not study.cores or len(set(study.cores)) < len(study.cores):
        raise UsageError("give each number of cores once, at least one")
    for cores in study.cores:
        split_cores(cores)
    for what, number, least in (
        ("replicate", study.replicates, 1), ("warm-up", study.warmups, 0),
    ):  # fmt: skip
        if number < least:
            raise UsageError(f"there must be at least {counted(least, what)}, not {number}")
    if study.timeout_s <= 0:
        raise UsageError(f"the time-out must be more than 0 seconds, not {study.timeout_s:g}")
    _check_factors(study)
    if study.rule and study.rule.precision is not None and study.primary_metric in CAN_BE_ZERO:
        raise UsageError(
            f"{study.primary_metric} can be zero and then has no ratio, so no precision of one can "
            "be reached; say how many --replicates"
        )
    _check_patterns(study.workload)


def _check_patterns(workload: Workload) -> None:
    patterns = {f"metric {each.name}": (each.pattern, 1) for each in workload.metrics}
    if workload.check.must_match is not None:
        patterns["must_match"] = (workload.check.must_match, 0)
    for what, (pattern, groups) in patterns.items():
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise UsageError(f"{what}: {pattern!r} is not a regular expression: {error}") from error
        if compiled.groups < groups:
            raise UsageError(f"{what}: {pattern!r} needs a group (…) around the figure")


def _check_factors(study: Study) -> None:
    """Raise `UsageError` unless the study's factors and parameters make sense."""
    _check_declared(study.workload)
    names = [factor.name for factor in study.factors]
    for factor in study.factors:
        name, levels = factor.name, factor.levels
        if names.count(name) > 1:
            raise UsageError(f"the factor {name!r} is given twice")
        if name in study.parameters:
            raise UsageError(f"{name!r} is both varied and set to {study.parameters[name]!r}")
        twice = next((level for level in levels if levels.count(level) > 1), None)
        if twice is not None:
            raise UsageError(f"the factor {name!r} has the level {twice!r} twice")
        if not levels:
            raise UsageError(f"the factor {name!r} has no levels")
        _check_values(study, name, levels)
    for name, value in study.parameters.items():
        _check_values(study, name, [value])
    for allocator in study.allocators:
        _check_variant(study, allocator)


def _check_variant(study: Study, allocator: InstalledAllocator) -> None:
    """Refuse a variant that sets what the study sets or varies: its trials would not be what their
    levels say."""
    known = study.workload.parameters
    for name in allocator.parameters:
        if name not in known:
            error = unknown(f"parameter of {study.workload.name}:", name, known)
            raise UsageError(f"variant {allocator.name!r}: {error}")
    if allocator.variant_of is None:
        return
    settled = {*(factor.name for factor in study.factors), *study.parameters}
    for name in _names_set(allocator):
        if name in settled:
            raise UsageError(f"{name!r} is set by the variant {allocator.name!r} and by the study")


def _names_set(variant: InstalledAllocator) -> list[str]:
    """Return what a variant sets, by the names of factors."""
    return [
        *variant.parameters,
        *(f"{OPTION_PREFIX}{name}" for name in variant.options),
        *(f"{ENVIRONMENT_PREFIX}{name}" for name in variant.environment),
    ]


def _check_declared(workload: Workload) -> None:
    for name in workload.parameters:
        if name in _RESERVED:
            raise UsageError(f"{workload.name}: no parameter may be called {name!r}")
        if not _PARAMETER.fullmatch(name):
            raise UsageError(
                f"{workload.name}: {name!r} cannot name a parameter; use letters, digits, - and _"
            )


def _check_values(study: Study, name: str, values: Iterable[str]) -> None:
    if name.startswith(OPTION_PREFIX):
        _check_option(study, name, values)
    elif name.startswith(ENVIRONMENT_PREFIX):
        if not _VARIABLE.fullmatch(name.removeprefix(ENVIRONMENT_PREFIX)):
            raise UsageError(f"{name!r} is not the name of an environment variable")
    elif name not in study.workload.parameters:
        raise _unknown(study.workload, name)


def _check_option(study: Study, name: str, values: Iterable[str]) -> None:
    for value in values:
        options.check(name.removeprefix(OPTION_PREFIX), value)
    if not any(map(takes_options, study.allocators)):
        raise UsageError(f"{name} is an option of heapfit, which is not among the allocators")


def _unknown(workload: Workload, name: str) -> UsageError:
    known = [ALLOCATOR, CORES, *workload.parameters, f"{OPTION_PREFIX}NAME"]
    own = ", ".join(workload.parameters) or "none"
    error = unknown("factor", name, [*known, f"{ENVIRONMENT_PREFIX}NAME"])
    return UsageError(f"{error} (the parameters of {workload.name}: {own})")
