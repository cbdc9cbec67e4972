"""The mappings of a process with what is resident of each: /proc/PID/smaps."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

_KIB = 1024
_FIELDS = {
    b"Rss": ("resident",),
    b"Pss": ("proportional",),
    b"Anonymous": ("anonymous",),
    b"LazyFree": ("lazily_freed",),
    b"AnonHugePages": ("huge",),
    b"Swap": ("swapped",),
    # Huge pages of the pool (hugetlbfs), which the kernel counts in no process's resident size.
    b"Private_Hugetlb": ("resident", "pool"),
    b"Shared_Hugetlb": ("resident", "pool"),
}


class Mapping(NamedTuple):
    """A mapping; sizes are in bytes."""

    start: int
    end: int
    permissions: str
    device: str  # of the file, as the kernel writes it
    path: str  # empty: anonymous memory
    resident: int = 0
    proportional: int = 0  # of a page that several processes share, each has its part
    anonymous: int = 0
    lazily_freed: int = 0
    huge: int = 0
    swapped: int = 0
    pool: int = 0

    @property
    def size(self) -> int:
        return self.end - self.start


def parse(lines: Iterable[bytes]) -> Iterator[Mapping]:
    """Yield the mappings of a smaps file, in the order of their addresses.

    A mapping that grows while the file is read is listed by the kernel twice, if a read ends
    between the two: the second time counts.

    >>> [one] = parse([b"1000-3000 rw-p 0 00:00 0 [heap]", b"Rss: 8 kB", b"VmFlags: rd wr"])
    >>> one.path, one.size, one.resident, one.swapped
    ('[heap]', 8192, 8192, 0)
    """
    mapping: Mapping | None = None
    sizes: dict[str, Any] = {}
    for line in lines:
        if line[:1].isupper():
            field, _, value = line.partition(b":")
            for name in _FIELDS.get(field, ()):
                sizes[name] = sizes.get(name, 0) + int(value.split()[0]) * _KIB
            continue
        again = _header(line)
        if mapping is not None and again.start != mapping.start:
            yield mapping._replace(**sizes)
        mapping, sizes = again, {}
    if mapping is not None:
        yield mapping._replace(**sizes)


def _header(line: bytes) -> Mapping:
    addresses, permissions, _offset, device, _inode, *path = line.rstrip(b"\n").split(maxsplit=5)
    start, _, end = addresses.partition(b"-")
    return Mapping(
        start=int(start, 16),
        end=int(end, 16),
        permissions=permissions.decode(),
        device=device.decode(),
        path=path[0].decode(errors="replace") if path else "",
    )
