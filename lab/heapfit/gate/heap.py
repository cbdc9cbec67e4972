"""What a program does with its heap in figures that hardly scatter, as a file to keep beside it.

The program is run several times under the recorder. A figure is what each run had, the lowest
first; where all had the same it is taken to be exact. Call sites are those of the first run,
as far as they had a thousandth of any figure (a
hundredth of the instructions). A call is written `function at file:line`, or
`function at module+offset` where no line is known, so that a saved file tells what is where, and
its differences can be read.
"""

import json
import os
import platform
import shutil
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, ValidationError

import heapfit
from heapfit.errors import HeapfitError, UsageError
from heapfit.gate.orphans import adopted
from heapfit.host import machine
from heapfit.host.program import STARTERS
from heapfit.names import brief
from heapfit.record import RecordOptions
from heapfit.record import run as run_recorded
from heapfit.records import Record
from heapfit.symbols import Frame, own_calls
from heapfit.text import shell_word
from heapfit.trace.convert import Summary, inspect
from heapfit.trace.ending import ended_early
from heapfit.trace.native import ALIVE_KIND, OBJECT_COLUMNS, Batch, Reader
from heapfit.trace.sites import Places, parse_mappings
from heapfit.trial.outcome import how_it_ended
from heapfit.trial.simulation import OUTPUT, cachegrind, read_totals

# As they are called everywhere; all but the last are known of each call site.
ALLOCATIONS, ALLOCATED, PEAK, LEAKED = FIGURES = (
    "allocations",
    "allocated_bytes",
    "peak_live_bytes",
    "leaked_bytes",
)
INSTRUCTIONS = "instructions"

FORMAT: Literal["heapfit-check/1"] = "heapfit-check/1"
DEPTH = 8  # calls that are followed, past the usual wrappers
# Of a figure, from which a call site is kept, or a function: those of the C library are many.
_SHARE = dict.fromkeys(FIGURES, 1e-3) | {INSTRUCTIONS: 1e-2}
_BATCH = 1 << 16
_UNKNOWN = "unknown"
_PLACED = ("site", "size", "born_ns", "died_ns", "died_kind")


class Site(Record):
    """What one chain of calls allocated, or one function executed, innermost first."""

    figures: dict[str, int]
    calls: list[str]


class Heap(Record):
    """The figures of a program, and the call sites that make them: what `--save` writes."""

    format: Literal["heapfit-check/1"] = FORMAT
    heapfit: str
    command: list[str]
    exit_code: int
    machine: str
    children: bool = Field(default=False, description="Whether its children are counted, too.")
    figures: dict[str, list[int]] = Field(description="Of each run, the lowest first.")
    sites: list[Site]
    # Whether the first run has left a process in the background, which no figure is of.
    left_running: bool = Field(default=False, exclude=True)
    # Whether it has started other processes, which no figure is of.
    started_others: bool = Field(default=False, exclude=True)


@dataclass(frozen=True)
class Program:
    """What is run, and how; `stdin` is read from its beginning in each run, if it can be."""

    command: list[str]
    environment: Mapping[str, str]
    children: bool = False
    instructions: bool = False
    stdin: int = subprocess.DEVNULL


# Called with how many runs are done, of how many, and what comes now.
OnRun = Callable[[float, float, str], None]


def measure(
    program: Program, runs: int, on_run: OnRun, enough: Callable[[Heap], bool] = lambda _: False
) -> Heap:
    """Run a program up to `runs` times, or until its figures are `enough`.

    Raises HeapfitError where it cannot be recorded, or does not end alike each time.
    """
    found: Heap | None = None
    for done in range(runs):
        on_run(done, runs, f"run {done + 1} of at most {runs}")
        with tempfile.TemporaryDirectory(prefix="heapfit-check-") as folder:
            found = _with(found, _once(program, Path(folder), with_sites=found is None))
        if enough(found):
            break
    assert found is not None
    return found


def _with(before: Heap | None, now: Heap) -> Heap:
    if before is None:
        return now
    if before.exit_code != now.exit_code:
        raise HeapfitError(
            f"the program ended with {before.exit_code} and then with {now.exit_code}; it must "
            "do the same in each run before it can be checked"
        )
    figures = {name: sorted([*own, *now.figures[name]]) for name, own in before.figures.items()}
    return before.model_copy(update={"figures": figures})


def _once(program: Program, folder: Path, *, with_sites: bool) -> Heap:
    _rewind(program.stdin)
    with adopted() as left:
        recording = run_recorded(
            program.command,
            folder / "run.%p.hft",
            RecordOptions(children=program.children, sites=DEPTH),
            program.environment,
            subprocess.DEVNULL,
            program.stdin,
        )
        left_running = bool(left())
    if recording.interrupted:
        raise KeyboardInterrupt
    if recording.exit_code < 0:
        ended = how_it_ended(recording.exit_code)
        raise HeapfitError(f"{program.command[0]} was {ended}; there is nothing to check")
    if left_running and program.children:
        raise HeapfitError(
            f"{program.command[0]} left a process running in the background, whose recording has "
            "no end; have it stay in the foreground"
        )
    totals, sites = dict.fromkeys(FIGURES, 0), list[Site]()
    every = [(file, _whole(file)) for file in recording.files]
    found = [each for each in every if not _became_the_program(each[1])]
    if recording.had_children or left_running or not found:
        _check_programs([summary for _, summary in every], followed=program.children or not found)
    # Processes reach their peaks at different times: told is that of the one that had most.
    largest = max(found, key=lambda each: each[1].totals.peak_bytes)[0]
    for file, summary in found:
        for name, value in _figures(summary).items():
            totals[name] = max(totals[name], value) if name == PEAK else totals[name] + value
        sites += _sites(file, summary, is_largest=file == largest) if with_sites else []
    if program.instructions:
        totals[INSTRUCTIONS], functions = _executed(program, folder, recording.exit_code)
        sites += functions
    return Heap(
        heapfit=heapfit.__version__,
        command=program.command,
        exit_code=recording.exit_code,
        machine=_machine(with_processor=program.instructions),
        children=program.children,
        figures={name: [of] for name, of in totals.items()},
        sites=_summed(sites, totals) if with_sites else [],
        left_running=left_running,
        started_others=recording.had_children and not program.children,
    )


def _became_the_program(summary: Summary) -> bool:
    """Whether a process such as that of `env` went on as the program that it was to start."""
    return _was_replaced(summary.end) and _name(summary) in STARTERS


def _name(summary: Summary) -> str:
    return Path(summary.info.get("program", "")).name


def _check_programs(found: Sequence[Summary], *, followed: bool) -> None:
    """Raise HeapfitError where nothing was recorded but a program that is there to start others:
    its figures are the same whatever those do."""
    names = list(map(_name, found))
    if not STARTERS.issuperset(names):
        return
    if followed:
        raise HeapfitError(
            f"only {names[0]} was recorded: it has started no program that can be; to see why: "
            "heapfit doctor -- PROGRAM"
        )
    raise HeapfitError(
        f"only {names[0]} was recorded, and not the programs that it started; save with "
        "--attach-children, or name the program itself"
    )


def _whole(file: Path) -> Summary:
    """Return what one process did; HeapfitError where not all of it was recorded."""
    summary, _ = inspect(file)
    wrong = summary.problems
    stopped = ended_early(summary.end) and not _was_replaced(summary.end)
    if wrong.lost_events or stopped or wrong.damaged_blocks or wrong.missing_blocks:
        raise HeapfitError(
            "the recording is not whole, so that nothing can be counted: a process was killed, "
            "or the disk is full"
        )
    return summary


def _figures(summary: Summary) -> dict[str, int]:
    last = summary.totals
    leaked = 0 if _was_replaced(summary.end) else last.end_bytes
    return dict(zip(FIGURES, (last.allocations, last.bytes, last.peak_bytes, leaked), strict=True))


def _was_replaced(end: Mapping[str, object] | None) -> bool:
    """Whether the process went on as another program: what then lived, that never had to free."""
    return (end or {}).get("reason") == "exec"


@cache
def _machine(*, with_processor: bool) -> str:
    """Return what figures depend on: of the processor, only which instructions are executed."""
    described = machine.describe()
    words = [platform.machine(), described.libc, *([described.cpu] if with_processor else [])]
    return ", ".join(words)


def _rewind(stdin: int) -> None:
    if stdin >= 0:
        os.lseek(stdin, 0, os.SEEK_SET)


# ------------------------------------------------------------------------- call sites


def _sites(file: Path, summary: Summary, *, is_largest: bool) -> list[Site]:
    """Return what each chain of calls allocated, and what of it lived at the peak and the end."""
    peak_ns = summary.totals.peak_ns
    with Reader(file) as reader:
        at_peak: dict[int, int] = defaultdict(int)
        batch = Batch.of_objects(_BATCH, {name: OBJECT_COLUMNS[name] for name in _PLACED})
        while reader.read_objects(batch):
            of = batch.filled
            lived = (of["died_ns"] > peak_ns) | (of["died_kind"] == ALIVE_KIND)
            live = (of["born_ns"] <= peak_ns) & lived & is_largest
            which, place = np.unique(of["site"][live], return_inverse=True)
            sums = np.bincount(place, of["size"][live])
            for site, size in zip(which.tolist(), sums.tolist(), strict=True):
                at_peak[site] += int(size)
        chains = reader.sites()
        callers, addresses = chains["caller"].tolist(), chains["address"].tolist()
        places = Places(parse_mappings(reader.modules))
        found = []
        for site, row in enumerate(reader.site_totals()):
            leaked = 0 if _was_replaced(summary.end) else row["live_bytes"]
            own = (row["allocations"], row["bytes"], at_peak[site], leaked)
            figures = {name: int(of) for name, of in zip(FIGURES, own, strict=True) if of}
            if figures:
                found.append(
                    Site(figures=figures, calls=[*_calls(site, callers, addresses, places)])
                )
    return found


def _calls(
    site: int, callers: Sequence[int], addresses: Sequence[int], places: Places
) -> Iterator[str]:
    """Yield the calls from a site outwards, as far as `main`."""
    chain: list[Frame] = []
    while 0 < site <= len(addresses):
        chain += places.frames(addresses[site - 1])
        site = callers[site - 1]
    for frame, _ in own_calls(chain):
        if frame.file:
            where = f"{_relative(frame.file)}:{frame.line}"
        elif frame.module:
            where = f"{Path(frame.module).name}+{frame.offset:#x}"
        else:
            where = _UNKNOWN
        yield f"{brief(frame.function)} at {where}" if frame.function else where


def _relative(file: str) -> str:
    """Return a path from here, where it lies below: such a one is the same in every checkout."""
    here, path = Path.cwd(), Path(os.path.normpath(file))
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _summed(sites: Sequence[Site], totals: Mapping[str, int]) -> list[Site]:
    """Return the sites that matter, in order of their calls, each once."""
    sums: dict[tuple[str, ...], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for site in sites:
        for name, value in site.figures.items():
            sums[tuple(site.calls)][name] += value
    return [
        Site(figures=dict(figures), calls=list(calls))
        for calls, figures in sorted(sums.items(), key=lambda own: (INSTRUCTIONS in own[1], own[0]))
        if any(value and value >= _SHARE[name] * totals[name] for name, value in figures.items())
    ]


# ------------------------------------------------------------------------- instructions


def _executed(program: Program, folder: Path, exit_code: int) -> tuple[int, list[Site]]:
    """Return how many instructions a run takes, children's among them, and how many of each
    function. Valgrind would not follow a program that becomes another one otherwise."""
    if not shutil.which("valgrind"):
        raise HeapfitError("instructions are counted by Valgrind; install it (apt: valgrind)")
    _rewind(program.stdin)
    ran = subprocess.run(
        [*cachegrind(folder, "--cache-sim=no"), *program.command],
        env=dict(program.environment),
        stdin=program.stdin,
        stdout=subprocess.DEVNULL,
        check=False,
    )
    files = list(folder.glob(OUTPUT))
    if not files or ran.returncode != exit_code:
        raise HeapfitError(
            f"under Valgrind {program.command[0]} ends with {ran.returncode}, "
            f"not with {exit_code}; leave --instructions out"
        )
    functions = [site for file in files for site in _functions(file)]
    return sum(read_totals(file)["Ir"] for file in files), functions


def _functions(file: Path) -> Iterator[Site]:
    """Yield what each function executed itself, from cachegrind's output, at its first line."""
    source, function = "", ""
    lines: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for text in file.read_text(errors="replace").splitlines():
        if text.startswith("fl="):
            source = text[3:]
        elif text.startswith("fn="):
            function = text[3:]
        elif text[:1].isdecimal():
            line, count, *_ = map(int, text.split())
            lines[function, source].append((line, count))
    for (function, source), counted in lines.items():
        first = min((line for line, _ in counted if line), default=0)
        where = f" at {_relative(source)}:{first}" if first and source != "???" else ""
        total = sum(count for _, count in counted)
        yield Site(figures={INSTRUCTIONS: total}, calls=[f"{brief(function)}{where}"])


# ------------------------------------------------------------------------- the file


def dumps(heap: Heap) -> str:
    """Return a heap as JSON with a line for each figure and each site, to be read and compared."""
    plain = heap.model_dump()
    sites = ",\n".join(f"  {_line(site)}" for site in plain.pop("sites"))
    figures = ",\n".join(f"  {_line(k)}: {_line(v)}" for k, v in plain.pop("figures").items())
    head = "".join(f" {_line(name)}: {_line(value)},\n" for name, value in plain.items())
    return f'{{\n{head} "figures": {{\n{figures}\n }},\n "sites": [\n{sites}\n ]\n}}\n'


def _line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def load(path: Path) -> Heap:
    """Return what `dumps` made; UsageError where the file holds none."""
    try:
        found = Heap.model_validate_json(path.read_bytes())
        if not _is_sound(found.figures):
            raise UsageError(
                f"{path} has been changed since it was saved; save it again with --save"
            )
        return found
    except FileNotFoundError as error:
        raise UsageError(
            f"there is no {path}; make it by: heapfit check --save {shell_word(path)} -- CMD"
        ) from error
    except (ValidationError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path} was not saved by this heapfit's check; save it again with --save"
        ) from error


def _is_sound(figures: Mapping[str, Sequence[int]]) -> bool:
    """Whether these are the runs of all figures as they are saved: nothing is decided by others,
    and one that is not there would not be looked at."""
    counts = {len(runs) for runs in figures.values()}
    return (
        set(FIGURES) <= figures.keys() <= _SHARE.keys()
        and len(counts) == 1
        and all(runs and runs[0] >= 0 and list(runs) == sorted(runs) for runs in figures.values())
    )
