"""The table of the analysis of variance: type III sums of squares.

Every term is tested after all others, by the hypothesis that its effects, coded to sum to zero over
the levels, are nil. With equal cells this is the classical table, the same for all types. Where
trials failed, the sizes of cells are accidents that say nothing of the allocators: type III
compares means of cells with equal weight, as the design meant them to be, while types I and II
weigh the cells by those accidents. (The usual objection, that type III tests main effects in the
presence of interactions, is no objection here: the average over the settings that the study chose
is what an overall recommendation stands on.)

References: F. Yates, "The analysis of multiple classifications with unequal numbers in the
different classes", JASA 29 (1934), 51-66 (the weighted squares of means); F. M. Speed, R. R.
Hocking and O. P. Hackney, "Methods of analysis of linear models with unbalanced data", JASA 73
(1978), 105-112.
"""

from __future__ import annotations

import numpy as np
from scipy.special import fdtrc

from heapfit.findings import AnovaRow
from heapfit.statistics.effect import partial_eta_squared
from heapfit.statistics.linear_model import FactorialModel, Fit, Term
from heapfit.statistics.observations import Floats, Layout


def anova(layout: Layout, model: FactorialModel, fit: Fit, response: Floats) -> list[AnovaRow]:
    """Return the rows: each term, machine, block, residual, total (about the mean).

    The sum of squares of a term is b' V^-1 b, its effects b with their covariance V in units of the
    residual variance; of blocks, what the residual gains when they are left out.
    """
    error = fit.sum_sq / model.residual_df
    terms = [*model.terms, *([model.machine] if model.machine else [])]
    rows = [_row(t.name, t.df, _sum_sq(model, fit, t), error, model) for t in terms]
    if model.block_count > 1:
        rows.append(_block_row(layout, model, fit, response, error))
    total = response - response.mean()
    return [
        *rows,
        AnovaRow(source="residual", df=model.residual_df, sum_sq=fit.sum_sq),
        AnovaRow(source="total", df=model.n - 1, sum_sq=float(total @ total)),
    ]


def _sum_sq(model: FactorialModel, fit: Fit, term: Term) -> float:
    effects = fit.effects[term.columns]
    covariance = model.inverse[term.columns, term.columns]
    return float(effects @ np.linalg.solve(covariance, effects))


def _block_row(
    layout: Layout, model: FactorialModel, fit: Fit, response: Floats, error: float
) -> AnovaRow:
    sum_sq = model.block_sum_sq(fit)
    if sum_sq is None:
        without = FactorialModel(layout, model.order, with_blocks=False)
        sum_sq = without.residual_sum_sq(response) - fit.sum_sq
    return _row("block", model.block_count - 1, sum_sq, error, model)


def _row(source: str, df: int, sum_sq: float, error: float, model: FactorialModel) -> AnovaRow:
    f = sum_sq / df / error
    effect = partial_eta_squared(f, df, model.residual_df, model.n)
    return AnovaRow(
        source=source,
        df=df,
        sum_sq=sum_sq,
        f=f,
        p=float(fdtrc(df, model.residual_df, max(f, 0.0))),  # less than 0 is rounding
        df_error=model.residual_df,
        eta_sq=effect.estimate,
        eta_sq_low=effect.low,
        eta_sq_high=effect.high,
    )
