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
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

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
_LARGEST_DATA = 1 << 20  # of a C library
_IN_USE, _FLAGS = 1, 7  # in a chunk's size: the chunk before is in use
_LEAST, _LARGEST_FAST = 32, 128  # sizes of chunks
_ARENA_STATE = -(-2200 // 16) * 16
_LISTED = 8  # found in a list: our mark
_MOST_CHUNKS = 20_000_000  # about ten seconds
_BETWEEN_LOOKS = 1 << 16  # at the clock: chunks
_BLOCK_BITS = 20
_BLOCK, _WORD = 1 << _BLOCK_BITS, (1 << _BLOCK_BITS - 3) - 1  # a block's bytes; a word's place
_MOST_BLOCKS = 1 << 10  # kept while lists are read
_GROWN = 16 << 20  # meanwhile
_LIBC = re.compile(r"/libc(\.so\.6|-2[.\d]+\.so)( |$)")
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
    data = [each for each in mappings if _LIBC.search(each.path) and each.permissions == "rw-p"]
    if any(each.swapped for each in (*main, *arenas)):  # It would have to be read back.
        return Glibc()
    try:
        with _opened(folder / "mem") as memory, _opened(folder / "pagemap") as pagemap:
            lists = _FreeLists(memory, pagemap, progress)
            first = lists.main_arena(data, main)
            heap = Heap()
            if first is not None:
                heap = lists.read([first[0]], [(main[0].start, first[1])], trims_last=True)
            starts = (at for each in arenas for at in range(each.start, each.end, ARENA))
            heaps = {at: found for at in starts if (found := _heap_at(memory, at)) is not None}
            spans = [(_first_chunk(at, arena), at + size) for at, (arena, size) in heaps.items()]
            others = {arena for arena, _ in heaps.values()}
            return Glibc(heap, len(others), lists.read(others, spans, trims_last=False))
    except (OSError, struct.error, IndexError):
        return Glibc()


def _first_chunk(heap: int, arena: int) -> int:
    """Return where the chunks of an arena's heap begin: in its first heap, behind the arena."""
    head = heap + arena % ARENA
    return head + (_ARENA_STATE if head == arena else 0)


class _FreeLists:
    """Reads what arenas have in their lists: so many chunks at most, on so many bytes of pages.

    The process goes on meanwhile: a chunk that it has taken may lead anywhere. So each counts once,
    and a list ends where it leads out of the arenas' heaps. Then all chunks are looked at in turn,
    whose sizes hardly ever mislead; but a small one may be free without a mark.

    A heap is copied in blocks, once: the links of small chunks lead all over it. In the copy, a
    chunk that was found in a list has a mark in its size, as a multiple of 16 leaves room for.
    """

    def __init__(self, memory: int, pagemap: int, progress: Callable[[str], None]) -> None:
        self._memory, self._pagemap, self._progress = memory, pagemap, progress
        self._told = time.monotonic()
        self._blocks: dict[int, memoryview[int]] = {}
        self._starts, self._sizes = array("Q"), array("Q")  # of free chunks
        self._last: list[int] = []  # chunks at the ends of arenas

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

    def read(
        self, arenas: Collection[int], spans: Sequence[tuple[int, int]], *, trims_last: bool
    ) -> Heap:
        """Return what is free in the arenas, whose heaps are at `spans`. malloc_trim returns what
        is free at the end of the main heap, but of no other."""
        spans = sorted(spans)
        self._blocks.clear()
        del self._starts[:], self._sizes[:], self._last[:]
        listed = [self._listed(each, spans) for each in arenas]
        whole, unknown = all(listed), 0
        if not whole:
            unknown = sum(self._walk(*each) for each in spans)
        starts, ends = self._joined()
        used = sum(end - start for start, end in spans) - int((ends - starts).sum())
        untrimmed = () if trims_last else self._last
        resident, in_whole_pages = self._resident(starts, ends, spans, untrimmed)
        return Heap(resident, whole, in_whole_pages, nearly=2 * unknown < used)

    def _listed(self, arena: int, spans: Sequence[tuple[int, int]]) -> bool:
        """Add an arena's free chunks; tell whether these are all."""
        try:
            state = _ARENA.unpack(os.pread(self._memory, _ARENA.size, arena))
            last, (_, end) = state[_FAST], _span(spans, state[_FAST])
            if end:  # It has not grown out of them meanwhile.
                self._add(last, min(self._size(last), end - last))
                self._last.append(last)
            heads = (arena + _RINGS + 16 * ring - 16 for ring in range(_RING_COUNT))
            rings = zip(heads, state[_FAST + 1 :: 2], strict=True)
            lists = [*((0, each) for each in state[:_FAST]), *rings]
            followed = [self._followed(head, first, spans) for head, first in lists]
            return all(followed)
        except (OSError, struct.error):
            return False

    def _followed(self, head: int, at: int, spans: Sequence[tuple[int, int]]) -> bool:
        """Add the chunks of a list, a ring if it has a `head`; tell whether it could be followed to
        its end. There may be millions: what the loop needs is at hand."""
        blocks, start, end = self._blocks, 0, 0
        add_start, add_size = self._starts.append, self._sizes.append
        while self._goes_on(len(self._starts)):
            for _ in range(_BETWEEN_LOOKS):
                if at == head:
                    return True
                if not start <= at < end:
                    start, end = _span(spans, at)
                try:
                    block = blocks[at >> _BLOCK_BITS]
                except KeyError:
                    if not end or len(blocks) == _MOST_BLOCKS:
                        return False
                    block = blocks[at >> _BLOCK_BITS] = self._block(at >> _BLOCK_BITS)
                place = (at >> 3 & _WORD) + 1
                word, link = block[place], block[place + 1]
                size = word & ~_FLAGS
                if (at | size) & 15 or size < _LEAST or at + size > end:
                    return False
                block[place] = word | _LISTED
                add_start(at)
                add_size(size)
                at = link if head else link ^ (at + 16 >> 12)
        return False

    def _walk(self, start: int, end: int) -> int:
        """Add a heap's free chunks; return the bytes of which nobody knows."""
        at, size, word, unknown, looked_at, number = start, 0, 0, 0, 0, -1
        while at + 2 * _LEAST <= end and self._goes_on(looked_at):
            looked_at += _BETWEEN_LOOKS
            for _ in range(_BETWEEN_LOOKS):
                if at >> _BLOCK_BITS != number:
                    number = at >> _BLOCK_BITS
                    block = self._blocks.get(number) or self._block(number)
                before, word = word, block[(at >> 3 & _WORD) + 1]
                if size and not word & _IN_USE:
                    self._add(at - size, size)
                elif size <= _LARGEST_FAST and not before & _LISTED:
                    unknown += size
                size = word & ~(_FLAGS | _LISTED)
                if size < _LEAST or at + size > end:  # It has changed meanwhile.
                    return unknown + end - at
                at += size
                if at + 2 * _LEAST > end:
                    break
        if at != end:
            return unknown + end - at
        self._add(at - size, size)  # The last chunk has never been handed out.
        return unknown

    def _add(self, at: int, size: int) -> None:
        self._starts.append(at)
        self._sizes.append(size)

    def _goes_on(self, looked_at: int) -> bool:
        """Tell whether more chunks may be looked at, and the user how many were."""
        if time.monotonic() >= self._told + TOLD_S:
            self._told = time.monotonic()
            self._progress(f"{looked_at:,} blocks of glibc's heap read so far")
        return looked_at < _MOST_CHUNKS

    def _joined(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where free memory begins and ends: malloc_trim first makes one chunk of free
        neighbours."""
        starts = np.array(self._starts, np.int64)
        order = np.argsort(starts)
        starts = starts[order]
        ends = np.maximum.accumulate(starts + np.array(self._sizes, np.int64)[order])
        gaps = np.flatnonzero(starts[1:] > ends[:-1])
        return np.append(starts[:1], starts[gaps + 1]), np.append(ends[gaps], ends[-1:])

    def _resident(
        self,
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        spans: Sequence[tuple[int, int]],
        untrimmed: Sequence[int],
    ) -> tuple[int, int]:
        """Return how many bytes of the free memory are resident, and how many of these, but for
        those beside a chunk that is `untrimmed`, are whole pages behind a chunk's head."""
        total, in_pages = 0, 0
        for start, end in spans:
            chosen = slice(*np.searchsorted(starts, (start, end)))
            at, behind = starts[chosen], np.minimum(ends[chosen], end)
            first = start // _PAGE
            there = np.frombuffer(self._present(first, -(-end // _PAGE)), np.uint8).astype(int)
            before = np.append(0, there.cumsum())  # pages that are there before each
            low, high = at // _PAGE - first, (behind - 1) // _PAGE - first
            total += int(((before[high] - before[low] + there[high]) * _PAGE).sum())
            total -= int((there[low] * (at % _PAGE) + there[high] * (-behind % _PAGE)).sum())
            low, high = -(-(at + _CHUNK_HEAD) // _PAGE) - first, behind // _PAGE - first
            pages = before[np.maximum(high, low)] - before[low]
            kept = np.searchsorted(at, [each for each in untrimmed if start <= each < end], "right")
            pages[kept - 1] = 0
            in_pages += int(pages.sum()) * _PAGE
        return total, in_pages

    def _size(self, at: int) -> int:
        """Return the size of a chunk."""
        number = at >> _BLOCK_BITS
        block = self._blocks.get(number) or self._block(number)
        return block[(at >> 3 & _WORD) + 1] & ~(_FLAGS | _LISTED)

    def _block(self, number: int) -> memoryview[int]:
        """Return a block's words, and two more, which a chunk at its end has there. Only pages that
        are there are read: one that was given back would be there again."""
        content, start = bytearray(_BLOCK + 16), number << _BLOCK_BITS
        there = self._present(start // _PAGE, (start + _BLOCK) // _PAGE + 1)
        for run in re.finditer(b"\1+", there):
            low, high = run.start() * _PAGE, run.end() * _PAGE
            os.preadv(self._memory, [memoryview(content)[low:high]], start + low)
        return memoryview(content).cast("Q")

    def _present(self, first: int, behind: int) -> bytes:
        """Return for each of these pages whether it is there."""
        entries = os.pread(self._pagemap, 8 * (behind - first), 8 * first)
        return entries[7::8].translate(_IS_PRESENT)


def _span(spans: Sequence[tuple[int, int]], at: int) -> tuple[int, int]:
    """Return the heap that has this address; an empty one where none has it."""
    start, end = spans[bisect_right(spans, at, key=itemgetter(0)) - 1]
    return (start, end) if start <= at < end else (0, 0)
