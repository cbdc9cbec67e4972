"""Runs a real program twice, without and with a preloaded library, and sets the two side by side.

Both runs see the same folder path, the same environment and the same input; what is compared is
the exit code, both output streams and every file that the program left behind.
"""

from __future__ import annotations

import hashlib
import shutil
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import process_groups
from loading import LoaderLog, Start

PROGRAMS_FOLDER = Path(__file__).parent / "programs"
WORKLOADS_FOLDER = Path(__file__).parents[2] / "workloads"
# For a busy machine; none takes a tenth of it on an idle one.
TIMEOUT_S = 500

# What programs get to see: nothing of the person's own settings or places.
_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
}


@dataclass(frozen=True)
class Program:
    """A real program and what it is to do.

    `{programs}` and `{workloads}` in `command` are the folders of scripts. `loaded_in` are the
    programs that must have been started with the library, as the loader names them.
    """

    name: str
    command: list[str]
    loaded_in: set[str]
    packages: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    # Files that hold times or process numbers and so differ between any two runs.
    volatile: frozenset[str] = frozenset()
    timeout_s: float = TIMEOUT_S

    def expanded(self) -> list[str]:
        places = {"{programs}": PROGRAMS_FOLDER, "{workloads}": WORKLOADS_FOLDER}
        words = []
        for word in self.command:
            for placeholder, folder in places.items():
                word = word.replace(placeholder, str(folder))
            words.append(word)
        return words


@dataclass(frozen=True)
class Outcome:
    """What a run came to, in a form that an assertion can show the difference of."""

    exit_code: int
    stdout: str
    stderr: str
    files: dict[str, str]


def missing_packages(program: Program) -> list[str]:
    """Packages of `program` that dpkg does not list as installed."""
    query = ["dpkg-query", "--show", "--showformat=${db:Status-Status}"]
    return [
        package
        for package in program.packages
        if subprocess.run([*query, package], capture_output=True, text=True).stdout != "installed"
    ]


def run_plain(program: Program, place: Path) -> Outcome:
    return _run(program, place, {})


def run_preloaded(program: Program, place: Path, library: Path) -> tuple[Outcome, list[Start]]:
    log = LoaderLog(place / "loader-log")
    outcome = _run(program, place, {"LD_PRELOAD": str(library), **log.environment})
    return outcome, log.starts()


def _run(program: Program, place: Path, extra: Mapping[str, str]) -> Outcome:
    """One run in `place`/work, emptied before: a path may show in what a program writes."""
    folder = place / "work"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    environment = {**_ENVIRONMENT, "HOME": str(folder), **program.environment, **extra}
    try:
        done = process_groups.run(
            program.expanded(), timeout_s=program.timeout_s, cwd=folder, env=environment
        )
        ended = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired as late:
        told = f"{late.stderr}\nended after {program.timeout_s} s without an answer"
        ended = -signal.SIGKILL, str(late.stdout), told
    return Outcome(*ended, _digests(folder, program.volatile))


def _digests(folder: Path, volatile: frozenset[str]) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
        if path.name not in volatile
    }
