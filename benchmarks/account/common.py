"""What the parts share: programs under heapfit, programs of C that are compiled first, progress."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heapfit import paths

ROOT = Path(__file__).resolve().parents[2]
HEAPFIT = (sys.executable, "-m", "heapfit")
MIB = 1 << 20
DEADLINE_S = 120.0

Figures = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """A line of the table: what was measured, what it is to reach, and what it has reached."""

    figure: str
    goal: str
    measured: str
    is_reached: bool | None  # None: it has no goal

    def __str__(self) -> str:
        mark = {True: "reached", False: "missed", None: ""}[self.is_reached]
        return f"{self.figure}: {self.measured} (goal: {self.goal or 'none'}) {mark}".rstrip()


def percent(share: float, decimals: int = 1) -> str:
    """Return a share as people write it.

    >>> percent(0.9934), percent(0.95, 0)
    ('99.3 %', '95 %')
    """
    return f"{100 * share:.{decimals}f} %"


def say(text: str) -> None:
    """Show progress, apart from what is printed at the end."""
    print(text, file=sys.stderr, flush=True)


def lab_environment() -> dict[str, str]:
    """Return an environment in which HEAPFIT is this checkout's."""
    before = [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "lab"), *before])}


def under_heapfit(settings: str, **more: str) -> dict[str, str]:
    """Return an environment with heapfit's library and its options."""
    library = str(paths.library())
    return {**os.environ, "LD_PRELOAD": library, "HEAPFIT_OPTIONS": settings, **more}


@contextmanager
def started(
    command: Sequence[str | Path], folder: Path, environment: dict[str, str]
) -> Iterator[subprocess.Popen[str]]:
    """Start a program that is ended with the block."""
    with (
        (folder / "stderr").open("a") as errors,
        subprocess.Popen(
            command,
            env=environment,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def hear(process: subprocess.Popen[str]) -> str:
    """Return the next line that a program says."""
    assert process.stdout is not None
    line: str = process.stdout.readline()
    if not line:
        raise SystemExit(f"{process.args!r} ended before it was asked")
    return line.strip()


def until(holds: Callable[[], bool], what: str, seconds: float = DEADLINE_S) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise SystemExit(f"it never came to hold: {what}")
        time.sleep(0.05)


def compiled(source: str, folder: Path, name: str, *flags: str) -> Path:
    """Return the program that a C source makes, with debug information."""
    text = folder / f"{name}.c"
    text.write_text(source, encoding="utf-8")
    program = folder / name
    words = ["-std=gnu17", "-O2", "-g", "-pthread", *flags]
    subprocess.run(["cc", *words, str(text), "-o", str(program)], check=True)
    return program
