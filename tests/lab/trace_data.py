"""Traces with known answers, for tests of whatever reads traces.

A `Program` never ran: its calls are made here, on a clock of its own, with addresses from a small
allocator of its own. `Answers` are what must be found in its trace, worked out in plain Python
from the list of events, apart from all that is tested. `Program.write` makes the trace (`.hft`),
`tables` the rows that it must become, `service()` is a program with a bit of everything: several
threads, call sites, reallocs, frees by other threads, bursts, leaks.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from heapfit.profile import analyse
from heapfit.profile.model import Profile
from heapfit.trace import native
from heapfit.trace.convert import convert
from heapfit.trace.native import CALLOC, DELETE, FREES, MALLOC, NEW, REALLOC, Event, Mark, Totals
from profile_tables import Block

PAGE = 4096
HEAP = 0x7F12_3450_0000
CODE = 0x5555_5555_0000
MODULES = [
    f"{CODE:x} {CODE + 0x10000:x} 1000 /opt/service/bin/service",
    f"{HEAP - 0x200000:x} {HEAP - 0x100000:x} 28000 /usr/lib/libc.so.6",
]
INFO: dict[str, Any] = {
    "heapfit": "0.0",
    "format": 1,
    "pid": 4711,
    "parent": 1,
    "program": "/opt/service/bin/service",
    "arguments": ["service", "--config", "/etc/secret.conf"],
    "arch": "x86_64",
    "pointer_bytes": 8,
    "page_size": PAGE,
    "cores": 2,
    "allocator": "/usr/lib/libc.so.6",
    "sample": 0,
    "sites": 8,
    "started_unix_ns": 1_700_000_000_000_000_000,
    "ticks_per_second_guess": 1_000_000_000,
    "file_number": 1,
}
END = {"reason": "exit"}

_CALL_NS = 40  # between two calls
_GRANULE = 16


# --------------------------------------------------------------------------------- the program


@dataclass
class Program:
    """What a program did with its heap: every call takes the clock a little further."""

    info: dict[str, Any] = field(default_factory=lambda: dict(INFO))
    ns: int = 0
    names: list[str] = field(default_factory=list)  # of threads, by number
    sites: list[tuple[int, int]] = field(default_factory=list)  # caller, address; the first is 1
    calls: list[tuple[int, Event]] = field(default_factory=list)  # thread, event
    marks: list[Mark] = field(default_factory=list)
    _free: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    _rooms: dict[int, int] = field(default_factory=dict)  # of live blocks, by address
    _next: int = HEAP

    def thread(self, name: str) -> int:
        self.names.append(name)
        return len(self.names) - 1

    def site(self, offset: int, caller: int = 0) -> int:
        """Make a call site in the program's code; return its number."""
        self.sites.append((caller, CODE + offset))
        return len(self.sites)

    def malloc(
        self, thread: int, size: int, site: int = 0, kind: int = MALLOC, alignment: int = 0
    ) -> int:
        address = self._take(size, 1 << alignment)
        usable = self._rooms[address]
        self._note(
            thread, kind, address=address, size=size, usable=usable, site=site, alignment=alignment
        )
        return address

    def free(self, thread: int, address: int, kind: int = native.FREE) -> None:
        """Free a block, or one that was never seen before."""
        room = self._rooms.pop(address, None)
        if room is not None:
            self._free[room].append(address)
        self._note(thread, kind, address=address)

    def realloc(self, thread: int, old: int, size: int, site: int) -> int:
        """Move a block into another size; in place where its room is enough. Return the address."""
        room = self._rooms.get(old, 0)
        if size <= room:
            address = old
        else:
            address = self._take(size, 1)
            self._rooms.pop(old, None)
            self._free[room].append(old)
        usable = self._rooms[address]
        what = {"address": address, "old": old, "size": size, "usable": usable, "site": site}
        self._note(thread, REALLOC, **what, lasted_ns=15)
        return address

    def fail(self, thread: int, size: int) -> None:
        self._note(thread, MALLOC, size=size)

    def wait(self, ns: int) -> None:
        self.ns += ns

    def mark(self) -> None:
        """Note how much memory is resident: what the allocator took so far."""
        grown = self._next - HEAP + 64 * PAGE
        self.ns += _CALL_NS
        self.marks.append(Mark(self.ns, grown, grown - 16 * PAGE))

    def write(self, path: Path, end: dict[str, Any] | None = None) -> Path:
        with native.Writer(path, self.info) as writer:
            for index, name in enumerate(self.names):
                writer.thread(index, self.info["pid"] + index, name)
            for caller, address in self.sites:
                writer.site(caller, address)
            writer.modules(MODULES)
            self._write_events(writer)
            writer.end = END if end is None else end
        return path

    def _write_events(self, writer: native.Writer) -> None:
        marks = iter([*self.marks, None])
        mark = next(marks)
        for thread, event in self.calls:
            while mark is not None and mark.ns <= event.ns:
                writer.mark(mark)
                mark = next(marks)
            writer.event(thread, event)
        while mark is not None:
            writer.mark(mark)
            mark = next(marks)

    def _note(self, thread: int, kind: int, **what: int) -> None:
        self.ns += _CALL_NS
        self.calls.append((thread, Event(self.ns, kind, **what)))

    def _take(self, size: int, alignment: int) -> int:
        room = max(_GRANULE, -(-size // _GRANULE) * _GRANULE)
        if alignment <= _GRANULE and self._free[room]:
            address = self._free[room].pop()
        else:
            address = -(-self._next // alignment) * alignment
            self._next = address + room
        self._rooms[address] = room
        return address


# --------------------------------------------------------------------------------- the answers


class Answers:
    """What must be found in a list of events."""

    def __init__(self, calls: Sequence[tuple[int, Event]]) -> None:
        self.dead: list[Block] = []  # in order of death
        self.live: dict[int, Block] = {}  # by address, in order of birth
        self.sites: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._counts: dict[str, int] = defaultdict(int)
        self._live_bytes = 0
        self._born = 0
        self._last_site: dict[tuple[int, int], int] = {}
        for thread, event in calls:
            self._take(thread, event)

    @property
    def blocks(self) -> list[Block]:
        """All objects as they are given out: in order of death, then those that live."""
        return [*self.dead, *sorted(self.live.values(), key=lambda block: block.id)]

    @property
    def totals(self) -> Totals:
        ends = {"end_bytes": self._live_bytes, "end_objects": len(self.live)}
        return Totals(**{**self._counts, **ends})

    def flow(self) -> dict[tuple[int, int], tuple[int, int]]:
        """Blocks and bytes by the thread that allocated and the thread that freed."""
        found: dict[tuple[int, int], tuple[int, int]] = {}
        for block in self.dead:
            assert block.died_thread is not None
            way = (block.born_thread, block.died_thread)
            blocks, size = found.get(way, (0, 0))
            found[way] = (blocks + 1, size + block.size)
        return found

    def _take(self, thread: int, event: Event) -> None:
        self._counts["events"] += 1
        if event.kind in FREES:
            self._counts["frees"] += 1
            self._die(thread, event.address, event.ns, event.kind)
        elif event.address == 0:
            self._counts["failed"] += 1
        else:
            self._allocate(thread, event)

    def _allocate(self, thread: int, event: Event) -> None:
        previous = None
        if event.kind == REALLOC:
            self._counts["reallocs"] += 1
            self._counts["reallocs_in_place"] += event.old == event.address
            previous = self._die(thread, event.old, event.ns + event.lasted_ns, REALLOC)
        if event.address in self.live:
            self._counts["replaced"] += 1
            self._die(thread, event.address, event.ns, event.kind)
        self._counts["allocations"] += 1
        self._counts["bytes"] += event.size
        self._born += 1
        self.live[event.address] = Block(
            id=self._born,
            previous=previous.id if previous else 0,
            address=event.address,
            size=event.size,
            usable=event.usable,
            born_ns=event.ns + event.lasted_ns,
            born_bytes=self._counts["bytes"],
            born_thread=thread,
            site=event.site,
            born_kind=event.kind,
            alignment=event.alignment,
        )
        self._grow(event)
        self._count_site(thread, event)

    def _grow(self, event: Event) -> None:
        self._live_bytes += event.size
        if self._live_bytes > self._counts["peak_bytes"]:
            self._counts["peak_bytes"] = self._live_bytes
            self._counts["peak_objects"] = len(self.live)
            self._counts["peak_ns"] = event.ns + event.lasted_ns

    def _die(self, thread: int, address: int, ns: int, kind: int) -> Block | None:
        block = self.live.pop(address, None)
        if block is None:
            self._counts["unmatched_frees"] += 1
            return None
        block.died_ns, block.died_bytes = ns, self._counts["bytes"]
        block.died_thread, block.died_kind = thread, kind
        self._live_bytes -= block.size
        self.sites[block.site]["live_bytes"] -= block.size
        self.sites[block.site]["live_objects"] -= 1
        self.dead.append(block)
        return block

    def _count_site(self, thread: int, event: Event) -> None:
        site = self.sites[event.site]
        context = (thread, min(63, (event.size + 15) // 16))
        site["allocations"] += 1
        site["bytes"] += event.size
        site["live_bytes"] += event.size
        site["live_objects"] += 1
        site["peak_live_bytes"] = max(site["peak_live_bytes"], site["live_bytes"])
        site["switches"] += self._last_site.get(context, event.site) != event.site
        self._last_site[context] = event.site


# ---------------------------------------------------------------------------------- the tables


def tables(program: Program, answers: Answers) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of the tables that the program's trace must become, by table."""
    return {
        "objects": [vars(block) for block in answers.blocks],
        "threads": _threads(program),
        "flow": [
            {"born_thread": born, "died_thread": died, "blocks": blocks, "bytes": size}
            for (born, died), (blocks, size) in sorted(answers.flow().items())
        ],
        "sites": [_site(program, answers, number) for number in range(1, len(program.sites) + 1)],
    }


def _threads(program: Program) -> list[dict[str, Any]]:
    rows = []
    for index, name in enumerate(program.names):
        times = [event.ns for thread, event in program.calls if thread == index]
        rows.append(
            {
                "thread": index,
                "tid": program.info["pid"] + index,
                "name": name,
                "events": len(times),
                "first_ns": min(times, default=0),
                "last_ns": max(times, default=0),
            }
        )
    return rows


def _site(program: Program, answers: Answers, number: int) -> dict[str, Any]:
    caller, address = program.sites[number - 1]
    counted = ("allocations", "bytes", "switches", "live_bytes", "live_objects", "peak_live_bytes")
    return {
        "site": number,
        "caller": caller,
        "address": address,
        "module": "/opt/service/bin/service",
        "offset": address - CODE + 0x1000,
        "function": None,
        "file": None,
        "line": None,
        **{name: answers.sites[number][name] for name in counted},
    }


# --------------------------------------------------------------------------------- the service


class _Service:
    """Workers that serve requests, a logger that frees what they hand over, and a cache."""

    def __init__(self, program: Program, seed: int) -> None:
        self.program = program
        self.random = random.Random(seed)
        self.main = program.thread("service")
        self.workers = [program.thread(f"worker-{i}") for i in range(1, 4)]
        self.logger = program.thread("logger")
        top = program.site(0x100)
        serve = program.site(0x200, top)
        self.sites = {
            name: program.site(0x1000 + 0x40 * i, serve)
            for i, name in enumerate(("parse", "node", "text", "buffer", "line", "item"))
        }
        self.sites["start"] = program.site(0x300, top)
        self.lines: list[int] = []  # handed to the logger
        self.cache: list[int] = []

    def start(self) -> None:
        """Allocate what lives as long as the program."""
        for i in range(200):
            kind = CALLOC if i % 10 == 0 else MALLOC
            self.program.malloc(self.main, 24 + 8 * (i % 30), self.sites["start"], kind)
        for alignment in (6, 12):
            self.program.malloc(
                self.main, 1000, self.sites["start"], native.ALIGNED, alignment=alignment
            )
        self.program.fail(self.main, 1 << 50)
        self.program.free(self.main, HEAP - 4096)  # was there before the recording

    def request(self, worker: int) -> Iterator[None]:
        """Serve one request, in steps: nearly all that it allocates dies at its end."""
        program, sites = self.program, self.sites
        buffer = program.malloc(worker, 64, sites["buffer"])
        held = [program.malloc(worker, 512, sites["parse"], CALLOC)]
        for i in range(self.random.randint(20, 60)):
            site = "node" if self.random.random() < 0.7 else "text"
            size, kind = (48, NEW) if site == "node" else (self.random.randint(1, 300), MALLOC)
            held.append(program.malloc(worker, size, sites[site], kind))
            if i % 8 == 7:
                buffer = program.realloc(worker, buffer, 64 + 40 * i, sites["buffer"])
            if i % 3 == 0:
                self._drop(worker, held)
            yield
        self._keep(worker)
        for address in held:
            program.free(worker, address)
        program.free(worker, buffer)

    def _drop(self, worker: int, held: list[int]) -> None:
        self.program.free(worker, held.pop(self.random.randrange(len(held))))

    def _keep(self, worker: int) -> None:
        """Hand a line to the logger, and put an item into the cache in place of another."""
        size = self.random.randint(60, 200)
        self.lines.append(self.program.malloc(worker, size, self.sites["line"]))
        self.cache.append(self.program.malloc(worker, 128, self.sites["item"], NEW))
        if len(self.cache) > 40:
            victim = self.cache.pop(self.random.randrange(len(self.cache)))
            self.program.free(worker, victim, DELETE)

    def log(self) -> None:
        for address in self.lines:
            self.program.free(self.logger, address)
        self.lines.clear()


def service(requests: int = 120, seed: int = 1) -> Program:
    """Return a program that starts, serves so many requests in bursts, and ends with leaks."""
    program = Program()
    made = _Service(program, seed)
    made.start()
    program.mark()
    running: dict[int, Iterator[None]] = {}
    begun = 0
    while begun < requests or running:
        for worker in made.workers:
            if worker not in running and begun < requests:
                running[worker] = made.request(worker)
                begun += 1
        while running:  # to the end of all, in turns: a burst
            worker = made.random.choice(list(running))
            if next(running[worker], running) is running:
                del running[worker]
        made.log()
        program.wait(200_000)
        if begun % 15 == 0:
            program.mark()
    program.mark()
    return program


def sampled(program: Program, mean: int, seed: int = 1) -> Program:
    """Return what a recorder would have noted of `program` at one point each `mean` bytes."""
    points = random.Random(seed)
    left: dict[int, float] = defaultdict(lambda: points.expovariate(1 / mean))
    noted: set[int] = set()
    calls: list[tuple[int, Event]] = []
    for thread, event in program.calls:
        was = event.old if event.kind == REALLOC else event.address
        if event.kind in FREES or event.kind == REALLOC:
            known = was in noted
            noted.discard(was)
            if known:
                calls.append((thread, Event(event.ns, native.FREE, address=was)))
        if event.kind not in FREES and event.address:
            left[thread] -= max(event.size, 1)
            if left[thread] < 0:
                left[thread] = points.expovariate(1 / mean)
                noted.add(event.address)
                as_new = replace(event, kind=MALLOC, old=0) if event.kind == REALLOC else event
                calls.append((thread, replace(as_new, ns=event.ns + event.lasted_ns, lasted_ns=0)))
    return replace(program, info={**program.info, "sample": mean}, calls=calls)


def server(folder: Path) -> Profile:
    """Workers with requests, whose lines another thread frees, with call sites: needs nothing."""
    trace = service(400).write(folder / "server.hft")
    convert(trace, folder / "server.tables")
    return analyse.profile(analyse.count(folder / "server.tables"))
