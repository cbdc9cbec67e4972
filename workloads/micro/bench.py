#!/usr/bin/env python3
r"""Compare allocators on the micro-benchmark programs; needs only Python and a C compiler.

    workloads/micro/bench.py heapfit=build/release/libheapfit.so \
        jemalloc=/usr/lib/x86_64-linux-gnu/libjemalloc.so.2 --replicates 5

The system's malloc (`glibc`) always takes part. Each replicate runs every test under every
allocator in a random order. The tables show the median of each test's time and peak resident
memory as ratios to the best *peer* of that test, that is, to the best allocator other than
`--subject`, and their geometric means. A test whose output differs between allocators, or that
fails, is an error. Programs that answer a question of their own ("probes": a footprint, a scaling
curve) are run with `--probes` and shown by their own figures.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CORE_STUDY = HERE.parent.parent / "studies" / "core.toml"
SYSTEM = "glibc"


@dataclass
class Test:
    """A workload.toml of this folder with its program compiled."""

    name: str
    command: list[str]
    metrics: list[dict[str, Any]]
    compare_output: bool
    must_match: str | None
    timeout_s: float


@dataclass
class Result:
    """One run: what it cost, what it printed, and why it does not count, if so."""

    test: str
    allocator: str
    replicate: int
    figures: dict[str, float] = field(default_factory=dict)
    output: str = ""
    problem: str = ""


# ------------------------------------------------------------------ preparation


def expand(
    words: Iterable[str], data: Path, cores: int, parameters: dict[str, str] | None = None
) -> list[str]:
    """Fill in the placeholders that the micro workloads use."""
    values = {"{data}": str(data), "{cores}": str(cores)}
    values |= {f"{{{name}}}": value for name, value in (parameters or {}).items()}
    return [re.sub(r"\{\w+\}", lambda m: values.get(m[0], m[0]), word) for word in words]


def load_test(path: Path, build: Path, cores: int, scale: int) -> Test:
    """Read a workload, compile its program into `build` and return what to run."""
    with path.open("rb") as file:
        workload = tomllib.load(file)
    prepare = [w.replace("{here}", str(path.parent)) for w in workload["prepare"]["command"]]
    subprocess.run(expand(prepare, build, cores), check=True)
    run, check = workload["run"], workload.get("check", {})
    command = expand(run["command"], build, cores, workload.get("parameters"))
    return Test(
        name=workload["name"],
        command=command + (["--scale", str(scale)] if scale != 100 else []),
        metrics=workload.get("metrics", []),
        compare_output=check.get("stdout", "same") == "same",
        must_match=check.get("must_match"),
        timeout_s=run.get("timeout_s", 300.0),
    )


def core_tests() -> tuple[list[str], list[str]]:
    """Names of this folder's tests that the core study averages, and of its other ones."""
    with CORE_STUDY.open("rb") as file:
        averaged = tomllib.load(file)["workloads"]
    here = sorted(path.parent.name for path in HERE.glob("*/workload.toml"))
    return [n for n in averaged if n in here], [n for n in here if n not in averaged]


def parse_allocators(specifications: list[str]) -> dict[str, str]:
    """`name=path` pairs to a dictionary; the system's malloc comes first, as `-`."""
    allocators = {SYSTEM: "-"}
    for specification in specifications:
        name, separator, path = specification.partition("=")
        if not separator or not Path(path).is_file():
            raise SystemExit(f"bench.py: {specification!r} is not name=path of a shared library")
        allocators[name] = str(Path(path).resolve())
    return allocators


# ---------------------------------------------------------------------- running


def run_once(test: Test, library: str, launcher: Path, scratch: Path) -> tuple[dict[str, Any], str]:
    """Run a test once under a library; return the launcher's figures and standard output."""
    cost = scratch / "cost.json"
    cost.unlink(missing_ok=True)
    process = subprocess.Popen(
        [str(launcher), str(cost), library, *test.command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=test.timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return {"status": "timeout"}, ""
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    figures: dict[str, Any] = json.loads(cost.read_text())
    figures["cpu_s"] = figures["user_s"] + figures["system_s"]
    if figures["status"] != 0:
        figures["status"] = f"exit code {figures['status']}: {errors.strip()[-200:]}"
    return figures, output


def judge(test: Test, result: Result, expected: dict[str, str]) -> str:
    """Say why a run does not count; empty if it does. Outputs must equal the first good one."""
    if test.must_match and not re.search(test.must_match, result.output):
        return f"does not print {test.must_match!r}"
    if test.compare_output and result.output != expected.setdefault(test.name, result.output):
        return "prints something else than the first run did"
    return ""


def read_metrics(test: Test, output: str) -> dict[str, float]:
    """Find the workload's own figures in its output; the last one where several match."""
    found = {m["name"]: re.findall(m["pattern"], output) for m in test.metrics}
    return {name: float(values[-1]) for name, values in found.items() if values}


def measure(
    tests: list[Test], allocators: dict[str, str], replicates: int, seed: int, build: Path
) -> list[Result]:
    """Run everything; each replicate in a new random order."""
    order = random.Random(seed)
    launcher, expected, results = build / "launch", dict[str, str](), list[Result]()
    total = replicates * len(tests) * len(allocators)
    started = time.monotonic()
    for replicate in range(replicates):
        runs = [(test, name) for test in tests for name in allocators]
        order.shuffle(runs)
        for test, name in runs:
            figures, output = run_once(test, allocators[name], launcher, build)
            status = figures.pop("status")
            result = Result(test.name, name, replicate, figures, output)
            result.problem = str(status) if status else judge(test, result, expected)
            if not result.problem:
                result.figures |= read_metrics(test, output)
            results.append(result)
            show_progress(len(results), total, started, result)
    return results


def show_progress(done: int, total: int, started: float, result: Result) -> None:
    """One line on standard error, rewritten on a terminal; problems stay."""
    if result.problem:
        print(f"\n{result.test} under {result.allocator}: {result.problem}", file=sys.stderr)
    if sys.stderr.isatty() or done % 50 == 0 or done == total:
        left = (time.monotonic() - started) / done * (total - done)
        end = "\r" if sys.stderr.isatty() and done < total else "\n"
        print(f"{done}/{total} runs, {left:.0f} s left ", end=end, file=sys.stderr, flush=True)


# -------------------------------------------------------------------- reporting

Table = dict[tuple[str, str], float]  # by row and allocator
Combine = Callable[[list[float]], float]


def tabulate(results: list[Result], figure: str, combine: Combine) -> Table:
    """`combine` the good runs of each test and allocator."""
    values: dict[tuple[str, str], list[float]] = {}
    for result in results:
        if not result.problem and figure in result.figures:
            values.setdefault((result.test, result.allocator), []).append(result.figures[figure])
    return {key: combine(runs) for key, runs in values.items()}


def ratios_to_best(table: Table, subject: str) -> Table:
    """Each entry over the smallest entry of the same test among allocators other than `subject`."""
    best: dict[str, float] = {}
    for (test, allocator), value in table.items():
        if allocator != subject:
            best[test] = min(value, best.get(test, value))
    return {key: value / best[key[0]] for key, value in table.items() if key[0] in best}


def geometric_mean(values: list[float]) -> float:
    """Exponential of the mean logarithm; not a number without values."""
    return math.exp(statistics.fmean(map(math.log, values))) if values else math.nan


def print_table(
    title: str, rows: list[str], allocators: list[str], table: Table, form: str
) -> None:
    """Print a row per test, a column per allocator; `-` where there is no figure."""
    width = max(map(len, [*rows, title]))
    columns = [max(9, len(a) + 1) for a in allocators]
    print(f"\n{title:<{width}}", *(f"{a:>{c}}" for a, c in zip(allocators, columns, strict=True)))
    for row in rows:
        cells = (f"{table[row, a]:{form}}" if (row, a) in table else "-" for a in allocators)
        print(f"{row:<{width}}", *(f"{cell:>{c}}" for cell, c in zip(cells, columns, strict=True)))


def print_ratios(
    title: str, tests: list[str], allocators: list[str], table: Table, subject: str
) -> None:
    """Print ratios; the table ends with the geometric mean and the worst test of each allocator."""
    ratios = ratios_to_best(table, subject)
    for allocator in allocators:
        own = [ratios[t, allocator] for t in tests if (t, allocator) in ratios]
        if len(own) == len(tests):  # a mean over fewer tests would not be comparable
            ratios["geometric mean", allocator] = geometric_mean(own)
            ratios["worst", allocator] = max(own)
    print_table(title, [*tests, "geometric mean", "worst"], allocators, ratios, ".3f")


def report(
    tests: list[Test], allocators: list[str], results: list[Result], arguments: argparse.Namespace
) -> None:
    """Print the tables of a finished run."""
    statistic, subject = arguments.statistic, arguments.subject
    combine: Combine = min if statistic == "minimum" else statistics.median
    plain = [test.name for test in tests if not test.metrics]
    if plain:
        seconds = tabulate(results, f"{arguments.time}_s", combine)
        memory = tabulate(results, "peak_rss_bytes", combine)
        mebibytes = {key: value / 2**20 for key, value in memory.items()}
        print_table(f"{statistic} {arguments.time} seconds", plain, allocators, seconds, ".3f")
        print_table(f"{statistic} peak MiB", plain, allocators, mebibytes, ".1f")
        print_ratios("time / best peer", plain, allocators, seconds, subject)
        print_ratios("memory / best peer", plain, allocators, memory, subject)
    for test in tests:
        if test.metrics:
            print_probe(test, allocators, results, combine)


def print_probe(test: Test, allocators: list[str], results: list[Result], combine: Combine) -> None:
    """Print a probe's own figures, a row each; bytes as mebibytes."""
    own = [result for result in results if result.test == test.name]
    peak = {"name": "peak_rss_bytes", "label": "peak resident memory", "unit": "bytes"}
    rows, table = list[str](), Table()
    for metric in [*test.metrics, peak]:
        unit, scale = ("MiB", 2**20) if metric["unit"] == "bytes" else (metric["unit"], 1)
        rows.append(f"{metric['label']} ({unit})")
        values = tabulate(own, metric["name"], combine)
        table |= {(rows[-1], allocator): value / scale for (_, allocator), value in values.items()}
    print_table(test.name, rows, allocators, table, ",.2f")


# ------------------------------------------------------------------------- main


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("allocators", nargs="*", metavar="NAME=PATH", help="shared libraries that export malloc")
    add("--only", default="", help="tests to run, separated by commas (the core study's)")
    add("--probes", action="store_true", help="run the probes instead of the averaged tests")
    add("--replicates", type=int, default=3)
    add("--scale", type=int, default=100, help="percentage of each test's work")
    add("--cores", type=int, default=len(os.sched_getaffinity(0)), help="what {cores} stands for")
    add("--seed", type=int, default=1, help="of the random order")
    add("--statistic", choices=["median", "minimum"], default="median")
    add("--time", choices=["wall", "cpu"], default="wall", help="cpu: for a machine that is busy")
    add("--subject", default="heapfit", help="allocator that is no peer (%(default)s)")
    add("--json", type=Path, help="write every run to this file")
    return parser.parse_args()


def choose_tests(arguments: argparse.Namespace) -> list[str]:
    """Names of the tests to run: those asked for, the probes, or what the core study averages."""
    averaged, probes = core_tests()
    if not arguments.only:
        return probes if arguments.probes else averaged
    names: list[str] = arguments.only.split(",")
    if unknown := set(names) - {*averaged, *probes}:
        raise SystemExit(f"bench.py: no test {sorted(unknown)}; there are {averaged + probes}")
    return names


def main() -> int:
    """Compile, measure, report; 1 if any run was not good."""
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # ends the run as well
    allocators = parse_allocators(arguments.allocators)
    build = Path(tempfile.mkdtemp(prefix="heapfit-micro-"))
    try:
        launcher = ["cc", "-O2", "-static", "-o", str(build / "launch"), str(HERE / "launch.c")]
        subprocess.run(launcher, check=True)
        tests = [
            load_test(HERE / name / "workload.toml", build, arguments.cores, arguments.scale)
            for name in choose_tests(arguments)
        ]
        results = measure(tests, allocators, arguments.replicates, arguments.seed, build)
    finally:
        shutil.rmtree(build)
    if arguments.json:
        arguments.json.write_text(json.dumps([vars(r) for r in results], indent=1) + "\n")
    report(tests, list(allocators), results, arguments)
    return 1 if any(result.problem for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
