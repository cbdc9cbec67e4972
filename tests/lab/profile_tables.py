"""Converted traces with known answers: folders of tables, written from lists of objects."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from heapfit.profile import analyse
from heapfit.profile.model import Profile
from heapfit.trace.schema import FILES, FLOW, KINDS, MEMORY, OBJECTS, SITES, THREADS

FREE, MALLOC, CALLOC, REALLOC = (KINDS.index(kind) for kind in KINDS[:4])


@dataclass
class Block:
    """A row of `objects`."""

    size: int
    born_ns: int
    died_ns: int | None = None
    born_thread: int = 0
    died_thread: int | None = None
    born_kind: int = MALLOC
    died_kind: int | None = None
    site: int = 0
    usable: int = 0
    address: int = 0
    id: int = 0
    previous: int = 0
    born_bytes: int = 0
    died_bytes: int | None = None
    alignment: int = 0
    weight: float = 1.0


@dataclass
class SiteRow:
    """A row of `sites`; what is counted of it follows from the blocks unless it is given."""

    site: int
    function: str | None = None
    caller: int = 0
    address: int = 0x1000
    module: str | None = "/usr/bin/program"
    offset: int | None = 0x10
    file: str | None = None
    line: int | None = None
    switches: int = 0


@dataclass
class Tables:
    """A trace to write."""

    blocks: list[Block]
    threads: Sequence[str] = ("main",)
    sites: Sequence[SiteRow] = ()
    resident: Mapping[int, int] = field(default_factory=dict)  # by ns
    anonymous: Mapping[int, int] = field(default_factory=dict)  # of it, by ns
    modules: Sequence[str] = ()
    changed: Sequence[str] = ()
    info: Mapping[str, Any] = field(default_factory=dict)
    problems: Mapping[str, int] = field(default_factory=dict)
    totals: Mapping[str, int] = field(default_factory=dict)
    unmatched_early: int = 0  # of its unmatched frees, those before any allocation
    end: Mapping[str, Any] = field(default_factory=lambda: {"reason": "exit"})

    @property
    def duration_ns(self) -> int:
        return max(max(each.born_ns, each.died_ns or 0) for each in self.blocks)


def complete(blocks: Iterable[Block]) -> list[Block]:
    """Return the blocks with what follows from their times: numbers, the clock of bytes, who freed.

    Those that are born at one time are so in the order of the list.
    """
    known = sorted(blocks, key=lambda block: block.born_ns)
    asked, clock, end = 0, [], 0x10000
    for number, block in enumerate(known, 1):
        block.id = block.id or number
        block.usable = block.usable or (block.size + 15) // 16 * 16
        # Side by side, as a new heap has them.
        block.address = block.address or end
        end = max(end, block.address + block.usable)
        asked += block.size
        block.born_bytes = asked
        clock.append((block.born_ns, asked))
    for block in known:
        if block.died_ns is not None:
            block.died_bytes = bytes_at(clock, block.died_ns)
            if block.died_thread is None:
                block.died_thread = block.born_thread
            if block.died_kind is None:
                block.died_kind = FREE
    return known


def bytes_at(clock: Sequence[tuple[int, int]], ns: int) -> int:
    low, high = 0, len(clock)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if clock[middle][0] <= ns else (low, middle)
    return clock[low - 1][1] if low else 0


def write(folder: Path, tables: Tables) -> Path:
    """Write the folder that converting a trace would have written; return it."""
    folder.mkdir(parents=True)
    rows = [asdict(block) for block in tables.blocks]
    _write(folder, "objects", OBJECTS, rows)
    _write(folder, "memory", MEMORY, _memory(tables))
    _write(folder, "threads", THREADS, _threads(tables))
    _write(folder, "flow", FLOW, [])
    _write(folder, "sites", SITES, _sites(tables))
    peak_ns, peak_bytes = peak_of(tables.blocks)
    info = {"program": "/usr/bin/program", "arguments": ["program"], "pid": 7, **tables.info}
    totals = {"events": 2 * len(rows), "peak_ns": peak_ns, "peak_bytes": peak_bytes}
    summary = {
        "file": f"{folder.name}.hft",
        "info": info,
        "end": dict(tables.end),
        "totals": {**totals, **tables.totals},
        "problems": dict(tables.problems),
        "modules": list(tables.modules),
        "changed": list(tables.changed),
        "duration_ns": tables.duration_ns,
    }
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def peak_of(blocks: Iterable[Block]) -> tuple[int, int]:
    """Return when most bytes were live, and how many, by going through all births and deaths."""
    changes = []
    for block in blocks:
        changes.append((block.born_ns, 1, block.size))
        if block.died_ns is not None:
            changes.append((block.died_ns, 0, -block.size))
    best, live = (0, 0), 0
    for ns, _, change in sorted(changes):
        live += change
        if live > best[1]:
            best = (ns, live)
    return best


def _write(folder: Path, name: str, schema: pa.Schema, rows: list[dict[str, Any]]) -> None:
    assert FILES[name] is schema
    pq.write_table(pa.Table.from_pylist(rows, schema), folder / f"{name}.parquet")


def _memory(tables: Tables) -> list[dict[str, Any]]:
    zeros = dict.fromkeys(MEMORY.names, 0)
    unknown = {"resident": None, "resident_anonymous": None}
    return [
        {**zeros, **unknown, "unmatched_frees": tables.unmatched_early},
        *(
            {**zeros, "ns": ns, "resident": most, "resident_anonymous": tables.anonymous.get(ns, 0)}
            for ns, most in tables.resident.items()
        ),
    ]


def _threads(tables: Tables) -> list[dict[str, Any]]:
    events = [0] * len(tables.threads)
    for block in tables.blocks:
        events[block.born_thread] += 1
    return [
        {"thread": i, "tid": 100 + i, "name": name, "events": n, "first_ns": 0, "last_ns": 0}
        for i, (name, n) in enumerate(zip(tables.threads, events, strict=True))
    ]


def _sites(tables: Tables) -> list[dict[str, Any]]:
    rows = []
    for site in tables.sites:
        own = [block for block in tables.blocks if block.site == site.site]
        counts = {"allocations": len(own), "bytes": sum(block.size for block in own)}
        zeros = {"live_bytes": 0, "live_objects": 0, "peak_live_bytes": 0}
        rows.append({**asdict(site), **counts, **zeros})
    return rows


# ------------------------------------------------------------------- programs


def random_blocks(seed: int, count: int, threads: int = 3, sites: int = 0) -> list[Block]:
    """Return a program of no rhythm: many sizes, some that live on, some that others free."""
    draw = random.Random(seed)
    sizes = [8, 24, 24, 24, 48, 100, 1000, 5000, 70_000, 300_001]
    blocks = []
    for number in range(count):
        born = number * 100
        lived = int(10 ** draw.uniform(1, 7))
        died = born + lived if draw.random() < 0.9 and born + lived < count * 100 else None
        thread = draw.randrange(threads)
        block = Block(
            size=draw.choice(sizes) + draw.randrange(4),
            born_ns=born,
            died_ns=died,
            born_thread=thread,
            born_kind=draw.choice([MALLOC, MALLOC, CALLOC, 5]),
            site=draw.randrange(sites) + 1 if sites else 0,
        )
        if died is not None and draw.random() < 0.25:
            block.died_thread = draw.randrange(threads)
        blocks.append(block)
    return complete(blocks)


def requests(number: int, objects: int, kept: int) -> list[Block]:
    """Return a server's course: each request allocates `objects`, of which `kept` are not freed."""
    blocks = []
    now = 0
    for _ in range(number):
        end = now + objects * 1000
        for i in range(objects):
            born = now + i * 1000
            died = None if i < kept else min(end, born + 1000 * (objects // 2))
            blocks.append(Block(64, born, died))
        now = end + 100_000
    return blocks


def sampled(blocks: Iterable[Block], mean: int, seed: int) -> list[Block]:
    """Return the blocks that a recorder would note that draws a byte every `mean`, weighted."""
    draw = random.Random(seed)
    noted = []
    for block in blocks:
        probability = 1 - math.exp(-block.size / mean)
        if draw.random() < probability:
            block.weight = 1 / probability
            noted.append(block)
    return noted


def each(blocks: Iterable[Block], chosen: Callable[[Block], bool]) -> tuple[int, int]:
    own = [block.size for block in blocks if chosen(block)]
    return len(own), sum(own)


# ------------------------------------------------------------------- profiles


def profile_of(folder: Path, tables: Tables) -> Profile:
    return analyse.profile(analyse.count(write(folder, tables)))


def changed(record: Any, **update: Any) -> Any:
    """The record with other fields. `a__b` is field `b` of field `a`."""
    for path, value in update.items():
        first, _, rest = path.partition("__")
        new = changed(getattr(record, first), **{rest: value}) if rest else value
        record = record.model_copy(update={first: new})
    return record


def as_recorded(profile: Profile, **update: Any) -> Profile:
    """The profile with recordings that differ so."""
    found: Profile = changed(
        profile, recordings=[changed(each, **update) for each in profile.recordings]
    )
    return found
