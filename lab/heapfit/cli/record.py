"""`heapfit record`: write down what a program does with its heap."""

import math
import os
import resource
import signal
import sys
from dataclasses import replace
from glob import escape
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from heapfit import catalogue, text
from heapfit.cli.arguments import CALLS_FOLLOWED, AsJson, process_number, program_of, time_span
from heapfit.cli.commands import new_app
from heapfit.cli.output import messages, print_json, say, warn
from heapfit.cli.provide import provide_allocators, provide_programs, subject
from heapfit.errors import HeapfitError, UsageError
from heapfit.files import RECORDING_SUFFIX, free_name
from heapfit.host.interpreters import OBJECTS_FROM_MALLOC, hiding
from heapfit.host.proc import LISTED_BY, present
from heapfit.host.program import inherited, why_not_preloadable
from heapfit.options import size_in_bytes
from heapfit.record import (
    OPTIONS,
    Attached,
    NothingRecorded,
    Recording,
    RecordOptions,
    Written,
    attach,
    examine,
    follow,
    is_written,
    told_to_stop,
)
from heapfit.record import run as run_recorded
from heapfit.record.options import PROCESS
from heapfit.record.run import check_path
from heapfit.records import Workload
from heapfit.text import shell_word

app = new_app()


@app.command(
    epilog="Example:  heapfit record -o redis.hft --for 60s -- redis-server --port 7000\n\n"
    "heapfit record redis\n\n"
    "heapfit record --pid 12345 --for 30s --sample 512k -o running.hft",
)
def record(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="WORKLOAD | -- CMD",
            help="The program to record: a command, a workload or its TOML file. It runs once.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="The file to record to; %p becomes the process ID. Default: PROGRAM.%p.hft in "
            "the current folder.",
        ),
    ] = None,
    pid: Annotated[
        str | None,
        typer.Option(
            "--pid",
            metavar="PID",
            help="Record a process that is already running, until --for, Ctrl-C or its end.",
        ),
    ] = None,
    children: Annotated[
        bool,
        typer.Option(
            "--attach-children", help="Also record the processes that the program starts."
        ),
    ] = False,
    duration: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="TIME",
            help="Stop recording after this time, such as 60s, 5m or 1h; the program runs on.",
        ),
    ] = None,
    later: Annotated[
        bool,
        typer.Option("--later", help="Record nothing until heapfit ctl PID record start is run."),
    ] = False,
    sample: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Record one allocation per about this many bytes; use 512k in production.",
        ),
    ] = None,
    sites: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Record call chains of N return addresses, at most 64; 0: none, which is quicker.",
        ),
    ] = CALLS_FOLLOWED,
    objects: Annotated[
        bool,
        typer.Option(
            "--objects",
            help="Make Python and PHP allocate each object by malloc, instead of from their own "
            "pools (PYTHONMALLOC=malloc, USE_ZEND_ALLOC=0).",
        ),
    ] = False,
    allocator: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The allocator to run the program under, named as for compare. Default: the "
            "program's own.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a program and record all its heap calls; its output is unchanged.

    A server workload runs under its load, as in heapfit compare. The recording of the process that
    used its heap most is kept; with --attach-children the others are FILE.1, FILE.2, …

    The exit code and the signals are the program's own. Its children are recorded only with
    --attach-children, each into FILE.PID. To stop sooner, or begin later, use heapfit ctl PID
    record. With --json, a description of what was written is printed, and the program's own output
    goes to standard error.

    With --pid, record a process that is already running. Loading the recorder stops it for a
    moment; the recorder stays loaded but idle afterwards. For blocks allocated before the recording
    began, only the call that frees them is recorded. It must be a 64-bit x86 process with glibc and
    without a seccomp filter, and you must be allowed to trace it.
    """
    if pid is not None:
        _refuse_beside_pid(name, context, children, later, objects, allocator)
        options = RecordOptions(seconds=_seconds(duration), sample=_sample(sample), sites=sites)
        OPTIONS["sites"].check(str(sites))
        _record_running(process_number(pid, LISTED_BY), output, options, as_json)
        return
    command = [] if name else program_of(context, "record -- CMD")
    OPTIONS["sites"].check(str(sites))
    options = RecordOptions(
        children=children,
        later=later,
        seconds=_seconds(duration),
        sample=_sample(sample),
        sites=sites,
    )
    hidden = OBJECTS_FROM_MALLOC if objects else {}
    if name is not None:
        _record_workload(
            subject("record", name, context.obj, None), allocator, output, options, hidden, as_json
        )
        return
    environment = inherited() | hidden
    path = output or _default(command)
    recording = _record(command, path, options, environment, allocator, as_json)
    written = [examine(path) for path in recording.files]
    _tell(written, as_json, exit_code=recording.exit_code)
    if not children:
        warn_of_children(recording.children_share)
    _warn_of_gaps(written, options)
    if any(each.events for each in written):
        _warn_of_hidden(written[0].path)
    end_as(recording.exit_code)


def _record_workload(
    workload: Workload,
    allocator: str | None,
    output: Path | None,
    options: RecordOptions,
    environment: dict[str, str],
    as_json: bool,
) -> None:
    from heapfit.study import default_cores, plan
    from heapfit.trial.outcome import Rejected
    from heapfit.trial.run import recorded_run

    if options.later:
        raise UsageError("--later is for a program that you drive yourself; a workload drives it")
    file = (output or free_name(Path(f"{workload.name}{RECORDING_SUFFIX}"))).absolute()
    if PROCESS in file.name:
        raise UsageError(f"{PROCESS} is for a command: a workload's recordings are FILE, FILE.1 …")
    for each in (file, *file.parent.glob(f"{escape(file.name)}.[0-9]*")):
        check_path(each)
    if environment:
        changed = workload.run.environment | environment
        run = workload.run.model_copy(update={"environment": changed})
        workload = workload.model_copy(update={"run": run})
    provide_programs([workload], install=False)
    installed = provide_allocators([allocator or "glibc"], install=False)
    study = plan(
        workload, installed, baseline=installed[0].name, cores=[default_cores(workload)],
        replicates=1, warmups=0,
    )  # fmt: skip
    data = catalogue.prepare_workload(workload, say) if workload.prepare else None
    say(f"recording one run of {workload.name}")
    settings = replace(options, children=True).settings()
    try:
        made = recorded_run(study, file, data, settings, all_processes=options.children)
    except Rejected as error:
        raise HeapfitError(f"the run of {workload.name} failed: {error.reason}") from error
    if made.files:
        written = [examine(each) for each in made.files]
        _tell(written, as_json)
        _warn_of_hidden(written[0].path)
    if made.failure:
        raise HeapfitError(f"the run of {workload.name} failed: {made.failure}")
    if not made.files:
        raise HeapfitError(f"nothing was recorded: no process of {workload.name} uses malloc")


def _refuse_beside_pid(
    name: str | None,
    context: typer.Context,
    children: bool,
    later: bool,
    objects: bool,
    allocator: str | None,
) -> None:
    given = {
        "a workload": name is not None,
        "a command": bool(context.obj),
        "--attach-children": children,
        "--later": later,
        "--objects": objects,
        "--allocator": allocator is not None,
    }
    for name, is_given in given.items():
        if is_given:
            raise UsageError(
                f"--pid is for a process that already runs, with which {name} cannot be used"
            )


# Part of the processor time above which it is said that others took it.
_MUCH = 0.1


def warn_of_children(share: float) -> None:
    """Say so where much of the work is not in a recording, by the `share` of processor time."""
    if share > _MUCH:
        warn(
            f"note: {text.percent(share)} of the processor time went to processes that it started, "
            "which are not in the recording; --attach-children records them, too"
        )


_MOST_LISTED = 12


def _record_running(pid: int, output: Path | None, options: RecordOptions, as_json: bool) -> None:
    with told_to_stop() as is_told:
        attached = attach(pid, output or _named_after(present(pid).name), options)
        _say_attached(attached, options)
        follow(attached, is_told, options.seconds, lambda line: warn(f"note: {line}"))
    if not attached.file.exists():
        raise HeapfitError(f"process {pid} ended before anything was written to {attached.file}")
    written = examine(attached.file)
    described = {"still_ms": attached.still_ms, "took_ms": attached.took_ms}
    _tell([written], as_json, attached=described)
    _warn_of_gaps([written], options, pid)
    if written.events:
        _warn_of_hidden(written.path)
    if written.ended == "exec":
        warn(
            f"note: process {pid} became another program, which this recording does not have; to "
            f"record that, run this again: heapfit record --pid {pid}"
        )
    if written.whole and written.trouble:
        raise HeapfitError(f"the recording ended early: {written.ended}")


def _say_attached(attached: Attached, options: RecordOptions) -> None:
    who = f"process {attached.process.pid} ({attached.process.name})"
    ends = f"for {options.seconds} s, or until Ctrl-C" if options.seconds else "until Ctrl-C"
    if attached.still_ms is None:
        warn(
            f"note: {who} already has a recorder, whose file and options are used: "
            f"{attached.file}; recording {ends}"
        )
    else:
        messages.print(
            f"recording {who} {ends}; it paused for {attached.still_ms:.1f} ms",
            soft_wrap=True,
        )


def _record(
    command: list[str],
    path: Path,
    options: RecordOptions,
    environment: dict[str, str],
    allocator: str | None,
    as_json: bool,
) -> Recording:
    if obstacle := why_not_preloadable(command[0]):
        warn(f"note: nothing can be recorded of {command[0]} itself: {obstacle}")
    stdout = sys.stderr.fileno() if as_json else None
    treatment = catalogue.resolve_treatment(allocator) if allocator else None
    if treatment and (said := catalogue.already_preloaded(treatment)):
        warn(f"note: {said}")
    try:
        return run_recorded(command, path, options, environment, stdout, allocator=treatment)
    except NothingRecorded as error:
        if error.status == 0:
            raise
        warn(f"heapfit: {error}")
        end_as(error.status)


def end_as(status: int) -> NoReturn:
    """End as the program did: by its exit code, or by the signal that `-status` is."""
    sys.stdout.flush()
    if status < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # The program's own will do.
        if -status not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    raise typer.Exit(128 - status if status < 0 else status)  # It is ignored by a first process.


def _default(command: list[str]) -> Path:
    return _named_after(Path(command[0]).name)


def _named_after(program: str) -> Path:
    """Return the file that a recording of this program goes to; % stands for more than itself."""
    return Path(f"{program.replace('/', '-').replace('%', '_')}.%p{RECORDING_SUFFIX}")


def _seconds(text: str | None) -> int:
    """Return the whole seconds that the recorder takes."""
    return 0 if text is None else math.ceil(time_span(text, "--for"))


def _sample(text: str | None) -> int:
    if text is None:
        return 0
    OPTIONS["sample"].check(text)
    return size_in_bytes(text)


def _tell(written: list[Written], as_json: bool, **more: Any) -> None:
    if as_json:
        print_json({"files": list(map(_described, written)), **more})
        return
    if len(written) > 1:
        _list(written)
    messages.print(_line(written), soft_wrap=True)


def _busy(written: list[Written]) -> list[Written]:
    """Return those that a profile is worth of: with a hundredth of all events, or half where the
    process then became another program, as launchers do."""
    events = sum(each.events for each in written)
    found = [
        each for each in written if each.events >= events / (2 if each.ended == "exec" else 100)
    ]
    return found or written[:1]


def _line(written: list[Written]) -> str:
    """Return what was written, and the command that goes on from there."""
    names = [os.path.relpath(each.path) for each in _busy(written)]
    paths = [shell_word(each) for each in names]
    size, count = sum(each.size for each in written), sum(each.events for each in written)
    total = Written(written[0].path, size, count, all(each.whole for each in written))
    what = paths[0] if len(written) == 1 else f"{len(written)} files ({paths[0]} …)"
    each = f", {total.bytes_per_event:.1f} bytes each" if total.bytes_per_event else ""
    events = f"{total.events:,} events{each} ({text.size(total.size)})"
    return f"wrote {what}: {events}; next: heapfit profile {' '.join(paths)}"


def _list(written: list[Written]) -> None:
    """Say which program each file is of, and how much it did."""
    from heapfit.trace.native import Reader

    busy = _busy(written)
    for each in busy[:_MOST_LISTED]:
        with Reader(each.path) as reader:
            info = reader.info
        became = ", before it became another program" if each.ended == "exec" else ""
        name = text.visible(Path(str(info.get("program", "?"))).name)
        messages.print(
            f"{os.path.relpath(each.path)}: {name} (process {info.get('pid', '?')}{became}), "
            f"{text.counted(each.events, 'event')}",
            soft_wrap=True,
        )
    if len(busy) > _MOST_LISTED:
        messages.print(f"and {len(busy) - _MOST_LISTED} more")
    if rest := len(written) - len(busy):
        share = 1 - sum(each.events for each in busy) / sum(each.events for each in written)
        files = text.counted(rest, "file")
        messages.print(f"and {files} with {text.percent(share)} of the events")


def _described(written: Written) -> dict[str, Any]:
    return {
        "path": str(written.path),
        "bytes": written.size,
        "events": written.events,
        "bytes_per_event": written.bytes_per_event,
        "whole": written.whole,
    }


def _warn_of_gaps(written: list[Written], options: RecordOptions, pid: int | None = None) -> None:
    """Say what is odd about the files: a person would find out after hours, reading them.

    `pid`: the process that wrote them, if it is known.
    """
    for each in written:
        if not each.whole:
            why = "has no end, because its process was killed; up to a tenth of a second is missing"
            if is_written(each.path, pid):
                why = (
                    "has no end yet, because its process still runs; heapfit ctl "
                    f"{pid or 'PID'} record stop ends it"
                )
            warn(f"note: {each.path.name} {why}")
    if not any(each.events for each in written):
        told = "did the program allocate at all?"
        if troubles := [each.trouble for each in written if each.whole and each.trouble]:
            told = f"the recording ended early: {troubles[0]}"
        elif options.sample:
            told = "it allocated less than --sample meanwhile"
        elif not all(each.whole for each in written):
            told = "what it did in less than a tenth of a second was lost when it was killed"
        warn(f"note: it has no events; {told}")


def _warn_of_hidden(trace: Path) -> None:
    """Say that an interpreter kept objects for itself, where it need not."""
    from heapfit.trace.native import Reader

    with Reader(trace) as reader:
        info = reader.info
    found = hiding(str(info.get("program", "")), info.get("environment", {}))
    if found is not None and found.variable:
        warn(f"note: {found.keeps}; {found.instead} to see each of them")
