"""What the kernel says of a process's memory: resident, and how much of it is in huge pages."""

from __future__ import annotations

from dataclasses import dataclass

_KIB = 1024


@dataclass(frozen=True)
class ProcessMemory:
    """Of the whole process, not of its heap alone. In bytes."""

    resident: int
    huge: int

    @property
    def huge_share(self) -> float:
        """The part of the resident memory that huge pages back, from 0 to 1."""
        return self.huge / self.resident if self.resident else 0.0


def read_memory(pid: int) -> ProcessMemory | None:
    """Return the sizes; None when the process has ended or is not ours to look at."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as rollup:
            return parse_memory(rollup.read())
    except OSError:
        return None


def parse_memory(rollup: bytes) -> ProcessMemory | None:
    """Return the sizes in the text of a smaps_rollup.

    >>> parse_memory(b"00400000-7fff [rollup]\\nRss: 4096 kB\\nAnonHugePages: 2048 kB\\n")
    ProcessMemory(resident=4194304, huge=2097152)
    """
    lines = (line.split() for line in rollup.splitlines())
    sizes = {words[0]: int(words[1]) * _KIB for words in lines if words[-1:] == [b"kB"]}
    if b"Rss:" not in sizes:
        return None
    # Pages of the kernel's pool are not in Rss.
    pool = sizes.get(b"Private_Hugetlb:", 0) + sizes.get(b"Shared_Hugetlb:", 0)
    huge = sizes.get(b"AnonHugePages:", 0) + pool
    return ProcessMemory(resident=sizes[b"Rss:"] + pool, huge=huge)
