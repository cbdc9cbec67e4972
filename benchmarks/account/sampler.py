"""What does sampling cost, in instructions?

Micro-benchmarks run under Valgrind, which counts the instructions of all threads the same way on
any machine, however busy it is: with `sample:512k`, with `sample:0`, and with nothing set. So do
some real programs, those of benchmarks/security_cost.py: the micro-benchmarks do little else than
allocate and free.

With nothing set and with `sample:0` the same instructions run. So what the sampler costs while it
is off is told by another build: that of a copy of the source from which each question that malloc
and free ask for its sake alone is taken out (`without_sampler`). What a refill asks for guarded and
for sampled objects in one question stays, since it would be there without the sampler, too.

How much is given back to the kernel depends on the time, and on Valgrind time is long. So that the
same calls take the same instructions, all runs have `decay_ms` without a limit, and no background
thread.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
from dataclasses import dataclass
from pathlib import Path

from heapfit import paths
from security_cost import PROGRAMS

from account.common import ROOT, Figures, Row, say

MICRO = ROOT / "workloads" / "micro"
ON, OFF = "sample:512k", "sample:0"
ALL = "decay_ms:unlimited,background:off"
MOST_ON, MOST_OFF = 1.005, 1.0005
# The program's words, so that a run takes some hundred million instructions.
COMMANDS = {
    "churn": "churn --live 100000 --size 64 --scale 6",
    "churn-pairs": "churn --live 0 --size 64 --scale 8",
    "calloc-burst": "calloc-burst --scale 5",
    "cold-sweep": "cold-sweep --scale 20",
    "fragmentation": "fragmentation --scale 4",
    "large": "large --scale 10",
    "pareto": "pareto --scale 8",
    "phases": "phases --scale 10",
    "realloc-growth": "realloc-growth --scale 10",
    "larson": "larson --threads 2 --scale 4",
}
REAL = {Path(command[0]).name: command for command in PROGRAMS.values()}
_COUNTED = re.compile(r"I\s+refs:\s+([\d,]+)")


@dataclass(frozen=True)
class Scale:
    """Runs of each program with the sampler on, and the share of their work, in per cent."""

    runs: int = 3
    work: int = 100


def instructions(command: list[str], library: Path, settings: str) -> int:
    """Return how many instructions a run takes, in all its threads."""
    tool = ["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    environment = {
        **os.environ,
        "PYTHONMALLOC": "malloc",
        "LD_PRELOAD": str(library),
        "HEAPFIT_OPTIONS": ",".join(filter(None, [ALL, settings])),
    }
    done = subprocess.run(
        ["valgrind", *tool, *command], env=environment, capture_output=True, text=True, check=True
    )
    found = _COUNTED.search(done.stderr)
    if found is None:
        raise SystemExit(f"valgrind did not count: {done.stderr[-500:]}")
    return int(found[1].replace(",", ""))


# ------------------------------------------------- the library without it

_COPIED = ("CMakeLists.txt", "allocator", "cmake", "include", "lab")
# By file: what a line is that asks for the sampler's sake, and what is there instead.
_TAKEN_OUT = {
    "heap/sample.h": [(r"return atomic_load_explicit\(&sample_mean, .*", "return 0;")],
    "heap/bin.c": [(r"if \((UNLIKELY\()?span->sampled\)+", "if (0)")],
    "heap/object.c": [(r"if \((UNLIKELY\()?span->sampled\)+", "if (0)")],
}


def taken_out(text: str, file: str) -> str:
    """Return a source without what is asked for the sampler's sake; an error if it asks nothing."""
    for line, instead in _TAKEN_OUT[file]:
        text, times = re.subn(line, instead, text)
        if not times:
            raise SystemExit(
                f"{file} has no {line!r}: bring benchmarks/account/sampler.py up to date"
            )
    return text


def without_sampler(folder: Path) -> Path:
    """Build the library without the sampler's questions."""
    copy, build = folder / "source", folder / "build"
    copy.mkdir()
    for name in _COPIED:
        source, target = ROOT / name, copy / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    for file in _TAKEN_OUT:
        path = copy / "allocator" / file
        path.write_text(taken_out(path.read_text(), file))
    return built(copy, build)


def built(source: Path, build: Path) -> Path:
    """Build the library of a source folder as `cmake --preset release` does."""
    options = ["-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DHEAPFIT_BUILD_TESTS=OFF"]
    options += ["-DHEAPFIT_ALLOW_MISSING=ON", "-DHEAPFIT_INSTALL=OFF"]
    for command in (
        ["cmake", "-S", str(source), "-B", str(build), *options],
        ["nice", "cmake", "--build", str(build), "-j2", "--target", "heapfit"],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{command!r} failed: {(done.stdout + done.stderr)[-2000:]}")
    return build / "libheapfit.so"


# ------------------------------------------------------------ measuring


def scaled(words: str, work: int) -> list[str]:
    """Return a program's words with less work, at least a per cent of all.

    >>> scaled("churn --live 0 --scale 8", 50)
    ['churn', '--live', '0', '--scale', '4']
    """
    *command, scale = words.split()
    return [*command, str(max(1, int(scale) * work // 100))]


def compiled_micro(name: str, folder: Path) -> Path:
    program = folder / name
    if not program.exists():
        source = MICRO / f"{name}.c"
        command: list[str | Path] = [
            "cc",
            "-std=gnu17",
            "-O2",
            "-pthread",
            source,
            "-o",
            program,
            "-lm",
        ]
        subprocess.run(command, check=True)
    return program


def of_program(command: list[str], library: Path, bare: Path, runs: int) -> Figures:
    """Count a program's runs: in turn, since threads do not meet the same way twice."""
    counts: dict[str, list[int]] = {"on": [], "off": [], "unset": [], "without": []}
    for _ in range(runs):
        counts["on"].append(instructions(command, library, ON))
    # A program of one thread takes the same each time, but for how often it looks at the clock.
    for _ in range(max(1, runs - 1)):
        counts["off"].append(instructions(command, library, OFF))
        counts["unset"].append(instructions(command, library, ""))
        counts["without"].append(instructions(command, bare, ""))
    means = {name: statistics.fmean(each) for name, each in counts.items()}
    return {
        "command": " ".join([Path(command[0]).name, *command[1:]])[:100],
        "instructions": counts,
        "on": round(means["on"] / means["off"], 5),
        "unset": round(means["unset"] / means["off"], 5),
        "off": round(means["off"] / means["without"], 5),
    }


def measure(scratch: Path, scale: Scale, only: list[str]) -> Figures:
    library, bare = paths.library(), without_sampler(scratch)
    programs: Figures = {}
    for name in only:
        if name in COMMANDS:
            program, *words = scaled(COMMANDS[name], scale.work)
            command = [str(compiled_micro(program, scratch)), *words]
        else:
            command = REAL[name]
        programs[name] = one = of_program(command, library, bare, scale.runs)
        say(f"sampler: {name}: on {one['on']:.4f}, off {one['off']:.5f}, unset {one['unset']:.5f}")
    return {
        "settings": ON,
        "all": ALL,
        "runs": scale.runs,
        "work": scale.work,
        "programs": programs,
    }


def scatter(one: Figures) -> float:
    """Return by how much runs differ that are the same: a program that draws its hashes anew, say.

    >>> scatter({"instructions": {"off": [1000, 1002], "unset": [1001]}})
    0.002
    """
    same = [*one["instructions"]["off"], *one["instructions"]["unset"]]
    return round(float(max(same) / min(same) - 1), 5)


def _row(key: str, figure: str, goal: float, programs: Figures) -> Row:
    """A ratio is above its goal when it is by more than runs of the same differ."""
    worst = max(programs.values(), key=lambda one: one[key])
    mean = statistics.geometric_mean(one[key] for one in programs.values())
    [name] = [name for name, one in programs.items() if one is worst]
    told = f"{mean:.4f} in the geometric mean, {worst[key]:.4f} at most (`{name}`"
    if key == "off":
        told += f", where runs of the same differ by {scatter(worst):.4f}"
    is_reached = all(one[key] - scatter(one) <= goal for one in programs.values())
    return Row(figure, f"≤ {goal} each", f"{told})", is_reached)


def rows(found: Figures) -> list[Row]:
    made = []
    for key, figure, goal in (
        ("on", f"instructions with `{ON}` over those with `{OFF}`", MOST_ON),
        ("off", f"instructions with `{OFF}` over those without the sampler's code", MOST_OFF),
    ):
        for kind, known in (("micro-benchmarks", COMMANDS), ("real programs", REAL)):
            programs = {name: one for name, one in found["programs"].items() if name in known}
            if programs:
                made.append(_row(key, f"{figure}, {len(programs)} {kind}", goal, programs))
    return made
