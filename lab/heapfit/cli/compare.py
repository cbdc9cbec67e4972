"""`heapfit compare`: one program under several allocators, measured side by side."""

from __future__ import annotations

import fcntl
import os
import stat
import sys
import termios
from array import array
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
    Precision,
    Seed,
    Warmups,
    command_line,
    share,
    split_list,
    split_numbers,
    time_span,
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
    with_baseline,
)
from heapfit.doctor import examine_program
from heapfit.errors import HeapfitError, UsageError, unknown
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
_OUTPUT_CHECKS = ("same", "ignore")


@app.command(
    epilog="Example:  heapfit compare --allocators glibc,heapfit,jemalloc -- perl orders.pl"
)
def compare(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(metavar="WORKLOAD | -- CMD", help="A workload, a TOML file, or a command."),
    ] = None,
    allocators: Allocators = None,
    cores: Cores = None,
    factor: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=A,B",
            help="Vary more: {NAME} of the command, env.NAME, option.NAME (heapfit's); repeats.",
        ),
    ] = None,
    programs: Annotated[
        str | None,
        typer.Option(
            metavar="A=FILE,B=FILE",
            help="Compare builds of one program: {program} of the command is each in turn.",
        ),
    ] = None,
    replicates: Annotated[
        int | None, typer.Option(metavar="N", help="Trials of each that count. Default: 10.")
    ] = None,
    precision: Precision = None,
    max_time: MaxTime = None,
    warmups: Warmups = 1,
    baseline: Baseline = "glibc",
    itself: Annotated[
        bool,
        typer.Option("--aa", help="One allocator under two names: all that differs is chance."),
    ] = False,
    metric: Annotated[
        str | None, typer.Option(metavar="NAME", help="The metric that decides.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="When a trial is given up.")
    ] = None,
    seed: Seed = DEFAULT_SEED,
    output: Annotated[
        str | None,
        typer.Option(
            metavar="same|ignore", help="Must a program print the same under every allocator?"
        ),
    ] = None,
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
    """Compare allocators on a program, or builds of it: a table here, a page in the results folder.

    The same command goes on where an interrupted one stopped; more replicates add to it.
    """
    rule = _rule(replicates, precision, max_time)
    factors = [_factor(text) for text in factor or []]
    conditions = gates.conditions(fail_if, junit, markdown, github)
    builds = catalogue.resolve_programs(programs) if programs is not None else {}
    workload = _checked_output(_workload(name, context.obj, factors, builds), output)
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
        baseline=installed[0].name if itself or builds else baseline.partition("=")[0],
        cores=split_numbers(cores, "--cores") if cores else [default_cores(workload)],
        replicates=None if rule else replicates if replicates is not None else _REPLICATES,
        rule=rule,
        warmups=warmups,
        seed=seed,
        timeout_s=timeout,
        primary_metric=metric,
        factors=factors,
        measured=[each.metric for each in conditions],
    )
    gate = gates.Gate(conditions, study) if conditions else None
    if len(study.allocators) * len(study.settings()) == 1:
        raise _nothing_to_compare(study.baseline)
    if cluster:
        [study] = cluster.adopt([study])
    reproduce = _command_line(study, named, context)
    study = study.model_copy(update={"reproduce": reproduce})
    folder = out or results_folder(study.name, lambda folder: check_takes(folder, study))
    for program in _started(context.obj or [], builds):
        finding = examine_program([program])
        if finding and not finding.ok:  # A preload would not measure what it seems to.
            warn(f"warning: {finding.topic}: {finding.state}; {finding.advice}")
    if context.obj:
        _warn_of_input()
    for remark in remarks(study):
        warn(f"note: {remark}")
    is_ours = workload.prepare and not cluster  # The machines of a cluster make theirs.
    data = catalogue.prepare_workload(workload, say) if is_ours else None
    run = cluster.execute if cluster else execute
    progress = StudyProgress(messages)
    with kept_on_interrupt(progress, folder):
        run(study, folder, progress, data, mix=mix)
    answer.show(folder, as_json=as_json, beside=gate)
    if rule and not any(not trial.planned.warmup for trial in load(folder)[1]):
        raise HeapfitError("time was up before a trial that counts; allow more with --max-time")
    if gate:
        gates.tell(gate.decisions, f"heapfit compare: {study.title or study.name}", as_json=as_json,
                   junit=junit, markdown=markdown, github=github)  # fmt: skip


def _nothing_to_compare(name: str) -> UsageError:
    other = "heapfit" if name != "heapfit" else "glibc"
    return UsageError(
        f"there is nothing to compare {name} with: add others, as by --allocators {name},{other} "
        "(heapfit allocators lists them), numbers of --cores or a --factor; --aa compares it with "
        "itself"
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


def _started(command: list[str], builds: Mapping[str, str]) -> list[str]:
    """The program that the user's command starts, or each of the builds in its place."""
    return list(builds.values()) if command[:1] == [catalogue.PLACEHOLDER] else command[:1]


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
    named = split_list(allocators)
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
    factors: list[Factor],
    builds: Mapping[str, str],
) -> Workload:
    if name and program is None:
        workload = catalogue.resolve_workload(name)
    elif program and name is None:
        workload = catalogue.ad_hoc_workload(program, next(iter(builds.values()), None))
        workload = _with_parameters(workload, factors)
    else:
        raise UsageError(
            "compare what? write: heapfit compare WORKLOAD, or: heapfit compare -- CMD"
        )
    return catalogue.taking_programs(workload, builds) if builds else workload


def _with_parameters(workload: Workload, factors: list[Factor]) -> Workload:
    """Return a workload of the user's own command with the parameters that the factors vary."""
    parameters = {}
    for factor in factors:
        if not factor.name.startswith((OPTION_PREFIX, ENVIRONMENT_PREFIX)):
            placeholder = f"{{{factor.name}}}"
            if not any(placeholder in word for word in workload.run.command):
                raise UsageError(
                    f"the command takes no {factor.name}: write {placeholder} where its level goes"
                )
            parameters[factor.name] = factor.levels[0]
    return workload.model_copy(update={"parameters": parameters})


def _checked_output(workload: Workload, output: str | None) -> Workload:
    if output is None:
        return workload
    if output not in _OUTPUT_CHECKS:
        raise unknown("value of --output:", output, _OUTPUT_CHECKS)
    check = workload.check.model_copy(update={"stdout": output})
    return workload.model_copy(update={"check": check})


def _warn_of_input() -> None:
    """Say so where standard input holds something: no trial gets it, for all would need it anew."""
    try:
        kind = os.fstat(sys.stdin.fileno())
        waiting = array("i", [0])
        if stat.S_ISFIFO(kind.st_mode):
            fcntl.ioctl(sys.stdin.fileno(), termios.FIONREAD, waiting)
    except (OSError, ValueError):  # It is closed.
        return
    if waiting[0] or (stat.S_ISREG(kind.st_mode) and kind.st_size):
        warn(
            "warning: standard input is not given to the program, which runs many times; put it "
            "into a file: heapfit compare -- sh -c 'PROGRAM < FILE', or a workload's `stdin`"
        )


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
        precision=None if precision is None else f"{100 * precision:g}%",
        max_time=None if time_s is None else f"{time_s:g}s",
        factor=[f"{factor.name}={','.join(factor.levels)}" for factor in study.factors],
        warmups=study.warmups,
        seed=study.seed,
        timeout=f"{study.timeout_s:g}",
        metric=study.primary_metric,
        output=given["output"],
        out=given["out"],
        on=given["on"],
        fail_if=given["fail_if"],
        program=context.obj,
    )
