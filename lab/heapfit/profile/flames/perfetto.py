"""Stacks as Perfetto reads them: the packet in which Android's heapprofd hands over a heap profile.

https://github.com/google/perfetto/blob/main/protos/perfetto/trace/profiling/profile_packet.proto
explains each message. Texts, mappings, frames and callstacks have numbers of their own from 1 on,
by which they refer to each other. Of each stack Perfetto wants what has been allocated and what has
been freed; the difference is what it shows as live.
"""

from collections.abc import Sequence
from typing import TypeVar

from heapfit.profile.flames.formats import Unit, What
from heapfit.profile.flames.protobuf import message, number, text
from heapfit.profile.flames.stacks import ELSEWHERE, Amounts, Stacks
from heapfit.profile.trace import Summary

_HEAP = "malloc"  # what heapprofd calls the C library's
_SEQUENCE = 1  # the only one who writes

# Fields of a trace packet.
_PROCESS_TREE, _CLOCK_SNAPSHOT, _TIMESTAMP, _TRUSTED_SEQUENCE, _PROFILE = 2, 6, 8, 10, 37
# The time that the reader shows, and that in which heapprofd tells when a heap was looked at.
_BOOT_TIME, _MONOTONIC_COARSE = 6, 4


def write(stacks: Stacks, summary: Summary, what: What, unit: Unit) -> bytes:
    """Return the file. Perfetto offers bytes and blocks itself, all of them and those that live."""
    profile = _Profile()
    # Of a stack that comes twice, Perfetto would take the second for a later count.
    sums: dict[int, list[int]] = {}
    for site, amounts in stacks.amounts.items():
        numbers = _numbers(amounts, what)
        if any(numbers):
            row = sums.setdefault(profile.stack(stacks, site), [0] * len(numbers))
            row[:] = map(sum, zip(row, numbers, strict=True))
    heap = (
        number(1, summary.info.pid),
        *(message(2, _sample(stack, row)) for stack, row in sums.items()),
        number(9, summary.duration_ns),
        text(11, _HEAP),
        number(12, summary.info.sample or 1),
    )
    packet = profile.fields() + message(5, b"".join(heap))
    head = number(_TIMESTAMP, summary.duration_ns) + number(_TRUSTED_SEQUENCE, _SEQUENCE)
    fields = (
        message(_CLOCK_SNAPSHOT, _clocks(summary.duration_ns)),
        message(_PROCESS_TREE, _process(summary)),
        message(_PROFILE, packet),
    )
    return b"".join(message(1, head + field) for field in fields)


def _clocks(now_ns: int) -> bytes:
    """Return that both clocks show the same, without which the heap's time means nothing."""
    clocks = (_BOOT_TIME, _MONOTONIC_COARSE)
    return b"".join(message(1, number(1, clock) + number(2, now_ns)) for clock in clocks)


def _process(summary: Summary) -> bytes:
    info = summary.info
    command = b"".join(text(3, word) for word in info.arguments or [info.program])
    return message(1, number(1, info.pid) + command)


def _numbers(amounts: Amounts, what: What) -> tuple[int, ...]:
    """Return the bytes and blocks that were allocated, and then those of them that were freed."""
    peak, end, allocated, young = amounts
    if what is What.SHORT_LIVED:
        return young.bytes, young.blocks, young.bytes, young.blocks
    live = end if what is What.LIVE_AT_END else peak
    freed = allocated.bytes - live.bytes, allocated.blocks - live.blocks
    return allocated.bytes, allocated.blocks, *freed


def _sample(stack: int, row: Sequence[int]) -> bytes:
    fields = zip((2, 5, 3, 6), row, strict=True)
    return number(1, stack) + b"".join(number(field, each) for field, each in fields)


class _Profile:
    """What samples refer to, each once."""

    def __init__(self) -> None:
        self._texts: dict[str, int] = {}
        self._mappings: dict[str, int] = {}
        self._frames: dict[tuple[int, int], int] = {}
        self._stacks: dict[tuple[int, ...], int] = {}

    def stack(self, stacks: Stacks, site: int) -> int:
        """Return the number of a site's stack, of which the outermost frame comes first."""
        frames = [
            self._frame(name, place.module or "")
            for place in stacks.chain(site)
            for name, _ in place.frames
        ]
        return _numbered(self._stacks, tuple(frames[::-1] or [self._frame(ELSEWHERE, "")]))

    def _frame(self, name: str, module: str) -> int:
        key = _numbered(self._texts, name), _numbered(self._mappings, module)
        return _numbered(self._frames, key)

    def fields(self) -> bytes:
        """Return all that was referred to."""
        paths = [(index, _numbered(self._texts, path)) for path, index in self._mappings.items()]
        return b"".join(
            (
                *(
                    message(1, number(1, index) + text(2, each or "unknown"))
                    for each, index in self._texts.items()
                ),
                *(message(4, number(1, index) + number(7, path)) for index, path in paths),
                *(
                    message(2, number(1, index) + number(2, name) + number(3, mapping))
                    for (name, mapping), index in self._frames.items()
                ),
                *(
                    message(3, number(1, index) + b"".join(number(2, each) for each in frames))
                    for frames, index in self._stacks.items()
                ),
            )
        )


_Key = TypeVar("_Key")


def _numbered(known: dict[_Key, int], key: _Key) -> int:
    return known.setdefault(key, len(known) + 1)
