"""Serves a PHP application on loopback until SIGTERM: nginx, php-fpm, and a database if it has one.

Everything that is written goes to the scratch folder, where the application's state is copied
first, so that no trial sees what another has changed. What is preloaded into this program is
preloaded into php-fpm and nothing else. php-fpm gets the processors of this program, the others
those that the caller has beside them; where there are none, all share.

Usage: stack.py --application FOLDER --data FOLDER --scratch FOLDER --port PORT
                [--mode MODE] [--huge-pages 0|1] [--workers N]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import mariadb
import native
import php
import processes
import web
from application import Application
from layout import Layout

PRELOAD = "LD_PRELOAD"
_WATCH_PERIOD_S = 0.2


@dataclass(frozen=True)
class Stack:
    """What runs, and where."""

    application: Application
    layout: Layout
    port: int
    manager: php.MemoryManager
    workers: int = 1

    @contextlib.contextmanager
    def running(self) -> Iterator[list[processes.Process]]:
        """Start all, in the order in which they need each other, and end all in the reverse."""
        php_cpus, other_cpus = split_cpus()
        plain = {name: value for name, value in os.environ.items() if name != PRELOAD}
        self._copy_state()
        os.chdir(self.layout.scratch)
        started: list[processes.Process] = []
        processes.adopt_orphans()
        with contextlib.ExitStack() as ending:
            ending.callback(processes.end_orphans)

            def add(process: processes.Process) -> None:
                ending.callback(process.stop)
                started.append(process)

            if self.application.database == "mariadb":
                add(mariadb.start(self.layout, cpus=other_cpus, base=plain))
            fpm = php.start_fpm(
                self.application,
                self.layout,
                self.manager,
                workers=self.workers,
                cpus=php_cpus,
                base={**os.environ, PRELOAD: self._preload()},
            )
            add(fpm)
            self._describe(fpm.pid)
            add(
                web.start(
                    self.application, self.layout, port=self.port, cpus=other_cpus, base=plain
                )
            )
            check_preload(fpm, [process for process in started if process is not fpm])
            yield started

    def _preload(self) -> str:
        """What is preloaded here, and behind it what lets it reach PHP's extensions too."""
        present = os.environ.get(PRELOAD, "")
        return f"{present}:{native.preload_helper(self.layout.data)}".removeprefix(":")

    def _copy_state(self) -> None:
        names = list(self.application.copy)
        if self.application.database == "mariadb":
            names.append(mariadb.FOLDER)
        for name in names:
            source, target = self.layout.data / name, self.layout.scratch / name
            if source.is_dir():
                shutil.copytree(source, target, symlinks=True)
            else:
                shutil.copy2(source, target)

    def _describe(self, fpm: int) -> None:
        text = json.dumps({"fpm": fpm, "workers": self.workers})
        self.layout.description.write_text(text + "\n", encoding="utf-8")


def split_cpus() -> tuple[set[int], set[int]]:
    """Return the processors of PHP and those of everybody else.

    Who started this program keeps out of its way: where it runs, there is room for the others.
    """
    own = os.sched_getaffinity(0)
    others = os.sched_getaffinity(os.getppid()) - own
    return own, others or own


def check_preload(fpm: processes.Process, others: list[processes.Process]) -> None:
    """Raise `Failed` unless what is preloaded here is in php-fpm and in nothing else.

    A library that is not there is measured under another's name, and nobody would notice.
    """
    names = os.environ.get(PRELOAD, "").replace(":", " ").split()
    libraries = {os.path.realpath(name) for name in names if "/" in name}
    if missing := libraries - _mapped(fpm.pid):
        raise processes.Failed(f"not in php-fpm, though preloaded: {', '.join(sorted(missing))}")
    for process in others:
        if stray := libraries & _mapped(process.pid):
            raise processes.Failed(f"in {process.name} too: {', '.join(sorted(stray))}")


def _mapped(process: int) -> set[str]:
    lines = Path(f"/proc/{process}/maps").read_text(errors="replace").splitlines()
    return {words[5] for line in lines if len(words := line.split(maxsplit=5)) == 6}


def watch(running: list[processes.Process]) -> None:
    """Return never; raise `Failed` when one of them ends by itself."""
    while True:
        for process in running:
            process.check()
        time.sleep(_WATCH_PERIOD_S)


def end_on(*signals: signal.Signals) -> None:
    """Let these signals end this program through its `finally` blocks, once."""

    def end(_number: int, _frame: object) -> None:
        for each in signals:
            signal.signal(each, signal.SIG_IGN)
        sys.exit(0)

    for each in signals:
        signal.signal(each, end)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Serve a PHP application on loopback.")
    parser.add_argument("--application", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--scratch", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--mode", choices=php.MODES, default=php.ZEND)
    parser.add_argument("--huge-pages", choices=("0", "1"), default="0")
    parser.add_argument("--workers", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.mode == php.MALLOC and arguments.huge_pages == "1":
        parser.error("huge pages of malloc are the allocator's affair: set its own option")
    return arguments


def main() -> None:
    arguments = parse()
    end_on(signal.SIGTERM, signal.SIGINT)
    application = Application.load(arguments.application.resolve())
    layout = Layout(
        here=application.here,
        data=arguments.data.resolve(),
        scratch=arguments.scratch.resolve(),
    )
    needs_extension = arguments.mode in php.EXTENSION_MODES
    manager = php.MemoryManager(
        mode=arguments.mode,
        huge_pages=arguments.huge_pages == "1",
        extension=native.extension(layout.data) if needs_extension else None,
    )
    stack = Stack(application, layout, arguments.port, manager, arguments.workers)
    try:
        with stack.running() as running:
            watch(running)
    except processes.Failed as failure:
        sys.exit(f"stack.py: {failure}")


if __name__ == "__main__":
    main()
