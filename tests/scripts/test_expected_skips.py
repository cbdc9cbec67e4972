"""`tests/expected-skips.toml` lists what may be skipped: all of that, and nothing that is gone."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLES = tomllib.loads((ROOT / "tests" / "expected-skips.toml").read_text())

GTEST_SKIP = re.compile(r'GTEST_SKIP\(\)\s*<<\s*"([^"]*)"')
GTEST_NAME = re.compile(r"TEST(?:_F|_P)?\((\w+), (\w+)\)")


def listed() -> Iterator[tuple[str, str]]:
    """Yield each pattern with each reason that it may give."""
    for table in TABLES.values():
        for pattern, reasons in table.get("tests", {}).items():
            yield from (
                (pattern, each) for each in ([reasons] if isinstance(reasons, str) else reasons)
            )


def sources(*patterns: str) -> Iterator[Path]:
    """Yield the sources of tests."""
    for folder in "tests", "integrations", "examples":
        for pattern in patterns:
            yield from (ROOT / folder).rglob(pattern)


def words(node: ast.expr | None) -> str:
    """Return the most of a text that is known before the program runs."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    texts = [part.value for part in parts if isinstance(part, ast.Constant)]
    return max((text for text in texts if isinstance(text, str)), key=len, default="")


def reasons_of_python(path: Path) -> Iterator[str]:
    """Yield why tests of a file may be skipped; what only a run can tell is empty."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr in {"skip", "importorskip"} and ast.unparse(node.func.value) == "pytest":
            yield words(node.args[0] if node.args else None)
        elif node.func.attr == "skipif":
            yield words(next((each.value for each in node.keywords if each.arg == "reason"), None))


def agree(reason: str, why: str) -> bool:
    """Whether a reason of the list is that of a source, as far as both know it."""
    return reason == why if "" in (reason, why) else reason in why or why in reason


def skips() -> list[tuple[str, str]]:
    """Return the file and the reason of every skip."""
    native = [
        (path, each) for path in sources("*.cpp") for each in GTEST_SKIP.findall(path.read_text())
    ]
    python = [(path, each) for path in sources("*.py") for each in reasons_of_python(path)]
    return [(str(path.relative_to(ROOT)), each) for path, each in native + python]


def names_of_tests() -> tuple[set[str], set[str]]:
    """Return Suite.Name of every native test, and the name of every Python one."""
    native = {
        ".".join(each) for path in sources("*.cpp") for each in GTEST_NAME.findall(path.read_text())
    }
    python = {
        each for path in sources("*.py") for each in re.findall(r"def (test_\w+)", path.read_text())
    }
    return native, python


@pytest.mark.parametrize(("where", "why"), skips())
def test_every_skip_is_listed(where: str, why: str) -> None:
    assert any(agree(reason, why) for _, reason in listed()), where


@pytest.mark.parametrize("pattern", sorted({pattern for pattern, _ in listed()}))
def test_everything_that_is_listed_exists(pattern: str) -> None:
    native, python = names_of_tests()
    if pattern.startswith("test_"):
        assert re.match(r"\w+", pattern).group().rstrip("*") in python
    else:
        suite, name = pattern.split(".")[1:]
        assert any(
            each == f"{suite}.{name}" or (name == "*" and each.startswith(suite + "."))
            for each in native
        )


def test_every_reason_is_given_by_some_source() -> None:
    given = [why for _, why in skips()]
    for pattern, reason in listed():
        assert any(agree(reason, why) for why in given), pattern


def test_every_table_says_when_it_applies() -> None:
    assert all(table["condition"] for table in TABLES.values())
    assert all(("tests" in table) != ("left-out" in table) for table in TABLES.values())


# ---- conditions ------------------------------------------------------------------------------

NOTHING: frozenset[str] = frozenset()


@pytest.fixture(scope="module")
def summary() -> ModuleType:
    """`scripts/test-summary` as a module."""
    loader = SourceFileLoader("test_summary_program", str(ROOT / "scripts" / "test-summary"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[loader.name] = module  # its dataclass asks for it
    loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("test", "fact", "others"),
    [
        ("limits.Limits.MemoryLockedLater", "not-root", "confined"),
        ("limits.Limits.StrictOvercommit", "not-root", "one-processor"),
        ("limits.Limits.StrictOvercommit", "confined", "one-processor"),
        ("test_server_and_client_run_apart", "one-processor", "not-root"),
    ],
)
def test_a_skip_is_expected_where_its_fact_holds_alone(
    summary: ModuleType, test: str, fact: str, others: str
) -> None:
    why = next(why for pattern, why in listed() if pattern == test)
    assert summary.skip_is_expected("lab", test, why, frozenset({fact}))
    assert not summary.skip_is_expected("lab", test, why, frozenset({others}))
    assert not summary.skip_is_expected("lab", test, why, NOTHING)


@pytest.mark.parametrize(
    ("test", "why", "suites", "others"),
    [
        (
            "asleep.AThread.Is",
            "the kernel does not tell what threads do",
            ["aarch64", "tsan"],
            ["library", "asan"],
        ),
        (
            "idle.RestingHeaps.Rest",
            "ThreadSanitizer knows nothing of membarrier(2)",
            ["asan", "tsan"],
            ["library", "aarch64"],
        ),
    ],
)
def test_a_skip_is_expected_in_its_suites_alone(
    summary: ModuleType, test: str, why: str, suites: list[str], others: list[str]
) -> None:
    for suite in suites:
        assert summary.skip_is_expected(suite, test, why, NOTHING)
        assert summary.skip_is_expected(f"{suite}-rest", test, why, NOTHING)
    for suite in others:
        assert not summary.skip_is_expected(suite, test, why, NOTHING)


def test_who_runs_the_tests_is_seen(summary: ModuleType) -> None:
    """By a user of a namespace of its own, who is called root there and nobody else is."""
    assert ("not-root" in summary.facts_here()) == (os.geteuid() != 0)
    asked = "import runpy, sys; print(*runpy.run_path(sys.argv[1])['facts_here']())"
    program = [sys.executable, "-c", asked, str(ROOT / "scripts" / "test-summary")]
    apart = ["unshare", "--user", *(["--map-root-user"] if os.geteuid() else [])]
    found = subprocess.run([*apart, *program], capture_output=True, text=True)
    if found.returncode == 0:  # most kernels let anybody have one
        assert ("not-root" in found.stdout.split()) == (os.geteuid() == 0)
        assert "confined" in found.stdout.split()


def test_every_fact_and_suite_of_a_table_is_one_that_there_is(summary: ModuleType) -> None:
    known = (ROOT / "scripts" / "test-summary").read_text()
    facts = {fact for table in TABLES.values() for fact in table.get("when", [])}
    assert all(f'"{fact}": ' in known for fact in facts)
    suites = {suite for table in TABLES.values() for suite in table.get("suites", [])}
    preparations = (ROOT / "scripts" / "run-tests").read_text()
    assert all(f'ctest("{suite}", ' in preparations for suite in suites)
