#!/usr/bin/env python3
"""Do other projects' test suites end with heapfit as they do with glibc's malloc?

Runs the suites of benchmarks/suites.toml, in parts: each part under glibc, and right after that
under the libraries of heapfit, in a random order that is always the same, until the suite's time is
up. So the same tests have run under each. Outcomes are compared by test; where one differs, its
part runs three times more under both. Each suite is stored as soon as it has ended, beside those
that the file has already.

    .venv/bin/python benchmarks/suites.py --minutes-per-suite 10 --json docs/results/suites.json

Installs Debian packages and fetches Debian's sources; needs build/release of this checkout. As root
it runs the suites as nobody. Exits 1 when a difference is steady, that is no run under heapfit ends
as one under glibc does, unless none fails and suites.toml has the reason.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatch
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import psutil
from heapfit import __version__

ROOT = Path(__file__).resolve().parent.parent
GLIBC, MISSING = "glibc", "missing"
PASSED, SKIPPED = {"ok", "pass", "0"}, {"skip", "skipped", "ignore", "disabled", "77"}
AGAIN = 3
PREPARE_S, LOOK_S, SLACK_S = 1800, 0.02, 30
PR_SET_CHILD_SUBREAPER = 36
# Names may hold what no two runs have in common: addresses, process ids, random letters.
CHANGING = re.compile(r"0x[0-9a-f]+|\d{5,}|[A-Z]{40,}")
# Whom the suites run as.
USER: dict[str, Any] = {"user": "nobody", "group": "nogroup", "extra_groups": []}
USER = USER if os.geteuid() == 0 else {}


@dataclass
class Library:
    """What is preloaded, and what it has come to in one suite."""

    name: str
    preload: str
    in_force: bool = False
    seconds: float = 0.0
    outcomes: dict[str, str] = field(default_factory=dict)


class Suite:
    """One suite of the file, in a folder of its own."""

    def __init__(self, name: str, told: dict[str, Any], fetch: str, scratch: Path) -> None:
        self.name, self.title, self._told, self._fetch = name, told["title"], told, fetch
        self.unit_s: float = told["unit_s"]
        self.explained: dict[str, str] = told.get("explained", {})
        self._folder, self._temporary = scratch / name, scratch / "tmp"

    def prepare(self) -> None:
        """Install the packages; fetch and build what is run from source, once."""
        install = [ROOT / "scripts" / "apt-install", *self._told["packages"]]
        subprocess.run(install, check=True, stdout=sys.stderr)
        if (self._folder / "prepared").exists():
            return
        make_anew(self._folder)
        steps = [self._fetch] if "source" in self._told else []
        script = "\n".join(["set -e", *steps, self._told.get("prepare", "")])
        log, source = self._folder / "log", {"SOURCE": self._told.get("source", "")}
        if self._sh(script, self._folder, source, log, PREPARE_S) != 0:
            raise RuntimeError(f"cannot be prepared: {log.read_text(errors='replace')[-500:]}")
        (self._folder / "prepared").touch()

    def version(self) -> str:
        """Return the version of the package with the program, and of the source."""
        package, source = self._told["packages"][0], self._told.get("source", "")
        query = ["dpkg-query", "--show", "--showformat=${Package} ${Version}", package]
        shown = subprocess.run(query, capture_output=True, text=True).stdout
        sources = [f"source of {path.stem}" for path in self._folder.glob("*.dsc")]
        versions = [shown, *sources] if package.startswith(source) else sources
        return ", ".join(versions).replace("_", " ")

    def units(self) -> list[str]:
        """Return the parts in the order in which they run."""
        listed = self._folder / "units"
        if self._sh(self._told["units"], self._folder, {}, listed, PREPARE_S) != 0:
            raise RuntimeError(f"cannot list its tests: {listed.read_text()[-500:]}")
        units = sorted(set(filter(None, listed.read_text().splitlines())))
        random.Random(1).shuffle(units)
        return units

    def run(self, unit: str, library: Library, limit_s: float) -> tuple[dict[str, str], bool]:
        """Run a unit; return its tests' outcomes, and whether it ended in time."""
        make_anew(self._temporary)
        printed = self._folder / "printed"
        variables = {**self._told.get("environment", {}), "UNIT": unit, "SUITE": str(self._folder)}
        preload = library.preload or self._told.get("baseline", "")
        # The shell that reads the script goes without.
        script = f"{f'export LD_PRELOAD={preload}' if preload else ''}\n{self._told['run']}"
        started = monotonic()
        code = self._sh(script, self._temporary, variables, printed, limit_s, library)
        library.seconds += monotonic() - started
        found: dict[str, str] = {}
        seen: Counter[str] = Counter()
        for match in re.finditer(self._told["result"], printed.read_text(errors="replace"), re.M):
            name = CHANGING.sub("N", match["name"] or "")
            name = name if name == unit else f"{unit.partition(' ')[0]}: {name}"
            seen[name] += 1
            found[f"{name} #{seen[name]}" if seen[name] > 1 else name] = outcome(match.groupdict())
        if code is not None and (code < 0 or code > 128):  # It, or what it ran, was killed.
            found[f"{unit}: ends"] = "failed"
        return found, code is not None

    def _sh(self, script: str, folder: Path, variables: dict[str, str], printed: Path,
            limit_s: float, library: Library | None = None) -> int | None:  # fmt: skip
        """Return a script's exit code, None when it took too long; nothing of it keeps running."""
        own = str(self._temporary)
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": own, "TMPDIR": own}
        environment |= {"LC_ALL": "C.UTF-8", **variables}
        end = monotonic() + limit_s
        with printed.open("wb") as file:
            running = subprocess.Popen(
                ["sh", "-c", script], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                stdout=file, stderr=subprocess.STDOUT, start_new_session=True, **USER,
            )  # fmt: skip
            try:
                while running.poll() is None and monotonic() < end:
                    if library is not None and not library.in_force:
                        library.in_force = self._is_mapped(library.preload)
                    sleep(LOOK_S)
                return running.poll()
            finally:
                end_all()

    def _is_mapped(self, preload: str) -> bool:
        for process in psutil.Process().children(recursive=True) if preload else ():
            try:
                program = os.readlink(f"/proc/{process.pid}/exe")
                maps = Path(f"/proc/{process.pid}/maps").read_text(encoding="utf-8")
            except OSError:  # It has ended.
                continue
            if fnmatch(program, self._told["program"]) and f" {preload}\n" in maps:
                return True
        return not preload


def outcome(match: dict[str, str | None]) -> str:
    """Return passed, failed or skipped for what a line says of a test."""
    word = (match.get("outcome") or "ok").lower()
    if match.get("skipped") or word in SKIPPED:
        return "skipped"
    return "passed" if word in PASSED else "failed"


def make_anew(folder: Path) -> None:
    """Make a folder that is empty, and belongs to whom the suites run as."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if USER:
        shutil.chown(folder, USER["user"], USER["group"])


def end_all() -> None:
    """End what the suite has started, orphans too, which come to this process."""
    while children := psutil.Process().children(recursive=True):
        for child in children:
            try:
                child.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(children, timeout=1)


def compare(suite: Suite, unit: str, libraries: list[Library], end: float) -> Iterator[Any]:
    """Run a unit under each library; yield the tests that differ from glibc."""
    started = monotonic()
    found, has_ended = suite.run(unit, libraries[0], min(end - started, suite.unit_s))
    took_s = monotonic() - started
    runs = {GLIBC: found}
    for library in libraries[1:]:
        limit_s = 2 * took_s + SLACK_S if has_ended else took_s
        runs[library.name], in_time = suite.run(unit, library, limit_s)
        if has_ended and not in_time:
            runs[library.name][f"{unit}: ends in time"] = "failed"
    if not has_ended:  # What all have come to.
        common = set.intersection(*(set(own) for own in runs.values()))
        runs = {name: {test: own[test] for test in common} for name, own in runs.items()}
    for library in libraries:
        own = runs[library.name]
        library.outcomes |= own
        for test in sorted({*found, *own} if has_ended else own):
            pair = [runs[GLIBC].get(test, MISSING), own.get(test, MISSING)]
            if pair[0] != pair[1]:
                yield {"library": library.name, "unit": unit, "test": test,
                       GLIBC: pair[:1], "heapfit": pair[1:]}  # fmt: skip


def try_again(suite: Suite, differing: list[Any], preloads: dict[str, str], end: float) -> None:
    """Run the units of differing tests again under both, and add what they come to."""
    for unit, name in dict.fromkeys((each["unit"], each["library"]) for each in differing):
        own = [each for each in differing if (each["unit"], each["library"]) == (unit, name)]
        for _ in range(AGAIN):
            for side, library in (
                (GLIBC, Library(GLIBC, "")),
                ("heapfit", Library(name, preloads[name])),
            ):
                if monotonic() > end:
                    return
                found, _ = suite.run(unit, library, end - monotonic() + SLACK_S)
                for each in own:
                    each[side].append(found.get(each["test"], MISSING))


def judge(each: dict[str, Any], explained: dict[str, str]) -> None:
    """Add what the runs of a differing test say, and the reason where it is known."""
    for test, why in explained.items():
        if re.search(test, each["test"]):
            each["why"] = " ".join(why.split())
    if len(each["heapfit"]) == 1:
        each["verdict"] = "not retried"
    elif set(each[GLIBC]) & set(each["heapfit"]):
        each["verdict"] = "by chance"
    elif "why" in each and "failed" not in each["heapfit"]:
        each["verdict"] = "explained"
    else:
        each["verdict"] = "steady"


def study(suite: Suite, preloads: dict[str, str], minutes: float) -> dict[str, Any]:
    """Run a suite until it ends, its time is up, or somebody interrupts it; return all found."""
    libraries = [Library(GLIBC, ""), *(Library(*each) for each in preloads.items())]
    units, done, is_interrupted = suite.units(), 0, False
    differing: list[dict[str, Any]] = []
    end = monotonic() + 60 * minutes
    try:
        while done < len(units) and monotonic() < end:
            print(f"suites: {suite.name} {done + 1}/{len(units)}: {units[done]}", file=sys.stderr)
            differing += compare(suite, units[done], libraries, end)
            done += 1
        print(f"suites: {suite.name}: {len(differing)} tests differ", file=sys.stderr)
        try_again(suite, differing, preloads, monotonic() + 60 * minutes)
    except KeyboardInterrupt:
        is_interrupted = True
    for library in libraries:
        if done and not library.in_force:
            sys.exit(f"suites: {suite.name}: {library.preload} was mapped by none of its programs")
    if done and not libraries[0].outcomes and not is_interrupted:
        raise RuntimeError("nothing that it printed tells of a test")
    for each in differing:
        judge(each, suite.explained)
    counts = {each.name: {**Counter(each.outcomes.values()), "seconds": round(each.seconds)}
              for each in libraries}  # fmt: skip
    return {"title": suite.title, "version": suite.version(), "heapfit": __version__,
            "date": datetime.now(UTC).isoformat(timespec="seconds"), "minutes": minutes,
            "units": [done, len(units)], "interrupted": is_interrupted, "libraries": counts,
            "differing": differing}  # fmt: skip


def installed(variants: list[str], folder: Path) -> dict[str, str]:
    """Copy the libraries to where every user may read them; return what to preload."""
    folder.mkdir(parents=True, exist_ok=True)
    names = {each: "" if each == "default" else f"-{each}" for each in variants}
    return {
        variant: str(shutil.copy(ROOT / "build" / "release" / f"libheapfit{name}.so", folder))
        for variant, name in names.items()
    }


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--minutes-per-suite", type=float, default=10, help="retries have as long again")
    add("--suites", metavar="A,B", help="default: all")
    add("--variants", default="default", metavar="A,B", help="such as default,hardened")
    add("--scratch", type=Path, default=Path("/var/tmp/heapfit-suites"), help="for test runs")
    add("--json", type=Path, metavar="FILE", help="where results are kept")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    told = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    fetch = told.pop("fetch")
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    preloads = installed(arguments.variants.split(","), arguments.scratch / "lib")
    has_file = arguments.json is not None and arguments.json.exists()
    kept = json.loads(arguments.json.read_text(encoding="utf-8")) if has_file else {}
    verdicts: Counter[str] = Counter()
    for name in arguments.suites.split(",") if arguments.suites else told:
        suite = Suite(name, told[name], fetch, arguments.scratch)
        try:
            suite.prepare()
            kept[name] = study(suite, preloads, arguments.minutes_per_suite)
        except (RuntimeError, subprocess.CalledProcessError) as error:
            kept[name] = {"title": suite.title, "left out": str(error)}
        if arguments.json is not None:
            kept = {each: kept[each] for each in told if each in kept}
            arguments.json.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        print(name, json.dumps(kept[name].get("libraries", kept[name])), flush=True)
        verdicts.update(each["verdict"] for each in kept[name].get("differing", ()))
        if kept[name].get("interrupted"):
            return 130
    print(f"{verdicts.total()} tests differ from glibc:", dict(verdicts))
    return int("steady" in verdicts)


if __name__ == "__main__":
    sys.exit(main())
