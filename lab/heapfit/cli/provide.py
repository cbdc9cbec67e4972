"""Get what a measurement needs before it starts: allocators, programs, a folder for its results."""

from __future__ import annotations

import fcntl
import itertools
import os
import re
import stat
import sys
import termios
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from heapfit import catalogue
from heapfit.catalogue.allocators import find_allocators
from heapfit.cli.output import messages, say, warn
from heapfit.cli.progress import WorkProgress
from heapfit.doctor import examine_program
from heapfit.errors import HeapfitError, UsageError, unknown
from heapfit.records import InstalledAllocator, Workload
from heapfit.trial.preload import VARIABLE

if TYPE_CHECKING:  # Dask takes a while to load, and few need it.
    from heapfit.replay import Plan
    from heapfit.study.cluster import Cluster

# In place of names: of all that would be compared, what this machine has.
INSTALLED = "installed"

RESULTS = Path("heapfit-results")

_OUTPUT_CHECKS = ("same", "ignore")

# As Dask writes them: tcp://scheduler:8786, tls://…, or without the protocol.
_ADDRESS = re.compile(r"(?:(?:tcp|tls|ucx|ws|wss)://)?[^/]+:[0-9]+")


def subject(
    command: str,
    name: str | None,
    program: list[str] | None,
    output: str | None,
    *,
    stand_in: str | None = None,
) -> Workload:
    """Return what is measured: the workload `name`, or the user's own program; `output` is what the
    option says of what it prints, `stand_in` a build that stands for {program}.

    UsageError says how to name one to heapfit's `command`.
    """
    if name and program is None:
        workload = catalogue.resolve_workload(name)
    elif program and name is None:
        workload = catalogue.ad_hoc_workload(program, stand_in)
    else:
        start = f"heapfit {command}"
        raise UsageError(f"{command} what? write: {start} WORKLOAD, or: {start} -- CMD")
    if output is None:
        return workload
    if output not in _OUTPUT_CHECKS:
        raise unknown("value of --output:", output, _OUTPUT_CHECKS)
    check = workload.check.model_copy(update={"stdout": output})
    return workload.model_copy(update={"check": check})


def warn_of_input(command: str) -> None:
    """Say so where standard input holds something: no trial gets it, for all would need it anew."""
    try:
        kind = os.fstat(sys.stdin.fileno())
        waiting = array("i", [0])
        if stat.S_ISFIFO(kind.st_mode):
            fcntl.ioctl(sys.stdin.fileno(), termios.FIONREAD, waiting)
    except (OSError, ValueError, AttributeError):  # It is closed, maybe from the beginning.
        return
    if waiting[0] or (stat.S_ISREG(kind.st_mode) and kind.st_size):
        warn(
            "warning: standard input is not given to the program, which runs many times; put it "
            f"into a file: heapfit {command} -- sh -c 'PROGRAM < FILE', or a workload's `stdin`"
        )


def started_programs(workload: Workload, builds: Mapping[str, str] | None = None) -> list[str]:
    """Return the program that is measured, or each of the builds in its place; none where the
    workload has seen to it that what the program is linked with stands behind the C library."""
    if VARIABLE in workload.run.environment:
        return []
    program = (workload.server or workload.run).command[0]
    if program == catalogue.PLACEHOLDER:
        return list((builds or {}).values())
    program = program.replace("{here}", f"{workload.here}")
    return [f"{workload.here / program}" if "/" in program else program]


def warn_of_malloc(programs: Iterable[str]) -> None:
    """Say so where a preload would not measure what it seems to in one of these programs."""
    for program in programs:
        finding = examine_program([program])
        if finding and not finding.ok:
            warn(f"warning: {finding.topic}: {finding.state}; {finding.advice}")


def named_allocators(option: str | None, usual: Mapping[str, str], *, installed: bool) -> list[str]:
    """Return the allocators that the `option` names, without it the `usual` ones.

    Of the usual ones, each with the allocator behind it, which is another one for a variant. With
    `installed`, as with `--allocators installed`, these are the usual ones that this machine has,
    but for those that are compared only where somebody names them.
    """
    if option is not None and option != INSTALLED:
        return catalogue.split_words(option)
    if option is None and not installed:
        return list(usual)
    entries = zip(usual, find_allocators(usual.values()), strict=True)
    return [
        word for word, entry in entries if not entry.when_named and catalogue.find_installed(entry)
    ]


def with_baseline(named: list[str], baseline: str) -> list[str]:
    """Return the allocators as the user names them, the baseline among them.

    >>> with_baseline(["jemalloc"], "glibc"), with_baseline(["a", "b=./b.so"], "b=./b.so")
    (['glibc', 'jemalloc'], ['a', 'b=./b.so'])
    """
    names = list(map(catalogue.name_of, named))
    return named if catalogue.name_of(baseline) in names else [baseline, *named]


def provide_allocators(named: Sequence[str], *, install: bool) -> list[InstalledAllocator]:
    """Return the allocators that `named` names; HeapfitError names those that are missing."""
    entries = find_allocators(dict.fromkeys(map(catalogue.plain_word, named)))
    missing = [entry.name for entry in entries if catalogue.find_installed(entry) is None]
    if install:
        for entry in entries:
            if entry.name in missing:
                catalogue.install_allocator(entry, say)
    elif len(missing) > 1:  # Of one, resolve_allocators says more.
        raise HeapfitError(
            f"{', '.join(missing)} are not installed; add --install, leave them out by "
            f"--allocators {INSTALLED}, or run: heapfit allocators install {' '.join(missing)}"
        )
    return catalogue.resolve_treatments(named)


def provide_programs(workloads: Sequence[Workload], *, install: bool) -> None:
    """Make sure of the programs that the workloads need; HeapfitError names what is missing."""
    lacking = {each.name: missing for each in workloads if (missing := catalogue.missing_for(each))}
    if lacking and not install:
        needs = "; ".join(f"{name} needs {', '.join(what)}" for name, what in lacking.items())
        raise HeapfitError(
            f"{needs}; add --install, or run: heapfit workloads install {' '.join(lacking)}"
        )
    for workload in workloads:
        if workload.name in lacking:
            catalogue.install_workload(workload, say)


def plan_of(trace: Path, *, one_thread: bool = False) -> Plan:
    """Return the plan that plays `trace`, made now unless it is there, and say what it lacks."""
    from heapfit.replay import make_plan

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


def join_cluster(address: str | None, *, install: bool) -> Cluster | None:
    """Return the cluster that a study is to run on; None for this machine."""
    if address is None:
        return None
    if not _ADDRESS.fullmatch(address):
        raise UsageError(f"--on takes an address such as tcp://HOST:8786, not {address!r}")
    from heapfit.study.cluster import Cluster

    return Cluster(address, say, install=install)


def results_folder(name: str, check: Callable[[Path], object]) -> Path:
    """Return the folder `name` of the results, or one beside it where that has another study.

    `check` raises UsageError for a folder that holds another study.
    """

    def takes(folder: Path) -> bool:
        try:
            check(folder)
        except UsageError:
            return False
        return True

    names = itertools.chain([name], (f"{name}-{n}" for n in itertools.count(2)))
    return next(RESULTS / each for each in names if takes(RESULTS / each))
