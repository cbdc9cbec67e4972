#!/usr/bin/env python3
"""What does an allocator see of a program in each language, and what does its choice change?

Runs one real program of each language. `heapfit record` counts what goes through malloc, beside
what is resident; `heapfit compare` gives the peak resident memory under three allocators. Only
memory and counts are kept, which other programs on the machine hardly change: no times.

    cmake --preset release && cmake --build --preset release
    .venv/bin/python benchmarks/languages.py --json docs/results/languages.json

and `scripts/update-docs languages` then writes the tables of docs/languages/. With `--only` the
programs that are not named keep the figures that the file has.

Needs what the programs are: Debian's cppcheck, default-jdk, golang-go, libsqlite3-dev, php-cli,
php-codesniffer, ripgrep and ruby, MkDocs in .venv (`make site`), and node with npm, which brings
TypeScript's compiler.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
HEAPFIT = [sys.executable, "-m", "heapfit"]
ALLOCATORS = "glibc,heapfit,jemalloc"
BASELINE = "glibc"
PEAK, FAULTS = "peak_rss_bytes", "minor_faults"
# Runs a command with one more library behind those that are preloaded already.
PRELOADING = ["sh", "-c", 'LD_PRELOAD="$LD_PRELOAD $0" exec "$@"']
DEFAULT_REPLICATES = 10
TIMEOUT_S = 1800
TYPESCRIPT = "typescript@5.9.3"


@dataclass(frozen=True)
class Program:
    """A real program of a language.

    `command` is what is shown and run, in a scratch folder; {root} stands for the checkout and
    {python} for the interpreter of its environment. `variable` is one of the environment that
    changes what malloc sees, and `levels` its values; "" is unset.
    """

    version: str
    command: str
    prepare: Callable[[Path], None] | None = None
    variable: str = ""
    levels: Sequence[str] = ("",)
    compare: Sequence[str] = ()
    preload: str = ""  # in the scratch folder, beside the allocator


def build_go(folder: Path) -> None:
    source = ROOT / "benchmarks" / "languages" / "go" / "words.go"
    subprocess.run(["go", "build", "-o", folder / "words", source], check=True)


def build_deepbind(folder: Path) -> None:
    source = ROOT / "workloads" / "php" / "deepbind.c"
    flags = ["-shared", "-fPIC", "-O2"]
    subprocess.run(["cc", *flags, "-o", folder / "deepbind.so", source, "-ldl"], check=True)


def install_typescript(folder: Path) -> None:
    subprocess.run(["npm", "install", "--silent", "--prefix", folder, TYPESCRIPT], check=True)


HEADERS = sorted(str(path) for path in Path("/usr/include").glob("*.h"))

PROGRAMS = {
    "python": Program(
        version="{python} --version",
        command="{python} -m mkdocs build --quiet --config-file {root}/mkdocs.yml "
        "--site-dir {scratch}/site",
        variable="PYTHONMALLOC",
        levels=("", "malloc"),
    ),
    "ruby": Program(
        version="ruby --version",
        command="rdoc --quiet --force-output --output {scratch}/rdoc /usr/lib/ruby/3.1.0/rubygems",
        variable="MALLOC_ARENA_MAX",
        levels=("", "2"),
    ),
    "node": Program(
        version="node --version",
        command="node node_modules/typescript/bin/tsc --noEmit --strict --lib es2022,dom "
        "node_modules/typescript/lib/typescript.d.ts",
        prepare=install_typescript,
    ),
    "jvm": Program(
        version="java --version",
        command="jdeps --recursive -summary /usr/share/java/commons-lang3.jar",
        variable="MALLOC_ARENA_MAX",
        levels=("", "2"),
    ),
    "go": Program(
        version="go version",
        command=f"./words {' '.join(HEADERS)}",
        prepare=build_go,
    ),
    "rust": Program(
        version="rg --version",
        command="rg --json --threads 2 the /usr/include",
        compare=["--output", "ignore"],  # files come in the order in which threads finish them
    ),
    "php": Program(
        version="php --version",
        command="phpcs --standard=PSR12 --report=json --runtime-set ignore_errors_on_exit 1 "
        "--runtime-set ignore_warnings_on_exit 1 /usr/share/php/PHP/CodeSniffer/src/Standards",
        prepare=build_deepbind,
        preload="deepbind.so",
        variable="USE_ZEND_ALLOC",
        levels=("", "0"),
    ),
    "cpp": Program(
        version="cppcheck --version",
        command="cppcheck --quiet --enable=style {root}/allocator/heap",
    ),
}


class Bench:
    """Runs programs in a scratch folder."""

    def __init__(self, scratch: Path, replicates: int) -> None:
        self._scratch = scratch
        self._replicates = replicates
        self._environment = {**os.environ, "PYTHONPATH": str(ROOT / "lab")}

    def answer(self, name: str, program: Program) -> dict[str, Any]:
        """Return what was found of a program."""
        if program.prepare is not None:
            program.prepare(self._scratch)
        return {
            "version": self._output(self._words(program.version)).splitlines()[0],
            "variable": program.variable,
            "replicates": self._replicates,
            "seen": [self._seen(name, program, level) for level in program.levels],
            "memory": self._memory(name, program),
        }

    def _words(self, command: str) -> list[str]:
        places = {"root": ROOT, "python": sys.executable, "scratch": self._scratch}
        return [word.format(**places) for word in command.split()]

    def _output(self, command: Sequence[str], changes: dict[str, str] | None = None) -> str:
        done = subprocess.run(
            command,
            cwd=self._scratch,
            env={**self._environment, **(changes or {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
        return done.stdout

    def _seen(self, name: str, program: Program, level: str) -> dict[str, Any]:
        """Record the program, and count what went through malloc."""
        recording = self._scratch / f"{name}.hft"
        recording.unlink(missing_ok=True)
        changes = {program.variable: level} if level else {}
        record = [*HEAPFIT, "record", "-o", str(recording), "--", *self._words(program.command)]
        self._output(record, changes)
        profile = [*HEAPFIT, "profile", str(recording), "--json"]
        (found,) = json.loads(self._output(profile))["profile"]["recordings"]
        return {
            "level": level,
            "allocations": found["allocations"]["objects"],
            "live_bytes": found["peak"]["bytes"],
            "resident_bytes": found["resident_most"],
        }

    def _memory(self, name: str, program: Program) -> list[dict[str, Any]]:
        """Compare allocators, and return the peaks with their intervals."""
        command = [*HEAPFIT, "compare", "--json", "--allocators", ALLOCATORS]
        command += ["--replicates", str(self._replicates), "--out", str(self._scratch / name)]
        factor = f"env.{program.variable}"
        if program.variable:
            command += ["--factor", f"{factor}={','.join(program.levels)}"]
        words = self._words(program.command)
        if program.preload:
            words = [*PRELOADING, str(self._scratch / program.preload), *words]
        command += [*program.compare, "--", *words]
        report = json.loads(self._output(command))
        if report["problems"]:
            sys.exit(f"{name}: {report['problems']}")
        return [
            {
                "level": each["levels"].get(factor, ""),
                "allocator": each["allocator"],
                "peak_bytes": {key: each[key] for key in ("median", "low", "high")},
                "ratio": ratio(report["verdicts"], each, factor),
                "minor_faults": found["median"],
            }
            for each in report["estimates"]
            if each["metric"] == PEAK
            for found in report["estimates"]
            if found["metric"] == FAULTS
            and (found["allocator"], found["levels"]) == (each["allocator"], each["levels"])
        ]


def ratio(
    verdicts: Sequence[dict[str, Any]], estimate: dict[str, Any], factor: str
) -> dict[str, float] | None:
    """Return an allocator's ratio to the baseline with its interval; None of the baseline."""
    for verdict in verdicts:
        same = verdict["at"].get(factor, "") == estimate["levels"].get(factor, "")
        if verdict["metric"] != PEAK or not same:
            continue
        pair = (verdict["first"], verdict["second"])
        if pair == (estimate["allocator"], BASELINE):
            return {key: verdict[key] for key in ("estimate", "low", "high")}
        if pair == (BASELINE, estimate["allocator"]):
            ends = ("estimate", "estimate"), ("low", "high"), ("high", "low")
            return {key: 1 / verdict[other] for key, other in ends}
    return None


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--replicates", type=int, default=DEFAULT_REPLICATES)
    parser.add_argument("--only", default=",".join(PROGRAMS), help="languages, by commas")
    parser.add_argument("--json", type=Path, required=True, help="where every figure goes")
    arguments = parser.parse_args()
    unknown = set(arguments.only.split(",")) - set(PROGRAMS)
    if unknown:
        parser.error(f"no such languages: {', '.join(sorted(unknown))}")
    return arguments


def main() -> int:
    arguments = parse_arguments()
    kept: dict[str, Any] = {}
    if arguments.json.exists():
        kept = json.loads(arguments.json.read_text(encoding="utf-8"))["languages"]
    with tempfile.TemporaryDirectory(prefix="heapfit-languages-") as scratch:
        bench = Bench(Path(scratch), arguments.replicates)
        for name in arguments.only.split(","):
            kept[name] = bench.answer(name, PROGRAMS[name])
            print(name, json.dumps(kept[name]["seen"]), flush=True)
            found = {
                "date": datetime.now(UTC).isoformat(timespec="seconds"),
                "machine": {"kernel": platform.release(), "libc": " ".join(platform.libc_ver())},
                "languages": {each: kept[each] for each in PROGRAMS if each in kept},
            }
            arguments.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
