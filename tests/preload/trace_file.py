"""Reads recordings by their description alone, docs/trace-format.md: a second reader of the format.

Slow and strict: what the recorder writes has to be right to the last byte, but for a file that was
cut short, which may end in the middle of a block.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow

FILE_HEADER = struct.Struct("<8sHHI")
BLOCK_HEADER = struct.Struct("<IBBHIIIIQQII")
MARK = struct.Struct("<6Q")
MAGIC, BLOCK_MAGIC = b"heapfit\x1a", 0x31424648
INFO, EVENTS, THREAD, MARKS, MODULES, SITES, END = range(1, 8)
SHARED, LIMIT = 8, 9
FREE, MALLOC, CALLOC, REALLOC, ALIGNED, NEW, NEW_ALIGNED, DELETE = range(8)
OTHER, UNIT_BYTE, FAILED, SITE_FOLLOWS = 16, 32, 64, 128
RAW_MAX = 1 << 20
WORD = (1 << 64) - 1


class Event(NamedTuple):
    thread: int
    tick: int
    kind: int
    address: int  # 0: failed
    size: int = 0
    usable: int = 0
    old: int = 0
    lasted: int = 0
    site: int = 0
    alignment: int = 0


class Mark(NamedTuple):
    tick: int
    monotonic_ns: int
    complete_tick: int
    resident: int
    anonymous: int
    lost: int


@dataclass
class Trace:
    info: dict[str, Any] = field(default_factory=dict)
    end: dict[str, Any] | None = None
    threads: dict[int, dict[str, Any]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    modules: list[str] = field(default_factory=list)
    sites: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    limits: list[dict[str, Any]] = field(default_factory=list)
    rest: int = 0  # bytes behind the last whole block

    def sizes(self) -> list[int]:
        """Of all allocations that succeeded, in each thread's order."""
        allocates = {MALLOC, CALLOC, REALLOC, ALIGNED, NEW, NEW_ALIGNED}
        return [event.size for event in self.events if event.kind in allocates and event.address]


class Bytes:
    """A block's payload, read from its start."""

    def __init__(self, payload: bytes) -> None:
        self.payload, self.at = payload, 0

    def byte(self) -> int:
        self.at += 1
        return self.payload[self.at - 1]

    def varint(self) -> int:
        value = shift = 0
        while (byte := self.byte()) & 128:
            value |= (byte & 127) << shift
            shift += 7
        value |= byte << shift
        assert value <= WORD
        return value

    def distance(self, prediction: int, unit: int) -> int:
        coded = self.varint()
        return (prediction + ((coded >> 1) ^ -(coded & 1)) * unit) & WORD

    def ended(self) -> bool:
        return self.at == len(self.payload)


class Decoder:
    """One block's events: what is predicted begins anew with each."""

    def __init__(self, thread: int, tick: int, payload: bytes) -> None:
        self.thread, self.tick, self.bytes = thread, tick, Bytes(payload)
        self.freed = self.allocated = 0
        self.addresses, self.sites = [0] * 64, [0] * 64

    def events(self) -> list[Event]:
        events = []
        while not self.bytes.ended():
            events.append(self.event())
        return events

    def event(self) -> Event:
        first = self.bytes.byte()
        self.tick = (self.tick + self.bytes.varint()) & WORD
        kind = first & 15
        if kind in {FREE, DELETE}:
            self.freed = self.old(first)
            return Event(self.thread, self.tick, kind, self.freed)
        assert kind <= DELETE
        return self.realloc(first) if kind == REALLOC else self.allocation(first, kind)

    def old(self, first: int) -> int:
        prediction = self.allocated if first & OTHER else self.freed
        return self.bytes.distance(prediction, 1 if first & UNIT_BYTE else 8)

    def block(self, first: int) -> tuple[int, int, int, int]:
        size = self.bytes.varint()
        context = min((size + 15 & WORD) // 16, 63)
        slack = 0 if first & FAILED else self.bytes.varint()
        if first & SITE_FOLLOWS:
            self.sites[context] = self.bytes.varint()
        return size, size + slack, self.sites[context], context

    def allocation(self, first: int, kind: int) -> Event:
        alignment = self.bytes.varint() if kind in {ALIGNED, NEW_ALIGNED} else 0
        size, usable, site, context = self.block(first)
        address = 0
        if first & FAILED:
            usable = 0
        else:
            prediction = self.freed if first & OTHER else self.addresses[context]
            address = self.bytes.distance(prediction, 1 if first & UNIT_BYTE else 8)
            self.allocated = self.addresses[context] = address
        return Event(self.thread, self.tick, kind, address, size, usable, 0, 0, site, alignment)

    def realloc(self, first: int) -> Event:
        old = self.old(first)
        size, usable, site, context = self.block(first)
        address = 0
        if first & FAILED:
            usable = 0
        else:
            address = self.bytes.distance(old, 1)
            self.freed, self.allocated, self.addresses[context] = old, address, address
        lasted = self.bytes.varint()
        return Event(self.thread, self.tick, REALLOC, address, size, usable, old, lasted, site)


def read_trace(path: Path) -> Trace:
    content = path.read_bytes()
    magic, version, at, reserved = FILE_HEADER.unpack_from(content)
    assert (magic, version, at, reserved) == (MAGIC, 2, FILE_HEADER.size, 0)
    trace = Trace()
    number = 0
    while at + BLOCK_HEADER.size <= len(content):
        header = BLOCK_HEADER.unpack_from(content, at)
        stored = header[4]
        block = content[at : at + BLOCK_HEADER.size + stored]
        if len(block) < BLOCK_HEADER.size + stored:
            break
        _take(trace, header, block, number)
        at += len(block)
        number += 1
    trace.rest = len(content) - at
    return trace


def _take(trace: Trace, header: tuple[int, ...], block: bytes, number: int) -> None:
    magic, kind, codec, reserved, _, raw, thread, events, first, last, sequence, checksum = header
    assert (magic, reserved, sequence) == (BLOCK_MAGIC, 0, number)
    without_sum = block[: BLOCK_HEADER.size - 4] + bytes(4) + block[BLOCK_HEADER.size :]
    assert zlib.crc32(without_sum) == checksum
    assert raw <= RAW_MAX
    assert (kind == INFO) == (number == 0)
    assert trace.end is None, "a block stands behind the end"
    payload = block[BLOCK_HEADER.size :]
    if codec == 1:
        payload = pyarrow.Codec("zstd").decompress(payload, raw, asbytes=True)
    assert len(payload) == raw
    if kind == EVENTS:
        decoded = Decoder(thread, first, payload).events()
        assert (len(decoded), decoded[-1].tick, thread in trace.threads) == (events, last, True)
        assert all(event.site < len(trace.sites) for event in decoded)
        trace.events += decoded
    elif kind == SHARED:
        decoded = _sections(trace, first, payload)
        assert (len(decoded), max(event.tick for event in decoded)) == (events, last)
        trace.events += decoded
    elif kind == SITES:
        assert thread == len(trace.sites)
        source = Bytes(payload)
        while not source.ended():
            caller = source.varint()
            assert caller < len(trace.sites)
            trace.sites.append((caller, source.varint()))
    else:
        _take_other(trace, kind, payload)


def _sections(trace: Trace, first: int, payload: bytes) -> list[Event]:
    """The events of a block that several threads share."""
    source, found, sections = Bytes(payload), [], 0
    while not source.ended():
        thread, tick, size = source.varint(), source.distance(first, 1), source.varint()
        part = payload[source.at : source.at + size]
        source.at += size
        assert (thread in trace.threads, len(part)) == (True, size)
        decoded = Decoder(thread, tick, part).events()
        assert all(event.site < len(trace.sites) for event in decoded)
        found += decoded
        sections += 1
    assert sections > 1, "a block of its own would do"
    return found


def _take_other(trace: Trace, kind: int, payload: bytes) -> None:
    if kind == INFO:
        trace.info = json.loads(payload)
    elif kind == THREAD:
        thread = json.loads(payload)
        trace.threads[thread["thread"]] = thread
    elif kind == MARKS:
        trace.marks.append(Mark(*MARK.unpack(payload)))
    elif kind == MODULES:
        trace.modules = payload.decode().splitlines()
    elif kind == LIMIT:
        trace.limits.append(json.loads(payload))
    else:
        assert kind == END
        trace.end = json.loads(payload)
