"""What is in a process's memory: zeros in huge pages, arenas and free blocks of glibc's malloc.

Some of /proc/PID/mem is read, of what is resident: that neither stops the process nor makes more of
it resident.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from heapfit.why.causes import ARENA
from heapfit.why.maps import Mapping

_HUGE, _PAGE = 2 << 20, 4 << 10
_LOOKED_AT, _PAGES_READ = 4096, 64
_PRESENT = 1 << 63


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
    places = [
        start
        for each in mappings
        if each.huge and each.huge >= each.resident * 3 // 4
        for start in range(-(-each.start // _HUGE) * _HUGE, each.end - _HUGE + 1, _HUGE)
    ]
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


def _spread(places: list[int], most: int) -> list[int]:
    """Return so many of them at most, at equal distances."""
    number = min(len(places), most)
    return [places[at * len(places) // number] for at in range(number)]


# An arena (malloc/malloc.c, since glibc 2.32): the lists of small free chunks, whose links are
# mangled by their own addresses; the last chunk of its heap, which has never been handed out; and
# the lists of other free chunks, each a ring that leads through the arena. A chunk has its size in
# the second word, with three bits, and its link in the third.
_ARENA, _FAST, _RINGS = struct.Struct("<16x10QQ8x254Q"), 10, 112
_TOP, _LAST_RING = 96, _RINGS + 126 * 16
_SIZE_AND_LINK = struct.Struct("<8xQQ")
_MOST_CHUNKS = 2_000_000  # less than two seconds
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
        with _opened(folder / "mem") as memory:
            lists = _FreeLists(memory)
            first = lists.main_arena(data, main)
            heap = Heap() if first is None else lists.read([first], _size(main), main)
            starts = (at for each in arenas for at in range(each.start, each.end, ARENA))
            heaps = [found for at in starts if (found := _heap_at(memory, at)) is not None]
            others = {arena for arena, _ in heaps}
            return Glibc(
                heap, len(others), lists.read(others, sum(size for _, size in heaps), arenas)
            )
    except (OSError, struct.error):
        return Glibc()


def _size(mappings: Iterable[Mapping]) -> int:
    return sum(each.size for each in mappings)


class _FreeLists:
    """Reads what arenas have in their lists, so many chunks at most."""

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._left = _MOST_CHUNKS
        self._pages: dict[int, bytes] = {}

    def main_arena(self, data: Sequence[Mapping], heap: Sequence[Mapping]) -> int | None:
        """Return where the C library has its arena in its `data`: the last ring is never used,
        behind it is none, and the last chunk ends where the heap does."""
        for each in data if heap else ():
            content = os.pread(self._memory, each.size, each.start)
            words = struct.unpack(f"<{len(content) // 8}Q", content)
            for at in range(len(words) - _LAST_RING // 8 - 2):
                arena, chunk = each.start + 8 * at, words[at + _TOP // 8]
                ring, behind = words[at + _LAST_RING // 8], words[at + _LAST_RING // 8 + 2]
                head = arena + _LAST_RING - 16
                if ring == head and behind != head + 16 and heap[0].start <= chunk < heap[-1].end:
                    end = chunk + (self._chunk(chunk)[0] & ~7)
                    return arena if heap[-1].end <= end < heap[-1].end + _GROWN else None
        return None

    def read(self, arenas: Collection[int], size: int, mappings: Sequence[Mapping]) -> Heap:
        """Return what is free in the arenas, whose heaps have `size` bytes in `mappings`."""
        sizes = [self._sizes(each) for each in arenas]
        free = sum(size for each in sizes for size in each)
        # All the rest may be resident.
        resident = max(0, sum(each.resident for each in mappings) - (size - free)) if free else 0
        return Heap(resident, self._left > 0)

    def _sizes(self, arena: int) -> Iterator[int]:
        """Yield the sizes of an arena's free chunks."""
        state = _ARENA.unpack(os.pread(self._memory, _ARENA.size, arena))
        yield self._chunk(state[_FAST])[0] & ~7
        for at in state[:_FAST]:
            while at and at % 16 == 0 and self._left > 0:
                size, link = self._chunk(at)
                yield size & ~7
                at = link ^ (at + 16 >> 12)
        for ring, at in enumerate(state[_FAST + 1 :: 2]):
            head = arena + _RINGS + 16 * ring - 16
            while at != head and self._left > 0:
                size, at = self._chunk(at)
                yield size & ~7

    def _chunk(self, at: int) -> tuple[int, int]:
        """Return the size and the link of a chunk."""
        self._left -= 1
        page = at // _PAGE * _PAGE
        if page not in self._pages:
            if len(self._pages) >= _MOST_PAGES:
                self._pages.clear()
            # Of a chunk at the end of a page the link is in the next, if there is one.
            length = _PAGE + _SIZE_AND_LINK.size
            self._pages[page] = os.pread(self._memory, length, page).ljust(length, b"\0")
        size, link = _SIZE_AND_LINK.unpack_from(self._pages[page], at - page)
        return size, link
