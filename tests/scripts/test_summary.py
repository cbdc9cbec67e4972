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
# Of these two tests/expected-skips.toml knows the names and the reasons, on any machine.
PYTEST_SKIPPED = (
    '<testcase name="test_what_this_machine_cannot_give_is_left_out_with_a_note_or_refused">'
    '<skipped type="pytest.skip" message="this machine can give every metric"/></testcase>'
)
CTEST_PASSED = '<testcase name="f" status="run"><system-out>fine</system-out></testcase>'
CTEST_FAILED = '<testcase name="g" status="fail"><failure message="Failed"/></testcase>'
CTEST_NO_PROGRAM = (
    '<testcase name="h" status="notrun"><skipped message="Unable to find executable"/></testcase>'
)
CTEST_SKIPPED = (
    '<testcase name="record_front.RecordThreads.TimesOfAnAddressAreInItsOrder" status="notrun">'
    '<skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>'
    "<system-out>[ RUN      ] X.Y\n/a/b.cpp:1: Skipped\n"
    "the clock is too coarse here to tell two events in a row apart\n\n"
    "[  SKIPPED ]</system-out></testcase>"
)
PYTEST_SKIPPED_UNEXPECTEDLY = (
    '<testcase name="e"><skipped type="pytest.skip" message="why"/></testcase>'
)
PYTEST_SKIPPED_FOR_ANOTHER_REASON = PYTEST_SKIPPED.replace("this machine", "no machine")
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
            "skipped: test_what_this_machine_cannot_give_is_left_out_with_a_note_or_refused: "
            "this machine can give every metric",
        ),
        (
            CTEST_SKIPPED,
            "skipped: record_front.RecordThreads.TimesOfAnAddressAreInItsOrder: "
            "the clock is too coarse here to tell two events in a row apart",
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


def test_a_suite_without_an_exit_code_counts_as_a_failure_beside_what_it_has_done(
    write, summary, tmp_path
):
    write("one", PYTEST_PASSED)
    write("two", PYTEST_PASSED)
    (tmp_path / "two.exit").unlink()
    assert summary("one", "two") == ("2 passed, 1 failed", 1)


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


@pytest.mark.parametrize("exit_code", [2, -9, 137])
def test_a_suite_that_was_ended_amid_its_tests_is_told_beside_what_failed(
    write, whole_summary, exit_code
):
    write("one", PYTEST_PASSED, PYTEST_FAILED, exit_code=exit_code)
    lines, code = whole_summary("one")
    assert lines[0].endswith(f"1 passed, 2 failed (ended with exit code {exit_code})")
    assert (lines[-1], code) == ("1 passed, 2 failed", 1)


@pytest.mark.parametrize(("case", "exit_code"), [(PYTEST_FAILED, 1), (CTEST_FAILED, 8)])
def test_a_failed_test_is_counted_once(write, summary, case, exit_code):
    write("one", PYTEST_PASSED, case, exit_code=exit_code)
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


def test_a_test_that_was_ended_without_a_word_is_named_with_the_end_that_ctest_saw(
    write, whole_summary, tmp_path: Path
):
    """Of a real run: its results do not tell a crash from an exit code, and its log does."""
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(endings NONE)\nenable_testing()\n"
        'add_test(NAME code COMMAND sh -c "exit 3")\n'
        'add_test(NAME crash COMMAND sh -c "kill -SEGV $$")\n'
    )
    build = tmp_path / "build"
    subprocess.run(["cmake", "-B", build], cwd=tmp_path, capture_output=True, check=True)
    command = ["ctest", "--test-dir", build, "--output-junit", tmp_path / "ended.xml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    (tmp_path / "ended.log").write_text(done.stdout)
    (tmp_path / "ended.exit").write_text(f"{done.returncode}\n")
    lines, _ = whole_summary("ended")
    (code, crash) = (line for line in lines if line.startswith("failed: "))
    assert code.startswith("failed: ended: code (Failed, after 0.")
    assert crash.startswith("failed: ended: crash (SEGFAULT, after 0.")


def test_a_suite_that_had_no_time_is_named_and_has_not_failed(tmp_path: Path, write, whole_summary):
    write("done", PYTEST_PASSED)
    (tmp_path / "late.left").touch()
    lines, code = whole_summary("done", "late")
    assert "late       left: there was no time for it" in lines
    assert (lines[-1], code) == ("1 passed, 0 failed", 0)
    lines, code = whole_summary("late")
    assert (lines[-1], code) == ("nothing was run: there was no time for any of it", 0)


def test_what_a_suite_that_had_no_time_has_found_is_told(tmp_path: Path, write, whole_summary):
    write("done", PYTEST_PASSED)
    write("late", PYTEST_PASSED, PYTEST_FAILED)
    (tmp_path / "late.exit").unlink()
    (tmp_path / "late.left").touch()
    lines, code = whole_summary("done", "late")
    told = "late       left: there was no time for it; until then 1 passed, 1 failed"
    assert lines[lines.index(told) + 1] == "           failed: c"
    assert (lines[-1], code) == ("1 passed, 0 failed", 0)
