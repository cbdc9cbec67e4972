"""Analyses of studies with gaps, too few trials, or figures that fit no assumption."""

from __future__ import annotations

import numpy as np
import pytest
from design_data import grid, simulated, study_of, trial_of
from heapfit.findings import Analysis
from heapfit.records import Study, Trial, TrialStatus
from heapfit.statistics import analyse, analyse_all, read
from heapfit.statistics.fitted import model_of
from heapfit.statistics.observations import figures_of, sample
from report_data import Faults, make_study, make_trials

SIZES = {"cores": ["1", "2"], "size": ["s", "m", "l"]}


def analysed(study: Study, trials: list[Trial]) -> Analysis:
    analysis = analyse(read(study, trials), "wall_s")
    assert analysis is not None
    return analysis


def sources(analysis: Analysis) -> list[str]:
    return [row.source for row in analysis.anova]


def test_every_factor_and_interaction_has_a_row() -> None:
    analysis = analysed(*simulated(np.random.default_rng(1), {"a": 1, "b": 1}, 3, 0.02, SIZES))
    assert analysis.factors == ["allocator", "cores", "size"]
    assert sources(analysis) == [
        "allocator",
        "cores",
        "size",
        "allocator:cores",
        "allocator:size",
        "cores:size",
        "allocator:cores:size",
        "block",
        "residual",
        "total",
    ]
    assert analysis.left_out == ""


def test_one_trial_in_each_cell_leaves_no_test_of_the_highest_interaction() -> None:
    analysis = analysed(*simulated(np.random.default_rng(1), {"a": 1, "b": 1}, 1, 0.02, SIZES))
    assert "allocator:size" in sources(analysis)
    assert "allocator:cores:size" not in sources(analysis)
    assert "more than 2 factors" in analysis.left_out


def test_one_trial_in_each_cell_of_two_factors_leaves_main_effects() -> None:
    made = simulated(np.random.default_rng(1), {"a": 1, "b": 1, "c": 1}, 1, 0.02, {"size": "123"})
    analysis = analysed(*made)
    assert sources(analysis) == ["allocator", "size", "residual", "total"]
    assert "The interactions" in analysis.left_out


@pytest.mark.parametrize("slower", [{"a": 1.0}, {"a": 1.0, "b": 1.0}])
def test_nothing_to_analyse_in_single_trials(slower: dict[str, float]) -> None:
    study, trials = simulated(np.random.default_rng(1), slower, 1, 0.02)
    assert analyse(read(study, trials), "wall_s") is None


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


def test_cores_not_yet_run_are_left_out_and_the_allocators_stay() -> None:
    made = simulated(np.random.default_rng(1), {"a": 1, "b": 1}, 4, 0.02, {"cores": ["1", "2"]})
    study, trials = made
    analysis = analysed(study, [trial for trial in trials if trial.planned.cores == 1])
    assert analysis.factors == ["allocator"]
    assert "cores 2: no good figure of wall_s at all." in analysis.left_out
    assert analysis.letters[0].cells[0].column == "1"


def test_a_study_that_is_still_running_can_be_analysed() -> None:
    study, trials = simulated(np.random.default_rng(1), {"a": 1, "b": 1}, 4, 0.02, SIZES)
    assert [cell.n for cell in analysed(study, trials[:31]).letters[0].cells][:1] == [3]


def test_blocks_of_one_allocator_each_are_left_out_of_the_model() -> None:
    study = study_of("ab", {})
    dice = np.random.default_rng(1)
    trials = [
        trial_of(study, (name,), {"wall_s": float(dice.normal(10, 0.1))}, block)
        for name, block in (("a", 0), ("b", 1))
        for _ in range(6)
    ]
    analysis = analysed(study, trials)
    assert "block" not in sources(analysis)
    assert "Blocks are left out" in analysis.left_out


def test_warm_ups_do_not_count() -> None:
    study, trials = simulated(np.random.default_rng(1), {"a": 1, "b": 1}, 5, 0.02)
    planned = trials[0].planned.model_copy(update={"warmup": True})
    warm = trials[0].model_copy(update={"planned": planned, "metrics": {"wall_s": 1e9}})
    assert analysed(study, [*trials, warm]) == analysed(study, trials)


def test_one_allocator_under_two_options_is_analysed_by_the_option() -> None:
    factors = {"option.decay_ms": ["0", "10"]}
    analysis = analysed(*simulated(np.random.default_rng(1), {"a": 1}, 6, 0.02, factors))
    assert analysis.factors == ["option.decay_ms"]
    assert (analysis.letters[0].rows, analysis.letters[0].columns) == (
        "allocator",
        "option.decay_ms",
    )
    assert analysis.letters[0].cells[0].upper == "A"


def test_all_metrics_are_analysed_as_each_alone() -> None:
    study, trials = simulated(np.random.default_rng(1), {"a": 1, "b": 1}, 5, 0.02)
    assert analyse_all(read(study, trials)) == [analysed(study, trials)]
    assert analyse_all(read(study, trials), ["unknown"]) == []


def test_metrics_of_the_same_trials_share_their_layout_and_its_model() -> None:
    study = make_study(replicates=5)
    trials = make_trials(study, Faults(without={"heapfit": (3, "wall_s")}))
    readings = read(study, trials)
    names = ("wall_s", "user_s", "peak_rss_bytes")
    wall, user, rss = (sample(readings, figures_of(readings, name), name) for name in names)
    assert wall is not None
    assert user is not None
    assert rss is not None
    assert user.layout is rss.layout
    assert user.layout is not wall.layout
    assert len(wall.figures) == len(user.figures) - 2 * len(study.cores)
    assert model_of(user.layout) is model_of(rss.layout)


def test_counts_with_zeros_have_differences_of_infinite_ratio() -> None:
    analysis = analysed(*grid({"spray": "ab"}, 6, [4, 5, 6, 5, 4, 6, *[0.0] * 6]))
    (difference,) = analysis.differences
    assert np.isinf(difference.ratio)
    assert difference.p < 0.001
