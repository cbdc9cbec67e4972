"""The sentences of a designed study say what the letters of its tables say."""

from __future__ import annotations

import numpy as np
import pytest
from design_data import MEMORY, WALL, simulated
from heapfit.findings import Analysis, Difference, LetterCell
from heapfit.records import ALLOCATOR, CORES, Metric, Setting, Study, Trial
from heapfit.report.analysis import Findings, find
from heapfit.report.conclusions import conclude, overall
from heapfit.report.results import Results
from heapfit.report.tested import verdict
from heapfit.statistics import read, summarise

# Slower and slower by less than the scatter from one to the next, and by far more in all.
LADDER = {f"a{place:02}": 1 + 0.02 * place for place in range(14)}
CORE_LEVELS = {CORES: ["1", "2"]}


def ladder(replicates: int = 4) -> tuple[Study, list[Trial]]:
    generator = np.random.default_rng(20110912)
    return simulated(generator, LADDER, replicates, 0.02, CORE_LEVELS, metrics=(WALL, MEMORY))


def concluded(study: Study, trials: list[Trial]) -> tuple[Results, Findings]:
    readings = read(study, trials)
    return Results(summarise(readings)), find(readings)


def column(analysis: Analysis, setting: Setting) -> list[LetterCell]:
    [table] = analysis.letters
    return [cell for cell in table.cells if cell.column == str(setting[0])]


def test_a_sentence_names_whom_the_letters_tie_with_the_best() -> None:
    study, trials = ladder()
    results, findings = concluded(study, trials)
    for metric in (WALL, MEMORY):
        analysis = findings.of(metric.name)
        assert analysis is not None
        for setting in results.settings:
            cells = column(analysis, setting)
            best = min(cells, key=lambda cell: cell.mean)
            tied = {cell.row for cell in cells if set(cell.lower) & set(best.lower)} - {best.row}
            assert 0 < len(tied) < len(cells) - 1  # else the figures show nothing here
            said = conclude(results, setting, metric, analysis)
            assert f"{best.row} leads" in said
            named = {name for name in LADDER if name in said}
            assert named - {results.baseline} == {best.row, *tied} - {results.baseline}
            assert "no difference" not in said


def test_few_replicates_do_not_silence_an_analysis_that_tells_allocators_apart() -> None:
    study, trials = ladder(replicates=3)
    results, findings = concluded(study, trials)
    assert "cannot settle" in overall(results)[0]
    assert all("leads" in line for line in overall(results, findings))


def test_no_difference_is_said_only_where_no_two_differ() -> None:
    generator = np.random.default_rng(1)
    same = dict.fromkeys(["glibc", "heapfit", "jemalloc"], 1.0)
    study, trials = simulated(generator, same, 6, 0.02, CORE_LEVELS)
    results, findings = concluded(study, trials)
    analysis = findings.of(WALL.name)
    assert analysis is not None
    assert not any(each.p < 0.05 for each in analysis.differences if each.factor == ALLOCATOR)
    assert overall(results, findings) == [
        f"{cores}: On wall time, no difference can be shown between glibc, heapfit and jemalloc."
        for cores in ("1 core", "2 cores")
    ]


def test_ratios_are_those_of_the_compared_means() -> None:
    generator = np.random.default_rng(2)
    study, trials = simulated(generator, {"glibc": 1.0, "heapfit": 0.8}, 6, 0.01, CORE_LEVELS)
    results, findings = concluded(study, trials)
    analysis = findings.of(WALL.name)
    assert analysis is not None
    for setting in results.settings:
        found = verdict(analysis, setting, WALL, "glibc")
        assert found is not None
        means = {cell.row: cell.mean for cell in column(analysis, setting)}
        assert found.ratios["heapfit"] == pytest.approx(means["heapfit"] / means["glibc"])
        said = conclude(results, setting, WALL, analysis)
        ratio = f"{found.ratios['heapfit']:.2f}x"
        assert said == f"On wall time, heapfit leads, ahead of all the others ({ratio} of glibc)."


def test_the_best_may_be_tied_with_all_though_others_differ() -> None:
    # With scatter that differs from cell to cell the best can be the one that is known least.
    pairs = [("glibc", "a", 1.1, 0.01), ("glibc", "b", 1.3, 0.2), ("a", "b", 1.18, 0.1)]
    said = sentence(pairs, WALL)
    assert said.startswith(
        "On wall time, b has the best mean; none of the others can be told apart"
    )
    assert said.endswith("though some differ from each other (b 0.77x and a 0.91x of glibc).")


def test_more_is_better_for_a_rate() -> None:
    rate = Metric(name="wall_s", label="Rate", unit="1/s", better="higher", source="output")
    pairs = [("glibc", "a", 0.8, 0.001), ("glibc", "b", 1.1, 0.001), ("a", "b", 1.375, 0.001)]
    assert "a leads, ahead of all the others (1.25x of glibc)" in sentence(pairs, rate)


def test_an_allocator_without_a_part_in_the_analysis_is_left_out_by_name() -> None:
    said = sentence([("glibc", "a", 1.2, 0.001)], WALL)
    assert said.endswith("a leads, ahead of all the others (0.83x of glibc). Left out: b.")


def test_a_setting_that_was_not_analysed_is_judged_by_its_intervals() -> None:
    study, trials = ladder(replicates=6)
    results, findings = concluded(study, trials)
    analysis = findings.of(WALL.name)
    assert analysis is not None
    without = analysis.model_copy(update={"differences": []})
    setting = results.settings[0]
    assert conclude(results, setting, WALL, without) == conclude(results, setting, WALL)


def sentence(pairs: list[tuple[str, str, float, float]], metric: Metric) -> str:
    """The conclusion from these comparisons: first, second, their ratio and p."""
    generator = np.random.default_rng(3)
    same = dict.fromkeys(["glibc", "a", "b"], 1.0)
    study, trials = simulated(generator, same, 6, 0.02, CORE_LEVELS, metrics=(metric,))
    results, findings = concluded(study, trials)
    analysis = findings.of(metric.name)
    assert analysis is not None
    made = [
        Difference(
            factor=ALLOCATOR, first=first, second=second, at={CORES: "1"}, ratio=ratio,
            low=ratio / 1.1, high=ratio * 1.1, p=p, method="Games-Howell",
        )
        for first, second, ratio, p in pairs
    ]  # fmt: skip
    changed = analysis.model_copy(update={"differences": made})
    return conclude(results, results.settings[0], metric, changed)
