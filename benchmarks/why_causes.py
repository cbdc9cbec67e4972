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

and `scripts/update-docs why` then writes the table of docs/results/account.md. The two programs in
a container need a control group that it may make (root). Needs Debian's gcc,
openjdk-17-jdk-headless, nodejs, python3, ruby, php-cli, golang-go, libjemalloc2, libmimalloc2.0,
libtcmalloc-minimal4, and for --ledger what benchmarks/accounts.py names. Exits 1 when more than two
programs are misjudged.
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
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from account import why as account_why
from account.common import HEAPFIT, Figures, Row, hear, lab_environment, percent, say, started
from container import MIB, control_group
from heapfit import catalogue

SOURCES = Path(__file__).resolve().parent / "why"
MOST_WRONG, MOST_FALSE = 2, 0.1
MAPPINGS = (10_000, 1_000_000)
MOST_SECONDS = 1.0  # for the fewest
MAX_MAP_COUNT = Path("/proc/sys/vm/max_map_count")


@dataclass(frozen=True)
class Planted:
    """A program with one cause. In `command`, FOLDER is where it is compiled, FILE is its own."""

    cause: str
    command: str
    also: tuple[str, ...] = ()  # true too, but not what is to come first
    allocator: str = ""  # a name of the catalogue; empty: glibc
    limit: int = 0  # MiB of its control group; 0: it has none


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
    "after a peak, heapfit": Planted("heapfit", "retained", allocator="heapfit"),
    "large blocks": Planted("mapped", "large"),
    "Java": Planted("java", "java -Xmx1g -cp FOLDER Objects"),
    "Node.js": Planted("node", "node objects.js"),
    "Python": Planted("python", "/usr/bin/python3 objects.py"),
    "Ruby": Planted("ruby", "ruby objects.rb", ("malloc",)),
    "PHP": Planted("php", "php objects.php"),
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
    commands = [["javac", "-d", str(folder), str(SOURCES / "Objects.java")]]
    commands += [["go", "build", "-o", str(folder / "objects"), str(SOURCES / "objects.go")]]
    for source in SOURCES.glob("*.c"):
        commands.append(["cc", "-O1", "-pthread", str(source), "-o", str(folder / source.stem)])
    for words in commands:
        if shutil.which(words[0]):
            subprocess.run(words, check=True)


@contextmanager
def planted_process(planted: Planted, folder: Path) -> Iterator[int]:
    """Start a program, and give its number when its memory is there."""
    places = {"FOLDER": str(folder), "FILE": str(folder / "data")}
    words = [places.get(each, each) for each in planted.command.split()]
    words = [str(SOURCES / each) if each.startswith("objects.") else each for each in words]
    environment = {**os.environ, "HEAPFIT_OPTIONS": "background:off"}
    if planted.allocator:
        installed = catalogue.find_installed(catalogue.load_allocators()[planted.allocator])
        if installed is None:
            raise FileNotFoundError(planted.allocator)
        environment["LD_PRELOAD"] = str(installed.library)
    path = f"{folder}:{os.environ['PATH']}"
    words[0] = shutil.which(words[0], path=path) or words[0]
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


def causes(folder: Path, names: list[str], found: Figures) -> None:
    """Look at planted programs, and put what is said of each into `found`."""
    found |= {"programs": found.get("programs", {}), "skipped": []}
    for name in names:
        try:
            with planted_process(PLANTED[name], folder) as pid:
                one = judged(PLANTED[name], why(pid))
        except FileNotFoundError as error:
            found["skipped"].append(name)
            say(f"{name} is left out: there is no {error}")
            continue
        found["programs"][name] = one
        other = f"then {one['false'] or 'none'}, {percent(one['false_share'])}"
        mark = "" if one["right"] else "   WRONG"
        say(f"{name:26} {one['first']:13} {percent(one['share']):>7}   {other}{mark}")


def processor_s() -> float:
    """Return what the commands that have ended took."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def mappings(folder: Path) -> list[Figures]:
    """Time the whole command for processes of many mappings, as it is started from a shell."""
    before = MAX_MAP_COUNT.read_text()
    found = []
    try:
        for number in MAPPINGS:
            if number >= int(before):
                MAX_MAP_COUNT.write_text(str(number + 1000))
            with planted_process(Planted("", f"mappings {number}"), folder) as pid:
                before_s, start_s = processor_s(), time.monotonic()
                why(pid)
                wall, used = time.monotonic() - start_s, processor_s() - before_s
            say(f"{number:,} mappings: {wall:.2f} s, {used:.2f} s of a processor")
            figures = {"wall_s": round(wall, 3), "processor_s": round(used, 3)}
            found.append({"mappings": number, **figures})
    finally:
        MAX_MAP_COUNT.write_text(before)
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
        figure = (
            f"`heapfit why PID` with {each['mappings']:,} mappings: time of a processor (in all)"
        )
        measured = f"{each['processor_s']:.2g} s ({each['wall_s']:.2g} s)"
        goal = "" if at else f"≤ {MOST_SECONDS:g} s"
        rows.append(
            Row(figure, goal, measured, None if at else each["processor_s"] <= MOST_SECONDS)
        )
    return [*rows, *account_why.rows(found.get("real", {}))]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", type=Path, help="store the result; parts not measured stay")
    parser.add_argument("--only", choices=PLANTED, help="of the planted programs")
    parser.add_argument("--mappings", action="store_true")
    parser.add_argument("--ledger", action="store_true")
    arguments = parser.parse_args()
    path: Path | None = arguments.json
    found: Figures = json.loads(path.read_text()) if path and path.exists() else {}
    found |= {"date": datetime.now(UTC).isoformat(timespec="seconds"), "kernel": platform.release()}
    with tempfile.TemporaryDirectory(prefix="heapfit-why-") as made:
        build(Path(made))
        causes(Path(made), [arguments.only] if arguments.only else list(PLANTED), found)
        found |= {"mappings": mappings(Path(made))} if arguments.mappings else {}
        found |= {"real": account_why.measure(Path(made), why)} if arguments.ledger else {}
    if path:
        path.write_text(json.dumps(found, indent=1) + "\n")
    rows = all_rows(found)
    print(*rows, sep="\n")
    return 0 if rows[0].is_reached else 1


if __name__ == "__main__":
    sys.exit(main())
