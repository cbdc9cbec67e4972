"""Events for tests of the replay, plans of them, and plans read back."""

from __future__ import annotations

import random
import struct
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "lab" / "heapfit" / "replay" / "native"
PLAYER_SOURCES = [NATIVE / f"{name}.c" for name in ("replay", "play", "wait", "memory", "age")]
PLAN_SOURCES = [NATIVE / f"{name}.c" for name in ("plan", "blocks", "slots")]
EVENTS_SOURCE = Path(__file__).with_name("replay_events.c")
COUNTER_SOURCE = Path(__file__).with_name("replay_counter.c")
# With the headers, and the flags below.
COMPILED_FROM = [
    *(Path(__file__), EVENTS_SOURCE, COUNTER_SOURCE),
    *(NATIVE, ROOT / "lab" / "heapfit" / "trace" / "native", ROOT / "allocator" / "record"),
]

FLAGS = ["-std=c17", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-fno-builtin", "-pthread"]
FOLDERS = [f"-I{NATIVE}", f"-I{ROOT / 'allocator'}"]

FREE, MALLOC, CALLOC, REALLOC, ALIGNED, NEW, NEW_ALIGNED, DELETE = range(8)
START, PACE, JUMP, END = range(8, 12)
STEP = 1024


@dataclass(frozen=True)
class Event:
    """As the planner takes it; an alignment is a binary logarithm."""

    ns: int
    thread: int
    kind: int
    address: int
    old: int = 0
    size: int = 0
    alignment: int = 0
    lasted_ns: int = 0

    def __str__(self) -> str:
        numbers = (self.kind, self.address, self.old, self.size, self.alignment)
        return " ".join(map(str, (self.ns, self.lasted_ns, self.thread, *numbers)))


def compiled(sources: Iterable[Path], target: Path, *flags: str) -> Path:
    command = ["gcc", *FLAGS, *FOLDERS, *flags, *map(str, sources), "-o", str(target)]
    subprocess.run(command, check=True)
    return target


@dataclass
class Heap:
    """Addresses as an allocator gives them out: the one freed last comes first."""

    free: dict[int, list[int]] = field(default_factory=dict)
    top: int = 1 << 20

    def take(self, size: int) -> int:
        rounded = max(16, (size + 15) // 16 * 16)
        freed = self.free.setdefault(rounded, [])
        if freed:
            return freed.pop()
        self.top += rounded
        return self.top - rounded

    def give(self, address: int, size: int) -> None:
        self.free.setdefault(max(16, (size + 15) // 16 * 16), []).append(address)


def random_events(seed: int, *, threads: int, count: int) -> list[Event]:
    """A program of `threads` threads that free and reallocate one another's blocks.

    Half of the threads end on the way and others begin.
    """
    chance = random.Random(seed)
    heap = Heap()
    blocks: list[tuple[int, int, bool]] = []  # address, size, whether of C++
    events = []
    ns = 0
    for number in range(count):
        ns += chance.choice((20, 50, 400, 30_000))
        first = number * threads // (2 * count)
        thread = 0 if chance.random() < 0.2 else first + chance.randrange(threads)
        size = int(chance.choice((8, 24, 100, 3000)) * chance.random() * 2)
        if blocks and chance.random() < len(blocks) / 800:
            address, old_size, is_new = blocks.pop(chance.randrange(len(blocks)))
            if not is_new and chance.random() < 0.2:
                moved = heap.take(size)
                heap.give(address, old_size)
                events.append(Event(ns, thread, REALLOC, moved, address, size))
                blocks.append((moved, size, False))
            else:
                heap.give(address, old_size)
                events.append(Event(ns, thread, DELETE if is_new else FREE, address))
        else:
            kind = chance.choice((MALLOC, MALLOC, CALLOC, ALIGNED, NEW, NEW_ALIGNED))
            alignment = chance.randrange(4, 9) if kind in (ALIGNED, NEW_ALIGNED) else 0
            address = heap.take(size)
            events.append(Event(ns, thread, kind, address, 0, size, alignment))
            blocks.append((address, size, kind in (NEW, NEW_ALIGNED)))
    return events


_HEADER = struct.Struct("<8s4I6Q16Q")
_FIELDS = (
    *("magic", "version", "streams", "main", "slots"),
    *("ops", "course", "course_points", "streams_at", "file_size", "checksum"),
    *("events", "allocations", "frees", "reallocs", "bytes", "duration_ns"),
    *("peak_bytes", "peak_blocks", "peak_order", "peak_look"),
    *("left_blocks", "left_bytes"),
    *("unmatched_frees", "unmatched_reallocs", "lost_frees", "failed"),
)
_OP = struct.Struct("<IIQ")
_STREAM = struct.Struct("<QQII")


@dataclass(frozen=True)
class Op:
    kind: int
    slot: int
    turn: int
    size: int
    alignment: int


@dataclass(frozen=True)
class PlanFile:
    """A plan as a test sees it."""

    content: bytes

    @property
    def header(self) -> dict[str, int]:
        return dict(zip(_FIELDS, _HEADER.unpack_from(self.content), strict=True))

    @property
    def course(self) -> list[int]:
        header = self.header
        return list(
            struct.unpack_from(f"<{header['course_points']}Q", self.content, header["course"])
        )

    def stream(self, number: int) -> list[Op]:
        """A thread's operations, without the ways from chunk to chunk and the end."""
        at = self.header["streams_at"] + number * _STREAM.size
        return list(self._ops(_STREAM.unpack_from(self.content, at)[0]))

    def streams(self) -> list[list[Op]]:
        return [self.stream(number) for number in range(self.header["streams"])]

    def _ops(self, number: int) -> Iterator[Op]:
        while True:
            slot, turn, rest = _OP.unpack_from(self.content, _HEADER.size + number * _OP.size)
            op = Op(rest >> 48 & 0xFF, slot, turn, rest & (1 << 48) - 1, rest >> 56)
            if op.kind == END:
                return
            if op.kind != JUMP:
                yield op
            number = op.size if op.kind == JUMP else number + 1
