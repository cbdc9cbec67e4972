"""`scripts/test-summary` must never call a run good that was not: a test for each way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "scripts" / "test-summary"

PYTEST_PASSED = '<testcase name="a" classname="b" time="0.1"/>'
PYTEST_FAILED = '<testcase name="c"><failure message="assert 1 == 2">...</failure></testcase>'
PYTEST_ERROR = '<testcase name="d"><error message="fixture failed">...</error></testcase>'
# Of these two tests/expected-skips.toml knows the names and the reasons.
PYTEST_SKIPPED = (
    '<testcase name="test_server_and_client_run_apart">'
    '<skipped type="pytest.skip" message="needs a core for each side"/></testcase>'
)
CTEST_PASSED = '<testcase name="f" status="run"><system-out>fine</system-out></testcase>'
CTEST_FAILED = '<testcase name="g" status="fail"><failure message="Failed"/></testcase>'
CTEST_NO_PROGRAM = (
    '<testcase name="h" status="notrun"><skipped message="Unable to find executable"/></testcase>'
)
CTEST_SKIPPED = (
    '<testcase name="limits.Limits.MemoryLockedLater" status="notrun">'
    '<skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>'
    "<system-out>[ RUN      ] X.Y\n/a/b.cpp:1: Skipped\n"
    "only root may lock memory without limit\n\n[  SKIPPED ]</system-out></testcase>"
)
PYTEST_SKIPPED_UNEXPECTEDLY = (
    '<testcase name="e"><skipped type="pytest.skip" message="why"/></testcase>'
)
PYTEST_SKIPPED_FOR_ANOTHER_REASON = PYTEST_SKIPPED.replace("needs a core", "does not like")
CTEST_SKIPPED_WITHOUT_REASON = (
    '<testcase name="j" status="notrun">'
    '<skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/></testcase>'
)


@pytest.fixture
def write(tmp_path: Path):
    """Return a function that leaves a suite's results in the folder, as a test runner would."""

    def write_suite(name: str, *cases: str, exit_code: int = 0) -> None:
        xml = f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>"
        (tmp_path / f"{name}.xml").write_text(xml)
        (tmp_path / f"{name}.exit").write_text(f"{exit_code}\n")

    return write_suite


@pytest.fixture
def whole_summary(tmp_path: Path):
    """Return a function that runs the program and returns its lines and exit code."""

    def run(*suites: str) -> tuple[list[str], int]:
        command = [sys.executable, str(PROGRAM), str(tmp_path), *suites]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout.splitlines(), done.returncode

    return run


@pytest.fixture
def summary(whole_summary):
    """Return a function that runs the program and returns its closing line and exit code."""

    def run(*suites: str) -> tuple[str, int]:
        lines, exit_code = whole_summary(*suites)
        return lines[-1], exit_code

    return run


def test_adds_up_all_suites(write, summary):
    write("one", PYTEST_PASSED, PYTEST_PASSED)
    write("two", CTEST_PASSED)
    assert summary("one", "two") == ("3 passed, 0 failed", 0)


@pytest.mark.parametrize("case", [PYTEST_FAILED, PYTEST_ERROR, CTEST_FAILED, CTEST_NO_PROGRAM])
def test_a_failed_case_fails_the_run(write, summary, case):
    write("one", PYTEST_PASSED, case, exit_code=1)
    assert summary("one") == ("1 passed, 1 failed", 1)


@pytest.mark.parametrize(
    "case",
    [
        PYTEST_SKIPPED_UNEXPECTEDLY,
        PYTEST_SKIPPED_FOR_ANOTHER_REASON,
        CTEST_SKIPPED_WITHOUT_REASON,
    ],
)
def test_a_case_that_is_skipped_unexpectedly_fails_the_run(write, summary, case):
    write("one", PYTEST_PASSED, case)
    assert summary("one") == ("1 passed, 1 failed", 1)


@pytest.mark.parametrize("case", [PYTEST_SKIPPED, CTEST_SKIPPED])
def test_a_skipped_case_is_told(write, summary, case):
    write("one", PYTEST_PASSED, case)
    assert summary("one") == ("1 passed, 0 failed, 1 skipped", 0)


@pytest.mark.parametrize(
    ("case", "line"),
    [
        (
            PYTEST_SKIPPED,
            "skipped: test_server_and_client_run_apart: needs a core for each side",
        ),
        (
            CTEST_SKIPPED,
            "skipped: limits.Limits.MemoryLockedLater: only root may lock memory without limit",
        ),
    ],
)
def test_a_skipped_case_is_named_with_its_reason(write, whole_summary, case, line):
    write("one", PYTEST_PASSED, case)
    lines, _ = whole_summary("one")
    assert line in [each.strip() for each in lines]


def test_a_suite_without_results_counts_as_a_failure(write, summary):
    write("one", PYTEST_PASSED)
    assert summary("one", "never-built") == ("1 passed, 1 failed", 1)


def test_a_suite_without_an_exit_code_counts_as_a_failure(write, summary, tmp_path):
    write("one", PYTEST_PASSED)
    write("two", PYTEST_PASSED)
    (tmp_path / "two.exit").unlink()
    assert summary("one", "two") == ("1 passed, 1 failed", 1)


def test_a_suite_that_was_killed_while_writing_counts_as_a_failure(write, summary, tmp_path):
    write("one", PYTEST_PASSED)
    (tmp_path / "two.xml").write_text("<testsuites><testsuite><testca")
    assert summary("one", "two") == ("1 passed, 1 failed", 1)


def test_a_suite_that_ran_nothing_counts_as_a_failure(write, summary):
    write("one", PYTEST_PASSED)
    write("two", PYTEST_SKIPPED)
    assert summary("one", "two") == ("1 passed, 1 failed, 1 skipped", 1)


def test_a_bad_exit_code_counts_even_when_every_case_passed(write, summary):
    write("one", PYTEST_PASSED, exit_code=137)
    assert summary("one") == ("1 passed, 1 failed", 1)


@pytest.mark.parametrize(
    ("case", "lines"),
    [
        (PYTEST_FAILED, ["failed: one: c", "    ..."]),
        (CTEST_FAILED, ["failed: one: g", "    Failed"]),
    ],
)
def test_what_failed_is_named_last_with_the_end_of_its_output(write, whole_summary, case, lines):
    write("one", case, PYTEST_SKIPPED, exit_code=1)
    assert whole_summary("one")[0][-3:] == [*lines, "0 passed, 1 failed, 1 skipped"]


def test_only_the_end_of_a_long_output_is_shown(write, whole_summary):
    output = "\n".join(f"line {number}" for number in range(100))
    write("one", f'<testcase name="c"><failure>{output}</failure></testcase>', exit_code=1)
    lines, _ = whole_summary("one")
    assert lines[-2] == "    line 99"
    assert len(lines) < 20
