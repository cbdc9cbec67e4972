"""What the reports say in words: conclusions and units."""

from __future__ import annotations

import numpy as np
import pytest
from design_data import study_of, trial_of
from heapfit import text
from heapfit.report import Reading
from heapfit.report.comparisons import letters_tables
from heapfit.report.conclusions import conclude, overall
from heapfit.report.problems import remarks
from heapfit.report.recommendation import against_baseline
from heapfit.statistics.verdict import FEWEST_BLOCKS
from heapfit.text import TERMINAL_DIGITS, scale_for
from report_data import METRICS, make_study, make_trials

WALL = METRICS[0]


def reading_of(values: dict[str, list[float]]) -> Reading:
    """A finished study of wall time in which each allocator gave exactly these values."""
    study = make_study(
        allocators=list(values),
        cores=[1],
        replicates=max(map(len, values.values())),
        warmups=0,
        metrics=[WALL],
    )
    trials = []
    for trial in make_trials(study):
        own = values[trial.planned.allocator]
        if trial.planned.block < len(own):
            figures = {"wall_s": own[trial.planned.block]}
            trials.append(trial.model_copy(update={"metrics": figures}))
    return Reading(study, trials)


def conclusion(values: dict[str, list[float]]) -> str:
    (line,) = overall(reading_of(values).results)
    return line


def test_a_lead_that_rounds_to_nothing_is_told_to_more_digits() -> None:
    """Never "leads (1.00x)"; the cell has the same digits."""
    base = [10.0, 10.2, 10.1, 10.3, 10.0, 10.2, 10.1]
    results = reading_of({"glibc": base, "heapfit": [0.9984 * b for b in base]}).results
    [said] = overall(results)
    assert said == "On wall time, heapfit leads, ahead of all the others (0.998x of glibc)."
    scale = results.scale(WALL, TERMINAL_DIGITS)
    assert results.relative(results.settings[0], WALL, "heapfit", scale, "x", 2) == "0.998x"


@pytest.mark.parametrize(("user", "said"), [(0.012, True), (0.018, False)])
def test_a_program_that_does_too_little_is_told(user: float, said: bool) -> None:
    study = make_study(allocators=["glibc", "heapfit"], cores=[1], replicates=3, warmups=0)
    trials = [
        trial.model_copy(update={"metrics": {**trial.metrics, "user_s": user, "system_s": 0.003}})
        for trial in make_trials(study)
    ]
    found = " ".join(remarks(Reading(study, trials).summary))
    assert ("The program takes 15 ms of processor time" in found) == said


def test_who_fails_where_another_is_slow_does_not_lead_it() -> None:
    """By its mean beside the baseline it was said to be "ahead of all the others", of which one had
    been shown to be better wherever both had run."""
    seconds = [1.40, 1.41, 1.39, 1.42, 1.40, 2.60, 2.61, 2.62, 2.60, 2.59, 2.61, 2.60]
    quick = [1.60, 1.61, 1.62, 1.60, 1.61]  # and none where bravo takes long
    said = conclusion({"glibc": [2.0, 2.01] * 6, "alpha": quick, "bravo": seconds})
    assert "leads" not in said
    assert (
        "alpha has the best mean, but bravo is shown to be better in the blocks that both have "
        "(0.80x and 1.00x of glibc)" in said
    )


def test_too_few_trials_settle_nothing() -> None:
    few = FEWEST_BLOCKS - 1
    said = conclusion({"glibc": [1.0] * few, "heapfit": [0.5] * few})
    assert said == (
        "With 2 trials per allocator nothing can be shown on wall time; at least 3 are needed "
        "(--replicates 3). heapfit has the best mean so far (0.50x of glibc)."
    )


def test_a_lead_that_may_be_too_small_to_matter_is_said_to_be_so() -> None:
    """By its interval, however far its middle lies beyond 5 ms."""
    base = [0.520, 0.521, 0.522, 0.520, 0.521, 0.522, 0.520]
    faster = [b - 0.008 + 0.004 * (-1) ** n for n, b in enumerate(base)]
    said = conclusion({"glibc": base, "heapfit": faster})
    assert "heapfit leads" in said
    assert ", perhaps by too little to matter (95 % interval: " in said
    low, high = said.rpartition("interval: ")[2].removesuffix(").").split(" to ")
    assert 0 < float(low.split()[0]) < 5
    assert 8 < float(high.split()[0]) < 13


@pytest.mark.parametrize(
    ("unit", "values", "shown"),
    [
        ("s", [0.000_000_4], "400 ns"),
        ("s", [0.0412], "41.2 ms"),
        ("s", [61.25], "61.2 s"),
        ("bytes", [1.5 * 2**30], "1.50 GiB"),
        ("bytes", [0.0], "0 B"),
        ("count", [9876.0], "9,876"),
        ("count", [4.5], "4.5"),
        ("count", [123_456.0], "123 k"),
        ("1/s", [182_345.6], "182 k/s"),
        ("MB/s", [512.25], "512 MB/s"),
        ("s", [], "1 s"),
    ],
)
def test_figures_are_shown_in_human_units(unit: str, values: list[float], shown: str) -> None:
    assert scale_for(unit, values, TERMINAL_DIGITS).text(values[0] if values else 1.0) == shown


def test_escape_sequences_from_outside_are_spelled_out() -> None:
    assert text.visible("\x1b[31mred\n\u202e") == "\\x1b[31mred\\n\\u202e"


def test_who_is_shown_to_be_worse_than_another_does_not_lead_beside_one_that_scatters() -> None:
    """The best mean scatters so that nothing differs from it: all were marked as unsurpassed."""
    study = study_of(["glibc", "noisy", "good", "bad"], {}, (WALL,))
    generator = np.random.default_rng(3)
    truth = {"glibc": (2.4, 0.01), "noisy": (1.7, 0.2), "good": (2.0, 0.003), "bad": (2.1, 0.003)}
    trials = [
        trial_of(study, (name,), {"wall_s": float(mean * np.exp(generator.normal(0, cv)))}, block)
        for block in range(10)
        for name, (mean, cv) in truth.items()
    ]
    results = Reading(study, trials).results
    assert "noisy has the best mean; none of the others" in conclude(results, (1, ()), WALL)
    [shown] = letters_tables(results, WALL, results.scale(WALL, 4))
    leaders = [row.label for row in shown.rows if row.cells[0].is_best]
    assert leaders == ["noisy", "good"]


def test_a_gain_that_one_setting_turns_around_is_told_with_that_setting() -> None:
    study = make_study(
        allocators=["glibc", "heapfit"], cores=[1, 2], replicates=8, warmups=0, metrics=[WALL]
    )
    ratio = {"glibc": {1: 1.0, 2: 1.0}, "heapfit": {1: 0.5, 2: 1.2}}
    trials = []
    for trial in make_trials(study):
        seconds = 5 + 0.01 * trial.planned.block
        figures = {"wall_s": seconds * ratio[trial.planned.allocator][trial.planned.cores]}
        trials.append(trial.model_copy(update={"metrics": figures}))
    reading = Reading(study, trials)
    advice = reading.advice
    assert advice is not None
    assert advice.recommended == "heapfit"
    said = against_baseline(reading.results, advice)
    assert "all settings. The opposite holds with 2 cores: wall time +20.0 %" in said
    assert "1 core" not in said
