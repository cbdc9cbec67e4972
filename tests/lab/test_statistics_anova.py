"""The table of the analysis of variance against published ones, R's, NIST's and statsmodels'."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from design_data import Levels, grid, simulated, table
from heapfit.findings import Analysis, AnovaRow
from heapfit.records import Study, Trial, TrialStatus
from heapfit.statistics import analyse, read
from heapfit.statistics.anova import _row, anova, partial_eta_squared
from heapfit.statistics.linear_model import FactorialModel, Fit, fullest_model
from heapfit.statistics.observations import figures_of, sample
from heapfit.statistics.transform import forward
from published_data import NPK, simon_lesage


def fitted(
    made: tuple[Study, Sequence[Trial]], exponent: float = 1, order: int | None = None
) -> Fit:
    readings = read(*made)
    figures = sample(readings, figures_of(readings, "wall_s"), "wall_s")
    assert figures is not None
    model = FactorialModel(figures.layout, order) if order else fullest_model(figures.layout)
    assert model is not None
    return model.fit(forward(figures.figures, exponent))


def rows_of(
    made: tuple[Study, Sequence[Trial]], exponent: float = 1, order: int | None = None
) -> dict[str, AnovaRow]:
    return {row.source: row for row in anova(fitted(made, exponent, order))}


def assert_row(row: AnovaRow, df: float, sum_sq: float, f: float, p: float) -> None:
    assert row.df == df
    assert row.sum_sq == pytest.approx(sum_sq, rel=2e-5)
    assert row.f == pytest.approx(f, rel=2e-5)
    assert row.p == pytest.approx(p, rel=1e-3)


def npk(leave_out: Sequence[int] = ()) -> tuple[Study, list[Trial]]:
    kept = [row for number, row in enumerate(NPK, 1) if number not in leave_out]
    cells: list[tuple[Levels, float]] = [(tuple(levels), figure) for _, levels, figure in kept]
    return table({"N": "01", "P": "01", "K": "01"}, cells, [block for block, _, _ in kept])


def test_agrees_with_r_where_blocks_hold_half_of_the_cells() -> None:
    """R 4.2.2: `anova(aov(yield ~ block + N * P * K, npk))`, the example of its help page. The
    three-way interaction cannot be told from blocks: R leaves it out, and so does the analysis."""
    rows = rows_of(npk())
    assert "allocator:P:K" not in rows
    assert_row(rows["block"], 5, 343.29500, 4.44667, 0.0159388)
    assert_row(rows["allocator"], 1, 189.28167, 12.25873, 0.0043718)
    assert_row(rows["K"], 1, 95.20167, 6.16569, 0.0287951)
    assert_row(rows["allocator:K"], 1, 33.13500, 2.14597, 0.1686479)
    assert rows["residual"].df == 12
    assert rows["residual"].sum_sq == pytest.approx(185.28667)


@pytest.mark.parametrize(("offset", "digits"), [(1.0, 1e-12), (1e6, 1e-8), (1e12, 1e-3)])
def test_agrees_with_nist_certified_values_whatever_the_leading_digits(
    offset: float, digits: float
) -> None:
    """StRD SmLs01, SmLs04, SmLs07, certified: between 8 df, 1.68; within 180 df, 1.80; F 21. The
    figures of the last have themselves only four decimals as floating-point numbers."""
    rows = rows_of(grid({"treatment": "123456789"}, 21, simon_lesage(offset)))
    assert (rows["allocator"].df, rows["residual"].df) == (8, 180)
    assert rows["allocator"].sum_sq == pytest.approx(1.68, rel=digits)
    assert rows["residual"].sum_sq == pytest.approx(1.80, rel=digits)
    assert rows["allocator"].f == pytest.approx(21.0, rel=digits)


def test_agrees_with_statsmodels_on_unbalanced_trials_in_blocks_on_two_machines() -> None:
    import pandas
    from statsmodels.formula.api import ols
    from statsmodels.stats.anova import anova_lm

    generator = np.random.default_rng(4)
    factors = {"size": ["1", "2", "3"], "threads": ["1", "8"]}
    study, trials = simulated(generator, {"a": 1, "b": 1.02, "c": 1}, 5, 0.03, factors)
    kept = [
        trial.model_copy(update={"machine": f"m{generator.integers(2)}"})
        for trial in trials
        if generator.random() < 0.8
    ]
    rows = rows_of((study, kept), exponent=0)
    frame = pandas.DataFrame(
        {
            "y": np.log([trial.metrics["wall_s"] for trial in kept]),
            "allocator": [trial.planned.allocator for trial in kept],
            "size": [trial.planned.levels["size"] for trial in kept],
            "threads": [trial.planned.levels["threads"] for trial in kept],
            "block": [trial.planned.block for trial in kept],
            "machine": [trial.machine for trial in kept],
        }
    )
    formula = "y ~ C(allocator, Sum) * C(size, Sum) * C(threads, Sum) + C(machine, Sum) + C(block)"
    oracle = anova_lm(ols(formula, frame).fit(), typ=3)
    for name in oracle.index.drop("Intercept"):
        source = name.replace("C(", "").replace(", Sum)", "").replace(")", "")
        row = rows["residual" if source == "Residual" else source]
        assert row.sum_sq == pytest.approx(oracle.loc[name, "sum_sq"], rel=1e-8), source
        assert row.df == oracle.loc[name, "df"]


@pytest.mark.parametrize("lost", [False, True])
def test_blocks_that_ran_on_one_machine_each_have_its_effect(lost: bool) -> None:
    """They were left out, as holding too few of the cells."""
    made = simulated(np.random.default_rng(4), {"a": 1, "b": 1.02}, 6, 0.03, {"size": "123"})
    study, trials = made
    on = [trial.model_copy(update={"machine": f"m{trial.planned.block % 2}"}) for trial in trials]
    if lost:  # Another finishes the block.
        on[0] = on[0].model_copy(update={"machine": "m1"})
    rows, alone = rows_of((study, on)), rows_of(made)
    assert rows["block"].df == alone["block"].df == 5
    assert ("machine" in rows) == lost
    if not lost:
        assert rows["block"].sum_sq == pytest.approx(alone["block"].sum_sq)
        assert rows["residual"] == alone["residual"]
    analysis = analyse(read(study, on), "wall_s")
    assert analysis is not None
    assert "Blocks" not in analysis.left_out


@pytest.mark.parametrize(
    ("f", "df", "low", "high"),
    [(11.2213, 4, 0.2263313098, 0.5873384012), (1238.68, 6, 0.9410765799, 0.9554609594)],
)
def test_the_interval_of_eta_squared_is_that_of_the_noncentral_f(
    f: float, df: int, low: float, high: float
) -> None:
    """R 4.2.2: c with `pf(f, df, error, c)` of 0.975 and 0.025 by `uniroot`, as c / (c + n). The
    first F is Bargmann's (1970), the example of J. H. Steiger (2004); the second that of the
    allocators in the allocator comparison paper's table of execution times."""
    error = 50 if df == 4 else 392
    estimate, *bounds = partial_eta_squared(f, df, error, df + error + 1)
    assert estimate == pytest.approx(f * df / (f * df + error))
    assert bounds == pytest.approx([low, high], rel=1e-5)


def test_a_sum_of_squares_that_rounding_takes_below_zero_is_zero() -> None:
    fit = fitted(npk())
    row = _row("block", 1, -1e-9 * fit.sum_sq, fit)
    assert (row.sum_sq, row.f, row.p) == (0.0, 0.0, 1.0)
    assert (row.eta_sq, row.eta_sq_low, row.eta_sq_high) == (0.0, 0.0, 0.0)


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
