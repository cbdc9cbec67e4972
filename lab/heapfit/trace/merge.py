"""Merge traces into one, in the order of their time.

Traces of one process that follow each other (recording was stopped and started again) are its
parts: a thread is told by its number in the system, an address is the same block in all of them.
Traces are taken for such parts when process, parent, program, arguments and the time at which the
process began agree, and their file numbers differ, or one recorder after the other was attached to
the process. What became of a block between two recordings nobody knows: those that live at the end
of one are freed there. Nothing is unknown between parts that were cut out of one recording, where
one ends when the next begins.

All others are of processes of their own: their threads are other threads, and their addresses, of
blocks as of code, are moved apart, the second process's by 2^57, and so on. Where each begins on
the clock of all is known from the time of day at which it was recorded.

When a process exits, is killed, or becomes another program, the kernel takes its memory: blocks
that live then count as freed while others go on, and what was resident of it counts no more. What
lives when the last one ends stays live. Of a process that ran before its recording, what was
resident at first counts from the start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from heapfit.errors import HeapfitError, UsageError
from heapfit.trace.blocks import LiveBlocks, in_order, joined, none, rows
from heapfit.trace.convert import inspect
from heapfit.trace.edit import (
    BATCH_ROWS,
    END_NS,
    Marks,
    ThreadMap,
    ThreadNumbers,
    check_target,
    write_interleaved,
)
from heapfit.trace.ending import NO_END, ended_early
from heapfit.trace.native import (
    EVENT_COLUMNS,
    FREE,
    Batch,
    Columns,
    Mark,
    Problems,
    Progress,
    Reader,
    Thread,
    Writer,
)
from heapfit.trace.sites import parse_mappings

# Addresses of programs are below, on processors with five levels of page tables too.
_SPACE_BITS = 57
# How a recording ends whose process exits, becomes another program, or is killed.
_EXITED = ("", "exec", NO_END)
# What the traces of one process have in common.
_TOLD_BY = ("pid", "parent", "program", "arguments", "process_began")
PROCESSES_MAX = 1 << (64 - _SPACE_BITS)
# Two thirds of a gigabyte at most, however many files are read side by side.
_ROWS_OF_ALL = 1 << 23
_LOOKED_AT_ROWS = 1 << 14
# A writer sets events of different threads at one time a nanosecond apart, so that a part may end
# a little later than it was cut.
_TIES_NS = 1000


@dataclass(frozen=True)
class Merged:
    """What a merge made."""

    events: int
    processes: int
    duration_ns: int
    problems: Problems


def merge(sources: Sequence[Path], target: Path, on_progress: Progress | None = None) -> Merged:
    """Merge `sources` into `target`; they must agree in how they were sampled."""
    check_target(target, list(sources))
    with ExitStack() as opened:
        readers = [opened.enter_context(Reader(source)) for source in sources]
        infos = [reader.info for reader in readers]
        _check(sources, infos)
        processes = _processes(sources, infos)
        _check_parts(sources, infos, processes)
        info = {
            **infos[0],
            "merged": infos,
            "processes": max(processes) + 1,
            "started_unix_ns": min(map(_started, infos)),
            "began_late": _began_late(infos, processes),
            "live_at_start": min(infos, key=_started).get("live_at_start", 0),
        }
        with Writer(target, info) as writer:
            return _Merger(readers, processes, writer).merge(on_progress)


def _started(info: dict[str, Any]) -> int:
    return int(info.get("started_unix_ns", 0))


def _recording(info: dict[str, Any]) -> tuple[Any, int]:
    """Return which of its process's recordings a trace is, or was cut out of."""
    return info.get("file_number"), int(info.get("cut_of_unix_ns") or _started(info))


def _recordings(info: dict[str, Any]) -> set[tuple[Any, int]]:
    """Return of which of its process's recordings a trace has parts."""
    return {_recording(each) for each in _parts(info)}


def _check(sources: Sequence[Path], infos: Sequence[dict[str, Any]]) -> None:
    samples = [info.get("sample", 0) for info in infos]
    other = next((i for i, sample in enumerate(samples) if sample != samples[0]), None)
    if other is not None:
        raise UsageError(
            f"{sources[other]} was sampled differently from {sources[0]} ({samples[other]} and "
            f"{samples[0]} bytes); their figures cannot be added up"
        )
    for source, info in zip(sources, infos, strict=True):
        if len(sources) > 1 and info.get("processes", 1) > 1:
            raise UsageError(
                f"{source} is a merge of several processes, whose addresses are moved; merge the "
                "recordings that it was made from, all at once"
            )
    dated = [bool(_started(info)) for info in infos]
    if len(sources) > 1 and not all(dated):
        raise UsageError(
            f"{sources[dated.index(False)]} does not tell when it began: "
            "what came first is not known; merge the files before you anonymise them"
        )


def _parts(info: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what each trace says that a trace was merged from, or what it says itself."""
    merged = info.get("merged") or []
    if not merged:
        yield info
    for each in merged:
        yield from _parts(each)


def _processes(sources: Sequence[Path], infos: Sequence[dict[str, Any]]) -> list[int]:
    """Return which process each trace is of, from 0 in order of appearance."""
    groups: list[list[int]] = []  # the traces of each process
    for new in sorted(range(len(infos)), key=lambda each: _started(infos[each])):
        own = next((each for each in groups if _is_one(sources, infos, each, new)), None)
        if own is None:
            groups.append([new])
        else:
            own.append(new)
    if len(groups) > PROCESSES_MAX:
        raise UsageError(
            f"these are {len(groups)} processes; merge at most {PROCESSES_MAX} into one"
        )
    groups.sort(key=min)
    return [
        next(process for process, own in enumerate(groups) if each in own)
        for each in range(len(infos))
    ]


def _is_one(
    sources: Sequence[Path], infos: Sequence[dict[str, Any]], earlier: Sequence[int], new: int
) -> bool:
    """Return whether a trace is of the process that the earlier ones are of."""
    info, known = infos[new], infos[earlier[0]]
    if any(known.get(name) != info.get(name) for name in _TOLD_BY):
        return False
    own, others = _recordings(info), set[tuple[Any, int]]()
    for each in earlier:
        others |= _recordings(infos[each])
    alike = {number for number, _ in own} & {number for number, _ in others}
    if not alike or any(began > 0 for _, began in own & others):
        return True
    # Each recorder that is attached counts from 1. In containers, processes have one number, too:
    # only when it began tells them apart. The recorder of one that has just begun tells what lived
    # before.
    was_running = info.get("began_late", False) and "live_before" not in info
    is_known = was_running and info.get("process_began", 0) > 0
    return is_known and _is_over(sources[earlier[-1]], _recording(info)[1])


def _is_over(source: Path, ns: int) -> bool:
    """Return whether a recording ended before a time of day, and before its process did."""
    last, _ = inspect(source)
    return _started(last.info) + last.duration_ns <= ns and bool(ended_early(last.end))


def _began_late(infos: Sequence[dict[str, Any]], processes: Sequence[int]) -> bool:
    """Return whether the first part of a process began in its middle."""
    firsts: dict[int, dict[str, Any]] = {}
    for process, info in sorted(zip(processes, infos, strict=True), key=lambda it: _started(it[1])):
        firsts.setdefault(process, info)
    return any(info.get("began_late", False) for info in firsts.values())


def _ran_before(info: dict[str, Any], infos: Sequence[dict[str, Any]]) -> bool:
    """Return whether a process ran when the first of all recordings began: one that was attached
    to, or that a part was cut out of, but not a child of a process that was recorded from its
    start."""
    began = info.get("process_began", 0)
    whole = (each for each in infos if not each.get("began_late", False) and "cut" not in each)
    is_child = any(0 < each.get("process_began", 0) <= began for each in whole)
    is_late = info.get("began_late", False) and not is_child
    return is_late or _recording(info)[1] < min(map(_started, infos))


def _first_mark(sources: Sequence[_Source]) -> Mark | None:
    """Return how much is resident of a process as its traces begin; None: they do not tell."""
    for source in sources:
        with Reader(source.reader.path) as reader:
            for _ in chain(reader.events(_LOOKED_AT_ROWS), [none()]):  # There may be no event.
                if known := Marks(reader).until(END_NS):
                    return replace(known[0], lost=0)
    return None


def _check_parts(
    sources: Sequence[Path], infos: Sequence[dict[str, Any]], processes: Sequence[int]
) -> None:
    """Raise UsageError where two traces are the same part of the same process."""
    seen: dict[Any, int] = {}
    for i, (source, info, process) in enumerate(zip(sources, infos, processes, strict=True)):
        status = source.stat()
        own = [
            (process, *_recording(each), _started(each), repr(each.get("cut")))
            for each in _parts(info)
        ]
        for key in (*own, (status.st_dev, status.st_ino)):
            if (other := seen.setdefault(key, i)) != i:
                raise UsageError(
                    f"{sources[other]} and {source} are the same part of the same process, which "
                    "would count twice; name one of them"
                )


@dataclass
class _Process:
    """What the traces of one process share."""

    number: int
    threads: dict[int, tuple[int, int]] = field(default_factory=dict)  # by tid: file, number
    sites: dict[tuple[int, int], int] = field(default_factory=dict)  # by caller and address
    resident: Mark | None = None  # the latest
    steps: list[_Source | _Seam] = field(default_factory=list)  # parts and seams that are not done
    exit: _Exit | None = None  # where there are several processes
    blocks: LiveBlocks | None = None  # followed where there are several parts, or processes

    @property
    def base(self) -> int:
        """What is added to its addresses."""
        return self.number << _SPACE_BITS

    def fill(self) -> _Source | _Seam:
        """Return the step that has something to take, or the last."""
        self.steps[0].fill()
        while self.steps[0].ended and self.steps[1:]:
            del self.steps[0]
            self.steps[0].fill()
        return self.steps[0]


class _Source:
    """One trace, with the events that were read and not yet taken, as they are to be written."""

    def __init__(self, file: int, reader: Reader, process: _Process, merger: _Merger) -> None:
        self.file, self.reader, self.process = file, reader, process
        self.marks = Marks(reader)
        self.delay = _started(reader.info) - merger.started
        self.sites = np.zeros(1, np.uint32)  # new numbers by the old ones
        self._merger = merger
        self.threads = ThreadMap(reader, merger.numbers, self._begin)
        self._batch = Batch.of_events(min(BATCH_ROWS, _ROWS_OF_ALL // merger.files))
        self._taken = 0
        self.ended = False
        self.carried = 0  # events at its start that are of blocks of the part before

    @property
    def end_ns(self) -> int:
        """When it ended, once it has."""
        threads, marks = self.reader.thread_rows(), self.reader.marks()
        last = (threads["last_ns"].max(initial=0), marks["tick"].max(initial=0))
        return min(int(max(last)) + self.delay, END_NS)

    @property
    def last_ns(self) -> int:
        """The time up to which all is known."""
        return int(self._batch.filled["ns"][-1]) + self.delay

    def fill(self) -> None:
        """Read on, unless there is something to take."""
        if not self.ended and self._taken == self._batch.rows:
            self._taken = 0
            self.ended = not self.reader.read_events(self._batch)
            self._map_sites()

    def take(self, ns: int) -> Columns:
        """Take the events up to a time."""
        filled, first = self._batch.filled, self._taken
        if ns >= self.delay:
            limit = np.uint64(ns - self.delay)
            self._taken = int(np.searchsorted(filled["ns"], limit, side="right"))
        made = self._mapped(rows(filled, slice(first, self._taken)))
        blocks = self.process.blocks
        if blocks is not None:
            made = self._without_carried(made, blocks) if self.carried else made
            blocks.follow(made)
        return made

    def _without_carried(self, events: Columns, blocks: LiveBlocks) -> Columns:
        """Leave out allocations that only say what lives at the start, and is known to."""
        kept = np.ones(len(events["ns"]), bool)
        first = slice(0, self.carried)
        self.carried -= len(kept[first])
        kept[first] = ~np.isin(events["address"][first], blocks.allocations()["address"])
        return rows(events, kept)

    def _mapped(self, events: Columns) -> Columns:
        base = self.process.base
        made = self.threads.renumbered(events)
        made = {**made, "ns": events["ns"] + np.uint64(self.delay)}
        made["site"] = self.sites[events["site"]]
        if base:
            made["address"] = self._moved(events["address"], base)
            made["old"] = self._moved(events["old"], base)
        return made

    def _moved(self, addresses: Any, base: int) -> Any:
        if len(addresses) and int(addresses.max()) >> _SPACE_BITS:
            raise HeapfitError(
                f"{self.reader.path} has addresses beyond {_SPACE_BITS} bits, "
                "which cannot be told from those of another process"
            )
        return np.where(addresses == 0, addresses, addresses + np.uint64(base))

    def _begin(self, thread: Thread) -> int:
        """Return the number of a thread that is new in this file."""
        known = self.process.threads
        file, number = known.get(thread.tid, (self.file, 0))
        if file == self.file or not thread.tid:
            number = self._merger.numbers.begin(thread)
        else:
            self._merger.numbers.write(number, thread)
        known[thread.tid] = self.file, number
        return number

    def _map_sites(self) -> None:
        """Give numbers to the sites that are new; one that another part had has that part's."""
        new = self.reader.sites(len(self.sites)).tolist()
        if not new:
            return
        numbers: list[int] = self.sites.tolist()
        for caller, _, address in new:
            moved = address + self.process.base
            numbers.append(self._merger.site(self.process, numbers[caller], moved))
        self.sites = np.array(numbers, np.uint32)


class _Seam:
    """Where one part of a process ends and the next begins: it frees what lives there, unless they
    are parts of one recording with nothing between them."""

    def __init__(self, before: _Source, after: _Source) -> None:
        self._before, self._after = before, after
        self._left: Columns | None = None  # None: not reached yet
        self.last_ns = self.gap_ns = 0

    @property
    def ended(self) -> bool:
        """Whether there is no more to take."""
        return self._left is not None and not len(self._left["ns"])

    def fill(self) -> None:
        """Come to the seam."""
        if self._left is not None:
            return
        before, after = self._before, self._after
        self.last_ns = before.end_ns
        gap_ns = after.delay - self.last_ns
        infos = before.reader.info, after.reader.info
        is_one = not _recordings(infos[0]).isdisjoint(_recordings(infos[1]))
        # Of two recordings the clock may have been set back; not so within a merge.
        if gap_ns < -_TIES_NS and (is_one or any(each.get("merged") for each in infos)):
            raise UsageError(
                f"{before.reader.path} and {after.reader.path} are parts of one "
                f"{'recording' if is_one else 'process'} that overlap in time, which cannot be "
                "merged; name each part once, and cut parts where one ends and the next begins"
            )
        if is_one and gap_ns <= 0:
            after.carried = after.reader.info.get("live_at_start", 0)
            self._left = none()
        else:
            after.delay = max(after.delay, self.last_ns)
            self.gap_ns = after.delay - self.last_ns
            self._left = self._lost()

    def take(self, ns: int) -> Columns:
        """Take the frees, if the time has come."""
        assert self._left is not None
        if ns < self.last_ns:
            return none()
        taken, self._left = self._left, none()
        return taken

    def _lost(self) -> Columns:
        """Return a free of each block that lives, by the thread that allocated it."""
        process = self._before.process
        assert process.blocks is not None
        lost = process.blocks.allocations()
        process.blocks = LiveBlocks()
        frees = {name: np.zeros(len(lost["ns"]), kind) for name, kind in EVENT_COLUMNS.items()}
        frees["kind"][:] = FREE
        frees["ns"][:] = self.last_ns
        frees["thread"], frees["address"] = lost["thread"], lost["address"]
        # Thread by thread: events of different threads could not all be at the same time.
        return rows(frees, np.argsort(frees["thread"], kind="stable"))


class _Exit(_Seam):
    """Where the last part of a process ends: it frees what lives there, if the process has exited
    and is not the last."""

    def __init__(self, before: _Source, merger: _Merger) -> None:
        super().__init__(before, before)
        self._merger = merger
        self._is_told = False

    @property
    def ended(self) -> bool:
        return super().ended or self.last_ns == self._merger.end_ns

    def fill(self) -> None:
        if self._left is None:
            self.last_ns = self._before.end_ns
            has_exited = ended_early(self._before.reader.end) in _EXITED
            self._is_told = not has_exited
            self._left = self._lost() if has_exited else none()

    def mark(self, ns: int) -> Mark | None:
        """Return, once, that nothing is resident any more, if that is so at this time."""
        is_due = self._left is not None and self.last_ns <= ns and not self._is_told
        if not is_due or self.last_ns == self._merger.end_ns:
            return None
        self._is_told = True
        return Mark(self.last_ns)


class _Merger:
    """Merges traces that are open."""

    def __init__(self, readers: Sequence[Reader], processes: Sequence[int], writer: Writer) -> None:
        self.writer = writer
        self.numbers = ThreadNumbers(writer)
        self.files = len(readers)
        self.started = min(_started(reader.info) for reader in readers)
        self._processes = [_Process(number) for number in range(max(processes) + 1)]
        self._sites = 0
        self._sources = [
            _Source(file, reader, self._processes[process], self)
            for file, (reader, process) in enumerate(zip(readers, processes, strict=True))
        ]
        self._seams: list[list[_Seam]] = []  # by process
        self._last = [self._joined(process) for process in self._processes]

    def _joined(self, process: _Process) -> _Source:
        """Put the parts of a process one behind the other; return the last."""
        parts = [source for source in self._sources if source.process is process]
        parts.sort(key=lambda source: source.delay)
        seams = [_Seam(before, after) for before, after in pairwise(parts)]
        process.steps = list(parts[:1])
        for seam, after in zip(seams, parts[1:], strict=True):
            process.steps += [seam, after]
        if len(self._processes) > 1:
            process.exit = _Exit(parts[-1], self)
            process.steps.append(process.exit)
            infos = [source.reader.info for source in self._sources]
            if _ran_before(parts[0].reader.info, infos):
                process.resident = _first_mark(parts)
        process.blocks = LiveBlocks() if process.steps[1:] else None
        self._seams.append(seams)
        return parts[-1]

    @property
    def end_ns(self) -> int | None:
        """When the last process ended; None: some go on."""
        if all(source.ended for source in self._last):
            return max(source.end_ns for source in self._last)
        return None

    def site(self, process: _Process, caller: int, address: int) -> int:
        """Return the number of a site of a process, which is written when it is new."""
        key = caller, address
        if key not in process.sites:
            self._sites += 1
            process.sites[key] = self._sites
            self.writer.site(caller, address)
        return process.sites[key]

    def merge(self, on_progress: Progress | None) -> Merged:
        """Write all events, in order of time."""
        size = sum(source.reader.path.stat().st_size for source in self._sources)
        events = last_ns = 0
        for taken, until in self._in_order():
            write_interleaved(self.writer, taken, self._marks(until))
            events += len(taken["ns"])
            last_ns = until
            if on_progress:
                on_progress(sum(source.reader.position for source in self._sources), size)
        write_interleaved(self.writer, none(), self._marks(END_NS))
        self.writer.mark(Mark(self.end_ns or 0))
        for source in self._sources:
            source.threads.finish()
        self._write_modules()
        ends = [source.reader.end for source in self._last]
        longest = max(sum(seam.gap_ns for seam in seams) for seams in self._seams)
        gaps = Problems(gap_ns=longest)
        problems = sum((source.reader.problems for source in self._sources), gaps)
        self.writer.end = {"reason": "merged", "ends": ends, "problems": problems.told}
        return Merged(events, len(self._processes), last_ns, problems)

    def _in_order(self) -> Iterator[tuple[Columns, int]]:
        """Yield events in order of time, each batch with the time up to which it is complete."""
        while True:
            steps = [process.fill() for process in self._processes]
            left = [step for step in steps if not step.ended]
            if not left:
                return
            until = min(step.last_ns for step in left)
            yield in_order(joined([step.take(until) for step in left])), until

    def _marks(self, ns: int) -> list[Mark]:
        """Return the marks of all up to a time: what is resident is the sum over the processes."""
        found = [
            (replace(mark, ns=mark.ns + source.delay), source.process)
            for source in self._sources
            if ns >= source.delay
            for mark in source.marks.until(ns - source.delay)
        ]
        exits = ((each.exit.mark(ns), each) for each in self._processes if each.exit is not None)
        found += [(mark, process) for mark, process in exits if mark is not None]
        made = []
        for mark, process in sorted(found, key=lambda each: each[0].ns):
            before = process.resident or mark
            process.resident = replace(mark, lost=max(mark.lost, before.lost))
            now = [process.resident for process in self._processes if process.resident]
            made.append(
                Mark(
                    mark.ns,
                    sum(each.resident for each in now),
                    sum(each.resident_anonymous for each in now),
                    sum(each.lost for each in now),
                )
            )
        return made

    def _write_modules(self) -> None:
        lines: dict[str, None] = {}  # each once, in order
        for source in self._sources:
            for mapping in parse_mappings(source.reader.modules):
                lines |= dict.fromkeys(mapping.lines(source.process.base))
        self.writer.modules(list(lines))
