"""Cut a part out of a trace: of its time, of its events, of its threads, or of all three.

The part is a trace of its own, whose time begins at its start. Blocks that live at its start are
allocated there first, at once, so that what lives and what is freed is as it was; they can be
left out. Of threads, what they allocate is kept, with all frees of that, whoever makes them: a
thread that only frees is there too then.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heapfit.errors import UsageError
from heapfit.trace.blocks import (
    NOBODY,
    LiveBlocks,
    as_allocations,
    frees,
    in_order,
    none,
    reallocs,
    rows,
)
from heapfit.trace.edit import (
    BATCH_ROWS,
    END_NS,
    Marks,
    SiteCopy,
    ThreadMap,
    ThreadNumbers,
    batches,
    check_target,
    shifted,
    write_interleaved,
)
from heapfit.trace.native import FREE, Columns, Mark, Problems, Progress, Reader, Writer

# What the first block has of a trace whose last one may tell what was wrong with earlier files.
_MADE_BY_TOOLS = ("cut", "merged", "anonymous")


@dataclass(frozen=True)
class Part:
    """What to keep. Times in nanoseconds, events by number from 0; the ends are not in it."""

    from_ns: int = 0
    to_ns: int | None = None
    from_event: int = 0
    to_event: int | None = None
    threads: frozenset[int] | None = None
    live: bool = True  # begin with the blocks that live there

    @property
    def plain(self) -> dict[str, Any]:
        """What the new trace says about it, beside what it was cut from."""
        return {**vars(self), "threads": None if self.threads is None else sorted(self.threads)}


@dataclass(frozen=True)
class Cut:
    """What a cut took: events as they were, and blocks that lived at the start."""

    events: int
    live: int
    duration_ns: int
    problems: Problems


def cut(source: Path, target: Path, part: Part, on_progress: Progress | None = None) -> Cut:
    """Write the part of `source` to `target`."""
    check_target(target, [source])
    with Reader(source) as reader, ExitStack() as opened:
        return _Cutter(reader, target, part, opened).cut(on_progress)


class _Cutter:
    """Cuts one trace. The new one is made when the part's start is reached: it tells of that."""

    _writer: Writer
    _threads: ThreadMap
    _sites: SiteCopy

    def __init__(self, reader: Reader, target: Path, part: Part, opened: ExitStack) -> None:
        self._reader, self._target, self._part, self._opened = reader, target, part, opened
        self._marks = Marks(reader)
        self._blocks = LiveBlocks()
        self._origin: int | None = None  # the time of the part's start, once that is reached
        self._end_ns: int | None = None  # that of its end; None: it is the trace's
        self._events = self._live = self._last_ns = 0

    def cut(self, on_progress: Progress | None) -> Cut:
        """Read the trace up to the part's end, and write what is in the part."""
        for events, inside in self._located(on_progress):
            self._pass_over(rows(events, slice(0, inside.start)))
            if inside.start < inside.stop:
                self._begin(int(events["ns"][inside.start]))
                self._take(rows(events, inside))
        if self._origin is None or not self._events:
            raise UsageError(
                f"that part of {self._reader.path} holds no events; heapfit trace info says "
                "how much there is"
            )
        if self._part.to_event is None:
            self._write(none(), self._marks.until(self._part.to_ns or END_NS))
        if self._end_ns is not None:
            self._writer.mark(Mark(self._end_ns - self._origin))
        self._threads.finish()
        self._writer.modules(self._reader.modules)
        problems = self._problems()
        ends = {} if self._end_ns is not None else {"ends": [self._reader.end]}
        self._writer.end = {"reason": "cut", "problems": problems.told, **ends}
        return Cut(self._events, self._live, self._last_ns - self._origin, problems)

    def _problems(self) -> Problems:
        """Return what is wrong up to the part's end, and with the files that the trace is of."""
        if self._end_ns is None:
            return self._reader.problems
        if self._reader.info.keys() & _MADE_BY_TOOLS:
            for _ in self._reader.events(BATCH_ROWS):
                pass
        return replace(self._reader.problems, cut_short=False)

    def _located(self, on_progress: Progress | None) -> Iterator[tuple[Columns, slice]]:
        """Yield the batches up to the part's end, each with what of it is inside."""
        part, number = self._part, 0
        for events in batches(self._reader, on_progress):
            count = len(events["ns"])
            start = max(_place(events, part.from_ns), part.from_event - number)
            stop = count if part.to_ns is None else _place(events, part.to_ns)
            if part.to_event is not None:
                stop = min(stop, part.to_event - number)
            start, stop = min(start, count), max(stop, 0)
            yield events, slice(start, max(start, stop))
            if stop < count:
                after = int(events["ns"][stop])
                self._end_ns = after if part.to_ns is None else min(after, part.to_ns)
                return
            number += count

    def _pass_over(self, events: Columns) -> None:
        """Learn what lives after events before the part's start."""
        if len(events["ns"]) and (self._part.live or self._part.threads is not None):
            self._blocks.follow(events)

    def _begin(self, first_ns: int) -> None:
        """Come to the part's start, with the blocks that live there, unless that is done."""
        if self._origin is not None:
            return
        self._origin = first_ns if self._part.from_event else self._part.from_ns
        living = self._living() if self._part.live else none()
        self._live = len(living["ns"])
        self._writer = self._opened.enter_context(Writer(self._target, self._info()))
        self._threads = ThreadMap(self._reader, ThreadNumbers(self._writer))
        self._sites = SiteCopy(self._reader, self._writer)
        marks = [replace(mark, ns=self._origin) for mark in self._marks.until(self._origin)]
        self._write(living, [])
        self._write(none(), marks[-1:])

    def _info(self) -> dict[str, Any]:
        """Return what the new trace says about itself."""
        info, part, origin = self._reader.info, self._part, self._origin or 0
        info["cut"] = part.plain
        within = not part.live and (part.from_ns > 0 or part.from_event > 0)
        info["began_late"] = info.get("began_late", False) or within
        if origin:
            info["live_at_start"] = self._live
        if began := info.get("started_unix_ns"):
            info["cut_of_unix_ns"] = info.get("cut_of_unix_ns") or began
            info["started_unix_ns"] = began + origin
        return info

    def _living(self) -> Columns:
        """Return the blocks that live now, as allocations at the part's start."""
        living = self._blocks.allocations()
        living = rows(living, self._chosen(living["thread"]))
        # Thread by thread: events of different threads could not all be at the same time.
        living = rows(living, np.argsort(living["thread"], kind="stable"))
        return {**living, "ns": np.full(len(living["ns"]), self._origin, np.uint64)}

    def _take(self, events: Columns) -> None:
        """Write what is in the part of events that are."""
        self._last_ns = int(events["ns"][-1])
        if self._part.threads is not None:
            events = self._of_threads(events)
        self._events += len(events["ns"])
        self._write(events, self._marks.until(self._last_ns))

    def _write(self, events: Columns, marks: list[Mark]) -> None:
        origin = self._origin or 0
        self._sites.write()
        made = self._threads.renumbered({**events, "ns": shifted(events["ns"], origin)})
        moved = [replace(mark, ns=mark.ns - origin) for mark in marks]
        write_interleaved(self._writer, made, moved)

    def _chosen(self, threads: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which of these threads are asked for."""
        if self._part.threads is None:
            return np.ones(len(threads), bool)
        return np.isin(threads, list(self._part.threads))

    def _of_threads(self, events: Columns) -> Columns:
        """Return what the threads allocate, with its frees; half of a realloc becomes the whole."""
        owners = self._blocks.follow(events)
        mine = self._chosen(events["thread"])
        # A block that was never seen is taken for that of the thread that frees it.
        dies = np.where(owners == NOBODY, mine, self._chosen(owners))
        moved, freed = reallocs(events), frees(events)
        born, lost = moved & mine & ~dies, moved & ~mine & dies
        events = {**events, "kind": np.where(lost, FREE, events["kind"]).astype(np.uint8)}
        events["address"] = np.where(lost, events["old"], events["address"])
        made = as_allocations(events)
        events = {name: np.where(born, made[name], events[name]) for name in events}
        return in_order(rows(events, np.where(freed | moved, dies, mine) | (moved & mine)))


def _place(events: Columns, ns: int) -> int:
    """Return which event is the first that is not before a time."""
    return int(np.searchsorted(events["ns"], np.uint64(ns)))
