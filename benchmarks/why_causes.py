#!/usr/bin/env python3
"""Does `heapfit why` name the true cause of a program's memory first?

Each program of benchmarks/why has one cause, and most of its memory is there for it. `heapfit why`
looks at it from outside when it says that it is ready. It is right when its first finding names
that cause, and no other cause has more than a tenth of the memory. Three more parts:

  --mappings  how long it takes for a process of 10,000 mappings, and of a million
              (vm.max_map_count is raised for that time, which needs root)
  --ledger    the share of real programs' anonymous memory that is put under a cause while they run
              under heapfit, and how far the sum is from what the kernel counts
  --only NAME one of the planted programs

    .venv/bin/python benchmarks/why_causes.py --mappings --ledger \\
        --json docs/results/why-causes.json

and `scripts/update-docs why` then writes the table of docs/characterise.md. The two programs in a
container need a control group that it may make (root). Needs Debian's gcc, openjdk-17-jdk-headless,
nodejs, python3, ruby, php-cli, golang-go, libjemalloc2, libmimalloc2.0, libtcmalloc-minimal4, and
for --ledger what benchmarks/accounts.py names. Exits 1 when more than two programs are misjudged.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from account import ledger
from account.common import HEAPFIT, Figures, Row, hear, lab_environment, percent, say, started
from container import MIB, control_group
from heapfit import catalogue, paths

SOURCES = Path(__file__).resolve().parent / "why"
MOST_WRONG, MOST_FALSE = 2, 0.1
MAPPINGS = (10_000, 1_000_000)
MOST_SECONDS = 1.0  # for the first of them
MAX_MAP_COUNT = Path("/proc/sys/vm/max_map_count")


@dataclass(frozen=True)
class Planted:
    """A program with one cause. `command` follows `FOLDER/` where it is compiled; FILE in it is a
    file of its own."""

    cause: str
    command: str
    also: tuple[str, ...] = ()  # true too, but not what is to come first
    allocator: str = ""  # a name of the catalogue; empty: glibc
    limit: int = 0  # MiB of its control group; 0: it has none
    environment: dict[str, str] = field(default_factory=dict)


PLANTED = {
    "leak": Planted("malloc", "leak"),
    "arenas of threads": Planted("arenas", "arenas"),
    "huge pages": Planted("huge_pages", "huge", ("mapped",)),
    "stacks of threads": Planted("stacks", "stacks"),
    "page cache of a container": Planted("cache", "cache FILE 230", limit=256),
    "container nearly full": Planted("limit", "leak 230", ("malloc",), limit=256),
    "pinned heap": Planted("free", "pinned", ("malloc",)),
    "after a peak, glibc": Planted("free", "retained"),
    "after a peak, jemalloc": Planted("jemalloc", "retained", allocator="jemalloc"),
    "after a peak, mimalloc": Planted("mimalloc", "retained", allocator="mimalloc2"),
    "after a peak, tcmalloc": Planted("tcmalloc", "retained", allocator="tcmalloc"),
    "after a peak, heapfit": Planted(
        "heapfit",
        "retained",
        allocator="heapfit",
        environment={"HEAPFIT_OPTIONS": "background:off"},
    ),
    "large blocks": Planted("mapped", "large"),
    "Java": Planted("java", "java -Xmx1g -cp FOLDER Objects"),
    "Node.js": Planted("node", "node SOURCES/objects.js"),
    "Python": Planted("python", "/usr/bin/python3 SOURCES/objects.py"),
    "Ruby": Planted("ruby", "ruby SOURCES/objects.rb", ("malloc",)),
    "PHP": Planted("php", "php SOURCES/arrays.php"),
    "Go": Planted("go", "objects"),
    "memfd": Planted("shared", "shared memfd"),
    "System V": Planted("shared", "shared sysv"),
    "/dev/shm": Planted("shared", "shared shm"),
    "shared anonymous": Planted("shared", "shared anonymous"),
    "mapped file": Planted("files", "file FILE"),
    "JIT code": Planted("jit", "jit"),
    "variables": Planted("variables", "variables"),
    "lazily freed": Planted("lazily_freed", "lazy"),
}


def build(folder: Path) -> None:
    """Compile the planted programs."""
    for source in SOURCES.glob("*.c"):
        words = ["cc", "-O1", "-g", "-pthread", str(source), "-o", str(folder / source.stem)]
        subprocess.run(words, check=True)
    for words in (
        ["javac", "-d", str(folder), str(SOURCES / "Objects.java")],
        ["go", "build", "-o", str(folder / "objects"), str(SOURCES / "objects.go")],
    ):
        if shutil.which(words[0]):
            subprocess.run(words, check=True, env={**os.environ, "GOFLAGS": "-mod=mod"})


def words_of(planted: Planted, folder: Path) -> list[str]:
    words = [
        each.replace("FOLDER", str(folder)).replace("SOURCES", str(SOURCES))
        for each in planted.command.split()
    ]
    if (folder / words[0]).exists():
        words[0] = str(folder / words[0])
    return [str(folder / "data") if each == "FILE" else each for each in words]


@contextmanager
def planted_process(planted: Planted, folder: Path) -> Iterator[int]:
    """Start a program, and give its number when its memory is there."""
    words = words_of(planted, folder)
    environment = {**os.environ, **planted.environment}
    if planted.allocator == "heapfit":
        environment["LD_PRELOAD"] = str(paths.library())
    elif planted.allocator:
        installed = catalogue.find_installed(catalogue.load_allocators()[planted.allocator])
        if installed is None:
            raise FileNotFoundError(planted.allocator)
        environment["LD_PRELOAD"] = str(installed.library)
    if shutil.which(words[0]) is None:
        raise FileNotFoundError(words[0])
    with ExitStack() as stack:
        if planted.limit:
            group = stack.enter_context(control_group(planted.limit * MIB))
            words = ["sh", "-c", f'echo $$ >{group}/cgroup.procs && exec "$@"', "sh", *words]
        process = stack.enter_context(started(words, folder, environment))
        while hear(process) != "ready":
            pass
        yield process.pid


def why(pid: int) -> Figures:
    command = [*HEAPFIT, "why", str(pid), "--json"]
    done = subprocess.run(command, env=lab_environment(), stdout=subprocess.PIPE, check=True)
    found: Figures = json.loads(done.stdout)
    return found


def judged(planted: Planted, found: Figures) -> Figures:
    """Return what was said of a planted program, and whether it is right."""
    first = found["findings"][0]
    whole = max(found["resident"] + found["swapped"], first["size"])
    others = [
        (each["size"] / whole, each["cause"])
        for each in found["findings"]
        if not each["of_all"] and each["cause"] not in (planted.cause, *planted.also)
    ]
    share, false = max(others, default=(0.0, ""))
    return {
        "cause": planted.cause,
        "first": first["cause"],
        "share": round(first["size"] / whole, 3),
        "false": false,
        "false_share": round(share, 3),
        "right": first["cause"] == planted.cause and share <= MOST_FALSE,
    }


def causes(folder: Path, only: str | None) -> Figures:
    found: Figures = {"programs": {}, "skipped": []}
    for name in [only] if only else PLANTED:
        planted = PLANTED[name]
        try:
            with planted_process(planted, folder) as pid:
                one = judged(planted, why(pid))
        except FileNotFoundError as error:
            found["skipped"].append(name)
            say(f"{name} is left out: there is no {error}")
            continue
        finally:
            (folder / "data").unlink(missing_ok=True)
        found["programs"][name] = one
        mark = "" if one["right"] else "   WRONG"
        say(f"{name:26} {one['first']:13} {percent(one['share']):>7}   "
            f"then {one['false'] or 'none'}, {percent(one['false_share'])}{mark}")  # fmt: skip
    return found


def mappings(folder: Path) -> list[Figures]:
    """Time the whole command for processes of many mappings, as it is started from a shell."""
    before = MAX_MAP_COUNT.read_text()
    found = []
    try:
        for number in MAPPINGS:
            if number >= int(before):
                MAX_MAP_COUNT.write_text(str(number + 1000))
            with planted_process(Planted("", f"mappings {number}"), folder) as pid:
                used, start_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
                why(pid)
                wall = time.monotonic() - start_s
                now = resource.getrusage(resource.RUSAGE_CHILDREN)
            processor = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
            found.append({"mappings": number, "wall_s": round(wall, 3),
                          "processor_s": round(processor, 3)})  # fmt: skip
            say(f"{number:,} mappings: {wall:.2f} s, {processor:.2f} s of a processor")
    finally:
        MAX_MAP_COUNT.write_text(before)
    return found


# Of these no more is known than that the memory is there.
NO_CAUSE = ("mapped", "brk", "anonymous")


def looked_at(pid: int) -> Figures:
    """Compare what `heapfit why` says with what the kernel counts before and after."""
    before = ledger.kernels(pid)
    found = why(pid)
    after = ledger.kernels(pid)
    parts = {each["cause"]: each["size"] for each in found["findings"] if not each["of_all"]}
    resident = (before.resident + after.resident) / 2
    without = sum(parts.get(each, 0) for each in NO_CAUSE)
    return {
        "smaps": [before.resident, after.resident],
        "share": round(1 - without / ((before.anonymous + after.anonymous) / 2), 4),
        "difference": round(abs(sum(parts.values()) - found["swapped"] - resident) / resident, 5),
        "causes": parts,
    }


def real(folder: Path) -> Figures:
    """Look at real programs under heapfit, at rest after some seconds of load."""
    found: Figures = {}
    scale = ledger.Scale(seconds=2, looks=1)
    for name, program in ledger.PROGRAMS.items():
        if ledger.missing(program):
            say(f"{name} is left out: it is not installed")
            continue
        (folder / name).mkdir()
        for moment, pid in program.moments(folder / name, scale):
            if moment == ledger.AFTER:
                found[name] = one = looked_at(pid)
                say(f"{name}: {percent(one['share'])} has a cause; "
                    f"off smaps by {percent(one['difference'], 2)}")  # fmt: skip
    return found


def all_rows(found: Figures) -> list[Row]:
    """Return the lines of the table."""
    programs = found["programs"]
    right = sum(each["right"] for each in programs.values())
    wrong = ", ".join(name for name, each in programs.items() if not each["right"])
    rows = [
        Row(
            "programs whose true cause is named first, and none of more than 10 % that is false",
            f"≥ {len(programs) - MOST_WRONG} of {len(programs)}",
            f"{right} of {len(programs)}" + (f" (not: {wrong})" if wrong else ""),
            right >= len(programs) - MOST_WRONG,
        )
    ]
    for at, each in enumerate(found.get("mappings", [])):
        rows.append(
            Row(
                f"`heapfit why PID` with {each['mappings']:,} mappings: time",
                "" if at else f"≤ {MOST_SECONDS:g} s",
                f"{each['wall_s']:.2g} s ({each['processor_s']:.2g} s of a processor)",
                None if at else each["processor_s"] <= MOST_SECONDS,
            )
        )
    if found.get("real"):
        shares = {name: each["share"] for name, each in found["real"].items()}
        least = min(shares, key=shares.__getitem__)
        off = max(each["difference"] for each in found["real"].values())
        rows.append(
            Row(
                f"anonymous memory under a cause, {len(shares)} real programs under heapfit "
                "(see below): the least share; off `smaps` by at most",
                f"≥ {percent(ledger.LEAST_SHARE, 0)}; ≤ {percent(ledger.MOST_DIFFERENCE, 0)}",
                f"{percent(shares[least])} (`{least}`); {percent(off, 2)}",
                shares[least] >= ledger.LEAST_SHARE and off <= ledger.MOST_DIFFERENCE,
            )
        )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", type=Path, help="store the result; parts not measured stay")
    parser.add_argument("--only", choices=PLANTED, help="look at one of the planted programs")
    parser.add_argument("--mappings", action="store_true")
    parser.add_argument("--ledger", action="store_true")
    arguments = parser.parse_args()
    path: Path | None = arguments.json
    found: Figures = json.loads(path.read_text()) if path and path.exists() else {}
    found |= {"date": datetime.now(UTC).isoformat(timespec="seconds"), "kernel": platform.release()}
    with tempfile.TemporaryDirectory(prefix="heapfit-why-") as made:
        folder = Path(made)
        build(folder)
        found |= causes(folder, arguments.only)
        if arguments.mappings:
            found["mappings"] = mappings(folder)
        if arguments.ledger:
            found["real"] = real(folder)
    if path:
        path.write_text(json.dumps(found, indent=1) + "\n")
    rows = all_rows(found)
    print(*rows, sep="\n")
    return 0 if rows[0].is_reached else 1


if __name__ == "__main__":
    sys.exit(main())
