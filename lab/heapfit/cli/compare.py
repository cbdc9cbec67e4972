"""`heapfit compare`: one program under several allocators, measured side by side."""

from collections.abc import Mapping
from typing import Annotated

import typer

from heapfit import catalogue
from heapfit.cli import answer
from heapfit.cli import gate as gates
from heapfit.cli.arguments import (
    Allocators,
    AsJson,
    Baseline,
    Cores,
    Install,
    MaxTime,
    Mix,
    On,
    Out,
    OutputCheck,
    Precision,
    Seed,
    Subject,
    Timeout,
    Warmups,
    Weights,
    command_line,
    share,
    split_numbers,
    time_span,
    weights,
)
from heapfit.cli.commands import new_app
from heapfit.cli.gate import FailIf, Github, Junit, Markdown
from heapfit.cli.output import messages, say, warn
from heapfit.cli.progress import StudyProgress, kept_on_interrupt
from heapfit.cli.provide import (
    INSTALLED,
    join_cluster,
    named_allocators,
    provide_allocators,
    provide_programs,
    results_folder,
    started_programs,
    subject,
    warn_of_input,
    warn_of_malloc,
    with_baseline,
)
from heapfit.errors import HeapfitError, UsageError
from heapfit.records import (
    ALLOCATOR,
    CORES,
    ENVIRONMENT_PREFIX,
    OPTION_PREFIX,
    Factor,
    StoppingRule,
    Study,
    Workload,
)
from heapfit.study import DEFAULT_SEED, check_takes, default_cores, execute, load, plan, remarks

app = new_app()

_REPLICATES = 10


@app.command(
    epilog="Example:  heapfit compare --allocators glibc,heapfit,jemalloc -- perl orders.pl"
)
@gates.decides(by="fail_if")
def compare(
    context: typer.Context,
    name: Subject = None,
    allocators: Allocators = None,
    cores: Cores = None,
    factor: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=A,B",
            help="Also vary {NAME} in the command, env.NAME, or heapfit's option.NAME; repeatable.",
        ),
    ] = None,
    programs: Annotated[
        str | None,
        typer.Option(
            metavar="A=FILE,B=FILE",
            help="Compare builds of one program: {program} in the command stands for each in turn.",
        ),
    ] = None,
    replicates: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Measured runs of each allocator or build, at each setting. Default: 10.",
        ),
    ] = None,
    precision: Precision = None,
    max_time: MaxTime = None,
    warmups: Warmups = 1,
    baseline: Baseline = "glibc",
    itself: Annotated[
        bool,
        typer.Option("--aa", help="A/A test: compare an allocator with itself."),
    ] = False,
    metric: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Metric that decides, alone unless --weights is given. Processor time may replace "
            "wall_s.",
        ),
    ] = None,
    weighed: Weights = None,
    timeout: Timeout = None,
    seed: Seed = DEFAULT_SEED,
    output: OutputCheck = None,
    out: Out = None,
    on: On = None,
    mix: Mix = False,
    install: Install = False,
    fail_if: FailIf = None,
    junit: Junit = None,
    markdown: Markdown = None,
    github: Github = False,
    as_json: AsJson = False,
) -> None:
    """Compare allocators on a program, or builds of it. Print a table and write a page.

    Run it again to resume; raise --replicates to extend.
    """
    rule = _rule(replicates, precision, max_time)
    factors = [_factor(text) for text in factor or []]
    conditions = gates.conditions(fail_if, junit, markdown, github)
    builds = catalogue.resolve_programs(programs) if programs is not None else {}
    workload = _workload(name, context.obj, output, factors, builds)
    usual = {name: name for name in catalogue.load_allocators()}
    if builds:
        _check_alone(itself, baseline)
        named = named_allocators(allocators or baseline, usual, installed=True)
    elif itself:
        named = [_the_only(allocators, baseline)]
    else:
        named = with_baseline(named_allocators(allocators, usual, installed=True), baseline)
    installed = provide_allocators(named, install=install)
    if itself:
        installed.append(catalogue.once_more(installed[0]))
    if builds:
        installed = catalogue.with_programs(builds, installed)
    cluster = join_cluster(on, install=install)
    if cluster is None:
        provide_programs([workload], install=install)
    study = plan(
        workload,
        installed,
        baseline=installed[0].name if itself or builds else catalogue.name_of(baseline),
        cores=split_numbers(cores, "--cores") if cores else [default_cores(workload)],
        replicates=None if rule else replicates if replicates is not None else _REPLICATES,
        rule=rule,
        warmups=warmups,
        seed=seed,
        timeout_s=timeout,
        primary_metric=metric,
        factors=factors,
        measured=[each.metric for each in conditions],
        weights=weights(weighed) if weighed is not None else _alone(metric),
        reproduce=lambda study: _command_line(study, named, context),
    )
    gate = gates.Gate(conditions, study) if conditions else None
    if len(study.allocators) * len(study.settings()) == 1:
        raise _nothing_to_compare(study.baseline)
    if cluster:
        [study] = cluster.adopt([study])
    folder = out or results_folder(study.name, lambda folder: check_takes(folder, study))
    warn_of_malloc(started_programs(workload, builds))
    if context.obj:
        warn_of_input("compare")
    for remark in remarks(study):
        warn(f"note: {remark}")
    is_ours = workload.prepare and not cluster  # The machines of a cluster make theirs.
    data = catalogue.prepare_workload(workload, say) if is_ours else None
    run = cluster.execute if cluster else execute
    progress = StudyProgress(messages)
    with kept_on_interrupt(progress, folder):
        run(study, folder, progress, data, mix=mix)
    try:
        answer.show(folder, as_json=as_json, beside=gate)
    except HeapfitError:  # The page cannot be written: what was decided is told all the same.
        if gate and not as_json:
            gates.show(gate.decisions)
        raise
    if rule and not any(not trial.planned.warmup for trial in load(folder)[1]):
        raise HeapfitError("time was up before any trial that counts; allow more with --max-time")
    if gate:
        gates.tell(gate.decisions, f"heapfit compare: {study.title or study.name}", as_json=as_json,
                   junit=junit, markdown=markdown, github=github)  # fmt: skip


def _nothing_to_compare(name: str) -> UsageError:
    other = "heapfit" if name != "heapfit" else "glibc"
    return UsageError(
        f"there is nothing to compare {name} with: add others, for example by --allocators "
        f"{name},{other} (heapfit allocators lists them), by several numbers of --cores or by "
        "a --factor; --aa compares it with itself"
    )


def _rule(
    replicates: int | None, precision: str | None, max_time: str | None
) -> StoppingRule | None:
    """Return the rule that says when there are replicates enough; None: their number is given."""
    if precision is None and max_time is None:
        return None
    if replicates is not None:
        given = "--max-time" if precision is None else "--precision"
        raise UsageError(f"{given} decides how many replicates there are; leave out --replicates")
    return StoppingRule(
        precision=None if precision is None else share(precision, "--precision"),
        max_time_s=None if max_time is None else time_span(max_time, "--max-time"),
    )


def _alone(metric: str | None) -> dict[str, float] | None:
    """The weights with which the metric that was asked for decides alone."""
    from heapfit.advice.goals import goal_of

    return {goal_of(metric): 1.0} if metric is not None else None


def _check_alone(itself: bool, baseline: str) -> None:
    """Raise UsageError for options that make no sense where builds of a program are compared."""
    if itself:
        raise UsageError("--aa compares an allocator with itself; leave out --programs")
    if baseline != "glibc":
        raise UsageError("with --programs the first of them is the baseline; leave out --baseline")


def _the_only(allocators: str | None, baseline: str) -> str:
    """Return the allocator that is compared with itself, as the user names it.

    >>> _the_only(None, "glibc"), _the_only("jemalloc", "glibc")
    ('glibc', 'jemalloc')
    """
    if allocators is None:
        return baseline
    named = catalogue.split_words(allocators)
    if len(named) != 1 or named == [INSTALLED]:
        raise UsageError(f"--aa compares one allocator with itself, not {allocators!r}")
    return named[0]


def _factor(text: str) -> Factor:
    """Return the factor that `NAME=A,B` describes. A level may be empty: a variable left unset.

    >>> _factor("threads=1,2").levels, _factor("env.TZ=,UTC").levels
    (['1', '2'], ['', 'UTC'])
    """
    name, equals, levels = text.partition("=")
    name = name.strip()
    if not equals or not name:
        raise UsageError(f"--factor takes NAME=A,B, not {text!r}")
    if name in (ALLOCATOR, CORES):
        raise UsageError(f"{name!r} has an option of its own: --{name.removesuffix('s')}s")
    if not levels.strip():
        raise UsageError(f"the factor {name!r} has no levels; write --factor {name}=A,B")
    return Factor(name=name, levels=[level.strip() for level in levels.split(",")])


def _workload(
    name: str | None,
    program: list[str] | None,
    output: str | None,
    factors: list[Factor],
    builds: Mapping[str, str],
) -> Workload:
    workload = subject("compare", name, program, output, stand_in=next(iter(builds.values()), None))
    if program:
        workload = _with_parameters(workload, factors)
    return catalogue.taking_programs(workload, builds) if builds else workload


def _with_parameters(workload: Workload, factors: list[Factor]) -> Workload:
    """Return a workload of the user's own command with the parameters that the factors vary."""
    parameters = {}
    for factor in factors:
        if not factor.name.startswith((OPTION_PREFIX, ENVIRONMENT_PREFIX)):
            placeholder = f"{{{factor.name}}}"
            if not any(placeholder in word for word in workload.run.command):
                raise UsageError(
                    f"the command does not use {factor.name}: write {placeholder} where its "
                    "level goes"
                )
            parameters[factor.name] = factor.levels[0]
    return workload.model_copy(update={"parameters": parameters})


def _command_line(study: Study, named: list[str], context: typer.Context) -> str:
    """Return the command line that repeats the study, with every default spelt out."""
    given = context.params
    programs, itself = given["programs"], given["itself"]
    rule = study.rule or StoppingRule()
    precision, time_s = rule.precision, rule.max_time_s
    return command_line(
        "compare",
        *filter(None, [given["name"]]),
        allocators=",".join(named),
        programs=programs,
        aa=itself and programs is None,
        baseline=None if itself or programs is not None else study.baseline,
        cores=",".join(map(str, study.cores)),
        replicates=study.replicates if study.rule is None else None,
        precision=None if precision is None else f"{100 * precision:.12g}%",
        max_time=None if time_s is None else f"{time_s:.12g}s",
        factor=[f"{factor.name}={','.join(factor.levels)}" for factor in study.factors],
        warmups=study.warmups,
        seed=study.seed,
        timeout=f"{study.timeout_s:.12g}",
        metric=given["metric"],  # Its default too would decide alone if it were named.
        weights=given["weighed"],
        output=given["output"],
        out=given["out"],
        on=given["on"],
        fail_if=given["fail_if"],
        program=context.obj,
    )
