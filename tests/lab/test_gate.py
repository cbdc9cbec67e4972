"""The gate of `compare`: a bound has failed only where that is shown, and passed likewise."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from conftest import Heapfit
from design_data import by_block
from engine_helpers import compiled
from heapfit.errors import UsageError
from heapfit.gate import formats
from heapfit.gate.condition import parse
from heapfit.gate.decision import Decision, Place
from heapfit.gate.verdicts import RatioDecision, check, judge
from heapfit.records import Study, Trial, TrialStatus
from heapfit.statistics import read, summarise

pytestmark = pytest.mark.full


def decided(condition: str, study: Study, trials: list[Trial]) -> list[RatioDecision]:
    conditions = [parse(condition, "--fail-if", "< >", "")]
    check(conditions, study)
    readings = read(study, trials)
    return judge(conditions, readings, summarise(readings))


def scattered(mean: float, spread: float, seed: int) -> list[float]:
    drawn = np.random.default_rng(seed).normal(np.log(mean), spread, 10)
    return [float(value) for value in np.exp(drawn)]


OLD = scattered(1.0, 0.01, 1)


@pytest.mark.parametrize(
    ("new", "condition", "outcome"),
    [
        (scattered(1.1, 0.01, 2), "wall_s>1.03", "failed"),
        (scattered(1.0, 0.01, 2), "wall_s>1.03", "passed"),
        (scattered(1.03, 0.01, 2), "wall_s>1.03", "untold"),
        (scattered(0.8, 0.01, 2), "wall_s<0.9", "failed"),
    ],
)
@pytest.mark.gate
def test_a_bound_is_judged_by_the_whole_interval(
    new: list[float], condition: str, outcome: str
) -> None:
    [found] = decided(condition, *by_block({"old": OLD, "new": new}))
    assert found.outcome == outcome
    assert found.verdict is not None
    assert (found.verdict.first, found.verdict.second) == ("new", "old")
    assert (found.replicates is not None) == (outcome == "untold")


@pytest.mark.gate
def test_a_condition_is_of_each_treatment_unless_it_names_one() -> None:
    made = by_block({"old": OLD, "a": scattered(1.2, 0.01, 2), "b": scattered(1, 0.01, 3)})
    assert [(each.name, each.outcome) for each in decided("wall_s>1.05", *made)] == [
        ("a wall_s>1.05", "failed"),
        ("b wall_s>1.05", "passed"),
    ]
    assert [each.name for each in decided("b:wall_s>1.05", *made)] == ["b wall_s>1.05"]
    with pytest.raises(UsageError, match=r"'old:wall_s>1\.05': old is the baseline"):
        decided("old:wall_s>1.05", *made)


def test_failed_trials_leave_a_condition_untold_but_not_what_is_shown_to_be_beyond() -> None:
    for mean, outcome in ((1.0, "untold"), (1.5, "failed")):
        study, trials = by_block({"old": OLD, "new": scattered(mean, 0.01, 2)})
        trials[-1] = trials[-1].model_copy(update={"status": TrialStatus.FAILED, "metrics": {}})
        [found] = decided("wall_s>1.1", study, trials)
        assert found.outcome == outcome
        assert ("1 trial of new failed" in found.why) == (outcome == "untold")


@pytest.mark.parametrize("text", ["wall_s", "wall_s>nan", "wall_s<=1"])  # fmt: skip
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--fail-if"):
        parse(text, "--fail-if", "< >", "wall_s>1.03")


DECISIONS = [
    Decision(name="fine", outcome="passed", why="1.00x"),
    Decision(
        name="a,b: c",
        outcome="failed",
        why="50 % more | \x1b",
        places=[Place(what="elsewhere"), Place(what="f (x.c:3)", file="src/x,1.c", line=3)],
    ),
    Decision(name="who knows", outcome="untold", why="0.9 to 1.1"),
]


@pytest.mark.gate
def test_junit_has_a_test_for_each_decision() -> None:
    root = ElementTree.fromstring(formats.junit(DECISIONS, "suite"))
    [suite] = root
    assert {name: suite.get(name) for name in ("tests", "failures", "errors")} == {
        "tests": "3",
        "failures": "1",
        "errors": "1",
    }
    fine, failed, untold = suite
    assert [each.tag for each in fine] == ["system-out"]
    assert (failed.get("file"), failed.get("line"), failed[0].tag) == ("src/x,1.c", "3", "failure")
    assert untold[0].tag == "error"


def test_github_is_told_the_line_and_nothing_that_ends_the_command() -> None:
    assert formats.github(DECISIONS) == [
        "::error file=src/x%2C1.c,line=3,title=heapfit%3A a%2Cb%3A c"
        "::50 %25 more | \x1b%0Aelsewhere%0Af (x.c:3)",
        "::warning title=heapfit%3A who knows::0.9 to 1.1",
    ]


@pytest.mark.gate
@pytest.mark.parametrize(
    ("old", "new", "condition", "code", "outcomes"),
    [
        ("exit 1", "exit 0", ["--fail-if", "wall_s>9"], 4, []),
        ("exit 0", "exit 1", ["--fail-if", "wall_s>9"], 4, ["broken"]),
        ("exit 1", "exit 0", [], 1, []),
        ("exit 0", "exit 1", [], 0, []),
    ],
)
def test_a_program_that_does_not_run_is_no_regression(
    run_heapfit: Heapfit,
    tmp_path: Path,
    old: str,
    new: str,
    condition: list[str],
    code: int,
    outcomes: list[str],
) -> None:
    """1 says that a bound is exceeded, 3 that it cannot be told, and 4 that nothing was measured;
    without a bound 1 has its usual meaning."""
    for name, line in (("old", old), ("new", new)):
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    programs = ["--programs", "old=./old,new=./new", "--cores", "1", "--replicates", "1"]
    result = run_heapfit(
        *("compare", *programs, *condition, "--json", "--", "{program}"), folder=tmp_path
    )
    assert result.returncode == code, result.stderr
    found = json.loads(result.stdout).get("gate", []) if result.stdout else []
    assert [each["outcome"] for each in found] == outcomes


@pytest.mark.gate
def test_a_build_is_gated_against_the_one_before(run_heapfit: Heapfit, tmp_path: Path) -> None:
    code = (
        "#include <stdlib.h>\n#include <string.h>\n"
        "int main(void) { char *volatile p = malloc(SIZE); memset(p, 1, SIZE); return 0; }\n"
    )
    for name, size in (("before", "1 << 20"), ("after", "32 << 20")):
        compiled(tmp_path / name, code, "-O0", f"-DSIZE=({size})")
    programs = ["--programs", "old=./before,new=./after", "--cores", "1", "--replicates", "3"]
    conditions = ["--fail-if", "new:peak_rss_bytes>1.05", "--fail-if", "peak_rss_bytes>90"]
    forms = ["--github", "--junit", "j.xml", "--markdown", "m.md", "--json"]
    command = ["compare", *programs, *conditions, *forms, "--", "{program}"]
    result = run_heapfit(*command, folder=tmp_path)
    assert result.returncode == 1, result.stderr
    report = json.loads(result.stdout)
    found = [(each["name"], each["outcome"]) for each in report["gate"]]
    assert found == [("new peak_rss_bytes>1.05", "failed"), ("new peak_rss_bytes>90", "passed")]
    assert report["gate"][0]["verdict"]["low"] > 1.05
    assert "--fail-if 'new:peak_rss_bytes>1.05'" in report["study"]["reproduce"]
    assert "::error title=heapfit%3A new peak_rss_bytes>1.05::" in result.stderr
    assert ElementTree.parse(tmp_path / "j.xml").getroot()[0].get("failures") == "1"
    assert "| **failed** |" in (tmp_path / "m.md").read_text()
