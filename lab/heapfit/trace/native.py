"""Traces as Python sees them: the C library behind `native/trace.h`, typed.

Columns are NumPy arrays that the caller owns and the library fills. Python's lock is released
meanwhile, so that a thread can read a trace while another does something with what was read.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from ctypes import (
    POINTER,
    Structure,
    c_bool,
    c_char_p,
    c_int32,
    c_size_t,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from heapfit.errors import HeapfitError, UsageError
from heapfit.files import unfinished_name
from heapfit.trace.library import find_library

Columns = dict[str, NDArray[Any]]
# Called with the bytes of all files that have been read, and that they have.
Progress = Callable[[int, int], None]
_Kinds = Mapping[str, type[np.generic]]

FAILED = 64  # a flag of an event's kind: no memory was to be had
ALIVE_KIND = 255  # in place of what it died by
FREE, MALLOC, CALLOC, REALLOC, ALIGNED, NEW, NEW_ALIGNED, DELETE = range(8)
FREES = (FREE, DELETE)
INNERMOST, NO_SITES = 1, 2  # Problems.sites_limit
_NOT_COUNTED = ("cut_short", "sites_limit", "error")  # of Problems

_TOTALS_BATCH = 1 << 16
_WHY_BYTES = 256
_HALF = re.compile("[\ud800-\udfff]")  # a character that JSON can name, and UTF-8 cannot

# ---------------------------------------------------------------------- structures of trace.h


@dataclass(frozen=True)
class Problems:
    """What is wrong with a file; trace.h explains each, in the same order."""

    damaged_bytes: int = 0
    damaged_blocks: int = 0
    unknown_blocks: int = 0
    late_events: int = 0
    backward_clocks: int = 0
    lost_events: int = 0
    missing_blocks: int = 0
    cut_short: bool = False
    sites_limit: int = 0  # INNERMOST or NO_SITES: what later chains of calls have for a site
    error: int = 0  # errno that ended the reading early
    gap_ns: int = 0  # between merged parts of a process; trace.h knows nothing of it

    def __add__(self, other: Problems) -> Problems:
        """Return what is wrong with two files together.

        >>> (Problems(late_events=1, cut_short=True) + Problems(late_events=2)).told
        {'late_events': 3, 'cut_short': True}
        """
        return Problems(
            **{
                name: max(mine, theirs) if name in _NOT_COUNTED else mine + theirs
                for (name, mine), theirs in zip(
                    vars(self).items(), vars(other).values(), strict=True
                )
            }
        )

    @property
    def told(self) -> dict[str, Any]:
        """What there is of them."""
        return {name: value for name, value in vars(self).items() if value}


@dataclass(frozen=True)
class Totals:
    """What a pass over all events counts; trace.h explains each, in the same order."""

    events: int = 0
    allocations: int = 0
    frees: int = 0
    reallocs: int = 0
    reallocs_in_place: int = 0
    failed: int = 0
    bytes: int = 0
    unmatched_frees: int = 0
    replaced: int = 0
    peak_bytes: int = 0
    peak_objects: int = 0
    peak_ns: int = 0
    end_bytes: int = 0
    end_objects: int = 0


@dataclass(frozen=True)
class Thread:
    """A thread of the program, by its number in the trace."""

    index: int
    tid: int
    name: str
    events: int = 0
    first_ns: int = 0
    last_ns: int = 0


@dataclass(frozen=True)
class Event:
    """One event; times in nanoseconds, `kind` one of the constants above."""

    ns: int
    kind: int
    address: int = 0  # 0: failed
    old: int = 0  # of a realloc
    size: int = 0
    usable: int = 0
    lasted_ns: int = 0
    site: int = 0
    alignment: int = 0


@dataclass(frozen=True)
class Mark:
    """What is known of the process at one moment; a resident size of 0 is not known."""

    ns: int
    resident: int = 0
    resident_anonymous: int = 0
    lost: int = 0


def _structure(record: type, **kinds: Any) -> type[Structure]:
    """Return the structure with a record's members: of 64 bits, unless `kinds` has another kind,
    or None for a member that is not in it."""
    members = [(each.name, kinds.get(each.name, c_uint64)) for each in fields(record)]
    kept = [(name, kind) for name, kind in members if kind is not None]
    return type(record.__name__, (Structure,), {"_fields_": kept})


_Problems = _structure(Problems, cut_short=c_bool, sites_limit=c_uint8, error=c_int32, gap_ns=None)
_Totals = _structure(Totals)


class _Event(Structure):
    _fields_ = [
        *((name, c_uint64) for name in ("ns", "address", "old", "size", "usable", "lasted_ns")),
        ("site", c_uint32),
        ("kind", c_uint8),
        ("alignment", c_uint8),
    ]


def _numbers(names: str) -> np.dtype[Any]:
    return np.dtype([(name, "<u8") for name in names.split()])


# Rows of tables.
THREAD = np.dtype(
    [
        ("index", "<u4"),
        ("tid", "<i4"),
        ("name", "S16"),
        ("events", "<u8"),
        ("first_ns", "<u8"),
        ("last_ns", "<u8"),
    ]
)
_SITE = np.dtype([("caller", "<u4"), ("depth", "<u4"), ("address", "<u8")])
_MARK = _numbers("tick monotonic_ns complete_tick resident resident_anonymous lost")
MEMORY = _numbers(
    "ns live_bytes live_objects resident resident_anonymous allocated_bytes allocations "
    "frees unmatched_frees"
)
SITE_TOTALS = _numbers("allocations bytes switches live_bytes live_objects peak_live_bytes")
FLOW = np.dtype(
    [("born_thread", "<u4"), ("died_thread", "<u4"), ("blocks", "<u8"), ("bytes", "<u8")]
)


def _columns(u64: str, u32: str, u8: str) -> _Kinds:
    kinds: dict[type[np.generic], str] = {np.uint64: u64, np.uint32: u32, np.uint8: u8}
    return {name: kind for kind, names in kinds.items() for name in names.split()}


# Columns in the order of the structures; `capacity` stands before them.
EVENT_COLUMNS = _columns(
    "ns address old size usable lasted_ns", u32="thread site", u8="kind alignment"
)
OBJECT_COLUMNS = _columns(
    "id previous address size usable born_ns died_ns born_bytes died_bytes",
    u32="born_thread died_thread site",
    u8="born_kind died_kind alignment",
)


class _Events(Structure):
    _fields_ = [("capacity", c_size_t), *((name, c_void_p) for name in EVENT_COLUMNS)]


class _Objects(Structure):
    _fields_ = [("capacity", c_size_t), *((name, c_void_p) for name in OBJECT_COLUMNS)]


# Functions that give a table: how many rows, and where they are.
_TABLES = {
    "trace_threads": THREAD,
    "trace_sites": _SITE,
    "trace_memory": MEMORY,
    "trace_site_totals": SITE_TOTALS,
    "trace_flow": FLOW,
    "trace_marks": _MARK,
}
_ANSWERS: dict[str, tuple[Any, list[Any]]] = {
    "trace_open": (c_void_p, [c_char_p, c_char_p]),
    "trace_close": (None, [c_void_p]),
    "trace_info": (c_char_p, [c_void_p]),
    "trace_end": (c_char_p, [c_void_p]),
    "trace_problems": (_Problems, [c_void_p]),
    "trace_position": (c_uint64, [c_void_p]),
    "trace_stopped": (c_bool, [c_void_p, c_char_p]),
    "trace_nanoseconds": (c_uint64, [c_void_p, c_uint64]),
    "trace_modules": (c_char_p, [c_void_p]),
    "trace_next_events": (c_size_t, [c_void_p, POINTER(_Events)]),
    "trace_next_objects": (c_size_t, [c_void_p, POINTER(_Objects)]),
    "trace_totals": (_Totals, [c_void_p]),
    "trace_create": (c_void_p, [c_char_p, c_char_p, c_char_p]),
    "trace_write_thread": (c_bool, [c_void_p, c_uint32, c_int32, c_char_p]),
    "trace_write_site": (c_bool, [c_void_p, c_uint32, c_uint64]),
    "trace_write_modules": (c_bool, [c_void_p, c_char_p]),
    "trace_write_event": (c_bool, [c_void_p, c_uint32, POINTER(_Event)]),
    "trace_write_events": (c_bool, [c_void_p, POINTER(_Events), c_size_t]),
    "trace_write_mark": (c_bool, [c_void_p, c_void_p]),
    "trace_finish": (c_bool, [c_void_p, c_char_p]),
    **{name: (c_size_t, [c_void_p, POINTER(c_void_p)]) for name in _TABLES},
}


@cache
def _library() -> Any:
    path = find_library()
    try:
        library = ctypes.CDLL(str(path), use_errno=True)
        for name, (result, arguments) in _ANSWERS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise HeapfitError(f"{path} does not fit this heapfit: {error}; rebuild it") from error
    return library


# ------------------------------------------------------------------------------- what is read


class Batch:
    """Columns for so many events or objects, to be filled again and again."""

    def __init__(self, structure: type[Structure], columns: _Kinds, capacity: int) -> None:
        """Make room for `columns`, of those that `structure` has."""
        self.arrays: Columns = {name: np.empty(capacity, kind) for name, kind in columns.items()}
        self.rows = 0
        self.pointers = structure(capacity)
        for name, array in self.arrays.items():
            setattr(self.pointers, name, array.ctypes.data)

    @classmethod
    def of_events(cls, capacity: int) -> Self:
        """Return room for events."""
        return cls(_Events, EVENT_COLUMNS, capacity)

    @classmethod
    def of_objects(cls, capacity: int, columns: _Kinds | None = None) -> Self:
        """Return room for objects, with all columns or some."""
        return cls(_Objects, OBJECT_COLUMNS if columns is None else columns, capacity)

    @property
    def filled(self) -> Columns:
        """The columns as far as they are filled: views, which the next fill changes."""
        return {name: array[: self.rows] for name, array in self.arrays.items()}


class Reader:
    """One pass over a trace. A context manager; of one thread at a time."""

    def __init__(self, path: Path) -> None:
        """Open a trace; HeapfitError says why it cannot be read."""
        why = ctypes.create_string_buffer(_WHY_BYTES)
        self.path = path
        self._library = _library()
        self._reader = self._library.trace_open(os.fsencode(path), why)
        if not self._reader:
            raise UsageError(f"cannot read {path}: {_text(why.value)}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Harmless when it is closed."""
        if self._reader:
            self._library.trace_close(self._reader)
            self._reader = None

    @property
    def info(self) -> dict[str, Any]:
        """What was recorded, how and where, as the file says; not what is none of a recorder's."""
        said = _object(self._library.trace_info(self._reader))
        return {name: value for name, value in said.items() if _INFO.get(name, _any)(value)}

    @property
    def end(self) -> dict[str, Any] | None:
        """How the recording ended; None when the end has not been read, or there is none."""
        text = self._library.trace_end(self._reader)
        return _object(text) if text else None

    @property
    def problems(self) -> Problems:
        """What was wrong with the file so far, and when its end has been read with the files that
        it was made of."""
        own = Problems(*_members(self._library.trace_problems(self._reader)))
        before = _told_before(self.end)
        # The marks of the new file have the losses, too.
        return replace(own + before, lost_events=max(own.lost_events, before.lost_events))

    @property
    def position(self) -> int:
        """How many bytes of the file have been read."""
        return int(self._library.trace_position(self._reader))

    @property
    def threads(self) -> list[Thread]:
        """The threads so far, by number."""
        return [
            Thread(index, tid, _text(name), *counted)
            for index, tid, name, *counted in self.thread_rows().tolist()
        ]

    def thread_rows(self) -> NDArray[Any]:
        """Return the same as a table, which is quicker where there are many."""
        return self._table("trace_threads")

    @property
    def modules(self) -> list[str]:
        """Lines `start end offset path` of the code that was mapped."""
        return _text(self._library.trace_modules(self._reader) or b"").splitlines()

    def sites(self, first: int = 1) -> NDArray[Any]:
        """Return the sites so far, from number `first` on: `caller` and `address`."""
        return self._table("trace_sites", first)

    def marks(self, first: int = 0) -> NDArray[Any]:
        """Return the marks so far, from the `first` on; `tick` is in nanoseconds."""
        return self._table("trace_marks", first)

    def memory(self) -> NDArray[Any]:
        """Return the course of memory; complete when all objects have been read."""
        return self._table("trace_memory")

    def site_totals(self) -> NDArray[Any]:
        """Return what each site allocated, from number 0 (none) on; complete at the end."""
        return self._table("trace_site_totals")

    def flow(self) -> NDArray[Any]:
        """Return which thread freed how much of whose blocks; complete at the end."""
        return self._table("trace_flow")

    @property
    def totals(self) -> Totals:
        """What was counted; complete when all objects have been read."""
        return Totals(*_members(self._library.trace_totals(self._reader)))

    def read_events(self, batch: Batch) -> int:
        """Fill `batch` with the next events, in order of time; 0 at the end.

        HeapfitError when the file would cost more than is allowed, and what to do then.
        """
        return self._fill(batch, self._library.trace_next_events)

    def read_objects(self, batch: Batch) -> int:
        """Fill `batch` with the next objects, in order of death; 0 at the end. Raises likewise."""
        return self._fill(batch, self._library.trace_next_objects)

    def events(self, capacity: int) -> Iterator[Columns]:
        """Yield all events, in order of time, in columns that the next step changes."""
        batch = Batch.of_events(capacity)
        while self.read_events(batch):
            yield batch.filled

    def _fill(self, batch: Batch, read_next: Callable[..., int]) -> int:
        batch.rows = read_next(self._reader, ctypes.byref(batch.pointers))
        why = ctypes.create_string_buffer(_WHY_BYTES)
        if self._library.trace_stopped(self._reader, why):
            raise HeapfitError(f"cannot read {self.path}: {_text(why.value)}")
        return batch.rows

    def _table(self, function: str, first: int = 0) -> NDArray[Any]:
        """Return a copy of a table of the library's, which may move it when it reads on."""
        start, kind = c_void_p(), _TABLES[function]
        number = getattr(self._library, function)(self._reader, ctypes.byref(start))
        if number <= first or not start.value:
            return np.empty(0, kind)
        rows = number - first
        text = ctypes.string_at(start.value + first * kind.itemsize, rows * kind.itemsize)
        return np.frombuffer(text, kind)


def read_totals(path: Path) -> Totals:
    """Return what a pass over the whole trace counts.

    Raises HeapfitError where it cannot be read.
    """
    with Reader(path) as reader:
        batch = Batch.of_objects(_TOTALS_BATCH, {})
        while reader.read_objects(batch):
            pass
        return reader.totals


# ---------------------------------------------------------------------------- what is written


class Writer:
    """Writes a trace, its clock in nanoseconds. A context manager, at whose end it is whole."""

    def __init__(self, path: Path, info: Mapping[str, Any]) -> None:
        """Make the file; it takes its place at `path` when it is finished, not before."""
        self.path = path
        self.end: Mapping[str, Any] = {"reason": "written"}
        self._unfinished = unfinished_name(path)
        self._library = _library()
        why = ctypes.create_string_buffer(_WHY_BYTES)
        text = json.dumps({**info, "ticks_per_second_guess": 1_000_000_000})
        self._writer = self._library.trace_create(os.fsencode(self._unfinished), text.encode(), why)
        if not self._writer:
            raise HeapfitError(f"cannot write {path}: {_text(why.value).lower()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        whole = self._library.trace_finish(self._writer, json.dumps(self.end).encode())
        failure = self._failure()
        self._writer = None
        if kind is None and whole:
            self._unfinished.rename(self.path)
            return
        self._unfinished.unlink(missing_ok=True)
        if kind is None:
            raise failure

    def thread(self, index: int, tid: int = 0, name: str = "") -> None:
        """Say what is known of a thread, before its first event."""
        self._check(self._library.trace_write_thread(self._writer, index, tid, name.encode()))

    def site(self, caller: int, address: int) -> None:
        """Add a call site; the first is number 1."""
        self._check(self._library.trace_write_site(self._writer, caller, address))

    def modules(self, lines: Sequence[str]) -> None:
        """Say what code is mapped: `start end offset path` each."""
        text = "".join(f"{line}\n" for line in lines)
        self._check(self._library.trace_write_modules(self._writer, text.encode()))

    def event(self, thread: int, event: Event) -> None:
        """Add one event of a thread, as it is."""
        made = _Event(**vars(event))
        self._check(self._library.trace_write_event(self._writer, thread, ctypes.byref(made)))

    def events(self, columns: Columns) -> None:
        """Add events, in order of time; the columns are those that a reader gives."""
        kept = {name: np.ascontiguousarray(columns[name], k) for name, k in EVENT_COLUMNS.items()}
        rows = len(kept["ns"])
        made = _Events(rows, *(array.ctypes.data for array in kept.values()))
        self._check(self._library.trace_write_events(self._writer, ctypes.byref(made), rows))

    def mark(self, mark: Mark) -> None:
        """Say how the process is, after all events before the mark."""
        at = mark.ns
        row = (at, at, at, mark.resident, mark.resident_anonymous, mark.lost)
        made = np.array(row, _MARK)
        self._check(self._library.trace_write_mark(self._writer, made.ctypes.data))

    def _check(self, done: bool) -> None:
        if not done:
            raise self._failure()

    def _failure(self) -> OSError:
        error = ctypes.get_errno()
        return OSError(error, os.strerror(error), str(self.path))


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")


def _object(raw: bytes) -> dict[str, Any]:
    """Return a JSON object of the file's; an empty one when it is none, since files may be bad."""
    try:
        found = json.loads(_text(raw))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _told_before(end: Mapping[str, Any] | None) -> Problems:
    """Return what was wrong with the files that one was made of, as its end says."""
    said = (end or {}).get("problems")
    if not isinstance(said, dict):
        return Problems()
    numbers = {
        name: said[name]
        for name in vars(Problems())
        if name not in ("cut_short", "error") and _is_number(said.get(name))
    }
    return Problems(**numbers, cut_short=said.get("cut_short") is True)


def _any(_: Any) -> bool:
    return True


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _is_answer(value: Any) -> bool:
    return isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not _HALF.search(value)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _are_named_texts(value: Any) -> bool:
    return isinstance(value, dict) and _are_texts([*value, *value.values()])


# What members of TRACE_INFO are, of which anything is made (allocator/record/facts.c).
_INFO: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("heapfit", "program", "arch", "allocator"), _is_text),
    **dict.fromkeys(("pid", "parent", "cores", "page_size", "sample", "sites"), _is_number),
    **dict.fromkeys(("started_unix_ns", "process_began", "file_number", "live_before"), _is_number),
    **dict.fromkeys(("cut_of_unix_ns", "live_at_start", "processes"), _is_number),
    "began_late": _is_answer,
    "arguments": _are_texts,
    "environment": _are_named_texts,
}


def _members(structure: Any) -> Iterator[Any]:
    return (getattr(structure, name) for name, _ in structure._fields_)
