#!/usr/bin/env python3
"""What do the net of guards and the hardened library cost, in instructions and memory?

Runs some programs under each: under Valgrind, which counts their instructions the same way on any
machine, however busy it is, and without it for their peak of resident memory.

    .venv/bin/python benchmarks/security_cost.py --json docs/results/security-cost.json

docs/security.md's table is made from that file by: .venv/bin/python scripts/update-docs attacks.
What they cost in time, on a quiet machine:

    .venv/bin/heapfit compare --allocators heapfit,heapfit:guard_sample=32m,heapfit-hardened -- CMD
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from heapfit.catalogue import environment_under, resolve_treatment

TREATMENTS = {
    "heapfit": ("heapfit", []),
    "guards": ("heapfit", ["guard_sample=32m"]),
    "hardened": ("heapfit-hardened", []),
    "hardened, families": ("heapfit-hardened", ["check_family=1"]),
}
_SQL = (
    "create table t(a integer primary key, b text, c real);"
    "with recursive n(i) as (select 1 union all select i+1 from n where i<12000)"
    " insert into t select i, 'row ' || (i*7919 % 12000), i/3.0 from n;"
    "create index u on t(b); select count(*), sum(c) from t where b like 'row 1%';"
    "select b, count(*) from t group by substr(b, 1, 6) order by 2 desc limit 3;"
)
_PERL = (
    "my %h; push @{$h{$_ % 5000}}, $_ * 7 for 1..40000;"
    "print scalar(map { sort { $a <=> $b } @$_ } sort { @$a <=> @$b } values %h)"
)
_PYTHON = (
    "import json; a = [{'n': i, 's': str(i) * 3, 'l': list(range(i % 7))} for i in range(6000)]\n"
    "for _ in range(2): a = json.loads(json.dumps(a))"
)
PROGRAMS: dict[str, list[str]] = {
    "sqlite3: a table of 12,000 rows with an index, two queries": [
        "/usr/bin/sqlite3",
        ":memory:",
        _SQL,
    ],
    "perl: a hash of 5000 lists, sorted": ["/usr/bin/perl", "-e", _PERL],
    "python3 with `PYTHONMALLOC=malloc`: JSON of 6000 objects, twice each way": [
        "/usr/bin/python3",
        "-c",
        _PYTHON,
    ],
}
_COUNTED = re.compile(r"I\s+refs:\s+([\d,]+)")


def instructions(command: Sequence[str], environment: dict[str, str]) -> int:
    """Count a run's instructions. The program has its allocator; Valgrind replaces none of it."""
    valgrind = [
        "valgrind",
        "--tool=cachegrind",
        "--cache-sim=no",
        "--cachegrind-out-file=/dev/null",
    ]
    done = subprocess.run(
        [*valgrind, *command], env=environment, capture_output=True, text=True, check=True
    )
    found = _COUNTED.search(done.stderr)
    if found is None:
        raise SystemExit(f"valgrind did not count: {done.stderr[-500:]}")
    return int(found[1].replace(",", ""))


# A process begins with the peak of the one that it was forked from, so the one that forks is small.
_LAUNCHER = """
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    struct rusage used;
    int status = 1;
    pid_t child = fork();
    if (child == 0) execvp(argv[1], argv + 1);
    if (child <= 0 || wait4(child, &status, 0, &used) != child || status != 0) return 1;
    fprintf(stderr, "%ld", used.ru_maxrss);
    return argc < 2;
}
"""


def build_launcher(folder: Path) -> Path:
    """Compile what says on stderr how much memory a program had at most, in KiB."""
    program = folder / "launcher"
    command = ["cc", "-O1", "-x", "c", "-", "-o", str(program)]
    subprocess.run(command, input=_LAUNCHER, text=True, check=True)
    return program


def peak_kib(launcher: Path, command: Sequence[str], environment: dict[str, str]) -> int:
    """Return the peak of a run's resident memory."""
    done = subprocess.run(
        [launcher, *command], env=environment, capture_output=True, text=True, check=True
    )
    return int(done.stderr)


def measure(launcher: Path, runs: int) -> Iterator[dict[str, Any]]:
    """Yield the figures of each program under each treatment, and print them."""
    for program, command in PROGRAMS.items():
        for name, (allocator, settings) in TREATMENTS.items():
            changes = environment_under(resolve_treatment(allocator, settings))
            environment = {**os.environ, **changes, "PYTHONMALLOC": "malloc"}
            peaks = [peak_kib(launcher, command, environment) for _ in range(runs)]
            figures = {
                "program": program,
                "treatment": name,
                "instructions": instructions(command, environment),
                "peak_kib": statistics.median(peaks),
            }
            print(json.dumps(figures), flush=True)
            yield figures


def main() -> int:
    parser = argparse.ArgumentParser(description="What do guards and the hardened library cost?")
    parser.add_argument("--json", type=Path, help="write all figures there")
    parser.add_argument("--runs", type=int, default=5, help="of which the median memory is taken")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = list(measure(build_launcher(Path(folder)), arguments.runs))
    if arguments.json:
        lines = ",\n".join(json.dumps(each) for each in figures)
        arguments.json.write_text(f"[\n{lines}\n]\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
