"""Convert a trace into tables: a folder of Parquet files, as `schema` says, and `summary.json`.

The trace is read once, in memory that does not grow with it. One thread decodes the next objects
in C while another writes those before; both release Python's lock.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from heapfit.errors import UsageError
from heapfit.files import check_name, unfinished_name
from heapfit.text import readable
from heapfit.trace.native import (
    ALIVE_KIND,
    Batch,
    Columns,
    Problems,
    Progress,
    Reader,
    Thread,
    Totals,
)
from heapfit.trace.schema import FILES, FLOW, MEMORY, OBJECTS, THREADS
from heapfit.trace.sites import changed_since, parse_mappings, sites_table

SUMMARY = "summary.json"
_WRITTEN = {SUMMARY, *(f"{name}.parquet" for name in FILES)}

# A row group: large enough to compress well, small enough that two of them are no load.
_ROWS = 1 << 19
# How columns are stored was chosen by trying each way on each, for speed first: few values as a
# dictionary, those that go along with time or place as differences, what is mostly 0 compressed.
# Beyond that compression takes more time than it saves room.
_DICTIONARY = (
    "size",
    "usable",
    "born_thread",
    "died_thread",
    "site",
    "born_kind",
    "died_kind",
    "alignment",
    "weight",
)
_DIFFERENCES = ("id", "address", "born_ns", "died_ns", "born_bytes", "died_bytes")
_COMPRESSED = ("previous",)
_STORAGE: dict[str, Any] = {
    "use_dictionary": list(_DICTIONARY),
    "column_encoding": dict.fromkeys(_DIFFERENCES, "DELTA_BINARY_PACKED"),
    "compression": {name: "zstd" if name in _COMPRESSED else "none" for name in OBJECTS.names},
    "write_statistics": ["id", "born_ns", "died_ns", "size", "site"],  # for who looks for a range
}
_DIED = ("died_ns", "died_bytes", "died_thread", "died_kind")


@dataclass(frozen=True)
class Summary:
    """What a trace is, as a whole."""

    file: str
    info: dict[str, Any]
    end: dict[str, Any] | None
    totals: Totals
    problems: Problems
    duration_ns: int
    objects: int
    threads: int
    sites: int

    @property
    def plain(self) -> dict[str, Any]:
        """The summary as plain data, for JSON."""
        return asdict(self)


def inspect(trace: Path, on_progress: Progress | None = None) -> tuple[Summary, list[Thread]]:
    """Read a trace to its end; return what it is as a whole, and its threads."""
    with Reader(trace) as reader:
        objects = sum(batch.rows for batch in _batches(reader, on_progress, columns={}))
        return _summary(reader, objects), reader.threads


def convert(
    trace: Path, folder: Path, on_progress: Progress | None = None, *, symbols: bool = True
) -> Summary:
    """Convert `trace` into tables in `folder`, in place of those that an earlier call made.

    Without `symbols` the call sites stay addresses. Raises HeapfitError when the trace cannot be
    read at all; what is damaged in it is left out, and counted in the summary.
    """
    with Reader(trace) as reader, _made(folder) as unfinished:
        objects = _write_objects(reader, unfinished / "objects.parquet", on_progress)
        tables = {
            "memory": _memory(reader),
            "threads": _threads(reader),
            "flow": _table(_by_name(reader.flow()), FLOW),
            "sites": sites_table(reader, symbols=symbols),
        }
        for name, table in tables.items():
            pq.write_table(table, unfinished / f"{name}.parquet", compression="zstd")
        summary = _summary(reader, objects)
        began = reader.info.get("started_unix_ns", 0)
        changed = changed_since(parse_mappings(reader.modules), began) if symbols and began else []
        told = {**summary.plain, "modules": reader.modules, "changed": changed}
        (unfinished / SUMMARY).write_text(json.dumps(told, indent=1) + "\n")
    return summary


@contextmanager
def _made(folder: Path) -> Iterator[Path]:
    """A folder to write into, which takes the place of `folder` when all is done."""
    check_name(folder)
    there = {each.name for each in folder.glob("*")} if folder.exists() else _WRITTEN
    if there - _WRITTEN or not there - {SUMMARY}:  # Some may be missing, which is mended so.
        raise UsageError(f"{folder} exists and is not a folder of tables alone; name another")
    folder = folder.resolve()
    unfinished = unfinished_name(folder)
    try:
        unfinished.mkdir(mode=0o700, parents=True)  # as private as the trace
        yield unfinished
        if folder.exists():  # It stays, for whoever is in it.
            (folder / SUMMARY).unlink(missing_ok=True)  # Without that nobody reads the others.
            for name in sorted(_WRITTEN, key=lambda name: name == SUMMARY):
                (unfinished / name).replace(folder / name)
        else:
            unfinished.rename(folder)
    except OSError as error:  # Arrow says it in words of its own.
        if error.errno is None:
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(folder)) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


# ---------------------------------------------------------------------------------- objects


def _batches(
    reader: Reader, on_progress: Progress | None, columns: dict[str, Any] | None = None
) -> Iterator[Batch]:
    """Yield batches of objects; another thread fills the next one meanwhile."""
    size = reader.path.stat().st_size
    current, spare = Batch.of_objects(_ROWS, columns), Batch.of_objects(_ROWS, columns)
    with ThreadPoolExecutor(max_workers=1) as decoder:
        ahead = decoder.submit(_fill, reader, spare)
        while True:
            position = ahead.result()
            if on_progress:
                on_progress(position, size)
            if not spare.rows:
                return
            current, spare = spare, current
            ahead = decoder.submit(_fill, reader, spare)
            yield current


def _fill(reader: Reader, batch: Batch) -> int:
    """Read the next objects; return how far the file has been read."""
    reader.read_objects(batch)
    return reader.position


def _write_objects(reader: Reader, path: Path, on_progress: Progress | None) -> int:
    sample = mean_sample(reader.info)
    written = 0
    with pq.ParquetWriter(path, OBJECTS, **_STORAGE) as writer:
        for batch in _batches(reader, on_progress):
            writer.write_batch(_objects(batch.filled, sample), row_group_size=_ROWS)
            written += batch.rows
    return written


def mean_sample(info: dict[str, Any]) -> float:
    """Return the mean bytes from one noted allocation to the next; 0: each was noted."""
    sample = info.get("sample", 0)
    return float(sample) if isinstance(sample, int | float) and 0 < sample < float("inf") else 0.0


def weights(size: NDArray[np.uint64], sample: float) -> NDArray[np.float64]:
    """Return how many objects of the program each noted one stands for.

    Where each byte begins a sample with probability 1 / `sample`, one of `size` bytes is noted
    with probability 1 - exp(-size / sample); its reciprocal makes sums unbiased
    (D. G. Horvitz and D. J. Thompson, 1952).
    """
    bytes_drawn: NDArray[np.float64] = np.maximum(size, 1).astype(np.float64)
    return np.asarray(-1.0 / np.expm1(-bytes_drawn / sample))


def _objects(columns: Columns, sample: float) -> pa.RecordBatch:
    alive = columns["died_kind"] == ALIVE_KIND
    mask = alive if alive.any() else None
    arrays = [
        pa.array(columns[name], mask=mask if name in _DIED else None)
        for name in OBJECTS.names
        if name != "weight"
    ]
    size = columns["size"]
    weight = pa.array(weights(size, sample)) if sample else _ones().slice(0, len(size))
    return pa.record_batch([*arrays, weight], schema=OBJECTS)


@cache
def _ones() -> pa.Array:
    """The weights of a batch in which each object was noted: always the same, so made once."""
    return pa.array(np.ones(_ROWS))


# -------------------------------------------------------------------------- the other tables


def _memory(reader: Reader) -> pa.Table:
    found = _by_name(reader.memory())
    unknown = found["resident"] == 0
    return _table(found, MEMORY, {"resident": unknown, "resident_anonymous": unknown})


def _threads(reader: Reader) -> pa.Table:
    rows = reader.thread_rows()
    names = [name.decode(errors="replace") for name in rows["name"].tolist()]
    return _table({**_by_name(rows), "thread": rows["index"], "name": names}, THREADS)


def _by_name(rows: NDArray[Any]) -> dict[str, Any]:
    return {name: np.ascontiguousarray(rows[name]) for name in rows.dtype.names or ()}


def _table(
    columns: Mapping[str, Any], schema: pa.Schema, unknown: Mapping[str, Any] | None = None
) -> pa.Table:
    """Return the columns of a schema, with nothing where a mask says that it is `unknown`."""
    masks = unknown or {}
    arrays = [pa.array(columns[name], mask=masks.get(name)) for name in schema.names]
    return pa.Table.from_arrays(arrays, schema=schema)


def _summary(reader: Reader, objects: int) -> Summary:
    threads = reader.thread_rows()
    ends = [*threads["last_ns"].max(initial=0, keepdims=True), *reader.marks()["tick"][-1:]]
    return Summary(
        file=readable(reader.path.name),
        info=reader.info,
        end=reader.end,
        totals=reader.totals,
        problems=reader.problems,
        duration_ns=int(max(ends)),
        objects=objects,
        threads=len(threads),
        sites=len(reader.sites()),
    )
