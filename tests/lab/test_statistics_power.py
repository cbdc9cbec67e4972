"""The power note against R, and kept: simulated studies find what it promises, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from design_data import simulated
from heapfit.statistics import analyse, read
from heapfit.statistics.power import DesignPower, power_note

REPETITIONS = 200
CV = 0.02


def unblocked(levels: int, exponent: float, cv: float) -> DesignPower:
    return DesignPower(levels, exponent, cv, lambda n: levels * (n - 1))


def test_agrees_with_r_for_two_groups() -> None:
    """R 4.2.2: `power.t.test(delta = 0.02, sd = 0.02, power = 0.8)` prints n = 16.71476814, with
    `delta = log(1.02), sd = 0.05` n = 101.0458749: the next whole numbers."""
    assert power_note(unblocked(2, 1, 0.02), 5, effect=0.02).replicates == 17
    assert power_note(unblocked(2, 0, 0.05), 5, effect=0.02).replicates == 102


def found(seed: int, slower: Mapping[str, float], replicates: int, sizes: str = "1") -> int:
    """In how many of 200 simulated studies the allocators are found to differ."""
    generator = np.random.default_rng(seed)
    factors = {"size": sizes}
    differ = 0
    for _ in range(REPETITIONS):
        made = simulated(generator, slower, replicates, CV, factors)
        analysis = analyse(read(*made), "wall_s")
        assert analysis is not None
        differ += analysis.differences[0].p < 0.05
    return differ


@pytest.mark.parametrize("sizes", ["1", pytest.param("12", marks=pytest.mark.full)])
def test_one_allocator_under_two_names_differs_from_itself_at_the_level_of_five_per_cent(
    sizes: str,
) -> None:
    """Of 400 studies, 8 to 34 find a difference (5 % is 20; chance leaves that range in one case
    of 500), whichever the seeds: these are the first ones."""
    total = sum(found(seed, {"a": 1.0, "b": 1.0}, 6, sizes) for seed in (0, 1))
    assert 8 <= total <= 34


def rate_found(effect: float, replicates: int) -> float:
    """In which share of 800 simulated studies such a difference is found, whichever the seeds."""
    slower = {"a": 1.0, "b": 1 + effect}
    return sum(found(seed, slower, replicates) for seed in range(4)) / (4 * REPETITIONS)


# Of 800 studies, three standard errors of a share of 0.8.
CHANCE = 0.042


@pytest.mark.full
@pytest.mark.parametrize("replicates", [5, 9, 20])
def test_a_difference_is_found_with_the_power_that_the_note_promises(replicates: int) -> None:
    """Where the spread is known: an effect that so many replicates show with probability 0.8."""
    comparison = DesignPower(2, 0, CV, lambda count: count - 1)
    effect = power_note(comparison, replicates).detectable
    assert effect is not None
    promised = comparison.power(effect, replicates)
    assert rate_found(effect, replicates) == pytest.approx(promised, abs=CHANCE)
