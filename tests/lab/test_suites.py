"""`benchmarks/suites.py` reads what other projects' suites print, and judges what differs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from conftest import load_benchmark

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "suites.py"
TOLD = tomllib.loads(SCRIPT.with_suffix(".toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def suites() -> ModuleType:
    return load_benchmark(SCRIPT)


LINES = [
    ("cpython", '<testcase name="test.a" time="1" />', "test.a", "passed"),
    (
        "cpython",
        '<testcase name="a"><system-out>x</system-out><failure/></testcase>',
        "a",
        "failed",
    ),
    ("cpython", '<testcase name="a"><skipped /></testcase>', "a", "skipped"),
    ("postgresql", "     boolean                      ... ok           61 ms", "boolean", "passed"),
    (
        "postgresql",
        "test tablespace                   ... FAILED      245 ms",
        "tablespace",
        "failed",
    ),
    ("sqlite", "select1-1.1... Ok", "select1-1.1", "passed"),
    ("sqlite", "! select1-1.1 expected: [1]", "select1-1.1", "failed"),
    ("redis", "[ok]: QUIT returns OK (1 ms)", "QUIT returns OK", "passed"),
    ("redis", "[err]: SORT in tests/unit/sort.tcl", "SORT", "failed"),
    ("mariadb", "main.alias 'innodb'    [ pass ]    171", "main.alias 'innodb'", "passed"),
    ("mariadb", "main.alias             w1 [ fail ]", "main.alias", "failed"),
    ("glib", "ok 3 /array/new", "/array/new", "passed"),
    ("glib", "ok 3 /array/new # SKIP no time", "/array/new", "skipped"),
    ("glib", "not ok 3 /array/new", "/array/new", "failed"),
    ("systemd", "test-af-list: exit 77", "test-af-list", "skipped"),
    ("stress-ng", "malloc: exit 2", "malloc", "failed"),
    ("memcached", "ok 2 - stored foo", "stored foo", "passed"),
]


@pytest.mark.parametrize(("suite", "line", "name", "outcome"), LINES)
def test_a_line_tells_of_a_test(
    suites: ModuleType, suite: str, line: str, name: str, outcome: str
) -> None:
    match = re.search(TOLD[suite]["result"], f"before\n{line}\nafter", re.M)
    assert match
    assert (match["name"], suites.outcome(match.groupdict())) == (name, outcome)


RUNS = [
    (["passed"] * 4, ["failed"] * 4, "steady"),
    (["passed"] * 4, ["missing"] * 4, "explained"),
    (["passed", "failed"], ["failed"] * 2, "by chance"),
    (["passed"], ["failed"], "not retried"),
]


@pytest.mark.parametrize(("glibc", "heapfit", "verdict"), RUNS)
def test_a_difference_is_steady_when_no_run_ends_as_under_glibc(
    suites: ModuleType, glibc: list[str], heapfit: list[str], verdict: str
) -> None:
    each = {"test": "malloc-1.transient.4", "glibc": glibc, "heapfit": heapfit}
    suites.judge(each, TOLD["sqlite"]["explained"])
    assert each["verdict"] == verdict
