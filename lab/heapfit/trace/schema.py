"""The tables that a trace becomes: their columns, as Parquet files in one folder.

`objects.parquet` is written while the trace is read, in row groups, in order of death; the other
tables are small. Times are nanoseconds since the trace's start, sizes bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from heapfit.trace import native

U64, U32, U8 = pa.uint64(), pa.uint32(), pa.uint8()


def _schema(row: np.dtype[Any]) -> pa.Schema:
    """Return the columns of a table that the library gives by rows."""
    return pa.schema([(name, pa.from_numpy_dtype(row[name])) for name in row.names or ()])


# A block from birth to death; native/trace.h explains each column. `weight` is how many objects of
# the program it stands for: 1, or in a sampled trace 1 / (1 - exp(-size / mean bytes)).
OBJECTS = pa.schema(
    [
        ("id", U64),
        ("previous", U64),  # 0: none
        ("address", U64),
        ("size", U64),
        ("usable", U64),
        ("born_ns", U64),
        ("died_ns", U64),  # null: it lives at the end
        ("born_bytes", U64),
        ("died_bytes", U64),  # null: likewise
        ("born_thread", U32),
        ("died_thread", U32),  # null: likewise
        ("site", U32),  # 0: not recorded
        ("born_kind", U8),  # KINDS
        ("died_kind", U8),  # null: likewise
        ("alignment", U8),  # binary logarithm; 0: none was asked for
        ("weight", pa.float64()),
    ]
)
# The course of memory. `resident` and `resident_anonymous` are null where they were not looked at.
MEMORY = _schema(native.MEMORY)
THREADS = pa.schema(
    [
        ("thread", U32),
        ("tid", pa.int32()),
        ("name", pa.string()),
        ("events", U64),
        ("first_ns", U64),
        ("last_ns", U64),
    ]
)
FLOW = _schema(native.FLOW)
# A site is a call: where it returns to, and the site that its function was called from.
SITES = pa.schema(
    [
        ("site", U32),
        ("caller", U32),  # 0: none
        ("address", U64),
        ("module", pa.string()),  # path; null: not known
        ("offset", U64),  # in the module's file
        ("function", pa.string()),  # null: not known
        ("file", pa.string()),
        ("line", U32),
        *_schema(native.SITE_TOTALS),
    ]
)
# The numbers of `born_kind` and `died_kind`.
KINDS = ("free", "malloc", "calloc", "realloc", "aligned", "new", "new_aligned", "delete")
# Beside the tables: `summary.json`, of the trace's INFO, END, totals and problems.
FILES = {"objects": OBJECTS, "memory": MEMORY, "threads": THREADS, "flow": FLOW, "sites": SITES}
