"""`heapfit replay`: a trace played back under several allocators, as a study."""

from __future__ import annotations

import json
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
    command_line,
    split_numbers,
)
from heapfit.cli.commands import new_app
from heapfit.cli.output import messages, results, table, warn
from heapfit.cli.progress import StudyProgress, kept_on_interrupt
from heapfit.cli.provide import (
    INSTALLED,
    named_allocators,
    plan_of,
    provide_allocators,
    results_folder,
    with_baseline,
)
from heapfit.errors import UsageError
from heapfit.replay import (
    Agreement,
    Speed,
    Touch,
    agreements,
    check_common,
    halved,
    measured_by_replay,
    replay_workload,
    shown_metrics,
)
from heapfit.study import DEFAULT_SEED, check_takes, default_cores, execute, is_series, plan

if TYPE_CHECKING:
    from heapfit.report import Reading

app = new_app()


@app.command(
    epilog="Example:  heapfit replay redis.hft --allocators glibc,heapfit,jemalloc --touch line"
)
def replay(
    trace: Annotated[
        Path, typer.Argument(metavar="TRACE", help="A file that heapfit record wrote.")
    ],
    allocators: Allocators = None,
    speed: Annotated[
        Speed,
        typer.Option(metavar="max|real", help="As fast as possible, or at the recorded times."),
    ] = Speed.MAX,
    one_thread: Annotated[
        bool,
        typer.Option("--one-thread", help="Make all calls on one thread, in time order."),
    ] = False,
    touch: Annotated[
        Touch,
        typer.Option(
            metavar="page|line|none",
            help="Write to every page of a new block, to every cache line, or to none.",
        ),
    ] = Touch.PAGE,
    age: Annotated[
        float,
        typer.Option(
            metavar="TIMES",
            min=0,
            max=1000,
            help="Age the heap first: fill it to this many times the recording's peak, then "
            "thin it out.",
        ),
    ] = 0,
    cores: Cores = None,
    replicates: Replicates = 10,
    warmups: Warmups = 1,
    baseline: Baseline = "glibc",
    no_system_calls: Annotated[
        bool,
        typer.Option(
            "--no-system-calls",
            help="Do not count system calls; counting them takes another run of each trial.",
        ),
    ] = False,
    instructions: Annotated[
        bool,
        typer.Option(
            "--instructions",
            help="Also count instructions, which hardly vary. Without hardware counters Valgrind "
            "counts them, in a slow run of each trial.",
        ),
    ] = False,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="A study of the real program: say whether both rank the allocators in the "
            "same order.",
        ),
    ] = None,
    seed: Seed = DEFAULT_SEED,
    out: Out = None,
    mix: Mix = False,
    install: Install = False,
    as_json: AsJson = False,
) -> None:
    """Replay a recorded program's calls under several allocators, and compare them.

    The calls are made on the recorded threads, in the recorded order, and the memory is touched;
    nothing else of the program runs. Times cover the calls and touching the memory; the replayer's
    own time is measured and subtracted. If it was interrupted, the same command continues where it
    stopped.
    """
    real = _real_study(against)
    named = _named(allocators, baseline)
    provided = provide_allocators(named, install=install)  # A long trace takes minutes to read.
    if real is not None:
        check_common([each.name for each in provided], real.summary)
    made = plan_of(trace, one_thread=one_thread)
    _remark_on(named, allocators)
    workload = replay_workload(made, speed=speed, touch=touch, age=age)
    study = plan(
        workload,
        provided,
        baseline=catalogue.name_of(baseline),
        cores=split_numbers(cores, "--cores") if cores else [default_cores(workload)],
        replicates=replicates,
        warmups=warmups,
        seed=seed,
        shown=shown_metrics(system_calls=not no_system_calls, instructions=instructions),
        only=measured_by_replay(),
        notes=[*made.facts.remarks(), f"plan: checksum {made.facts.checksum}"],
        reproduce=lambda study: command_line(
            "replay",
            str(trace),
            allocators=",".join(named),
            speed=speed,
            touch=touch,
            one_thread=one_thread,
            age=f"{age:g}" if age else None,
            no_system_calls=no_system_calls,
            instructions=instructions,
            against=against,
            out=out,
            baseline=study.baseline,
            cores=",".join(map(str, study.cores)),
            replicates=study.replicates,
            warmups=study.warmups,
            seed=study.seed,
        ),
    )
    folder = out or results_folder(study.name, lambda folder: check_takes(folder, study))
    progress = StudyProgress(messages)
    with kept_on_interrupt(progress, folder):
        execute(study, folder, progress, mix=mix)
    if real is None:
        answer.show(folder, as_json=as_json)
    else:
        _show_both(folder, real, as_json)


def _named(allocators: str | None, baseline: str) -> list[str]:
    """The allocators to be played; one that goes by call sites only where somebody names it."""
    entries = catalogue.load_allocators().values()
    usual = {each.name: each.name for each in entries if not each.by_call_site}
    return with_baseline(named_allocators(allocators, usual, installed=True), baseline)


def _remark_on(named: list[str], allocators: str | None) -> None:
    """Say what a replay cannot show of allocators that go by call sites."""
    entries = catalogue.load_allocators().values()
    by_site = [each.name for each in entries if each.by_call_site]
    for name in (each for each in by_site if each in named):
        warn(
            f"note: a replay has no call sites, so {name} can do no more than it does without them"
        )
    left_out = [each for each in by_site if each not in named]
    if left_out and allocators in (None, INSTALLED):
        warn(
            f"note: {', '.join(left_out)} is left out: it depends on call sites, which a "
            "replay does not have; try it on the program"
        )


def _real_study(folder: Path | None) -> Reading | None:
    """Return the study that the replay is set against; UsageError before anything is measured."""
    if folder is None:
        return None
    if is_series(folder):
        raise UsageError(
            f"{folder} holds a study of many workloads; name the folder of one in it: "
            f"{folder}/WORKLOAD"
        )
    from heapfit.report import read

    return read(folder)


# ------------------------------------------------------------------- beside the real program


def _show_both(folder: Path, real: Reading, as_json: bool) -> None:
    found: list[Agreement] = []
    problems: list[str] = []

    def against(reading: Reading) -> dict[str, Any]:
        try:
            found.extend(agreements(reading.summary, real.summary, halved(real.readings)))
        except UsageError as error:  # Trials have failed.
            problems.append(str(error))
            return {}
        plain = [each.model_dump() for each in found]
        (folder / "against.json").write_text(json.dumps(plain, indent=2) + "\n", encoding="utf-8")
        return {"against": plain}

    answer.show(folder, as_json=as_json, beside=against)
    for each in [] if as_json else found:
        _show_agreement(each, real.study.name)
    for problem in problems:
        warn(f"note: {problem}")


def _show_agreement(agreement: Agreement, real: str) -> None:
    results.print()
    results.print(
        f"By {agreement.what}: Kendall's tau {agreement.tau:.2f} (p = {agreement.p:.2g}) between "
        f"{real} ({agreement.real_metric}) and its replay ({agreement.replayed_metric})",
        soft_wrap=True,
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
    if agreement.halves is not None:
        results.print(
            f"Two halves of {real}'s own trials agree with tau {agreement.halves:.2f}: a replay "
            "cannot be shown to foretell more.",
            soft_wrap=True,
        )
