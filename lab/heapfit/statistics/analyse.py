"""The whole analysis of one metric of a designed study as papers make it, step by step.

Verdicts do not rest on it.

1. Lay the figures out as a full factorial design (`observations`).
2. Fit all factors with their interactions, the blocks and the machines (`linear_model`). Where no
   degree of freedom is left for the error, the highest interactions make way.
3. Check the assumptions (`anova`); choose the scale by Box and Cox's method (`transform`).
4. On that scale: the table of the analysis of variance (`anova`), Tukey's comparisons, ratios with
   intervals and tables with letters (`tukey`, `letters`).
5. Say how many replicates would show two per cent (`power`).
"""

from collections.abc import Iterable

import numpy as np

from heapfit.findings import Analysis, PowerNote
from heapfit.statistics.anova import anova, check_assumptions
from heapfit.statistics.linear_model import FactorialModel, Fit, fullest_model
from heapfit.statistics.observations import Readings, figures_of, sample
from heapfit.statistics.power import EFFECT, DesignPower, power_note
from heapfit.statistics.transform import choose, forward
from heapfit.statistics.tukey import compare_within, letters_tables, table_factors

# A residual sum of squares that small relative to the figures' own is rounding.
_ROUNDING = 1e-24


def analyse(readings: Readings, metric: str, effect: float = EFFECT) -> Analysis | None:
    """Return the analysis of `metric`; None where there is nothing to analyse.

    There is nothing to analyse without a factor of two levels, without a degree of freedom left for
    the error (one replicate of one factor), or without scatter (a count that is the same each
    time). `effect` is the relative difference that the power note is about.

    The method is in this module's text, the references in the modules that it names; as a whole it
    follows D. C. Montgomery, "Design and Analysis of Experiments", 8th ed. (2012), chapters 3 to 5.
    """
    grid = sample(readings, figures_of(readings, metric), metric)
    model = fullest_model(grid.layout) if grid is not None else None
    if grid is None or model is None:
        return None
    measured = model.fit(grid.figures)
    if measured.sum_sq <= _ROUNDING * float(grid.figures @ grid.figures):
        return None
    transform = choose(model, grid.figures)
    exponent = transform.exponent
    fit = measured if exponent == 1 else model.fit(forward(grid.figures, exponent))
    before = check_assumptions(measured.residuals, grid.layout.cell)
    after = before if fit is measured else check_assumptions(fit.residuals, grid.layout.cell)
    rows, columns = table_factors(grid.layout)
    down, across = (compare_within(fit, exponent, factor) for factor in (rows, columns))
    return Analysis(
        metric=metric,
        factors=[factor.name for factor in grid.layout.factors],
        transform=transform,
        checks_before=before,
        checks=after,
        anova=anova(fit),
        letters=letters_tables(fit, exponent, down, across),
        differences=[each for family in (*down, *across) for each in family.differences()],
        power=_power(fit, exponent, rows, effect),
        left_out=" ".join([*grid.left_out, *_simplified(model)]),
    )


def analyse_all(readings: Readings, metrics: Iterable[str] | None = None) -> list[Analysis]:
    """Return the analyses of `metrics` (None: all of the study's) that can be analysed."""
    names = readings.figures if metrics is None else metrics
    found = (analyse(readings, name) for name in names)
    return [analysis for analysis in found if analysis is not None]


def _power(fit: Fit, exponent: float, factor: str, effect: float) -> PowerNote:
    """The note for a comparison of two levels of the row factor in one setting."""
    model, layout = fit.model, fit.model.layout
    replicates = max(1, round(model.n / layout.cells))
    columns = int(model.terms[-1].columns.stop)
    blocked = model.block_count > 1
    levels = next((len(f.levels) for f in layout.factors if f.name == factor), 2)

    def residual_df(count: int) -> float:
        return count * layout.cells - columns - (count if blocked else 1)

    design = DesignPower(levels, exponent, _residual_cv(fit, exponent), residual_df)
    return power_note(design, replicates, effect)


def _residual_cv(fit: Fit, exponent: float) -> float:
    """The standard deviation of a trial over the mean, the root mean square over the cells."""
    deviation = float(np.sqrt(fit.variance))
    if exponent == 0:
        return deviation
    with np.errstate(divide="ignore"):
        relative = deviation / np.abs(exponent * fit.means)
    return float(np.sqrt((relative**2).mean()))


def _simplified(model: FactorialModel) -> list[str]:
    """What of the full model the figures did not allow."""
    words = []
    if model.order < len(model.layout.factors):
        words.append(
            f"Interactions of more than {model.order} factors cannot be told from the error "
            "and are counted as error."
            if model.order > 1
            else "The interactions cannot be told from the error and are counted as error."
        )
    if model.block_count == 1 and model.layout.block.max() > 0:
        words.append("Blocks are left out: they hold too few of the cells each.")
    return words
