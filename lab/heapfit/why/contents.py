"""What is in a process's memory: zeros in huge pages, arenas and free blocks of glibc's malloc.

Some of /proc/PID/mem is read, of what is resident: that neither stops the process nor makes more of
it resident.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
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


# A chunk of glibc's heap has its size in the second word, with three bits: whether the chunk before
# is in use, whether it is a mapping of its own, and whether it is of another arena than the main
# one (malloc/malloc.c). The last one is the rest.
_SIZE = struct.Struct("<8xQ")
_IN_USE, _MAPPED, _ALIGNED, _LEAST = 1, 2, 8, 32
_READ_AT_ONCE = 64 << 10
_MOST_CHUNKS = 1_000_000  # about a second
_GROWN = 16 << 20  # while it is read
# A heap of an arena begins with the arena, the arena's heap before, and its size (malloc/arena.c);
# the arena itself lies behind that in its first heap.
_HEAP = struct.Struct("<QQQ")
_LARGEST_HEAD, _ARENA_STATE = 256, 2200


@dataclass(frozen=True)
class Glibc:
    """What is known of glibc's heaps. `free` is of its main heap and `free_in_arenas` of all other
    arenas, in resident bytes and at least: blocks that caches of threads have count as in use, as
    does what lies behind the first million blocks."""

    free: int = 0
    is_known: bool = False  # of the main heap
    arenas: int = 0
    free_in_arenas: int = 0


def is_arena(folder: Path, start: int) -> bool:
    """Whether glibc has a heap of an arena at this address; also where that cannot be seen."""
    try:
        with _opened(folder / "mem") as memory:
            return _heap_at(memory, start) is not None
    except OSError:
        return True


def _heap_at(memory: int, start: int) -> tuple[int, int] | None:
    """Return the address of the arena and the size of its heap here; None where there is none."""
    arena, before, size = _HEAP.unpack(os.pread(memory, _HEAP.size, start))
    is_one = 0 < arena % ARENA < _LARGEST_HEAD and not before % ARENA and 0 < size <= ARENA
    return (arena, size) if is_one and size % _PAGE == 0 else None


def glibc(folder: Path, main: Sequence[Mapping], arenas: Sequence[Mapping]) -> Glibc:
    """Return what glibc's heaps have: the main one's mappings, and those of the other arenas."""
    try:
        with _opened(folder / "mem") as memory:
            walk = _Walk(memory)
            whole = bool(main) and main[-1].end - main[0].start == sum(each.size for each in main)
            free = walk.free(main[0].start, main[-1].end) if whole else None
            starts = (at for each in arenas for at in range(each.start, each.end, ARENA))
            heaps = [(at, *found) for at in starts if (found := _heap_at(memory, at)) is not None]
            free_in_arenas = sum(walk.free_in_heap(*each) for each in heaps)
    except (OSError, struct.error):
        return Glibc()
    return Glibc(
        _resident(free or 0, sum(each.size for each in main), main),
        free is not None,
        len({arena for _, arena, _ in heaps}),
        _resident(free_in_arenas, sum(size for *_, size in heaps), arenas),
    )


def _resident(free: int, size: int, mappings: Sequence[Mapping]) -> int:
    """Return how much of what is free is resident at least: all that is in use may be, too."""
    if not free or any(each.swapped for each in mappings):
        return 0
    return max(0, sum(each.resident for each in mappings) - (size - free))


class _Walk:
    """Through the chunks of heaps, a million at most."""

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._left = _MOST_CHUNKS

    def free_in_heap(self, start: int, arena: int, size: int) -> int:
        first = start + arena % ARENA
        if first == arena:  # of an arena the first
            first += -(-_ARENA_STATE // 16) * 16
        return self.free(first, start + size) or 0

    def free(self, start: int, end: int) -> int | None:
        """Return the bytes of free chunks; None where these are no chunks."""
        held = [0, 0]  # free, in use
        at, size, base, window = start, 0, 0, b""
        while self._left and at + _LEAST <= end:
            self._left -= 1
            if at + _SIZE.size > base + len(window):
                # Behind a large one the next may be large, too.
                length = _READ_AT_ONCE if size < _READ_AT_ONCE else _SIZE.size
                base, window = at, os.pread(self._memory, length, at)
            (word,) = _SIZE.unpack_from(window, at - base)
            held[word & _IN_USE] += size
            size = word & ~7
            if size < _LEAST and at + 2 * _LEAST > end:  # what ends a heap that is full
                return held[0]
            if word & (_MAPPED | _ALIGNED) or size < _LEAST or at + size > end + _GROWN:
                return None
            at += size
        # The last chunk is what has never been handed out; in a heap that has grown it is not seen.
        return held[0] + (size if at + _LEAST > end >= at else 0)
