"""Box and Cox's method on their own example and against R's; the checks of the assumptions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from design_data import grid
from heapfit.records import Study, Trial
from heapfit.statistics.assumptions import check
from heapfit.statistics.fitted import model_of
from heapfit.statistics.observations import figures_of, read, sample
from heapfit.statistics.transform import BoxCox, box_cox
from published_data import (
    INSECT_SPRAYS,
    POISON_FACTORS,
    POISONS,
)


def box_cox_of(made: tuple[Study, Sequence[Trial]]) -> BoxCox:
    readings = read(*made)
    figures = sample(readings, figures_of(readings, "wall_s"), "wall_s")
    assert figures is not None
    model = model_of(figures.layout)
    assert model is not None
    return box_cox(model, figures.figures)


def test_agrees_with_r_on_the_example_of_box_and_cox() -> None:
    """R 4.2.2, MASS: `boxcox(time ~ poison * treat, data = boot::poisons)` at steps of 0.001 has
    its maximum at -0.816 and its interval from -1.294 to -0.342."""
    found = box_cox_of(grid(POISON_FACTORS, 4, POISONS))
    assert (found.exponent, found.low, found.high) == pytest.approx(
        (-0.816, -1.294, -0.342), abs=0.003
    )


def test_agrees_with_r_on_levene_about_the_median() -> None:
    """R 4.2.2: `anova(lm(abs(count - ave(count, spray, FUN = median)) ~ spray, InsectSprays))`
    prints F 3.82136, Pr(>F) 0.0042228."""
    figures = np.array(INSECT_SPRAYS, dtype=float)
    cell = np.repeat(np.arange(6), 12)
    residuals = figures - (np.bincount(cell, figures) / 12)[cell]
    equal = next(each for each in check(residuals, cell) if each.assumption == "equal-variance")
    assert equal.statistic == pytest.approx(3.82136, abs=1e-5)
    assert equal.p == pytest.approx(0.0042228, abs=1e-6)
    assert equal.rejected
