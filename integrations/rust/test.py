#!/usr/bin/env python3
"""Run all tests of the crates: test.py [RESULTS.xml]

Cargo's own tests as programs use the crates, and again with the contexts' checks compiled in; then
the packed crates, which must build without the checkout, also in a program that takes them from a
registry. With a file's name, the results are also
written there, in JUnit's format.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent

CARGO_TEST = ["cargo", "test", "--workspace", "--locked", "--no-fail-fast"]
RUNS = {
    "plain": CARGO_TEST,
    # Examples in the documentation have nothing for the checks to find.
    "checks": [*CARGO_TEST, "--tests", "--features", "heapfit/checks"],
}
PACKAGE = [sys.executable, str(HERE / "package.py"), "--locked", "--quiet"]

# A program that somebody else writes, beside the registry that package.py makes.
CONFIG = """\
[source.crates-io]
replace-with = "local"
[source.local]
local-registry = "{registry}"
"""
MANIFEST = """\
[package]
name = "stranger"
version = "0.0.0"
edition = "2021"
"""
MAIN = """\
#[global_allocator]
static HEAP: heapfit::Heapfit = heapfit::Heapfit;

fn main() {
    println!("{}", (0..1000).map(|i| i.to_string()).collect::<String>().len());
}
"""
RUN = ["cargo", "run", "--offline", "--quiet"]
RAN = ["2890\n", "exit 0"]

# What cargo says before the tests of a program, or of a crate's documentation.
PROGRAM = re.compile(r"\s*(?:Running (?:unittests )?(?P<path>\S+)|Doc-tests (?P<crate>\S+))")
TEST = re.compile(r"test (?P<name>.+) \.\.\. (?P<outcome>ok|FAILED|ignored)\b")


@dataclass(frozen=True)
class Case:
    """One test and how it ended: "ok", "FAILED" or "ignored"."""

    program: str
    name: str
    outcome: str


def lines_of(command: list[str], environment: dict[str, str], folder: Path = HERE) -> Iterator[str]:
    """Run a command; pass on and yield each line of its output, and at last its exit code."""
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        text=True,
        errors="replace",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            yield line
    yield f"exit {process.returncode}"


def cases_of(run: str, lines: Iterator[str]) -> Iterator[Case]:
    """Read the tests from what `cargo test` says; a failure that no test shows becomes one more."""
    program, failed, line = run, False, ""
    for line in lines:
        if found := PROGRAM.match(line):
            program = f"{run}: {found['path'] or found['crate']}"
        elif found := TEST.match(line):
            failed |= found["outcome"] == "FAILED"
            yield Case(program, found["name"], found["outcome"])
    if line != "exit 0" and not failed:
        yield Case(run, "cargo test", "FAILED")


def package_cases(environment: dict[str, str]) -> Iterator[Case]:
    """Pack the crates, which builds them from what was packed, and use them in a program."""
    *_, last = lines_of(PACKAGE, environment)
    yield Case("package", "what is packed builds", "ok" if last == "exit 0" else "FAILED")
    registry = Path(environment["CARGO_TARGET_DIR"]).resolve() / "registry"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path, text in {
            ".cargo/config.toml": CONFIG.format(registry=registry),
            "Cargo.toml": MANIFEST,
            "src/main.rs": MAIN,
        }.items():
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_text(text)
        # cargo keeps what it once unpacked of a crate and a version, from whatever registry.
        empty = {"CARGO_HOME": str(folder / "home"), "CARGO_TARGET_DIR": str(folder / "target")}
        own = environment | empty
        added = list(lines_of(["cargo", "add", "--offline", "heapfit"], own, folder))
        ran = list(lines_of(RUN, own, folder))
        static = own | {"RUSTFLAGS": "-C target-feature=+crt-static"}
        # For a target that is named the flags do not count for what cargo runs itself.
        about = list(lines_of(["rustc", "-vV"], own))
        target = next(line.split()[1] for line in about if line.startswith("host:"))
        ran_static = list(lines_of([*RUN, "--target", target], static, folder))
    works = added[-1] == "exit 0" and ran[-2:] == RAN
    yield Case("package", "a program takes it from a registry", "ok" if works else "FAILED")
    works = ran_static[-2:] == RAN
    yield Case("package", "a program is linked statically", "ok" if works else "FAILED")


def leftover_case(environment: dict[str, str]) -> Case:
    """Build with a copy of the sources that package.py has left, which is of no use."""
    vendor = HERE / "heapfit-sys" / "vendor"
    header = vendor / "include" / "heapfit" / "heapfit.h"
    try:
        (vendor / "allocator").mkdir(parents=True)
        header.parent.mkdir(parents=True)
        header.touch()
        with tempfile.TemporaryDirectory() as name:
            command = ["cargo", "build", "--locked", "--quiet", "--package", "heapfit-sys"]
            *_, last = lines_of(command, environment | {"CARGO_TARGET_DIR": name})
    finally:
        shutil.rmtree(vendor, ignore_errors=True)
    return Case("package", "a copy left over is not built", "ok" if last == "exit 0" else "FAILED")


def write_junit(cases: list[Case], path: Path) -> None:
    """Write the results in JUnit's format."""
    suite = ElementTree.Element("testsuite", name="rust", tests=str(len(cases)))
    for case in cases:
        entry = ElementTree.SubElement(suite, "testcase", classname=case.program, name=case.name)
        if case.outcome == "FAILED":
            ElementTree.SubElement(entry, "failure", message="see the output")
        elif case.outcome == "ignored":
            ElementTree.SubElement(entry, "skipped", message="marked #[ignore]")
    ElementTree.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)


def main(arguments: list[str]) -> int:
    """Run everything, whatever failed before."""
    environment = dict(os.environ)
    environment.setdefault("CARGO_TARGET_DIR", str(ROOT / "build" / "rust"))
    environment["CARGO_TERM_COLOR"] = "never"
    cases = [
        case
        for run, command in RUNS.items()
        for case in cases_of(run, lines_of(command, environment))
    ]
    cases += package_cases(environment)
    cases.append(leftover_case(environment))
    if arguments:
        write_junit(cases, Path(arguments[0]))
    failed = [case for case in cases if case.outcome == "FAILED"]
    for case in failed:
        print(f"failed: {case.program}: {case.name}")
    print(f"{len(cases) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
