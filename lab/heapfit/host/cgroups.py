"""What a process's control groups allow it, of version 1 and 2: memory and processors."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_TOP = Path("/sys/fs/cgroup")
# A limit of version 1 that is none: the largest number of whole pages.
_NONE_V1 = 1 << 62


@dataclass(frozen=True)
class Memory:
    """A limit on memory and what is used of it, in bytes. `cache` is page cache, which the kernel
    takes back before it ends anybody; shared memory is none. `file` is where the limit stands, and
    `own` what a process itself may have only so much of; empty: it is a group's."""

    limit: int
    used: int
    cache: int
    file: str
    own: str = ""


def own_groups() -> list[str]:
    """Return the control groups of this process, as /proc/PID/cgroup has them."""
    try:
        return Path("/proc/self/cgroup").read_text(errors="replace").split("\n")
    except OSError:  # a kernel without control groups
        return []


def memory_of(groups: Iterable[str], top: Path = _TOP) -> Memory | None:
    """Return the limit that is nearest, of these groups (lines of /proc/PID/cgroup) and those above
    them; None where there is none."""
    found = [limit for folder in _folders(groups, "memory", top) for limit in _memory(folder)]
    return max(found, key=lambda each: each.used / max(each.limit, 1), default=None)


def cores_of(groups: Iterable[str], top: Path = _TOP) -> float | None:
    """Return how many processors' time these groups and those above them may use; None: any."""
    found = []
    for folder in _folders(groups, "cpu", top):
        quota, period = [*_words(folder / "cpu.max"), "", ""][:2]  # of version 2; of version 1:
        quota = quota or "".join(_words(folder / "cpu.cfs_quota_us"))
        period = period or "".join(_words(folder / "cpu.cfs_period_us"))
        if quota.isdecimal() and period.isdecimal():  # not "max" or -1
            found.append(int(quota) / int(period))
    return min(found, default=None)


def _folders(groups: Iterable[str], controller: str, top: Path) -> Iterator[Path]:
    """Yield the folder of each group that may have the controller, and those above it."""
    for line in groups:
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers and controller not in controllers.split(","):
            continue
        root = top / controller if controllers else top
        folder = root / path.strip("/")
        yield from (each for each in (folder, *folder.parents) if each.is_relative_to(root))


def _memory(folder: Path) -> Iterator[Memory]:
    version_2 = ("memory.max", "memory.high"), "memory.current", ("file", "shmem")
    version_1 = ("memory.limit_in_bytes",), "memory.usage_in_bytes", ("total_cache", "total_shmem")
    for limits, usage, (cache, shared) in (version_2, version_1):
        used = "".join(_words(folder / usage))
        for limit in limits:
            most = "".join(_words(folder / limit))
            if most.isdecimal() and int(most) < _NONE_V1 and used:
                words = _words(folder / "memory.stat")
                held = dict(zip(words[::2], map(int, words[1::2]), strict=True))
                of_files = max(held.get(cache, 0) - held.get(shared, 0), 0)
                yield Memory(int(most), int(used), of_files, str(folder / limit))


def _words(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").split()
    except OSError:
        return []
