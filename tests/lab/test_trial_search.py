"""Output is searched for patterns whatever it holds, and never for longer than there is time."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_helpers import run_once, workload
from heapfit.records import TrialStatus, WorkloadCheck
from heapfit.trial import search
from heapfit.trial.search import SearchFailed

pytestmark = pytest.mark.full

# Tries every way to share the letters out among the groups: two to the power of their number.
BACKTRACKS = "^(a+)+b"
LETTERS = "a" * 60
SHORT_S = 1.0


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "output"


def test_finds_the_group_or_else_the_whole_at_every_line(output: Path) -> None:
    output.write_text("rate: 1\nrate: 2\n")
    assert search.search(output, [r"^rate: (\d)$", r"\d\nrate", "none"], every=True) == [
        ["1", "2"],
        ["1\nrate"],
        [],
    ]
    assert search.search(output, [r"^rate: (\d)$"], every=False) == [["1"]]


def test_output_need_not_be_text(output: Path) -> None:
    output.write_bytes(b"\xff\0 caf\xc3\xa9 \xfe")
    assert search.search(output, ["é (.)", "\0", "^$"], every=True) == [["\\xfe"], ["\0"], []]


def test_empty_output_is_searched_too(output: Path) -> None:
    output.touch()
    assert search.search(output, ["^$", "."], every=True) == [[""], []]


def test_nothing_to_search_for_is_no_search(output: Path) -> None:
    assert search.search(output, [], every=True) == []


def test_a_search_without_end_is_given_up_and_named(
    output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "TIMEOUT_S", SHORT_S)
    output.write_text(LETTERS)
    with pytest.raises(SearchFailed, match=r"\^\(a\+\)\+b' does not finish within 1 s"):
        search.search(output, ["a", BACKTRACKS, "b"], every=False)


def test_a_pattern_that_does_not_fit_bytes_is_explained(output: Path) -> None:
    output.write_text("text")
    with pytest.raises(SearchFailed, match=r"'\\\\N\{BULLET\}' cannot be searched for \(.*bad esc"):
        search.search(output, ["text", r"\N{BULLET}"], every=False)


def test_a_trial_whose_output_cannot_be_judged_is_a_mismatch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "TIMEOUT_S", SHORT_S)
    check = WorkloadCheck(must_match=BACKTRACKS)
    trial = run_once(workload("echo", LETTERS, check=check), tmp_path)
    assert trial.status is TrialStatus.MISMATCH
    assert "does not finish" in trial.reason
