"""What is in a process's memory: zeros in huge pages, arenas and free blocks of glibc's malloc.

Some of /proc/PID/mem is read, of what is resident: that neither stops the process nor makes more of
it resident.
"""

from __future__ import annotations

import os
import re
import struct
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from heapfit.host.maps import Mapping

# glibc gives each heap of an arena so much address space, at a multiple of it (malloc/arena.c,
# HEAP_MAX_SIZE with 64-bit addresses).
ARENA = 64 << 20
_HUGE, _PAGE = 2 << 20, 4 << 10
_LOOKED_AT, _PAGES_READ = 4096, 64
_PRESENT = 1 << 63


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
_SIZE_AND_LINK = struct.Struct("<8xQQ")
_CHUNK_HEAD = 48  # of a large free chunk: two sizes and four links, which malloc_trim leaves
_IS_PRESENT = bytes(byte >> 7 for byte in range(256))  # of the highest byte of a page's entry
_LARGEST_DATA = 1 << 20  # of a C library
_IN_USE, _LEAST, _LARGEST_FAST = 1, 32, 128  # the chunk before is in use; sizes of chunks
_ARENA_STATE = -(-2200 // 16) * 16
_MOST_CHUNKS = 1_000_000  # about a second
_MOST_PAGES = 4096  # kept while it is read
_GROWN = 16 << 20  # meanwhile
_LIBC = re.compile(r"/libc(\.so\.6|-2[.\d]+\.so)( |$)")
# A heap of an arena begins with the arena's address, the heap before, and its size
# (malloc/arena.c); the arena itself lies behind that in its first heap.
_HEAP = struct.Struct("<QQQ")
_LARGEST_HEAD = 256


@dataclass(frozen=True)
class Heap:
    """A heap's free bytes, those that are resident at least. Blocks that caches of threads have
    count as in use. `whole`: all lists of free blocks were read."""

    free: int = 0
    whole: bool = False
    in_whole_pages: int = 0  # of the free bytes, what malloc_trim(3) returns


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


def glibc(folder: Path, mappings: Sequence[Mapping], arenas: Sequence[Mapping]) -> Glibc:
    """Return what glibc's heaps have: the main one, and those of other arenas, in `arenas`."""
    main = [each for each in mappings if each.path == "[heap]"]
    data = [each for each in mappings if _LIBC.search(each.path) and each.permissions == "rw-p"]
    if any(each.swapped for each in (*main, *arenas)):  # It would have to be read back.
        return Glibc()
    try:
        with _opened(folder / "mem") as memory, _opened(folder / "pagemap") as pagemap:
            lists = _FreeLists(memory, pagemap)
            first = lists.main_arena(data, main)
            heap = Heap()
            if first is not None:
                heap = lists.read([first[0]], [(main[0].start, first[1])], trims_last=True)
            starts = (at for each in arenas for at in range(each.start, each.end, ARENA))
            heaps = {at: found for at in starts if (found := _heap_at(memory, at)) is not None}
            spans = [(_first_chunk(at, arena), at + size) for at, (arena, size) in heaps.items()]
            others = {arena for arena, _ in heaps.values()}
            return Glibc(heap, len(others), lists.read(others, spans, trims_last=False))
    except (OSError, struct.error):
        return Glibc()


def _first_chunk(heap: int, arena: int) -> int:
    """Return where the chunks of an arena's heap begin: in its first heap, behind the arena."""
    head = heap + arena % ARENA
    return head + (_ARENA_STATE if head == arena else 0)


class _FreeLists:
    """Reads what arenas have in their lists, so many chunks at most.

    The process goes on meanwhile: a chunk that it has taken may lead anywhere. So each counts once,
    and a list ends where it leads out of the arenas' heaps. Then all chunks are looked at in turn,
    whose sizes hardly ever mislead; but a small one may be free without a mark.
    """

    def __init__(self, memory: int, pagemap: int) -> None:
        self._memory, self._pagemap = memory, pagemap
        self._left = _MOST_CHUNKS
        self._pages: dict[int, bytes] = {}
        self._last: set[int] = set()  # chunks at the ends of arenas

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
                    end = chunk + self._chunk(chunk)[0]
                    if least <= end < most:  # else a free chunk's address, in another ring
                        return arena, end
        return None

    def read(
        self, arenas: Collection[int], spans: Sequence[tuple[int, int]], *, trims_last: bool
    ) -> Heap:
        """Return what is free in the arenas, whose heaps are at `spans`. malloc_trim returns what
        is free at the end of the main heap, but of no other."""
        self._left, free, spans = _MOST_CHUNKS, dict[int, int](), sorted(spans)
        self._last.clear()
        listed = [self._listed(each, spans, free) for each in arenas]
        whole = all(listed)
        unknown = 0 if whole else sum(self._walk(*each, free) for each in spans)
        used = sum(end - start for start, end in spans) - sum(free.values())
        untrimmed = frozenset() if trims_last else self._last
        resident, in_whole_pages = self._resident(free, spans, untrimmed)
        return Heap(resident, whole or 2 * unknown < used, in_whole_pages)

    def _listed(self, arena: int, spans: Sequence[tuple[int, int]], free: dict[int, int]) -> bool:
        """Add an arena's free chunks with their sizes; tell whether these are all."""
        whole, starts = True, [start for start, _ in spans]
        try:
            state = _ARENA.unpack(os.pread(self._memory, _ARENA.size, arena))
            heads = (arena + _RINGS + 16 * ring - 16 for ring in range(_RING_COUNT))
            rings = zip(heads, state[_FAST + 1 :: 2], strict=True)
            for head, at in [*((0, each) for each in state[:_FAST]), *rings]:
                while at != head and at not in free:
                    span = bisect_right(starts, at) - 1
                    size, link = self._chunk(at) if span >= 0 and self._left > 0 else (0, 0)
                    if at % 16 or size < _LEAST or at + size > spans[span][1]:
                        whole = False
                        break
                    free[at] = size
                    at = link if head else link ^ (at + 16 >> 12)
            last, (start, end) = state[_FAST], spans[bisect_right(starts, state[_FAST]) - 1]
            if start <= last < end:  # It has not grown out of them meanwhile.
                free[last] = min(self._chunk(last)[0], end - last)
                self._last.add(last)
        except (OSError, struct.error):
            return False
        return whole

    def _walk(self, start: int, end: int, free: dict[int, int]) -> int:
        """Add a heap's free chunks with their sizes; return the bytes of which nobody knows."""
        at, size, base, window, unknown = start, 0, 0, b"", 0
        while self._left > 0 and at + 2 * _LEAST <= end:
            self._left -= 1
            if at + _SIZE_AND_LINK.size > base + len(window):
                # Behind a large one the next may be large, too.
                base, window = at, os.pread(self._memory, _PAGE if size > _PAGE else 16 * _PAGE, at)
            word, _ = _SIZE_AND_LINK.unpack_from(window, at - base)
            if size and not word & _IN_USE:
                free[at - size] = size
            elif size <= _LARGEST_FAST and at - size not in free:
                unknown += size
            size = word & ~7
            if size < _LEAST or at + size > end:  # It has changed meanwhile.
                break
            at += size
        if at != end:
            return unknown + end - at
        free[at - size] = size  # The last chunk has never been handed out.
        return unknown

    def _resident(
        self, free: dict[int, int], spans: Sequence[tuple[int, int]], untrimmed: Collection[int]
    ) -> tuple[int, int]:
        """Return how many bytes of the free chunks are resident, and how many of these, but for
        those of chunks that are `untrimmed`, are whole pages behind a chunk's head."""
        total, in_pages, starts = 0, 0, [start for start, _ in spans]
        present: list[bytes] = []
        for start, end in spans:
            pages = -(-end // _PAGE) - start // _PAGE
            entries = os.pread(self._pagemap, 8 * pages, 8 * (start // _PAGE))
            present.append(entries[7::8].translate(_IS_PRESENT))
        for at, size in free.items():
            span = bisect_right(starts, at) - 1
            there, first = present[span], starts[span] // _PAGE
            low, high = at // _PAGE - first, (at + size - 1) // _PAGE - first
            total += (there.count(1, low, high) + there[high]) * _PAGE
            total -= there[low] * (at % _PAGE) + there[high] * (-(at + size) % _PAGE)
            if at in untrimmed:
                continue
            first_whole, behind = -(-(at + _CHUNK_HEAD) // _PAGE) - first, (at + size) // _PAGE
            in_pages += there.count(1, first_whole, max(behind - first, first_whole)) * _PAGE
        return total, in_pages

    def _chunk(self, at: int) -> tuple[int, int]:
        """Return the size and the link of a chunk."""
        self._left -= 1
        length, page = _SIZE_AND_LINK.size, at // _PAGE * _PAGE
        if page not in self._pages:
            if len(self._pages) >= _MOST_PAGES:
                self._pages.clear()
            # Not beyond: a page that was given back would be there again once it is read.
            self._pages[page] = os.pread(self._memory, _PAGE, page)
        head = self._pages[page][at - page : at - page + length]
        if len(head) < length:  # The rest is in the next page, if there is one.
            head = os.pread(self._memory, length, at).ljust(length, b"\0")
        size, link = _SIZE_AND_LINK.unpack(head)
        return size & ~7, link
