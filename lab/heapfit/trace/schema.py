"""The tables that a trace becomes: their columns, as Parquet files in one folder.

`objects.parquet` is written while the trace is read, in row groups, in order of death; the other
tables are small. Times are nanoseconds since the trace's start, sizes bytes.
"""

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


def _kinds(first: int, last: int) -> str:
    return ", ".join(f"{number} {KINDS[number]}" for number in range(first, last + 1))


# What each column holds, in the order of the columns: docs/reference.md is made of it.
MEANINGS = {
    "objects": {
        "id": "Number of the block by order of birth, from 1. A reallocation makes another block.",
        "previous": "`id` of the block that a reallocation made this one of; 0: none.",
        "address": "Where the block is.",
        "size": "Bytes that the program asked for.",
        "usable": "Bytes that the allocator gave.",
        "born_ns": "When it was allocated.",
        "died_ns": "When it was freed or reallocated; NULL: live at the end.",
        "born_bytes": "Bytes that the program had asked for then, those of the block included.",
        "died_bytes": "The same when it was freed; NULL: live at the end.",
        "born_thread": "`thread` that allocated it.",
        "died_thread": "`thread` that freed it; NULL: live at the end.",
        "site": "`site` that allocated it; 0: not recorded.",
        "born_kind": f"How it was allocated: {_kinds(1, 6)}.",
        "died_kind": f"How it was freed: {_kinds(0, 0)}, {_kinds(3, 3)}, {_kinds(7, 7)}; NULL: "
        "live at the end.",
        "alignment": "Binary logarithm of the alignment that was asked for; 0: none.",
        "weight": "Blocks of the program that it stands for: 1, or more in a sample.",
    },
    "memory": {
        "ns": "When; a row for each step of time, of 1 ms or more, in which anything happened.",
        "live_bytes": "Bytes live then.",
        "live_objects": "Blocks live then.",
        "resident": "Resident bytes of the process; NULL: not looked at.",
        "resident_anonymous": "Of these, anonymous memory; NULL: not looked at.",
        "allocated_bytes": "Bytes asked for until then.",
        "allocations": "Allocations until then.",
        "frees": "Frees until then.",
        "unmatched_frees": "Frees and reallocations until then of blocks that are not in the "
        "recording, such as those from before it.",
    },
    "threads": {
        "thread": "Number of the thread in this recording, from 0.",
        "tid": "Its number in the system.",
        "name": "Its name.",
        "events": "Calls that it made.",
        "first_ns": "When it made the first.",
        "last_ns": "When it made the last.",
    },
    "flow": {
        "born_thread": "`thread` that allocated.",
        "died_thread": "`thread` that freed.",
        "blocks": "Blocks that the one allocated and the other freed.",
        "bytes": "Their bytes.",
    },
    "sites": {
        "site": "Number of the call site, from 1.",
        "caller": "`site` that its function was called from; 0: none.",
        "address": "Where the call returns to.",
        "module": "Path of the program or library; NULL: not known.",
        "offset": "The address in that file.",
        "function": "Function that calls; NULL: not known.",
        "file": "Its source file; NULL: not known.",
        "line": "The line there; NULL: not known.",
        "allocations": "Allocations that it made itself.",
        "bytes": "Bytes that it asked for itself.",
        "switches": "Of these allocations, those that came after another site's in their thread.",
        "live_bytes": "Bytes of it that are live at the end.",
        "live_objects": "Blocks of it that are live at the end.",
        "peak_live_bytes": "Most bytes of it that were live at once.",
    },
}
