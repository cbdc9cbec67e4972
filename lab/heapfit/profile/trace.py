"""One converted trace, opened in DuckDB: its summary, its threads, and how its objects count.

The tables are trace/schema.py's Parquet files. DuckDB reads them piece by piece, in MEMORY_LIMIT
and with a folder to put aside what does not fit, whatever the trace's length.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
from pydantic import BaseModel

from heapfit.errors import HeapfitError, UsageError
from heapfit.files import check_name
from heapfit.profile.bins import MACROS
from heapfit.profile.tally import UNITS, Key
from heapfit.trace.native import Problems, Totals
from heapfit.trace.schema import FILES, KINDS

MEMORY_LIMIT = "1GiB"
# What DuckDB says where a signal came, or came while it waited for us.
_INTERRUPTED = re.compile("^Query interrupted|KeyboardInterrupt")

# Threads that are told apart in one trace; the rest, with the fewest events, are one: OTHERS.
THREADS_APART = 64
OTHERS = 0xFFFF_FFFF
OTHERS_NAME = "others"

REALLOC = KINDS.index("realloc")

# What was noted with at least this probability is known well.
_KNOWN = 0.5
IS_KNOWN = f"units <= {round(UNITS / _KNOWN)}"


class Info(BaseModel, frozen=True):
    """What the recorder said when it began (TRACE_INFO)."""

    program: str = ""
    arguments: list[str] = []
    pid: int = 0
    allocator: str = ""
    arch: str = ""
    cores: int = 0
    page_size: int = 0
    sample: int = 0
    sites: int = 0
    started_unix_ns: int = 0
    environment: dict[str, str] = {}
    began_late: bool = False  # in the middle of its process
    live_before: int = 0  # bytes that libraries allocated before the recorder


class Summary(BaseModel, frozen=True):
    """summary.json, as far as it is needed here."""

    file: str = ""
    info: Info = Info()
    totals: Totals = Totals()
    problems: Problems = Problems()
    duration_ns: int = 0
    end: dict[str, Any] | None = None  # how the recording ended, in the recorder's words
    modules: list[str] = []  # `start end offset path` of the code that was mapped
    changed: list[str] = []  # files of it that were written after the recording began


@dataclass(frozen=True)
class Thread:
    """A thread, or all of OTHERS; the key of its sums: program, name, and which of that name."""

    index: int
    key: Key
    threads: int


class Trace:
    """A folder of tables and the connection to them; a context manager."""

    def __init__(self, folder: Path, aside: Path) -> None:
        """Open the trace in `folder`; `aside` is for what DuckDB puts aside.

        Raises UsageError for a folder that is no converted trace.
        """
        self.folder = folder
        self.summary = read_summary(folder)
        self.connection = connect(aside)
        self.step_bits = 0  # of the table `steps`
        self.peak_ns = 0  # when most bytes were live
        # Another moment of a sample at which, for all that it tells, as much was live.
        self.rival_ns: int | None = None
        # What corrects the peak of a sample, in UNITS: of its amounts, and of their variances.
        self.peak_factor, self.peak_spread_factor = UNITS, UNITS
        self.objects_span = (0, 1)  # the first number of an object, and how many there are
        try:
            with interruptible():
                self._open()
        except duckdb.Error as error:
            self.connection.close()
            raise _unreadable(folder, error) from error

    def __enter__(self) -> Trace:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    @property
    def sampled(self) -> bool:
        """Whether only a sample of the allocations was noted."""
        return self.summary.info.sample > 0

    @property
    def program(self) -> str:
        """Return the path of the program, which all keys of its sums begin with."""
        return self.summary.info.program

    def query(self, text: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query; HeapfitError when the tables cannot be read."""
        try:
            with interruptible():
                return self.connection.execute(text).fetchall()
        except duckdb.Error as error:
            raise _unreadable(self.folder, error) from error

    def make(self, table: str, text: str) -> None:
        """Keep a query's rows as a table until the connection closes."""
        try:
            with interruptible():
                self.connection.execute(f"CREATE OR REPLACE TEMP TABLE {table} AS {text}")
        except duckdb.Error as error:
            raise _unreadable(self.folder, error) from error

    def amount(self, where: str = "") -> str:
        """Return the four columns of an amount (tally.ADDENDS), of the rows for which `where`."""
        counted = f"{self.objects(where)}, {self.total('size', where)}"
        if not self.sampled:
            return f"{counted}, 0, 0"
        factor = self.peak_spread_factor
        spreads = (self._sum(each, where, factor) for each in ("spread", "bytes_spread"))
        return ", ".join((counted, *spreads))

    def objects(self, where: str = "") -> str:
        """Return the first of these columns alone."""
        if self.sampled:
            return self._sum("units", where, self.peak_factor)
        only = f" FILTER (WHERE {where})" if where else ""
        return f"count(*){only} * {UNITS}"

    def total(self, column: str, where: str = "") -> str:
        """Return the sum of a column of bytes, in UNITS."""
        if self.sampled:
            return self._sum(f"units * {column}", where, self.peak_factor)
        return f"{self._sum(column, where)} * {UNITS}"

    def _sum(self, column: str, where: str, peak_factor: int = UNITS) -> str:
        only = f" FILTER (WHERE {where})" if where else ""
        if peak_factor != UNITS and where.startswith((self.at_peak(), self.at_rival())):
            corrected = f"{column} * {peak_factor} // {UNITS}"
            column = f"CASE WHEN {IS_KNOWN} THEN {column} ELSE {corrected} END"
        return f"coalesce(sum({column}){only}, 0)"

    @cached_property
    def stretch(self) -> float:
        """How many bytes the program asked for, for each that a sample has noted."""
        if not self.sampled:
            return 1.0
        [(estimated, noted)] = self.query(
            f"SELECT {self.total('size')} / {UNITS}, sum(size) FROM object"
        )
        return float(estimated / noted) if noted else 1.0

    def lived_bytes(self, end: str) -> str:
        """Return what the program asked for in an object's life, which has its end at `end`."""
        lived = f"{end} - born_bytes"
        return f"CAST(({lived}) * {self.stretch} AS BIGINT)" if self.sampled else lived

    def at_peak(self) -> str:
        """Return the condition that an object was live when most bytes were. Amounts of which it is
        the condition, or the first of several, are corrected as those of a sample must be."""
        return live_at(self.peak_ns)

    def at_rival(self) -> str:
        """Return the same of the moment at which the peak may have been, too."""
        return self.at_peak() if self.rival_ns is None else live_at(self.rival_ns)

    def after(self, parts: int, of: int) -> str:
        """Return the condition that an object was live after so many parts of all allocations."""
        [(then,)] = self.query(
            f"SELECT min(born_ns) FROM object WHERE {self.allocated_part(of)} >= {parts}"
        )
        then = 0 if then is None else then
        return f"born_ns < {then} AND (died_ns IS NULL OR died_ns >= {then})"

    def allocated_part(self, parts: int) -> str:
        """Return the number, from 0 on, of the part of all allocations that an object is of.

        The parts have as many allocations each: so much of the program's work, whatever its time.
        """
        first, many = self.objects_span
        return f"(id - {first}) * {parts} // {many}"

    # -------------------------------------------------------------- opening

    def _open(self) -> None:
        self.connection.execute(MACROS)
        for name in FILES:
            file, columns = self.folder / f"{name}.parquet", "*"
            if name == "sites" and self.summary.changed:
                columns = _without_names(self.summary.changed)
            self.connection.execute(view(f"{name}_table", file, columns))
        self.threads = self._threads()
        self.connection.execute(_object_view(self))
        [(first, last)] = self.query("SELECT min(id), max(id) FROM object")
        if first is not None:
            self.objects_span = (first, last - first + 1)
        if not self.summary.duration_ns:
            found = self.query("SELECT max(greatest(born_ns, coalesce(died_ns, 0))) FROM object")
            self.summary = self.summary.model_copy(update={"duration_ns": found[0][0] or 0})

    def _threads(self) -> dict[int, Thread]:
        rows = self.query("SELECT thread, coalesce(name, ''), events FROM threads_table")
        rows.sort(key=lambda row: (-row[2], row[0]))
        apart = sorted(rows[: THREADS_APART if len(rows) <= THREADS_APART else THREADS_APART - 1])
        seen: Counter[str] = Counter()
        threads = {}
        for index, name, _ in apart:
            seen[name] += 1
            threads[index] = Thread(index, (self.program, name, seen[name]), 1)
        rest = len(rows) - len(apart)
        threads[OTHERS] = Thread(OTHERS, (self.program, OTHERS_NAME, 0), rest)
        return threads

    def thread_key(self, index: int) -> Key:
        """Return the key of the thread's sums; of OTHERS' when the tables do not know it."""
        return self.threads.get(index, self.threads[OTHERS]).key


def live_at(moment_ns: int) -> str:
    return f"(born_ns <= {moment_ns} AND (died_ns IS NULL OR died_ns > {moment_ns}))"


def connect(aside: Path) -> duckdb.DuckDBPyConnection:
    """Return a DuckDB of its own that keeps within MEMORY_LIMIT and uses `aside` beyond."""
    connection = duckdb.connect(":memory:")
    connection.execute(f"SET memory_limit = '{MEMORY_LIMIT}'")
    connection.execute("SET preserve_insertion_order = false")
    connection.execute(f"SET temp_directory = {quoted(str(aside))}")
    return connection


def view(name: str, file: Path, columns: str = "*") -> str:
    """Return the statement that makes a view of a Parquet file."""
    return f"CREATE VIEW {name} AS SELECT {columns} FROM read_parquet({quoted(str(file))})"


def _without_names(changed: Iterable[str]) -> str:
    """Return the columns of the sites, without names for what is in files that are others by now:
    these tell what is at its addresses today."""
    files = ", ".join(map(quoted, changed))
    names = ("function", "file", "line")
    kept = [f"CASE WHEN module IN ({files}) THEN NULL ELSE {each} END AS {each}" for each in names]
    return f"* REPLACE ({', '.join(kept)})"


def quoted(text: str) -> str:
    """Return `text` as SQL writes it.

    >>> quoted("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def is_converted(path: Path) -> bool:
    """Tell whether `path` is a folder of tables."""
    return (path / "objects.parquet").is_file()


def read_summary(folder: Path) -> Summary:
    """Return what the conversion has written beside the tables."""
    check_name(folder)
    missing = [name for name in FILES if not (folder / f"{name}.parquet").is_file()]
    if missing:
        raise UsageError(
            f"{folder} is not a converted trace: it has no {missing[0]}.parquet; write: "
            "heapfit trace convert TRACE"
        )
    file = folder / "summary.json"
    try:
        return Summary.model_validate(json.loads(file.read_text()))
    except (OSError, ValueError) as error:  # Pydantic's are ValueErrors, too.
        raise HeapfitError(f"{file} cannot be read ({error}); convert the trace again") from error


def _object_view(trace: Trace) -> str:
    """Return the statement for the view `object`, which all counting reads."""
    signed = ("size", "usable", "born_ns", "died_ns", "born_bytes", "died_bytes")
    columns = [f"CAST({name} AS BIGINT) AS {name}" for name in signed]
    columns += ["id", "previous", "address", "site", "born_kind", "died_kind"]
    columns += ["born_thread <> died_thread AS remote"]
    threads = ("born_thread", "died_thread")
    columns += [f"{_apart(name, trace)} AS {name}" for name in threads]
    if trace.sampled:  # The variance of 1/p that is there with probability p is (1 - p) / p^2.
        columns += [
            f"CAST(round(weight * {UNITS}) AS HUGEINT) AS units",
            f"CAST(round(weight * (weight - 1) * {UNITS}) AS HUGEINT) AS spread",
            "CAST(round(weight * (weight - 1) * size * size) AS HUGEINT) AS bytes_spread",
        ]
    return f"CREATE VIEW object AS SELECT {', '.join(columns)} FROM objects_table"


def _apart(column: str, trace: Trace) -> str:
    if trace.threads[OTHERS].threads == 0:
        return column
    known = ", ".join(str(index) for index in sorted(trace.threads) if index != OTHERS)
    return (
        f"CASE WHEN {column} IS NULL THEN NULL WHEN {column} IN ({known}) THEN {column} "
        f"ELSE {OTHERS} END"
    )


@contextmanager
def interruptible() -> Iterator[None]:
    """Have Ctrl-C end what DuckDB does as it ends everything else.

    DuckDB takes the signal, and raises now an error of its own, now one of Python's.
    """
    try:
        yield
    except (duckdb.Error, RuntimeError) as error:
        if isinstance(error, duckdb.InterruptException) or _INTERRUPTED.search(str(error)):
            raise KeyboardInterrupt from error
        raise


def _unreadable(folder: Path, error: duckdb.Error) -> HeapfitError:
    what = str(error).splitlines()[0]
    return HeapfitError(f"the tables in {folder} cannot be analysed: {what}")
