"""What php-fpm's workers have used, read from /proc while they live."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_KIB = 1024


@dataclass(frozen=True)
class Workers:
    """The processes that run PHP for the stack whose scratch folder this is."""

    processes: tuple[int, ...]

    @classmethod
    def of(cls, scratch: Path) -> Workers:
        stack = json.loads((scratch / "stack.json").read_text(encoding="utf-8"))
        fpm = int(stack["fpm"])
        children = Path(f"/proc/{fpm}/task/{fpm}/children").read_text().split()
        if len(children) != stack["workers"]:
            sys.exit(f"drive.py: php-fpm has {len(children)} workers, not {stack['workers']}")
        return cls(tuple(sorted(map(int, children))))

    def cpu_s(self) -> float:
        """User and system time of all since their start, to the tick."""
        return sum(map(_cpu_s, self.processes))

    def rss_bytes(self) -> float:
        """Resident memory, the mean of the workers."""
        return self._mean("Rss")

    def pss_bytes(self) -> float:
        """The same where a page that several share counts in parts."""
        return self._mean("Pss")

    def _mean(self, name: str) -> float:
        sizes = [_rollup(process)[name] for process in self.processes]
        return sum(sizes) / len(sizes)


def _cpu_s(process: int) -> float:
    # The name before the last ")" may hold anything; utime and stime are fields 14 and 15.
    values = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(values[11]) + int(values[12])) * _TICK_S


def _rollup(process: int) -> dict[str, int]:
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:]
    return {line.split(":")[0]: int(line.split()[1]) * _KIB for line in lines}
