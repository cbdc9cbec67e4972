"""What each mapping is there for: its cause, from its name, its place, and what runs in it.

A cause is certain where the kernel names it, likely where the place of a mapping tells it.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from heapfit.host.contents import ARENA
from heapfit.host.maps import Mapping

# Go's heap grows by so much, at a multiple of it; where it begins is random since 1.26
# (runtime/malloc.go, heapArenaBytes on 64-bit Linux is a multiple; mheap.go, grow).
_GO_GROWS = 4 << 20

# Allocators whose mappings are not told from the program's own.
OF_LIBC = ("glibc", "musl", "")

_SHARED = ("/dev/shm/", "/memfd:", "/SYSV", "/dev/zero")
# What runtimes call their memory, where the kernel takes names (CONFIG_ANON_VMA_NAME).
_NAMES = {"Go: ": "go", "Ruby:": "ruby", "zend_alloc": "php", "glibc:": "glibc"}
_KERNELS = ("[vdso]", "[vvar]", "[vsyscall]", "[vvar_vclock]", "[uprobes]")


@dataclass
class Cause:
    """All mappings that are there for one cause; sizes are in bytes."""

    key: str
    likely: bool  # by its place; else the kernel says so
    mappings: list[Mapping] = field(default_factory=list)
    resident: int = 0
    anonymous: int = 0
    lazily_freed: int = 0
    huge: int = 0
    swapped: int = 0

    def add(self, mapping: Mapping) -> None:
        self.mappings.append(mapping)
        self.resident += mapping.resident
        self.anonymous += mapping.anonymous
        self.lazily_freed += mapping.lazily_freed
        self.huge += mapping.huge
        self.swapped += mapping.swapped

    @property
    def arenas(self) -> int:
        """Heaps of arenas: neighbours that are full are one mapping."""
        return sum(-(-each.size // ARENA) for each in self.mappings)

    def largest(self, number: int) -> list[Mapping]:
        return heapq.nlargest(number, self.mappings, key=lambda each: each.resident)


@dataclass(frozen=True)
class Place:
    """What is known of the process beside its mappings."""

    allocator: str  # its name; empty: not known
    runtime: str | None
    stacks: Collection[int]  # stack pointers of its threads, as far as they may be read
    usual_stack: int = 0  # RLIMIT_STACK, which is the size of a thread's stack; 0: not known
    told: bool = False  # the allocator says what its heap has: that is no matter of mappings
    tmpfs: Collection[str] = ()  # devices of file systems in memory
    variables: Callable[[str], int] = lambda _: 1 << 62  # of a file, behind its data: bytes
    is_arena: Callable[[int], bool] = lambda _: True  # whether glibc has a heap of an arena there


def causes(mappings: Sequence[Mapping], place: Place) -> list[Cause]:
    """Return the causes of all resident and swapped memory, the largest first."""
    found: dict[str, Cause] = {}
    for mapping, (key, likely) in zip(mappings, _keys(mappings, place), strict=True):
        if mapping.resident or mapping.swapped:
            found.setdefault(key, Cause(key, likely)).add(mapping)
    return sorted(found.values(), key=lambda each: -(each.resident + each.swapped))


def _keys(mappings: Sequence[Mapping], place: Place) -> Iterator[tuple[str, bool]]:
    """Yield the cause of each mapping, and whether it is only likely."""
    stacks = sorted(place.stacks)
    for before, mapping, after in _with_neighbours(mappings):
        yield _named(mapping, place) or _anonymous(before, mapping, after, stacks, place)


def _with_neighbours(
    mappings: Sequence[Mapping],
) -> Iterator[tuple[Mapping | None, Mapping, Mapping | None]]:
    for at, mapping in enumerate(mappings):
        before = mappings[at - 1] if at and mappings[at - 1].end == mapping.start else None
        after = mappings[at + 1] if at + 1 < len(mappings) else None
        yield before, mapping, after if after and after.start == mapping.end else None


def _named(mapping: Mapping, place: Place) -> tuple[str, bool] | None:
    path = mapping.path
    if mapping.pool:
        return "hugetlb", False
    if path == "[heap]":
        if place.allocator == "tcmalloc":  # It takes memory from brk(2), too.
            return "tcmalloc", False
        return "malloc" if place.allocator in OF_LIBC else "brk", False
    if path.startswith("[stack"):
        return "stacks", False
    if path in _KERNELS:
        return "kernel", False
    if path.startswith("/dev/zero") and mapping.permissions[3] == "p":
        return None  # It is anonymous memory by another name.
    if path.startswith(_SHARED) or path.startswith("[anon_shmem"):
        return "shared", False
    if path.startswith("[anon:"):
        name = path[6:-1].strip()
        key = next((key for prefix, key in _NAMES.items() if name.startswith(prefix)), None)
        return None if key == "glibc" else (key or f"named {name}", False)
    if path and not path.startswith("["):
        return ("shared" if mapping.device in place.tmpfs else "files"), False
    return None


def _anonymous(
    before: Mapping | None,
    mapping: Mapping,
    after: Mapping | None,
    stacks: Sequence[int],
    place: Place,
) -> tuple[str, bool]:
    if mapping.permissions[3] == "s":
        return "shared", False
    if place.allocator == "glibc" and _is_arena(mapping, after) and place.is_arena(mapping.start):
        return "arenas", True
    # What a program's file does not hold (.bss) is behind its data; with what lies above, it may be
    # one mapping.
    if (
        before is not None
        and before.path.startswith("/")
        and before.permissions == "rw-p"
        and mapping.size <= place.variables(before.path)
    ):
        return "variables", True
    if "x" in mapping.permissions:
        return "jit", True
    if place.runtime == "go" and mapping.start % _GO_GROWS == mapping.end % _GO_GROWS == 0:
        return "go", True  # Stacks of goroutines are in it.
    # The kernel makes one mapping of a stack and a large block beside it; an arena may have the
    # stacks of fibres.
    above, largest = bisect_left(stacks, mapping.start), 2 * max(place.usual_stack, _USUAL_STACK)
    if above < len(stacks) and stacks[above] < mapping.end and mapping.size <= largest:
        return "stacks", True
    # heapfit has guards of its own.
    if place.allocator != "heapfit" and _is_stack(before, mapping):
        return "stacks", True
    of_libc = place.allocator in OF_LIBC or place.told
    # Pages of Ruby's objects come from malloc, or lie beside what does.
    if place.runtime is not None and (of_libc or place.runtime != "ruby"):
        return ("runtime" if place.runtime == "go" else place.runtime), True
    return ("mapped" if of_libc else place.allocator), True


_GUARDS = range(1 << 12, (1 << 16) + 1)
_LEAST_STACK = 64 << 10
_USUAL_STACK = 8 << 20  # glibc keeps those of threads that have ended


def _is_stack(before: Mapping | None, mapping: Mapping) -> bool:
    """Whether a mapping has a guard below it, as the C library gives stacks of threads."""
    return (
        before is not None
        and before.permissions.startswith("---")
        and not before.path
        and before.size in _GUARDS
        and mapping.permissions.startswith("rw")
        and mapping.size >= _LEAST_STACK
        and mapping.size <= _USUAL_STACK
    )


def _is_arena(mapping: Mapping, after: Mapping | None) -> bool:
    """Whether a mapping begins a heap of an arena: the part in use, then what is reserved."""
    if mapping.start % ARENA or not mapping.permissions.startswith("rw"):
        return False
    if mapping.end % ARENA == 0:
        return True
    return after is not None and after.permissions.startswith("---") and after.end % ARENA == 0
