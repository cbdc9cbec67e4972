"""What memory a process may have, and how near it is: its control group's limits, its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_V2, _V1 = Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory")
# A limit of version 1 that is none: the largest number of whole pages.
_NONE_V1 = 1 << 62


@dataclass(frozen=True)
class Group:
    """Memory of a control group in bytes, with the files that say so. `file` is page cache, which
    the kernel takes back before it ends anybody; shared memory is none."""

    limit: int
    used: int
    file: int
    limit_file: str
    high: int | None = None  # above it, what allocates is slowed down


def group_of(lines: list[str], root: Path = Path("/")) -> Group | None:
    """Return the nearest limit of the group that /proc/PID/cgroup names in `lines`, or of one
    above it; None where there is none."""
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            found = _nearest(root / _V2.relative_to("/"), path, _read_v2)
        elif "memory" in controllers.split(","):
            found = _nearest(root / _V1.relative_to("/"), path, _read_v1)
        else:
            continue
        if found is not None:
            return found
    return None


def _nearest(top: Path, path: str, read: Callable[[Path], Group | None]) -> Group | None:
    folder = top / path.strip("/")
    folders = [folder, *folder.parents]
    groups = [each for each in folders if each == top or top in each.parents]
    found = [group for each in groups if (group := read(each)) is not None]
    return min(found, key=lambda each: each.limit - each.used, default=None)


def _read_v2(folder: Path) -> Group | None:
    limit, used = _number(folder / "memory.max"), _number(folder / "memory.current")
    if limit is None or used is None:
        return None
    file = _page_cache(folder, "file", "shmem")
    return Group(limit, used, file, str(folder / "memory.max"), _number(folder / "memory.high"))


def _read_v1(folder: Path) -> Group | None:
    limit = _number(folder / "memory.limit_in_bytes")
    used = _number(folder / "memory.usage_in_bytes")
    if limit is None or used is None or limit > _NONE_V1:
        return None
    file = _page_cache(folder, "total_cache", "total_shmem")
    return Group(limit, used, file, str(folder / "memory.limit_in_bytes"))


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # not there, or "max"
        return None


def _page_cache(folder: Path, cache: str, shared: str) -> int:
    try:
        lines = (folder / "memory.stat").read_text().splitlines()
    except OSError:
        return 0
    figures = {name: int(value) for name, value in (line.split() for line in lines)}
    return max(figures.get(cache, 0) - figures.get(shared, 0), 0)


def own_limits(lines: list[str]) -> dict[str, int]:
    """Return the soft limits in the lines of /proc/PID/limits that bound memory, in bytes.

    >>> own_limits(["Max address space   1024   unlimited   bytes"])
    {'address space': 1024}
    """
    found = {}
    for line in lines:
        for name in ("address space", "data size"):
            words = line.removeprefix(f"Max {name}").split()
            if line.startswith(f"Max {name}") and words[0].isdecimal():
                found[name] = int(words[0])
    return found
