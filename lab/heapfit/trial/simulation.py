"""Metric sources: instructions, cache and TLB misses as Valgrind simulates them.

For machines whose processor shows no counters. Valgrind's cachegrind executes the program one
thread at a time, some fifty times slower, and counts exactly what its model of the caches does:
the figures repeat almost to the digit, but threads never meet in a cache, prefetching is unknown,
and addresses stand for memory as they are. So each is a run of its own, and labelled.

The caches are modelled after this machine's first and last level as the kernel describes them.
Valgrind's own guess may take the caches of all processors of a server for one, or may not know the
associativity. The TLB is the same model with pages for lines: a first level for instructions and
one for data, and a second level that both share. It has only pages of 4 KiB, so it does not show
what huge pages save.

A process that forks without executing another program takes its counts so far along, and they
count again in the child.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from heapfit.trial.launcher import Ended
from heapfit.trial.source import Source, SourceFailed, cost

# Cachegrind's names. Ir: instructions read. The others are misses (m) of instructions (I) or data
# (D) at the first (1) or the last level (L), of reads (r) or writes (w).
INSTRUCTIONS = ("Ir",)
FIRST_LEVEL_DATA = ("D1mr", "D1mw")
LAST_LEVEL = ("ILmr", "DLmr", "DLmw")
LAST_LEVEL_DATA = ("DLmr", "DLmw")

# size,ways,line size: 64 entries of one page for either side, four and eight ways, and 1536 behind
# them in twelve ways, as x86-64 server processors have had them since 2015.
_PAGE = 4096
_TLB = (
    f"--I1={64 * _PAGE},8,{_PAGE}",
    f"--D1={64 * _PAGE},4,{_PAGE}",
    f"--LL={1536 * _PAGE},12,{_PAGE}",
)

OUTPUT = "cachegrind.*"
_BY_VALGRIND = "simulated by Valgrind in a run of its own"

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


class _Cachegrind(Source):
    own_run = True
    # Usually 20 to 50 times; a program with many threads is serialised on top.
    slowdown = 100.0

    events: ClassVar[Mapping[str, Sequence[str]]] = {}  # what each metric adds up

    def __init__(self) -> None:
        self._folder: Path | None = None

    @classmethod
    def unavailable(cls) -> str | None:
        return None if shutil.which("valgrind") else "valgrind is not installed (apt: valgrind)"

    def geometry(self) -> Sequence[str]:
        """Return Valgrind's options that say what its caches are like."""
        raise NotImplementedError

    def wrap(self, command: list[str], folder: Path) -> list[str]:
        self._folder = folder
        return [*cachegrind(folder, "--cache-sim=yes", *self.geometry()), *command]

    def figures(self, ended: Ended) -> dict[str, float]:
        assert self._folder is not None, "wrap() comes first"
        totals = [read_totals(path) for path in self._folder.glob(OUTPUT)]
        if not totals:
            raise SourceFailed("valgrind wrote no result; does it run the program at all?")
        return {
            metric: float(sum(process[name] for process in totals for name in names))
            for metric, names in self.events.items()
        }


class SimulatedCaches(_Cachegrind):
    metrics = tuple(
        cost(name, f"{label} (simulated)", "count", f"{_BY_VALGRIND}: {what}")
        for name, label, what in (
            ("instructions", "Instructions", "instructions executed"),
            ("l1d_misses", "L1 data cache misses", "loads and stores that missed the L1 cache"),
            ("llc_misses", "Last-level cache misses", "misses of the last level"),
        )
    )
    events: ClassVar[Mapping[str, Sequence[str]]] = {
        "instructions": INSTRUCTIONS,
        "l1d_misses": FIRST_LEVEL_DATA,
        "llc_misses": LAST_LEVEL,
    }

    def geometry(self) -> Sequence[str]:
        return cache_options(CACHES)


class SimulatedTlb(_Cachegrind):
    metrics = (
        cost(
            "dtlb_misses",
            "Data TLB misses (simulated)",
            "count",
            f"{_BY_VALGRIND}: loads and stores that missed both levels of a TLB of 64 and 1536 "
            "entries, if all pages had 4 KiB",
        ),
    )
    events: ClassVar[Mapping[str, Sequence[str]]] = {"dtlb_misses": LAST_LEVEL_DATA}

    def geometry(self) -> Sequence[str]:
        return _TLB


def cachegrind(folder: Path, *options: str) -> list[str]:
    """Return the words before a command, each of whose processes then writes an OUTPUT."""
    place = str(folder).replace("%", "%%")
    return [
        "valgrind",
        "--tool=cachegrind",
        *options,
        "--trace-children=yes",
        f"--log-file={place}/valgrind.%p.log",
        f"--cachegrind-out-file={place}/{OUTPUT.replace('*', '%p')}",
    ]


def cache_options(folder: Path) -> list[str]:
    """Return cachegrind's options for the caches that `folder` describes, as the kernel does.

    None for what is not described: then Valgrind guesses.
    """
    caches = [cache for each in sorted(folder.glob("index*")) if (cache := _read_cache(each))]
    last = max((level for level, _, _ in caches), default=0)
    return [
        f"--{name}={geometry}"
        for name, kind, at in (("I1", "Instruction", 1), ("D1", "Data", 1), ("LL", "Unified", last))
        for level, its_kind, geometry in caches
        if (level, its_kind) == (at, kind)
    ]


def _read_cache(folder: Path) -> tuple[int, str, str] | None:
    """Return a cache's level, its kind, and `size,ways,line size` in bytes; None: not told."""
    try:
        level, ways, line = (
            int((folder / name).read_text())
            for name in ("level", "ways_of_associativity", "coherency_line_size")
        )
        size = int((folder / "size").read_text().strip().removesuffix("K")) << 10
        kind = (folder / "type").read_text().strip()
    except (OSError, ValueError):
        return None
    if min(ways, line, size) <= 0 or size % line:
        return None
    # Cachegrind has powers of two of sets only. Where a cache has not, more ways make up for it.
    sets = 1 << ((size // line // ways).bit_length() - 1)
    return level, kind, f"{size // line // sets * line * sets},{size // line // sets},{line}"


def read_totals(path: Path) -> dict[str, int]:
    """Return the totals of a process from cachegrind's output file, by event."""
    names: list[str] = []
    for line in path.read_text(errors="replace").splitlines():
        key, _, words = line.partition(":")
        if key == "events":
            names = words.split()
        elif key == "summary":
            return dict(zip(names, map(int, words.split()), strict=True))
    raise SourceFailed(f"valgrind did not finish {path.name}; is the disk full?")
