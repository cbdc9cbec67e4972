"""`heapfit replay`: a trace played back under several allocators, as a study."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heapfit import catalogue
from heapfit.cli import answer
from heapfit.cli.arguments import (
    Allocators,
    AsJson,
    Baseline,
    Cores,
    Install,
    Mix,
    Out,
    Replicates,
    Seed,
    Warmups,
    split_numbers,
)
from heapfit.cli.commands import new_app
from heapfit.cli.output import messages, results, say, table, warn
from heapfit.cli.progress import StudyProgress, WorkProgress, kept_on_interrupt
from heapfit.cli.provide import (
    named_allocators,
    provide_allocators,
    results_folder,
    with_baseline,
)
from heapfit.errors import UsageError, unknown
from heapfit.records import Study, Summary
from heapfit.replay import (
    Agreement,
    Plan,
    Speed,
    Touch,
    agreements,
    make_plan,
    measured_by_replay,
    replay_workload,
    shown_metrics,
)
from heapfit.study import DEFAULT_SEED, check_takes, default_cores, execute, is_series, plan

if TYPE_CHECKING:
    from heapfit.report import Reading

app = new_app()

_AS_RECORDED, _ONE = "as-recorded", "1"


@app.command(
    epilog="Example:  heapfit replay redis.hft --allocators glibc,heapfit,jemalloc --touch line"
)
def replay(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="What heapfit record wrote.")],
    allocators: Allocators = None,
    speed: Annotated[
        Speed,
        typer.Option(
            metavar="max|real", help="As fast as it goes, or sleeping to the recorded times."
        ),
    ] = Speed.MAX,
    threads: Annotated[
        str,
        typer.Option(
            metavar=f"{_AS_RECORDED}|{_ONE}", help="The recorded threads, or all calls on one."
        ),
    ] = _AS_RECORDED,
    touch: Annotated[
        Touch,
        typer.Option(
            metavar="page|line|none",
            help="Write to every page of a new block, to every cache line, or not.",
        ),
    ] = Touch.PAGE,
    cores: Cores = None,
    replicates: Replicates = 10,
    warmups: Warmups = 1,
    baseline: Baseline = "glibc",
    no_system_calls: Annotated[
        bool,
        typer.Option(
            "--no-system-calls", help="Save the further run of each trial that counts them."
        ),
    ] = False,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="A study of the real program: does it rank the allocators alike?"
        ),
    ] = None,
    seed: Seed = DEFAULT_SEED,
    out: Out = None,
    mix: Mix = False,
    install: Install = False,
    as_json: AsJson = False,
) -> None:
    """Play a recorded program's calls under several allocators, and compare them.

    The calls are made by the recorded threads in the recorded order, and the memory is touched;
    nothing else of the program is there. Time is that of the calls and of touching what they give:
    what the replayer takes for itself is measured in each trial and subtracted. The same command
    goes on where an interrupted one stopped.
    """
    real = _real_study(against)
    if threads not in (_AS_RECORDED, _ONE):
        raise unknown("value of --threads:", threads, (_AS_RECORDED, _ONE))
    made = _plan_of(trace, one_thread=threads == _ONE)
    workload = replay_workload(made, speed=speed, touch=touch)
    usual = {name: name for name in catalogue.load_allocators()}
    named = with_baseline(named_allocators(allocators, usual, installed=True), baseline)
    study = plan(
        workload,
        provide_allocators(named, install=install),
        baseline=baseline.partition("=")[0],
        cores=split_numbers(cores, "--cores") if cores else [default_cores(workload)],
        replicates=replicates,
        warmups=warmups,
        seed=seed,
        shown=shown_metrics(system_calls=not no_system_calls),
    )
    options = [f"--speed={speed}", f"--threads={threads}", f"--touch={touch}"]
    options += ["--no-system-calls"] if no_system_calls else []
    options += [f"--against={against}"] if against else []
    options += [f"--out={out}"] if out else []
    reproduce = _command_line(study, trace, named, options)
    study = _with_remarks(measured_by_replay(study), made, reproduce)
    folder = out or results_folder(study.name, lambda folder: check_takes(folder, study))
    progress = StudyProgress(messages)
    with kept_on_interrupt(progress, folder):
        execute(study, folder, progress, mix=mix)
    if real is None:
        answer.show(folder, as_json=as_json)
    else:
        _show_both(folder, real, as_json)


def _real_study(folder: Path | None) -> Summary | None:
    """Return the study that the replay is set against; UsageError before anything is measured."""
    if folder is None:
        return None
    if is_series(folder):
        raise UsageError(
            f"{folder} holds a study of many workloads; name the folder of one in it: "
            f"{folder}/WORKLOAD"
        )
    from heapfit.report import read

    return read(folder).summary


def _plan_of(trace: Path, *, one_thread: bool) -> Plan:
    what = f"reading {trace.name}"
    with WorkProgress(messages) as progress:
        made = make_plan(
            trace,
            one_thread=one_thread,
            on_progress=lambda position, size: progress(position, size, what),
        )
    facts = made.facts
    say(f"{trace.name}: {facts.events:,} events, {facts.peak_bytes:,} bytes live at the peak")
    for remark in facts.remarks():
        warn(f"note: {remark}")
    return made


def _with_remarks(study: Study, made: Plan, reproduce: str) -> Study:
    """The report names what the replay lacks beside what the machine does."""
    notes = [*study.machine.notes, *made.facts.remarks(), f"plan: checksum {made.facts.checksum}"]
    machine = study.machine.model_copy(update={"notes": notes})
    return study.model_copy(update={"machine": machine, "reproduce": reproduce})


def _command_line(study: Study, trace: Path, named: list[str], options: list[str]) -> str:
    """Return the command line that repeats the study, with every default spelt out."""
    words = ["heapfit", "replay", str(trace), "--allocators", ",".join(named), *options]
    words += ["--baseline", study.baseline, "--cores", ",".join(map(str, study.cores))]
    words += ["--replicates", str(study.replicates), "--warmups", str(study.warmups)]
    return shlex.join([*words, "--seed", str(study.seed)])


# ------------------------------------------------------------------- beside the real program


def _show_both(folder: Path, real: Summary, as_json: bool) -> None:
    found: list[Agreement] = []

    def against(reading: Reading) -> dict[str, Any]:
        found.extend(agreements(reading.summary, real))
        plain = [each.model_dump() for each in found]
        (folder / "against.json").write_text(json.dumps(plain, indent=2) + "\n", encoding="utf-8")
        return {"against": plain}

    answer.show(folder, as_json=as_json, beside=against)
    for each in [] if as_json else found:
        _show_agreement(each, real.study.name)


def _show_agreement(agreement: Agreement, real: str) -> None:
    results.print()
    results.print(
        f"By {agreement.what}: Kendall's tau {agreement.tau:.2f} (p = {agreement.p:.2g}) between "
        f"{real} ({agreement.real_metric}) and its replay ({agreement.replayed_metric})",
        soft_wrap=True,
        markup=False,
    )
    rows = table("allocator", "program", "rank", "replay", "rank")
    for place in agreement.places:
        rows.add_row(
            place.allocator,
            f"{place.real:.3f}",
            str(place.real_rank),
            f"{place.replayed:.3f}",
            str(place.replayed_rank),
        )
    results.print(rows)
