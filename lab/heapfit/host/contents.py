"""What is in a process's memory: zeros in huge pages, arenas and free blocks of glibc's malloc.

Some of /proc/PID/mem is read, of what is resident: that neither stops the process nor makes more of
it resident.
"""

from __future__ import annotations

import os
import re
import struct
import time
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from heapfit.host.allocator import is_glibc
from heapfit.host.maps import Mapping

# glibc gives each heap of an arena so much address space, at a multiple of it (malloc/arena.c,
# HEAP_MAX_SIZE with 64-bit addresses).
ARENA = 64 << 20
_HUGE, _PAGE = 2 << 20, 4 << 10
_LOOKED_AT, _PAGES_READ = 4096, 64
_PRESENT = 1 << 63
TOLD_S = 2.0  # what passes between lines on what has been read


def is_readable(folder: Path) -> bool:
    """Whether we may read the memory of a process, as a user who may trace it can."""
    try:
        with _opened(folder / "mem"):
            return True
    except OSError:
        return False


@contextmanager
def _opened(file: Path) -> Iterator[int]:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def untouched(folder: Path, mappings: Sequence[Mapping]) -> float | None:
    """Return how much of the huge pages holds nothing but zeros: what came with them and was never
    written, or was cleared. Looked at are some of them, at equal distances."""
    ranges = [
        range(-(-each.start // _HUGE) * _HUGE, each.end - _HUGE + 1, _HUGE)
        for each in mappings
        if each.huge and each.huge >= each.resident * 3 // 4
    ]
    places = [place for each in ranges for place in _spread(each, _LOOKED_AT)]
    zeros, pages, blank = 0, 0, bytes(_PAGE)
    try:
        with _opened(folder / "pagemap") as pagemap, _opened(folder / "mem") as memory:
            present = [
                place
                for place in _spread(places, _LOOKED_AT)
                if int.from_bytes(os.pread(pagemap, 8, place // _PAGE * 8), "little") & _PRESENT
            ]
            for place in _spread(present, _PAGES_READ):
                content = os.pread(memory, _HUGE, place)
                for at in range(0, len(content), _PAGE):
                    zeros += content[at : at + _PAGE] == blank
                    pages += 1
    except OSError:
        return None
    return zeros / pages if pages else None


def _spread(places: Sequence[int], most: int) -> list[int]:
    """Return so many of them at most, at equal distances."""
    number = min(len(places), most)
    return [places[at * len(places) // number] for at in range(number)]


# An arena (malloc/malloc.c, since glibc 2.32): the lists of small free chunks, whose links are
# mangled by their own addresses; the last chunk of its heap, which has never been handed out; and
# the lists of other free chunks, each a ring that leads through the arena. A chunk has its size in
# the second word, with three bits, and its link in the third.
_ARENA, _FAST, _RINGS = struct.Struct("<16x10QQ8x254Q"), 10, 112
_RING_COUNT = 127
_TOP, _LAST_RING = 96, _RINGS + (_RING_COUNT - 1) * 16
_CHUNK_HEAD = 48  # of a large free chunk: two sizes and four links, which malloc_trim leaves
_IS_PRESENT = bytes(byte >> 7 for byte in range(256))  # of the highest byte of a page's entry
_ENTRIES = 1 << 18  # of pages, read at a time
_LARGEST_DATA = 1 << 20  # of a C library
_IN_USE, _FLAGS = 1, 7  # in a chunk's size: the chunk before is in use
_LEAST, _LARGEST_FAST = 32, 128  # sizes of chunks
_ARENA_STATE = -(-2200 // 16) * 16
_LISTED = 8  # found in a list: our mark
_READ_S, _LISTS = 10.0, 0.6  # for all arenas together; the part of it for lists
_MOST_CHUNKS = 12 << 20  # free ones of an arena: 96 MiB
_BETWEEN_LOOKS = 1 << 14  # at the clock: chunks of a list
_WALKED, _STRIDE_BITS = 1 << 20, 5  # bytes at a time; in which each 32nd chunk is found first
_BLOCK_BITS = 14
_BLOCK, _WORD = 1 << _BLOCK_BITS, (1 << _BLOCK_BITS - 3) - 1  # a block's bytes; a word's place
_MOST_BLOCKS = 12 << 10  # copies that are kept: 192 MiB
# A chunk in a word: its address of 48 bits to the left by these, and its size in 16 bytes.
_AT_BITS, _SIZE_BITS = 16, 20
_LARGEST_PIECE = (1 << _SIZE_BITS) - 1 << 4
_JOINED = 1 << 18  # chunks at a time
_GROWN = 16 << 20  # meanwhile
_LOOKS = 3  # at an arena: a call of malloc may be at its last chunk
# A heap of an arena begins with the arena's address, the heap before, and its size
# (malloc/arena.c); the arena itself lies behind that in its first heap.
_HEAP = struct.Struct("<QQQ")
_LARGEST_HEAD = 256


@dataclass(frozen=True)
class Heap:
    """A heap's free bytes, those that are resident at least. Blocks that caches of threads have
    count as in use. `whole`: all lists of free blocks were read; else more may be free. `nearly`:
    of less than half of the rest it is not known whether it is."""

    free: int = 0
    whole: bool = False
    in_whole_pages: int = 0  # of the free bytes, what malloc_trim(3) returns
    nearly: bool = False

    @property
    def is_rest_used(self) -> bool:
        return self.whole or self.nearly


@dataclass(frozen=True)
class Glibc:
    """What is known of glibc's heaps: the main one, and those of all other arenas."""

    main: Heap = Heap()
    arenas: int = 0
    others: Heap = Heap()


def is_arena(folder: Path, start: int) -> bool:
    """Whether glibc has a heap of an arena at this address; also where that cannot be seen."""
    try:
        with _opened(folder / "mem") as memory:
            return _heap_at(memory, start) is not None
    except (OSError, struct.error):
        return True


def _heap_at(memory: int, start: int) -> tuple[int, int] | None:
    """Return the address of the arena and the size of its heap here; None where there is none."""
    arena, before, size = _HEAP.unpack(os.pread(memory, _HEAP.size, start))
    is_one = 0 < arena % ARENA < _LARGEST_HEAD and not before % ARENA and 0 < size <= ARENA
    return (arena, size) if is_one and size % _PAGE == 0 else None


def glibc(
    folder: Path,
    mappings: Sequence[Mapping],
    arenas: Sequence[Mapping],
    progress: Callable[[str], None],
) -> Glibc:
    """Return what glibc's heaps have: the main one, and those of other arenas, in `arenas`.
    `progress` is told how much has been read, if that takes long."""
    main = [each for each in mappings if each.path == "[heap]"]
    data = [
        each
        for each in mappings
        if each.permissions == "rw-p" and each.path and is_glibc(each.path)
    ]
    if any(each.swapped for each in (*main, *arenas)):  # It would have to be read back.
        return Glibc()
    try:
        with _opened(folder / "mem") as memory, _opened(folder / "pagemap") as pagemap:
            lists = _FreeLists(memory, pagemap, progress)
            found: dict[int, list[tuple[int, int]]] = defaultdict(list)
            looks = (lists.main_arena(data, main) for _ in range(_LOOKS))
            first = next((each for each in looks if each), None)
            if first is not None:
                found[first[0]].append((main[0].start, first[1]))
            for at in (at for each in arenas for at in range(each.start, each.end, ARENA)):
                if (heap := _heap_at(memory, at)) is not None:
                    found[heap[0]].append((_first_chunk(at, heap[0]), at + heap[1]))
            parts = lists.read(found, first and first[0])
            of_main = parts.pop(first[0], None) if first else None
            others = _together(list(parts.values()))
            return Glibc(_together([of_main]) if of_main else Heap(), len(parts), others)
    except (OSError, struct.error, IndexError):
        return Glibc()


Spans = Sequence[tuple[int, int]]  # where heaps begin and end


def _size_of(spans: Spans) -> int:
    return sum(end - start for start, end in spans)


@dataclass(frozen=True)
class _Part:
    """Of an arena: the fields of `Heap`, and the bytes that are not free, or not known to be."""

    free: int
    whole: bool
    in_whole_pages: int
    used: int
    unknown: int


def _together(parts: Sequence[_Part]) -> Heap:
    return Heap(
        sum(each.free for each in parts),
        all(each.whole for each in parts),
        sum(each.in_whole_pages for each in parts),
        nearly=2 * sum(each.unknown for each in parts) < sum(each.used for each in parts),
    )


def _first_chunk(heap: int, arena: int) -> int:
    """Return where the chunks of an arena's heap begin: in its first heap, behind the arena."""
    head = heap + arena % ARENA
    return head + (_ARENA_STATE if head == arena else 0)


class _FreeLists:
    """Reads what arenas have in their lists, each within its part of the time.

    The process goes on meanwhile: a chunk that it has taken may lead anywhere. So each counts once,
    and a list ends where it leads out of the arena's heaps. Then all chunks of the arena are looked
    at in turn, whose sizes hardly ever mislead; but a small one may be free without a mark.

    A heap is copied in blocks, of which the newest are kept: the links of small chunks lead all
    over it. In the copy, a chunk that was found in a list has a mark in its size, as a multiple of
    16 leaves room for.
    """

    def __init__(self, memory: int, pagemap: int, progress: Callable[[str], None]) -> None:
        self._memory, self._pagemap, self._progress = memory, pagemap, progress
        self._told, self._until = time.monotonic(), 0.0
        self._looked_at = 0  # chunks, of all arenas
        self._blocks: dict[int, memoryview[int]] = {}
        self._free = array("Q")  # chunks

    def main_arena(
        self, data: Sequence[Mapping], heap: Sequence[Mapping]
    ) -> tuple[int, int] | None:
        """Return where the C library has its arena in its `data`, and where its heap ends by now:
        the last ring is never used, behind it is none, and the last chunk ends with the heap."""
        for each in (each for each in data if heap and each.size <= _LARGEST_DATA):
            content = os.pread(self._memory, each.size, each.start)
            words = struct.unpack(f"<{len(content) // 8}Q", content)
            for at in range(len(words) - _LAST_RING // 8 - 2):
                arena, chunk = each.start + 8 * at, words[at + _TOP // 8]
                ring, behind = words[at + _LAST_RING // 8], words[at + _LAST_RING // 8 + 2]
                head = arena + _LAST_RING - 16
                least, most = heap[-1].end, heap[-1].end + _GROWN
                if ring == head and behind != head + 16 and heap[0].start <= chunk < most:
                    end = chunk + self._size(chunk)
                    if least <= end < most:  # else a free chunk's address, in another ring
                        return arena, end
        return None

    def read(self, arenas: dict[int, list[tuple[int, int]]], main: int | None) -> dict[int, _Part]:
        """Return what is free in each of the arenas, which have heaps at these places. A small one
        leaves time for those that are larger. malloc_trim returns what is free at the end of the
        main heap, but of no other."""
        until = time.monotonic() + _READ_S
        parts: dict[int, _Part] = {}
        for each in sorted(arenas, key=lambda arena: _size_of(arenas[arena])):
            now = time.monotonic()
            share = max(until - now, 0.0) / (len(arenas) - len(parts))
            spans = sorted(arenas[each])
            parts[each] = self._part(each, spans, now + share, trims_last=each == main)
        return parts

    def _part(self, arena: int, spans: Spans, until: float, *, trims_last: bool) -> _Part:
        now = time.monotonic()
        self._free, self._until = array("Q"), now + (until - now) * _LISTS
        whole, last = self._listed(arena, spans)
        self._looked_at += len(self._free)
        self._blocks.clear()
        walked, unknown = 0, 0
        if not whole:
            self._until = until
            for start, end in spans:
                free, of_span = self._walk(start, end)
                walked, unknown = walked + free, unknown + of_span
        free, resident, in_whole_pages = 0, 0, 0
        chunks = np.frombuffer(self._free, np.uint64)
        chunks.sort()
        for start, end in spans:
            found = self._resident(chunks, start, end, 0 if trims_last else last)
            free, resident = free + found[0], resident + found[1]
            in_whole_pages += found[2]
        unknown = max(unknown - (free - walked), 0)  # Lists have what else is free.
        return _Part(resident, whole, in_whole_pages, _size_of(spans) - free, unknown)

    def _listed(self, arena: int, spans: Spans) -> tuple[bool, int]:
        """Add an arena's free chunks; tell whether these are all, and where its last one is."""
        at_end = 0
        try:
            state = _ARENA.unpack(os.pread(self._memory, _ARENA.size, arena))
            last, (_, end) = state[_FAST], _span(spans, state[_FAST])
            if end:  # It has not grown out of them meanwhile.
                self._add(last, min(self._size(last), end - last))
                at_end = last
            heads = (arena + _RINGS + 16 * ring - 16 for ring in range(_RING_COUNT))
            rings = zip(heads, state[_FAST + 1 :: 2], strict=True)
            lists = [*((0, each) for each in state[:_FAST]), *rings]
            followed = [self._followed(head, first, spans) for head, first in lists]
            return all(followed), at_end
        except (OSError, struct.error):
            return False, at_end

    def _followed(self, head: int, at: int, spans: Spans) -> bool:
        """Add the chunks of a list, a ring if it has a `head`; tell whether it could be followed to
        its end. There may be millions: what the loop needs is at hand."""
        blocks, start, end = self._blocks, 0, 0
        add = self._free.append
        while self._goes_on(len(self._free)):
            for _ in range(_BETWEEN_LOOKS):
                if at == head:
                    return True
                if not start <= at < end:
                    start, end = _span(spans, at)
                try:
                    block = blocks[at >> _BLOCK_BITS]
                except KeyError:
                    if not end:
                        return False
                    block = self._kept(at >> _BLOCK_BITS)
                place = (at >> 3 & _WORD) + 1
                word, link = block[place], block[place + 1]
                size = word & ~_FLAGS
                if (at | size) & 15 or size < _LEAST or at + size > end:
                    return False
                block[place] = word | _LISTED
                if size > _LARGEST_PIECE:
                    self._add(at, size)
                else:
                    add(at << _AT_BITS | size >> 4)
                at = link if head else link ^ (at + 16 >> 12)
        return False

    def _walk(self, start: int, end: int) -> tuple[int, int]:
        """Add a heap's free chunks; return their bytes, and those of which nobody knows."""
        at, size, free, unknown = start, 0, 0, 0
        while at + _LEAST <= end and self._goes_on(0):
            words = np.frombuffer(self._copy(at, min(_WALKED, end - at) & -16), np.int64)[1::2]
            places = _chain(words & ~_FLAGS)
            self._looked_at += len(places)
            found = words[places]
            starts, is_used = at + 16 * places, found & _IN_USE != 0  # the chunk before
            sizes = np.append(size, found & ~_FLAGS)
            before, size = sizes[:-1], int(sizes[-1])
            is_free = ~is_used & (before > 0)
            for large in np.flatnonzero(is_free & (before > _LARGEST_PIECE)):
                self._add(int(starts[large] - before[large]), int(before[large]))
            small = is_free & (before <= _LARGEST_PIECE)
            pieces = (starts - before)[small] << _AT_BITS | before[small] >> 4
            self._free.frombytes(pieces.tobytes())
            free += int(before[is_free].sum())
            unknown += int(before[~is_free & (before <= _LARGEST_FAST)].sum())
            at = int(starts[-1])
            # It has changed meanwhile; or behind the chunks of a heap that is not the arena's last
            # there are two heads, of 16 bytes and none.
            if size < _LEAST or at + size > end:
                return free, unknown + end - at
            at += size
        if at != end:
            return free, unknown + end - at
        self._add(at - size, size)  # The last chunk has never been handed out.
        return free + size, unknown

    def _add(self, at: int, size: int) -> None:
        for piece in range(at, at + size, _LARGEST_PIECE):
            length = min(_LARGEST_PIECE, at + size - piece)
            self._free.append(piece << _AT_BITS | length >> 4)

    def _goes_on(self, more: int) -> bool:
        """Tell whether more chunks may be looked at, and the user how many were: so many `more`
        than are counted."""
        now, looked_at = time.monotonic(), self._looked_at + more
        if looked_at and now >= self._told + TOLD_S:
            self._told = now
            self._progress(f"{looked_at:,} blocks of glibc's heap read so far")
        return now < self._until and len(self._free) < _MOST_CHUNKS

    def _joined(
        self, chunks: NDArray[np.uint64], start: int, end: int
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Yield where free memory of a heap begins and ends, some at a time: malloc_trim first
        makes one chunk of free neighbours."""
        low, high = np.searchsorted(chunks, np.array([start, end], np.uint64) << _AT_BITS)
        held = np.empty(0, np.int64), np.empty(0, np.int64)  # the last may be joined to the next
        for at in range(low, high, _JOINED):
            some = chunks[at : min(at + _JOINED, high)]
            starts = (some >> _SIZE_BITS << 4).astype(np.int64)
            sizes = ((some & (1 << _SIZE_BITS) - 1) << 4).astype(np.int64)
            starts, ends = np.append(held[0], starts), np.append(held[1], starts + sizes)
            ends = np.minimum(np.maximum.accumulate(ends), end)
            gaps = np.flatnonzero(starts[1:] > ends[:-1])
            starts, ends = np.append(starts[:1], starts[gaps + 1]), np.append(ends[gaps], ends[-1:])
            yield starts[:-1], ends[:-1]
            held = starts[-1:], ends[-1:]
        yield held

    def _resident(
        self, chunks: NDArray[np.uint64], start: int, end: int, untrimmed: int
    ) -> tuple[int, int, int]:
        """Return how many bytes of a heap are free, how many of these are resident, and how many of
        those, but for what is beside a chunk that is `untrimmed`, are whole pages behind a chunk's
        head."""
        size, total, in_pages = 0, 0, 0
        first = start // _PAGE
        there = np.frombuffer(self._present(first, -(-end // _PAGE)), np.uint8)
        before = np.zeros(len(there) + 1, np.int32)  # pages that are there before each
        there.cumsum(dtype=np.int32, out=before[1:])
        for at, behind in self._joined(chunks, start, end):
            size += int((behind - at).sum())
            low, high = at // _PAGE - first, (behind - 1) // _PAGE - first
            total += int(before[high + 1].sum() - before[low].sum()) * _PAGE
            total -= int((there[low] * (at % _PAGE) + there[high] * (-behind % _PAGE)).sum())
            low, high = -(-(at + _CHUNK_HEAD) // _PAGE) - first, behind // _PAGE - first
            pages = before[np.maximum(high, low)] - before[low]
            pages[(at <= untrimmed) & (untrimmed < behind)] = 0
            in_pages += int(pages.sum()) * _PAGE
        return size, total, in_pages

    def _size(self, at: int) -> int:
        """Return the size of a chunk."""
        return self._block(at >> _BLOCK_BITS)[(at >> 3 & _WORD) + 1] & ~_FLAGS

    def _kept(self, number: int) -> memoryview[int]:
        """Return a block that stays at hand, in place of the oldest."""
        if len(self._blocks) >= _MOST_BLOCKS:
            del self._blocks[next(iter(self._blocks))]
        block = self._blocks[number] = self._block(number)
        return block

    def _block(self, number: int) -> memoryview[int]:
        """Return a block's words, and two more, which a chunk at its end has there."""
        return memoryview(self._copy(number << _BLOCK_BITS, _BLOCK + 16)).cast("Q")

    def _copy(self, start: int, size: int) -> bytearray:
        """Return a part of the memory. Only pages that are there are read: one that was given back
        would be there again."""
        content, first = bytearray(size), start // _PAGE
        there = self._present(first, -(-(start + size) // _PAGE))
        for run in re.finditer(b"\1+", there):
            low = max((first + run.start()) * _PAGE, start)
            high = min((first + run.end()) * _PAGE, start + size)
            os.preadv(self._memory, [memoryview(content)[low - start : high - start]], low)
        return content

    def _present(self, first: int, behind: int) -> bytes:
        """Return for each of these pages whether it is there."""
        there = bytearray()
        for at in range(first, behind, _ENTRIES):
            entries = os.pread(self._pagemap, 8 * min(_ENTRIES, behind - at), 8 * at)
            there += entries[7::8].translate(_IS_PRESENT)
        return bytes(there)


def _span(spans: Spans, at: int) -> tuple[int, int]:
    """Return the heap that has this address; an empty one where none has it."""
    start, end = spans[bisect_right(spans, at, key=itemgetter(0)) - 1]
    return (start, end) if start <= at < end else (0, 0)


def _chain(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return which of these words, 16 bytes apart, are those of chunks: of the first, and of each
    behind another. Some are found by strides of many chunks, and from all of them the rest."""
    end = len(sizes)
    jumps = np.append(sizes >> 4, end)
    jumps[jumps < _LEAST >> 4] = end
    jumps += np.arange(end + 1)
    np.minimum(jumps, end, out=jumps)
    strides = jumps
    for _ in range(_STRIDE_BITS):
        strides = strides.take(strides)
    far, places, at = strides.data, [], 0
    while at < end:
        places.append(at)
        at = far[at]
    found = [np.array(places)]
    for _ in range((1 << _STRIDE_BITS) - 1):
        found.append(jumps.take(found[-1]))
    chain = np.stack(found, 1).ravel()
    return chain[chain < end]
