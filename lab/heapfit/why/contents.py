"""What is in a process's memory: zeros in huge pages, free blocks in glibc's main heap.

Some of /proc/PID/mem is read, which neither stops the process nor makes more of it resident.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from pathlib import Path

from heapfit.why.maps import Mapping

_HUGE, _PAGE = 2 << 20, 4 << 10
_PAGES_READ = 64


def untouched(folder: Path, mappings: Sequence[Mapping]) -> float | None:
    """Return how much of the huge pages holds nothing but zeros: what came with them and was never
    written, or was cleared. Looked at are some of them, at equal distances."""
    places = [
        start
        for each in mappings
        if each.huge
        for start in range(-(-each.start // _HUGE) * _HUGE, each.end - _HUGE + 1, _HUGE)
        if each.huge >= each.resident * 3 // 4
    ]
    if not places:
        return None
    step = max(1, len(places) // _PAGES_READ)
    zeros = pages = 0
    blank = bytes(_PAGE)
    try:
        with (folder / "mem").open("rb", buffering=0) as memory:
            for place in places[::step][:_PAGES_READ]:
                memory.seek(place)
                content = memory.read(_HUGE)
                for at in range(0, len(content), _PAGE):
                    zeros += content[at : at + _PAGE] == blank
                    pages += 1
    except OSError:
        return None
    return zeros / pages if pages else None


# A chunk of glibc's heap has its size in the second word, with three bits: whether the chunk before
# is in use, and two that no chunk of the main heap has (malloc/malloc.c). The last one is the rest.
_SIZE = struct.Struct("<8xQ")
_IN_USE, _NEVER, _ALIGNED, _LEAST = 1, 6, 8, 32
_READ_AT_ONCE = 64 << 10
_MOST_CHUNKS = 1_000_000  # about a second


def free_in_glibc(folder: Path, heap: Sequence[Mapping]) -> int:
    """Return how many resident bytes of glibc's main heap are free at least; 0: not known.

    Free blocks that caches of threads have count as in use, as does what lies behind the first
    million blocks.
    """
    size, resident = sum(each.size for each in heap), sum(each.resident for each in heap)
    if not heap or heap[-1].end - heap[0].start != size or any(each.swapped for each in heap):
        return 0
    try:
        file = os.open(folder / "mem", os.O_RDONLY)
    except OSError:
        return 0
    try:
        free = _free_chunks(file, heap[0].start, heap[-1].end)
    except (OSError, struct.error):
        return 0
    finally:
        os.close(file)
    # Free pages that are not resident are not counted: what is in use may be.
    return max(0, resident - (size - free)) if free else 0


def _free_chunks(file: int, start: int, end: int) -> int:
    """Return the bytes of free ones; 0 where these are no chunks."""
    held = [0, 0]  # free, in use
    at, size, base, window = start, 0, 0, b""
    for _ in range(_MOST_CHUNKS):
        if at + _SIZE.size > base + len(window):
            # Behind a large one the next may be large, too.
            length = _READ_AT_ONCE if size < _READ_AT_ONCE else _SIZE.size
            base, window = at, os.pread(file, length, at)
        (word,) = _SIZE.unpack_from(window, at - base)
        held[word & _IN_USE] += size
        size = word & ~7
        if word & _NEVER or size & _ALIGNED or size < _LEAST or at + size > end:
            return 0
        at += size
        if at == end:
            held[0] += size
            break
    return held[0]
