"""Recommendations: who leads under which weights, who is tied, and what is said of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from io import StringIO
from typing import get_args

import numpy as np
import pytest
from design_data import MEMORY, WALL, simulated, study_of, trial_of
from heapfit.advice import recommend
from heapfit.advice.goals import GOALS
from heapfit.findings import Advice
from heapfit.meaning import REPLAYED_TIME
from heapfit.records import Factor, Metric, Study, Trial, TrialStatus, Weighed
from heapfit.report import Reading, html_report, markdown_report, terminal
from heapfit.report.pareto import pareto
from heapfit.report.recommendation import deployment, headline, ranking, reasons_of
from heapfit.statistics import read
from report_data import make_study, make_trials
from rich.console import Console

# What memory is a multiple of: whole bytes would be too little to matter.
MIB_64 = 64 * 2**20

# Time and memory of three allocators: quick and fat, slow and lean, worse than quick in both.
TRUTH = {"quick": (1.0, 1.3), "lean": (1.2, 1.0), "bad": (1.25, 1.4)}


def measured(
    truth: Mapping[str, Sequence[float]], metrics: Sequence[Metric] = (WALL, MEMORY)
) -> tuple[Study, list[Trial]]:
    """Trials of allocators whose true figures are `truth`."""
    generator = np.random.default_rng(7)
    study = study_of(list(truth), {}, metrics)
    trials = []
    for block in range(8):
        for allocator, true in truth.items():
            noise = np.exp(generator.normal(0, 0.01, len(metrics)))
            got = {
                m.name: x * y * (MIB_64 if m is MEMORY else 1)
                for m, x, y in zip(metrics, true, noise, strict=True)
            }
            trials.append(trial_of(study, (allocator,), got, block))
    return study, trials


def advised(made: tuple[Study, list[Trial]], weights: Mapping[str, float]) -> Advice:
    return recommend(read(*made), weights)


@pytest.mark.parametrize(
    ("weights", "best"), [({"time": 1}, "quick"), ({"time": 1, "memory": 3}, "lean")]
)
def test_the_weights_decide_who_leads(weights: dict[str, float], best: str) -> None:
    advice = advised(measured(TRUTH), weights)
    assert advice.recommended == best
    assert advice.standings[0].allocator == best
    assert advice.weights == weights


FAULTS = Metric(
    name="minor_faults", label="Minor faults", unit="count", better="lower", source="rusage"
)
HITS = Metric(name="hits", label="Cache hits", unit="%", better="higher", source="the program")


def test_what_decides_in_place_of_time_is_called_by_its_name() -> None:
    """Of page faults it was said that heapfit needs less time."""
    made = measured({"glibc": (3000.0, 1.0), "few": (1000.0, 1.0)}, (FAULTS, MEMORY))
    assert advised(made, {"time": 1}).reasons == "few needs fewer minor faults than glibc."
    made = measured({"glibc": (20.0, 1.0), "more": (80.0, 1.3)}, (HITS, MEMORY))
    alone = advised(made, {"time": 1})
    assert " % more cost in cache hits than more." in alone.reasons
    assert ranking(alone, made[0]).columns == ["score", "cache hits", ""]
    assert "time" not in advised(made, {}).reasons
    assert "Cache hits against memory" in html_report.page(Reading(*made))


NET = Metric(name="net", label="Net score", unit="", better="higher", source="the program")


@pytest.mark.parametrize(
    ("glibc", "other", "best"), [(-20.0, -5.0, "other"), (-20.0, 20.0, "other"), (0.0, 0.0, None)]
)
def test_a_metric_that_was_asked_for_decides_whatever_its_figures(
    glibc: float, other: float, best: str | None
) -> None:
    """Where none was above 0, wall time decided in its place, without a word."""
    made = measured({"glibc": (glibc, 1.0, 1.0), "other": (other, 1.5, 0.9)}, (NET, WALL, MEMORY))
    advice = advised(made, {"time": 1})
    assert advice.metrics == {"time": "net"}
    assert advice.recommended == best
    if best:
        assert advice.reasons == "other has higher net score than glibc."
    assert any("No ratio is taken of net score" in each for each in advice.notes)
    assert "taken together" not in advised(made, {}).reasons


def test_a_metric_that_was_asked_for_and_is_not_there_is_named() -> None:
    nan = float("nan")
    made = measured({"glibc": (nan, 1.0, 1.0), "other": (nan, 0.5, 0.5)}, (NET, WALL, MEMORY))
    advice = advised(made, {})
    assert advice.metrics == {"memory": MEMORY.name}
    assert "Net score does not count: no trial has it." in advice.notes
    made = measured({"glibc": (nan, 1.0), "other": (nan, 0.5)}, (NET, MEMORY))
    reading = Reading(made[0].model_copy(update={"weights": {"time": 1.0}}), made[1])
    shown = StringIO()
    terminal.render(reading, Console(file=shown, width=100))
    for said in (shown.getvalue(), html_report.page(reading), markdown_report.text(reading)):
        assert "Nothing to recommend: Net score does not count: no trial has it." in said


def test_figures_of_time_do_not_dispute_what_decides_in_its_place() -> None:
    made = measured({"glibc": (1000.0, 1.0), "quick": (1000.0, 0.5)}, (FAULTS, WALL))
    assert "wall time" not in advised(made, {"time": 1}).reasons


@pytest.mark.parametrize(("speed", "said"), [("max", True), ("real", False)])
def test_a_replay_says_that_it_has_no_idle_time(speed: str, said: bool) -> None:
    """Of a process that was idle for most of it, an allocator was recommended without a word."""
    calls = WALL.model_copy(update={"name": REPLAYED_TIME})
    study, trials = measured({"glibc": (1.0, 1.0), "quick": (0.5, 1.0)}, (calls, MEMORY))
    study = study.model_copy(update={"command": ["heapfit-replay", "--speed", speed, "plan"]})
    advice = advised((study, trials), {"time": 1})
    assert any("no idle time" in each for each in advice.notes) == said
    assert not any("idle" in each for each in advised(measured(TRUTH), {}).notes)


def test_every_goal_can_be_given_a_weight() -> None:
    """A study's file refused `mean-memory`, which the documentation named."""
    assert get_args(Weighed) == GOALS


def test_what_has_no_weight_is_said_not_to_count() -> None:
    said = "Time does not count: it has no weight."
    assert said in advised(measured(TRUTH), {"memory": 2}).notes
    for both in ({}, {"time": 1, "memory": 3}):
        assert not any("no weight" in each for each in advised(measured(TRUTH), both).notes)
    mean = MEMORY.model_copy(update={"name": "mean_rss_bytes", "label": "Mean resident memory"})
    three = {"a": (1.0, 1.0, 5e8), "b": (1.0, 1.0, 9e8)}
    notes = advised(measured(three, (WALL, MEMORY, mean)), {"mean-memory": 1}).notes
    assert [each for each in notes if "weight" in each or "alone" in each] == [
        "Judged by mean resident memory alone."
    ]


def test_costs_are_ratios_to_the_best_and_scores_their_weighted_geometric_mean() -> None:
    advice = advised(measured(TRUTH), {"time": 1, "memory": 3})
    for standing in advice.standings:
        time, memory = TRUTH[standing.allocator]
        assert standing.costs["time"] == pytest.approx(time, rel=0.02)
        assert standing.costs["memory"] == pytest.approx(memory, rel=0.02)
        own = standing.costs["time"] ** 0.25 * standing.costs["memory"] ** 0.75
        assert standing.score == pytest.approx(own)
    assert [min(s.costs[goal] for s in advice.standings) for goal in ("time", "memory")] == [1, 1]


def test_the_trade_off_has_a_mark_for_each_and_joins_those_on_the_front() -> None:
    advice = advised(measured(TRUTH), {"time": 1, "memory": 1})
    figure = pareto(advice, list(TRUTH), {"time": "time", "memory": "memory"})
    assert figure is not None
    front, *marks = figure["data"]
    is_open = {each["name"]: each["marker"]["symbol"].endswith("-open") for each in marks}
    assert is_open == {"quick": False, "lean": False, "bad": True}
    costs = {each.allocator: each.costs for each in advice.standings}
    corners = list(zip(front["x"], front["y"], strict=True))[1:-1]
    expected = [(costs[name]["time"], costs[name]["memory"]) for name in ("quick", "lean")]
    assert corners == [pytest.approx(each, abs=0.01) for each in expected]
    in_time_alone = advised(measured({"a": [1.0], "b": [1.1]}, [WALL]), {"time": 1})
    assert pareto(in_time_alone, ["a", "b"], {"time": "time"}) is None


def test_what_you_have_is_kept_where_nobody_is_shown_to_be_better() -> None:
    advice = advised(measured({"a": (1.0, 1.0), "b": (0.999, 1.0), "c": (1.2, 1.2)}), {})
    assert advice.recommended == "a"
    assert advice.keeps
    assert "No allocator is shown to be better than a" in advice.reasons
    assert headline(advice) == "Keep a"


def test_all_are_named_that_the_leader_is_shown_to_be_better_than() -> None:
    """Only the runner-up was, as if no difference from the others were shown."""
    truth = {"a": (1.0, 1.0), "b": (0.998, 1.1), "c": (1.0, 1.2), "d": (1.0, 1.3)}
    in_both = advised(measured(truth), {}).reasons
    assert in_both.startswith("a costs least under these weights: b, c and d cost ")
    alone = advised(measured(truth), {"memory": 1})
    assert alone.reasons.startswith("b, c and d need ")
    assert alone.reasons.endswith(" more memory than a.")
    study = study_of(["a", "b", "c"], {}, [WALL, MEMORY])
    generator = np.random.default_rng(7)
    noisy = [
        trial_of(study, (name,), {"wall_s": time, "peak_rss_bytes": size * MIB_64}, block)
        for block in range(8)
        for name, size in (("a", 1.0), ("b", 1.03 + block / 1000), ("c", 1.04 + block / 1000))
        for time in [np.exp(generator.normal(0, 0.3))]
    ]
    assert advised((study, noisy), {}).reasons.startswith("a needs less memory than c and b")


def test_many_of_which_nothing_can_be_told_are_counted_in_few_words() -> None:
    """A paragraph listed ten allocators twice, with an interval that reached 33435 %."""
    generator = np.random.default_rng(7)
    names = ["kept", *(f"allocator-{n}" for n in range(1, 8))]
    study = study_of(names, {}, [WALL, MEMORY])
    trials = [
        trial_of(study, (name,), {"wall_s": time, "peak_rss_bytes": memory * MIB_64}, block)
        for block in range(3)
        for name in names
        for time, memory in [np.exp(generator.normal(0, (1.5, 0.1)))]
    ]
    advice = advised((study, trials), {})
    assert headline(advice) == "Inconclusive"
    first, second = advice.untold
    assert first == (
        "Whether any of the 7 differs from kept in wall time is not known: the runs vary too much."
    )
    assert second.startswith("In RSS it may be -")
    assert len(" ".join([advice.reasons, *advice.untold])) < 500


@pytest.mark.parametrize(
    ("replicates", "cv", "is_known"), [(6, 0.1, False), (6, 0.07, True), (2, 0.1, False)]
)
def test_over_settings_a_gain_may_be_hidden_as_in_one(
    replicates: int, cv: float, is_known: bool
) -> None:
    factors = {"size": ["1", "2", "3", "4"]}
    made = simulated(np.random.default_rng(1), {"a": 1.0, "b": 1.0}, replicates, cv, factors)
    advice = advised(made, {"time": 1})
    expected = "No difference shown that matters" if is_known else "Inconclusive"
    assert headline(advice) == expected
    assert bool(re.search(r"--replicates \d+ would show 5 %", " ".join(advice.untold))) != is_known


def test_what_a_difference_in_memory_of_a_small_program_may_be_is_said_first() -> None:
    """It was called a fixed cost by the size alone, and grew ninefold with ten times the data."""
    study = study_of(["a", "b"], {}, [WALL, MEMORY])
    mib = float(2**20)
    for factor, said in ((1, True), (8, False)):
        trials = [
            trial_of(study, (name,), {"wall_s": 1.0, "peak_rss_bytes": factor * size * mib}, block)
            for block in range(6)
            for name, size in (("a", 3.0 + block / 100), ("b", 5.0 + block / 100))
        ]
        shown = reasons_of(advised((study, trials), {}))
        assert shown.startswith("The program is small (peak memory 3.0") == said
        assert ("may be a fixed cost of each process, or may grow with the heap" in shown) == said


def test_what_differs_by_too_little_is_said_to_do_so_in_what_was_judged() -> None:
    study = study_of(["kept", "near", "fat"], {}, [WALL, MEMORY])
    mib = float(2**20)
    trials = [
        trial_of(study, (name,), {"wall_s": 1.0, "peak_rss_bytes": (size + jitter) * mib}, block)
        for block, jitter in enumerate((0.0, 0.01, 0.02, 0.01, 0.0, 0.02))
        for name, size in (("kept", 64.0), ("near", 63.8 + jitter), ("fat", 96.0))
    ]
    reasons = advised((study, trials), {"memory": 1}).reasons
    assert "which differs from near by too little to notice in memory" in reasons


def test_what_may_be_too_little_to_matter_is_no_reason_to_change() -> None:
    # Shown to differ by some 8 ms, but perhaps by less than the 5 that matter.
    study = study_of(["old", "new"], {}, [WALL])
    trials = []
    for block, gap_ms in enumerate((2, 14, 3, 13, 4, 12, 2, 14)):
        trials.append(trial_of(study, ("old",), {"wall_s": 1.0 + gap_ms / 1000}, block))
        trials.append(trial_of(study, ("new",), {"wall_s": 1.0}, block))
    advice = advised((study, trials), {"time": 1})
    [verdict] = advice.scores
    assert verdict.shown
    assert abs(verdict.estimate - 1) > 0.005
    assert advice.recommended is None
    assert headline(advice) == "No difference shown that matters"
    assert "The differences may be too small to notice" in advice.reasons


def test_what_is_better_in_one_setting_and_worse_in_another_is_not_too_small_to_notice() -> None:
    study = study_of(["old", "new"], {"size": ["small", "large"]}, [WALL])
    trials = [
        trial_of(study, (name, size), {"wall_s": wall_s * (1 + block / 1000)}, block)
        for size, of_both in (("small", (1.0, 2.0)), ("large", (14.0, 10.0)))
        for name, wall_s in zip(("old", "new"), of_both, strict=True)
        for block in range(6)
    ]
    advice = advised((study, trials), {"time": 1})
    assert headline(advice) == "No recommendation"
    assert advice.reasons.startswith("Which is better depends on the setting")


def test_what_may_be_too_little_to_matter_is_a_reason_not_to_change() -> None:
    """The one with the higher score was recommended: that it takes more memory was shown, but not
    that it takes 1 MiB more."""
    study = study_of(["old", "new"], {}, [WALL, MEMORY])
    mib = float(2**20)
    trials = []
    for block, more in enumerate((0.3, 2.6, 0.5, 2.4, 0.7, 2.2, 0.3, 2.6)):
        old = {"wall_s": 1.1 + block / 1000, "peak_rss_bytes": 3 * mib}
        new = {"wall_s": 1.0 + block / 1000, "peak_rss_bytes": (3 + more) * mib}
        trials.append(trial_of(study, ("old",), old, block))
        trials.append(trial_of(study, ("new",), new, block))
    advice = advised((study, trials), {})
    scores = {each.allocator: each.score for each in advice.standings}
    assert scores["new"] > 1.1 * scores["old"]
    assert advice.recommended is None
    assert "Some allocators are better in one respect and worse in another" in advice.reasons
    assert advised((study, trials), {"time": 1}).recommended == "new"


def test_who_fails_more_often_than_the_baseline_is_not_recommended() -> None:
    """Quick but failing in one of its trials, it was recommended, with the line to deploy it."""
    truth = {"usual": (1.2, 1.2), "quick": (1.0, 1.0), "sound": (1.1, 1.1)}
    study, trials = measured(truth)
    assert advised((study, trials), {}).recommended == "quick"
    at = next(n for n, trial in enumerate(trials) if trial.planned.allocator == "quick")
    trials[at] = trials[at].model_copy(update={"status": TrialStatus.FAILED, "metrics": {}})
    advice = advised((study, trials), {})
    assert advice.recommended == "sound"
    assert [each.allocator for each in advice.standings] == ["sound", "usual"]
    left = "quick is left out: 1 trial of it failed, and none of the baseline."
    assert [note for note in advice.notes if "left out" in note.lower()] == [left]


@pytest.mark.parametrize("out", [(2.0, 2.0), (0.5, 2.0)])
def test_what_is_left_out_is_better_and_worse_than_nobody(out: tuple[float, float]) -> None:
    """A build that crashed once made of two equal ones "some are better in one respect and worse
    in another"."""
    study, trials = measured({"usual": (1.0, 1.0), "alike": (1.0, 1.0), "out": out})
    at = next(n for n, trial in enumerate(trials) if trial.planned.allocator == "out")
    trials[at] = trials[at].model_copy(update={"status": TrialStatus.FAILED, "metrics": {}})
    advice = advised((study, trials), {})
    assert headline(advice) == "No difference shown that matters"
    assert "between the allocators that take part" in advice.reasons


def of_values(*time_s: float) -> tuple[Study, list[Trial]]:
    """A study of glibc's arenas in which the runs of each value take so long, without scatter."""
    name = "env.MALLOC_ARENA_MAX"
    levels = [f"{number}" for number in range(1, len(time_s) + 1)]
    study = make_study(
        ["glibc"], [1], replicates=8, warmups=0, factors=[Factor(name=name, levels=levels)]
    )
    trials = make_trials(study)
    for at, trial in enumerate(trials):
        got = {**trial.metrics, "peak_rss_bytes": MIB_64}
        seconds = time_s[int(trial.planned.levels[name]) - 1] + 0.001 * (trial.planned.block % 3)
        trials[at] = trial.model_copy(update={"metrics": {**got, "wall_s": seconds}})
    return study, trials


def test_of_one_options_values_the_best_is_recommended_with_the_line_that_sets_it() -> None:
    made = of_values(2.0, 1.0, 1.5)
    advice = advised(made, {"time": 1})
    assert advice.recommended == "MALLOC_ARENA_MAX 2"
    assert [each.allocator[-1] for each in advice.standings] == ["2", "3", "1"]
    [line] = deployment(made[0], advice)
    assert line.startswith("MALLOC_ARENA_MAX=2 ")
    html_report.page(Reading(*made))
