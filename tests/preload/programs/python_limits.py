"""Memory runs out again and again, under a limit that was set before this program was started.

Each time the interpreter says MemoryError; what is alive keeps its contents, and once the rest is
given back there is as much memory as before. How much there is, is not printed: that may differ.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

ROUNDS = 3
KEPT = 20_000
SMALL, MEDIUM, LARGE = 100, 20_000, 3 << 20
ENOUGH = 32 << 20  # bytes that must be had under the limits that this runs under

kept = {f"key {number}": f"value {number} " * (number % 20) for number in range(KEPT)}


def digest() -> str:
    return hashlib.sha256(repr(kept).encode()).hexdigest()


def until_refused(make: Callable[[int], object]) -> int:
    """Collect what `make` returns until memory runs out; return how many there were."""
    collected: list[object] = [None] * 10_000_000  # now: growing it later would fail first
    count = 0
    try:
        while True:
            collected[count] = make(count)
            count += 1
    except MemoryError:
        pass
    return count


def growing(_: int) -> bytearray:
    block = bytearray(SMALL)
    while len(block) < ENOUGH:
        block += bytes(len(block))
    return block


before = digest()
for _ in range(ROUNDS):
    for name, size in (("small", SMALL), ("medium", MEDIUM), ("large", LARGE)):
        had = until_refused(lambda number, size=size: number.to_bytes(size, "little"))
        print(name, "blocks ran out; there were enough:", had * size > ENOUGH)
    print("growing blocks ran out; there was one:", until_refused(growing) > 0)
print("what was kept is as it was:", digest() == before)
