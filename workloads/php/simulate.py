"""Simulates the processor under PHP: instructions and cache misses for a request.

The paper's Figure 8 has these figures from hardware counters, which virtual machines seldom show.
Here Valgrind's cachegrind executes php-cgi, some fifty times slower, with a first level modelled
after this machine's: exact counts of a model that knows no prefetching, no other core and no page
tables. Of the last level it guesses, on some processors that of a whole server: there only the
first touch of each line misses. The counts say which memory manager makes more instructions and
more misses, not what that costs.

php-cgi serves one request after the other by FastCGI behind nginx, as php-fpm's workers do. Each
mode is run with few requests and with more; the difference has neither start nor warm-up in it.
What PHP compiles is kept on disk before: a simulated process would spend its first minutes on that.

Usage: simulate.py --application FOLDER --data FOLDER [--modes A,B] [--requests N]
Needs valgrind and php-cgi (Debian: valgrind, php8.2-cgi).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import by_mode
import drive
import mariadb
import php
import processes
import web
from application import Application
from layout import Layout
from stack import PRELOAD
from visit import free_port

CGI = "/usr/bin/php-cgi8.2"
# What is subtracted: the start, and the requests that fill the caches.
FEW = 4
# Cachegrind's events: instructions; data reads and writes that missed the first level; what missed
# the last.
FIGURES = {
    "instructions": ("Ir",),
    "first-level instruction misses": ("I1mr",),
    "first-level data misses": ("D1mr", "D1mw"),
    "last-level misses": ("ILmr", "DLmr", "DLmw"),
}
_OUTPUT = "cachegrind.out"
# Valgrind is slow to start and to answer, and a process that ends has its counts to write.
_PATIENCE_S = 300


@contextlib.contextmanager
def serving(
    application: Application, layout: Layout, manager: php.MemoryManager, port: int, tool: list[str]
) -> Iterator[None]:
    """Serve the application by php-cgi, which `tool` executes."""
    os.chdir(layout.scratch)
    cpus = os.sched_getaffinity(0)
    plain = {name: value for name, value in os.environ.items() if name != PRELOAD}
    with contextlib.ExitStack() as ending:
        if application.database == "mariadb":
            ending.callback(mariadb.start(layout, cpus=cpus, base=plain).stop)
        ini = php.write_ini(application, layout, manager)
        Path(layout.fpm_socket).unlink(missing_ok=True)
        # A process that has served its share ends by itself, in the middle of the measurement.
        own = {"PHP_FCGI_MAX_REQUESTS": "1000000", **manager.environment()}
        cgi = processes.start(
            "php-cgi",
            [*tool, CGI, "-c", str(ini), "-b", layout.fpm_socket],
            folder=layout.scratch,
            cpus=cpus,
            environment={**php.environment(application, layout, os.environ), **own},
        )
        ending.callback(cgi.stop)
        cgi.wait_until(lambda: processes.accepts(layout.fpm_socket))
        ending.callback(web.start(application, layout, port=port, cpus=cpus, base=plain).stop)
        yield


def fresh_state(application: Application, layout: Layout) -> None:
    """Put the application's state into the scratch folder as the preparation left it."""
    names = [*application.copy, *([mariadb.FOLDER] * (application.database == "mariadb"))]
    for name in names:
        target = layout.scratch / name
        if target.is_dir():
            shutil.rmtree(target)
        source = layout.data / name
        copy = shutil.copytree if source.is_dir() else shutil.copy2
        copy(source, target)


def cachegrind(output: Path) -> list[str]:
    output.unlink(missing_ok=True)
    return [
        *("valgrind", "--tool=cachegrind", "--cache-sim=yes", "--log-file=valgrind.log"),
        f"--cachegrind-out-file={output}",
    ]


def totals(output: Path) -> dict[str, int]:
    """The sums of cachegrind's events over a process."""
    names: list[str] = []
    for line in output.read_text(errors="replace").splitlines():
        key, _, words = line.partition(":")
        if key == "events":
            names = words.split()
        elif key == "summary":
            counts = dict(zip(names, map(int, words.split()), strict=True))
            return {name: sum(counts[each] for each in FIGURES[name]) for name in FIGURES}
    sys.exit(f"simulate.py: valgrind did not finish {output.name}")


def simulate(arguments: argparse.Namespace, mode: str, scratch: Path) -> dict[str, float]:
    """The figures of a request under `mode`."""
    layout = by_mode.layout_of(arguments, scratch)
    compiled = scratch / "compiled"
    compiled.mkdir()
    described = Application.load(layout.here)
    application = replace(described, ini={**described.ini, "opcache.file_cache": str(compiled)})
    manager = php.MemoryManager(mode=mode, extension=by_mode.extension_for(mode, layout))
    plan, output = by_mode.write_plan(application, layout, arguments.edits), scratch / _OUTPUT

    def run(answers: int, tool: list[str]) -> None:
        fresh_state(application, layout)
        port = free_port()
        with serving(application, layout, manager, port, tool):
            drive.run_load(plan, port, answers, connections=1)

    run(FEW + arguments.requests, [])
    counted = []
    for answers in (FEW, FEW + arguments.requests):
        run(answers, cachegrind(output))
        counted.append(totals(output))
    few, more = counted
    return {name: (more[name] - few[name]) / arguments.requests for name in FIGURES}


def row(mode: str, figures: dict[str, float], reference: dict[str, float]) -> str:
    cells = [f"{figures[name]:,.0f} ({figures[name] / reference[name]:.3f})" for name in FIGURES]
    return f"| {mode} | {' | '.join(cells)} |"


def main() -> None:
    modes = [php.ZEND, *php.EXTENSION_MODES]
    arguments = by_mode.parse(by_mode.parser("Simulate the processor under PHP.", modes, 20))
    for program in ("valgrind", CGI):
        if shutil.which(program) is None:
            sys.exit(f"simulate.py: {program} is not installed")
    drive.ANSWER_TIMEOUT_S = _PATIENCE_S
    processes.START_TIMEOUT_S = processes.STOP_TIMEOUT_S = _PATIENCE_S
    print(f"| mode | {' | '.join(FIGURES)} |")
    print(f"|---|{'---:|' * len(FIGURES)}")
    reference: dict[str, float] = {}

    def row_of(mode: str, scratch: Path) -> str:
        figures = simulate(arguments, mode, scratch)
        reference.update(reference or figures)  # the first mode's
        return row(mode, figures, reference)

    by_mode.print_rows(arguments.modes, row_of)


if __name__ == "__main__":
    main()
