"""Box and Cox's method on their own example and against R's."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from design_data import grid
from heapfit.records import Study, Trial
from heapfit.statistics.linear_model import fullest_model
from heapfit.statistics.observations import figures_of, read, sample
from heapfit.statistics.transform import BoxCox, box_cox
from published_data import POISON_FACTORS, POISONS


def box_cox_of(made: tuple[Study, Sequence[Trial]]) -> BoxCox:
    readings = read(*made)
    figures = sample(readings, figures_of(readings, "wall_s"), "wall_s")
    assert figures is not None
    model = fullest_model(figures.layout)
    assert model is not None
    return box_cox(model, figures.figures)


def test_agrees_with_r_on_the_example_of_box_and_cox() -> None:
    """R 4.2.2, MASS: `boxcox(time ~ poison * treat, data = boot::poisons)` at steps of 0.001 has
    its maximum at -0.816 and its interval from -1.294 to -0.342."""
    found = box_cox_of(grid(POISON_FACTORS, 4, POISONS))
    assert (found.exponent, found.low, found.high) == pytest.approx(
        (-0.816, -1.294, -0.342), abs=0.003
    )
