"""`heapfit compare`: one program under several allocators, measured side by side."""

from __future__ import annotations

import itertools
import shlex
from pathlib import Path
from typing import Annotated

import typer

from heapfit import catalogue
from heapfit.catalogue.allocators import find_allocators
from heapfit.cli import answer
from heapfit.cli.arguments import AsJson, split_list, split_numbers
from heapfit.cli.commands import new_app
from heapfit.cli.failures import INTERRUPTED
from heapfit.cli.output import messages, say
from heapfit.cli.progress import StudyProgress
from heapfit.doctor import Finding, examine_program
from heapfit.errors import HeapfitError, UsageError, unknown
from heapfit.records import Study, Workload
from heapfit.study import DEFAULT_SEED, Journal, default_cores, execute, plan

app = new_app()

_RESULTS = Path("heapfit-results")
_OUTPUT_CHECKS = ("same", "ignore")


@app.command(epilog="Example:  heapfit compare --allocators glibc,heapfit,jemalloc -- ./server")
def compare(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(metavar="WORKLOAD | -- CMD", help="A workload, a TOML file, or a command."),
    ] = None,
    allocators: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Names, or mine=./lib.so. Default: all installed."),
    ] = None,
    cores: Annotated[
        str | None, typer.Option(metavar="N,M", help="Numbers of cores. Default: all.")
    ] = None,
    replicates: Annotated[int, typer.Option(metavar="N", help="Trials of each that count.")] = 10,
    warmups: Annotated[int, typer.Option(metavar="N", help="Trials of each before those.")] = 1,
    baseline: Annotated[
        str, typer.Option(metavar="NAME", help="What the others are compared with.")
    ] = "glibc",
    metric: Annotated[
        str | None, typer.Option(metavar="NAME", help="The metric that decides.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="When a trial is given up.")
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Of the random order.")] = DEFAULT_SEED,
    output: Annotated[
        str | None,
        typer.Option(
            metavar="same|ignore", help="Must a program print the same under every allocator?"
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where trials and page go. Default: heapfit-results/NAME"),
    ] = None,
    install: Annotated[
        bool, typer.Option("--install", help="Install what is missing of the named.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compare allocators on a program: a table here, a page with plots in the results folder.

    The same command goes on where an interrupted one stopped; more replicates add to it.
    """
    workload = _checked_output(_workload(name, context.obj), output)
    named = _named(allocators, baseline)
    if install:
        _install(named)
    data = _provide(workload, install=install)
    study = plan(
        workload,
        catalogue.resolve_allocators(named),
        baseline=baseline.partition("=")[0],
        cores=split_numbers(cores, "--cores") if cores else [default_cores(workload)],
        replicates=replicates,
        warmups=warmups,
        seed=seed,
        timeout_s=timeout,
        primary_metric=metric,
    )
    reproduce = _command_line(study, named, name, context.obj, output, out)
    study = study.model_copy(update={"reproduce": reproduce})
    folder = out or _default_folder(study)
    if context.obj:
        _warn_of(examine_program(context.obj))
    _measure(study, folder, data)
    answer.show(folder, as_json=as_json)


def _workload(name: str | None, program: list[str] | None) -> Workload:
    if name and program is None:
        return catalogue.resolve_workload(name)
    if program and name is None:
        return catalogue.ad_hoc_workload(program)
    raise UsageError("compare what? write: heapfit compare WORKLOAD, or: heapfit compare -- CMD")


def _checked_output(workload: Workload, output: str | None) -> Workload:
    if output is None:
        return workload
    if output not in _OUTPUT_CHECKS:
        raise unknown("value of --output:", output, _OUTPUT_CHECKS)
    check = workload.check.model_copy(update={"stdout": output})
    return workload.model_copy(update={"check": check})


def _warn_of(finding: Finding | None) -> None:
    """Say in one line why a preload would not measure what it seems to, and what to do."""
    if finding and not finding.ok:
        line = f"warning: {finding.topic}: {finding.state}; {finding.advice}"
        messages.print(line, style="yellow", markup=False, soft_wrap=True)


def _named(names: str | None, baseline: str) -> list[str]:
    """Return the allocators as the user names them, the baseline among them."""
    if names is None:
        known = catalogue.load_allocators().values()
        named = [entry.name for entry in known if catalogue.find_installed(entry)]
    else:
        named = split_list(names)
    if baseline.partition("=")[0] not in [word.partition("=")[0] for word in named]:
        named.insert(0, baseline)
    return named


def _install(named: list[str]) -> None:
    for entry in find_allocators(named):
        catalogue.install_allocator(entry, say)


def _provide(workload: Workload, *, install: bool) -> Path | None:
    """Make sure of the workload's programs and data; return the data's folder if it has any."""
    missing = catalogue.missing_for(workload)
    if missing and not install:
        raise HeapfitError(
            f"{workload.name} needs {', '.join(missing)}; "
            f"add --install, or run: heapfit workloads install {workload.name}"
        )
    if missing:
        catalogue.install_workload(workload, say)
    return catalogue.prepare_workload(workload, say) if workload.prepare else None


def _default_folder(study: Study) -> Path:
    """Return the folder that has this study already, or else a new one.

    Another study of the same workload (of an earlier build, on other cores) keeps its own.
    """
    names = itertools.chain([study.name], (f"{study.name}-{n}" for n in itertools.count(2)))
    return next(_RESULTS / each for each in names if _takes(_RESULTS / each, study))


def _takes(folder: Path, study: Study) -> bool:
    try:
        with Journal(folder, study):
            return True
    except UsageError:  # It holds another study.
        return False


def _measure(study: Study, folder: Path, data: Path | None) -> None:
    progress = StudyProgress(messages)
    try:
        with progress:
            execute(study, folder, progress, data)
    except KeyboardInterrupt:
        messages.print(
            f"interrupted: {progress.done} of {progress.planned} trials are kept in {folder}; "
            "the same command goes on from there",
            soft_wrap=True,
            markup=False,
        )
        raise typer.Exit(INTERRUPTED) from None


def _command_line(
    study: Study,
    named: list[str],
    name: str | None,
    program: list[str] | None,
    output: str | None,
    out: Path | None,
) -> str:
    """Return the command line that repeats the study, with every default spelt out."""
    words = ["heapfit", "compare", *([name] if name else [])]
    words += ["--allocators", ",".join(named), "--baseline", study.baseline]
    words += ["--cores", ",".join(map(str, study.cores)), "--replicates", str(study.replicates)]
    words += ["--warmups", str(study.warmups), "--seed", str(study.seed)]
    words += ["--timeout", f"{study.timeout_s:g}", "--metric", study.primary_metric]
    words += ["--output", output] if output else []
    words += ["--out", str(out)] if out else []
    words += ["--", *program] if program else []
    return shlex.join(words)
