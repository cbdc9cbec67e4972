"""Pairwise comparisons against R's TukeyHSD and statsmodels; their letters and intervals."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest
from design_data import grid, simulated
from heapfit.findings import Analysis
from heapfit.records import Study, Trial
from heapfit.statistics import analyse, read
from heapfit.statistics.letters import letters
from heapfit.statistics.linear_model import Estimates
from heapfit.statistics.studentized_range import critical, survival
from heapfit.statistics.tukey import Comparison, compare
from published_data import WARPBREAKS, WARPBREAKS_FACTORS
from test_statistics_anova import fitted


def p_values(names: Sequence[str], found: Sequence[Comparison]) -> dict[str, float]:
    return {f"{names[j]}-{names[i]}": p for i, j, _, _, _, p in found}


def averages(made: tuple[Study, Sequence[Trial]], weights: np.ndarray, order: int) -> Estimates:
    """Means of one factor over the others, as TukeyHSD has them."""
    fit = fitted(made, order=order)
    covariance = weights @ fit.estimates.covariance @ weights.T
    return Estimates(weights @ fit.means, covariance, fit.estimates.df)


def test_agrees_with_r_on_warpbreaks() -> None:
    """R 4.2.2: `TukeyHSD(aov(breaks ~ wool + tension, data = warpbreaks), "tension")`, the example
    of its help page."""
    over_wool = np.hstack([np.eye(3), np.eye(3)]) / 2
    tensions = averages(grid(WARPBREAKS_FACTORS, 9, WARPBREAKS), over_wool, order=1)
    assert p_values("LMH", compare(tensions, 1)) == pytest.approx(
        {"H-M": 0.4474210214, "H-L": 0.0011217877, "M-L": 0.0336262189}, abs=1e-8
    )
    half_width = critical(3, 50) * np.sqrt(tensions.covariance[0, 0])
    assert half_width == pytest.approx(14.07564295 - 4.722222222, abs=1e-6)


def test_the_studentized_range_is_rs() -> None:
    """R 4.2.2: `ptukey(c(1, 3, 5), 7, 20, lower.tail = FALSE)`, `qtukey(0.95, 7, 392)`."""
    assert survival([1, 3, 5], 7, 20) == pytest.approx(
        [0.99058179760, 0.37821276439, 0.02858844818], abs=1e-9
    )
    assert critical(7, 392) == pytest.approx(4.191341198, abs=1e-7)


@pytest.mark.full
def test_simultaneous_intervals_cover_all_true_ratios_together() -> None:
    """Of 300 studies of five allocators, 95 % have all ten true ratios in their intervals: between
    270 and 298, which chance leaves with probability below one in a thousand."""
    generator = np.random.default_rng(12)
    slower = {"a": 1.0, "b": 1.02, "c": 0.97, "d": 1.1, "e": 1.0}
    covered = 0
    for _ in range(300):
        found = compare(fitted(simulated(generator, slower, 5, 0.03), 0).estimates, 0)
        true = list(slower.values())
        covered += all(low <= true[i] / true[j] <= high for i, j, _, low, high, _ in found)
    assert 270 <= covered <= 298


def share(marks: Sequence[str], first: int, second: int) -> bool:
    return bool(set(split(marks[first])) & set(split(marks[second])))


def split(mark: str) -> list[str]:
    """A letter is one character and perhaps a number."""
    parts: list[str] = []
    for character in mark:
        if character.isdigit():
            parts[-1] += character
        else:
            parts.append(character)
    return parts


@pytest.mark.parametrize("seed", range(6))
def test_letters_tell_exactly_what_differs(seed: int) -> None:
    dice = random.Random(seed)
    n = dice.randint(2, 9)
    pairs = [pair for pair in combinations(range(n), 2) if dice.random() < 0.5]
    order = dice.sample(range(n), n)
    marks = letters(order, pairs)
    for first, second in combinations(range(n), 2):
        assert share(marks, first, second) == ((first, second) not in pairs)


# The paper's two-way notation: made so that who differs from whom is beyond doubt.
TIMES = {"hoard": (480, 360, 220), "tlsf": (520, 369, 276), "twin": (480, 360, 220)}


def paper_table() -> Analysis:
    dice = random.Random(5)
    rows = [x * dice.uniform(0.998, 1.002) for row in TIMES.values() for x in row for _ in range(6)]
    made = grid({"allocator": list(TIMES), "cores": "123"}, 6, rows)
    analysis = analyse(read(*made), "wall_s")
    assert analysis is not None
    return analysis


def test_upper_case_compares_along_a_row_and_lower_case_down_a_column() -> None:
    """In "Tukey Test Results of Allocators and Number of Cores to Compare Execution Time", Hoard's
    479.63 (Ac), 357.53 (Bab), 220.33 (Ce) and TLSF's 519.50 (Aa), 368.76 (Ba), 276.42 (Ca): times
    fall along the row from A, and the longest of a column has an a."""
    (letters_table,) = paper_table().letters
    assert (letters_table.rows, letters_table.columns) == ("allocator", "cores")
    marks = {(cell.row, cell.column): (cell.upper, cell.lower) for cell in letters_table.cells}
    assert [marks["tlsf", cores] for cores in "123"] == [("A", "a"), ("B", "a"), ("C", "a")]
    assert [marks["hoard", cores] for cores in "123"] == [("A", "b"), ("B", "b"), ("C", "b")]
    assert [marks["twin", cores] for cores in "123"] == [("A", "b"), ("B", "b"), ("C", "b")]
