"""A study that runs until it is precise enough, or until time is up; what a second look costs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import load_benchmark
from engine_helpers import study_of, system_allocator, workload
from heapfit.errors import UsageError
from heapfit.records import PlannedTrial, Precision, StoppingRule, Study, Trial, TrialStatus
from heapfit.report.problems import precision_reached, remarks
from heapfit.report.reading import Reading
from heapfit.report.reading import read as read_folder
from heapfit.statistics import read
from heapfit.statistics.summary import precision_of
from heapfit.statistics.verdict import METHOD, STOPPED_METHOD
from heapfit.study import Progress, execute, load, note_look
from heapfit.study import execute as execute_study
from heapfit.study.stopping import LOOKS
from report_data import START

TWO = [system_allocator("a"), system_allocator("b", B="1")]
MIB = 2**20

# Gives the wall time of a planned trial.
Wall = Callable[[PlannedTrial], float]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


class Clock:
    """Makes trials that take as long as a test says, by a clock that only they move."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        self.wall: Wall = lambda planned: 1.0
        module = __import__("heapfit.study.execute", fromlist=["run_trial"])
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        monkeypatch.setattr(module, "run_trial", self._run)

    def _run(self, study: Study, planned: PlannedTrial, *_: Any) -> Trial:
        wall_s = self.wall(planned)
        self.now_s += wall_s
        figures = {metric.name: 50.0 * MIB for metric in study.metrics} | {"wall_s": wall_s}
        return Trial(planned=planned, status=TrialStatus.OK, started=START, metrics=figures)


class Interrupting(Progress):
    """Raises Ctrl-C after so many trials; keeps what it is told of looks."""

    def __init__(self, after: int | None = None) -> None:
        self._left = after
        self.extensions: list[tuple[int, float | None]] = []
        self.remaining: list[float | None] = []

    def finished(self, trial: Trial, remaining_s: float | None) -> None:
        self.remaining.append(remaining_s)
        if self._left is not None:
            self._left -= 1
            if not self._left:
                raise KeyboardInterrupt

    def extended(self, study: Study, precision: Precision | None) -> None:
        self.extensions.append((study.replicates, precision and precision.reached))


def scattered(spread: float, slower: float = 1.0, seed: int = 1) -> Wall:
    """A figure of each trial's own, whatever ran before it; of `b` so many times as large."""

    def wall(planned: PlannedTrial) -> float:
        noise = np.random.default_rng([seed, planned.index]).normal(0, spread)
        return float(np.exp(noise)) * (slower if planned.allocator == "b" else 1.0)

    return wall


def until(precision: float | None = None, max_time_s: float | None = None) -> Study:
    rule = StoppingRule(precision=precision, max_time_s=max_time_s)
    return study_of(workload("true"), TWO, replicates=None, rule=rule)


def blocks_in(folder: Path) -> int:
    return len({trial.planned.block for trial in load(folder)[1] if not trial.planned.warmup})


def test_a_program_that_scatters_runs_until_the_next_look_finds_enough(
    clock: Clock, tmp_path: Path
) -> None:
    clock.wall = scattered(0.05)
    progress = Interrupting()
    execute(until(0.03), tmp_path, progress)
    study, trials = load(tmp_path)
    assert study.replicates in LOOKS[1:-1]
    planned = [count for count, _ in progress.extensions]
    assert planned == list(LOOKS[1 : LOOKS.index(study.replicates) + 1])
    assert all(reached > 0.03 for _, reached in progress.extensions if reached is not None)
    found = precision_of(read(study, trials))
    assert found is not None
    assert found.reached <= 0.03
    assert progress.remaining[0] is not None
    assert progress.remaining[-1] == 0.0


def test_one_that_is_never_known_well_enough_ends_at_the_last_look(
    clock: Clock, tmp_path: Path
) -> None:
    clock.wall = scattered(0.5)
    execute(until(0.001), tmp_path)
    assert blocks_in(tmp_path) == LOOKS[-1]
    [said] = [line for line in remarks(read_folder(tmp_path).summary) if "precision" in line]
    assert said.startswith("The requested precision, 0.1 %, is not reached: Wall time of a and b")
    assert "after 100 blocks" in said
    needed = re.search("some ([0-9,]+) would be needed", said)
    assert needed
    number = needed[1].replace(",", "")
    assert f"repeat the command with --replicates {number} in place of --precision" in said


def test_an_interrupted_study_ends_where_it_would_have_ended(clock: Clock, tmp_path: Path) -> None:
    clock.wall = scattered(0.05)
    execute(until(0.03), tmp_path / "whole")
    for _ in range(200):
        try:
            execute(until(0.03), tmp_path / "parts", Interrupting(after=7))
        except KeyboardInterrupt:
            continue
        break
    whole, parts = load(tmp_path / "whole"), load(tmp_path / "parts")
    assert [t.planned for t in parts[1]] == [t.planned for t in whole[1]]
    assert parts[0].replicates == whole[0].replicates
    before = len(parts[1])
    execute(until(0.03), tmp_path / "parts")  # nothing more is needed
    assert len(load(tmp_path / "parts")[1]) == before
    execute(until(0.02), tmp_path / "parts")
    assert len(load(tmp_path / "parts")[1]) > before


def test_verdicts_make_up_for_stopping_where_intervals_are_narrow(
    clock: Clock, tmp_path: Path
) -> None:
    clock.wall = scattered(0.05)
    execute(until(0.03), tmp_path)
    study, trials = load(tmp_path)
    summary = Reading(study, trials).summary
    fixed = Reading(study.model_copy(update={"rule": None}), trials).summary
    own, other = (next(v for v in s.verdicts if v.metric == "wall_s") for s in (summary, fixed))
    assert (own.method, other.method) == (STOPPED_METHOD, METHOD)
    assert own.low is not None
    assert other.low is not None
    assert own.low < other.low
    assert summary.precision is not None
    assert fixed.precision is None
    said = precision_reached(summary)
    assert said is not None
    assert said.endswith("; ±3 % was requested.")


def test_a_study_that_figures_stopped_stays_adjusted_when_it_gets_a_number(
    clock: Clock, tmp_path: Path
) -> None:
    """The same trials said `no difference` after --precision, and `a difference` after the same
    command with --replicates, which added none."""
    clock.wall = scattered(0.05)
    execute(until(0.03), tmp_path)
    before = Reading(*load(tmp_path)).summary.verdicts
    execute(study_of(workload("true"), TWO, replicates=blocks_in(tmp_path)), tmp_path)
    study, trials = load(tmp_path)
    assert study.rule is None
    after = Reading(study, trials).summary.verdicts
    assert [each.p for each in after] == [each.p for each in before]
    assert {each.method for each in after} == {STOPPED_METHOD}


def test_whole_blocks_run_while_there_is_time(clock: Clock, tmp_path: Path) -> None:
    progress = Interrupting()
    execute(until(max_time_s=21.5), tmp_path, progress)
    study, trials = load(tmp_path)
    # Two warm-ups and nine blocks of two; there would be time for half of another.
    assert clock.now_s == 20.0
    assert [trial.planned for trial in trials] == study.plan
    assert (study.replicates, blocks_in(tmp_path)) == (9, 9)
    assert all(left is not None and left <= 21.5 for left in progress.remaining)


def test_time_counts_over_interruptions(clock: Clock, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        execute(until(max_time_s=21.5), tmp_path, Interrupting(after=9))
    clock.now_s += 1000.0  # in which nothing ran
    execute(until(max_time_s=21.5), tmp_path)
    assert len(load(tmp_path)[1]) == 20


def test_a_study_has_a_number_of_replicates_or_a_rule() -> None:
    rule = StoppingRule(precision=0.02)
    for replicates, given in ((None, None), (3, rule)):
        with pytest.raises(UsageError, match="either a number of replicates or a rule"):
            study_of(workload("true"), TWO, replicates=replicates, rule=given)
    with pytest.raises(UsageError, match="major_faults can be zero"):
        study_of(workload("true"), TWO, replicates=None, rule=rule, primary_metric="major_faults")


def test_replicates_that_were_added_after_a_verdict_are_told(clock: Clock, tmp_path: Path) -> None:
    clock.wall = scattered(0.05)
    execute_study(study_of(workload("true"), TWO, replicates=4), tmp_path)
    first = read_folder(tmp_path)
    assert (first.blocks, first.summary.looks, remarks(first.summary)) == (4, [4], [])
    note_look(tmp_path, first.blocks)
    execute_study(study_of(workload("true"), TWO, replicates=8), tmp_path)
    second = read_folder(tmp_path)
    assert second.summary.looks == [4, 8]
    [said] = remarks(second.summary)
    assert said.startswith("Verdicts were shown after 4 and 8 blocks.")
    assert "a false positive from 5 % to up to 10 %" in said


def test_the_promises_are_kept_wherever_a_study_ends() -> None:
    """The bounds are wider by three standard errors of the worst of some thirty precisions."""
    benchmark = load_benchmark(Path(__file__).parents[2] / "benchmarks" / "stopping_errors.py")
    for scatter, treatments in (("normal", 2), ("spreads from one to five times", 3)):
        line = benchmark.count(scatter, treatments, 1500, seed=2)
        margin = 3.5 * (0.05 * 0.95 / 1500) ** 0.5
        assert line.false["verdict"] <= benchmark.MOST_FALSE + margin, benchmark.said(line)
        assert line.coverage["verdict"] >= benchmark.LEAST_COVERAGE - margin, benchmark.said(line)
        assert line.false["as if fixed"] > line.false["verdict"]
        assert line.blocks["verdict"] < line.blocks["Pocock"]
