"""Analyses of studies with gaps, too few trials, or figures that fit no assumption."""

from __future__ import annotations

import numpy as np
from design_data import grid, simulated
from heapfit.findings import Analysis
from heapfit.records import Study, Trial, TrialStatus
from heapfit.statistics import analyse, read

SIZES = {"cores": ["1", "2"], "size": ["s", "m", "l"]}


def analysed(study: Study, trials: list[Trial]) -> Analysis:
    analysis = analyse(read(study, trials), "wall_s")
    assert analysis is not None
    return analysis


def test_nothing_to_analyse_without_trials_figures_or_scatter() -> None:
    study, trials = simulated(np.random.default_rng(1), {"a": 1, "b": 1}, 5, 0.02)
    assert analyse(read(study, []), "wall_s") is None
    assert analyse(read(study, trials), "unknown") is None
    constant = grid({"allocator": "ab"}, 5, [3.0] * 10)
    assert analyse(read(*constant), "wall_s") is None
    exact = grid({"allocator": "ab"}, 5, [3.0] * 5 + [4.0] * 5)
    assert analyse(read(*exact), "wall_s") is None


def test_an_allocator_that_fails_at_one_setting_is_left_out_with_the_reason() -> None:
    slower = {"a": 1.0, "b": 1.0, "c": 1.0}
    study, trials = simulated(np.random.default_rng(1), slower, 4, 0.02, SIZES)
    crash = [
        trial.model_copy(update={"status": TrialStatus.FAILED, "metrics": {}})
        if trial.planned.allocator == "c" and trial.planned.levels["size"] == "l"
        else trial
        for trial in trials
    ]
    analysis = analysed(study, crash)
    assert {cell.row for table in analysis.letters for cell in table.cells} == {"a", "b"}
    assert "allocator c: no good figure of wall_s in 2 of 6 settings." in analysis.left_out
    assert "8 failed trials" in analysis.left_out
