"""The table of the analysis of variance, and checks of what the analysis assumes.

Sums of squares are of type III: every term is tested after all others, by the hypothesis that its
effects, coded to sum to zero over the levels, are nil. With equal cells this is the classical
table, the same for all types. Where trials failed, the sizes of cells are accidents that say
nothing of the allocators: type III compares means of cells with equal weight, as the design meant
them to be, while types I and II weigh the cells by those accidents. (The usual objection, that type
III tests main effects in the presence of interactions, does not apply here: an overall
recommendation rests on the average over the settings that the study chose.)

The analysis assumes normal residuals of equal variance. Both checks look at the residuals of the
full model, so that neither effects nor blocks are seen as scatter. Normality: Shapiro and Wilk's
test, the most powerful of the general ones; above 5000 residuals, for which its p-value is not
known well, D'Agostino and Pearson's test of skewness and kurtosis. Equal variances: Brown and
Forsythe's test, Levene's about the median, over the cells of the design; it is robust to the very
non-normality that is in question. A test of thousands of residuals finds departures too small to
matter: the F test and Tukey's are robust to moderate non-normality when cells are of equal size (G.
E. P. Box, Biometrika 40 (1953), 318-335). A report states a failed check and hides nothing;
verdicts do not need these assumptions.

References: F. Yates, "The analysis of multiple classifications with unequal numbers in the
different classes", JASA 29 (1934), 51-66 (the weighted squares of means); F. M. Speed, R. R.
Hocking and O. P. Hackney, "Methods of analysis of linear models with unbalanced data", JASA 73
(1978), 105-112; S. S. Shapiro and M. B. Wilk, Biometrika 52 (1965), 591-611; R. B. D'Agostino and
E. S. Pearson, Biometrika 60 (1973), 613-622; M. B. Brown and A. B. Forsythe, "Robust tests for the
equality of variances", JASA 69 (1974), 364-367.
"""

import numpy as np
from scipy.special import fdtr, fdtrc, ncfdtr

from heapfit.findings import AnovaRow, AssumptionCheck
from heapfit.records import SIGNIFICANT
from heapfit.statistics.linear_model import Fit, Term
from heapfit.statistics.median import CONFIDENCE
from heapfit.statistics.observations import Floats, Integers

_FEWEST_PER_CELL = 3  # two figures are always equally far from their median
_FEWEST_RESIDUALS = 8
_MOST_FOR_SHAPIRO = 5000
# The noncentrality is looked for up to this multiple of its estimate's order of magnitude.
_REACH = 64.0


def anova(fit: Fit) -> list[AnovaRow]:
    """Return the rows: each term, machine, block, residual, total (about the mean).

    The sum of squares of a term is b' V^-1 b, its effects b with their covariance V in units of the
    residual variance; of blocks, what the residual gains when they are left out.
    """
    model = fit.model
    terms = [*model.terms, *([model.machine] if model.machine else [])]
    rows = [_row(term.name, term.df, _sum_sq(fit, term), fit) for term in terms]
    if model.block_count > 1:
        sum_sq = model.without_blocks.residual_sum_sq(fit.response) - fit.sum_sq
        rows.append(_row("block", model.block_count - 1, sum_sq, fit))
    total = fit.response - fit.response.mean()
    return [
        *rows,
        AnovaRow(source="residual", df=model.residual_df, sum_sq=fit.sum_sq),
        AnovaRow(source="total", df=model.n - 1, sum_sq=float(total @ total)),
    ]


def _sum_sq(fit: Fit, term: Term) -> float:
    effects = fit.effects[term.columns]
    covariance = fit.model.inverse[term.columns, term.columns]
    return float(effects @ np.linalg.solve(covariance, effects))


def _row(source: str, df: int, sum_sq: float, fit: Fit) -> AnovaRow:
    residual_df = fit.model.residual_df
    sum_sq = float(np.maximum(sum_sq, 0.0))  # A difference, which rounding may take below 0.
    f = float(np.divide(sum_sq, df * fit.variance))
    eta_sq, low, high = partial_eta_squared(f, df, residual_df, fit.model.n)
    return AnovaRow(
        source=source,
        df=df,
        sum_sq=sum_sq,
        f=f,
        p=float(fdtrc(df, residual_df, f)),
        df_error=residual_df,
        eta_sq=eta_sq,
        eta_sq_low=low,
        eta_sq_high=high,
    )


# ---------------------------------------------------------------- effect size


def partial_eta_squared(
    f: float, df: float, residual_df: float, n: int
) -> tuple[float, float | None, float | None]:
    """Return a term's sum of squares over itself plus the residual one, with its 95 % interval.

    The interval is that of the noncentrality of the F distribution, c, as c / (c + n): the bounds
    are the noncentralities under which an F that large, or that small, has probability 2.5 %.

    Reference: J. H. Steiger, "Beyond the F test: effect size confidence intervals and tests of
    close fit in the analysis of variance and contrast analysis", Psychological Methods 9 (2004),
    164-182; M. Smithson, "Confidence Intervals" (2003).
    """
    if not np.isfinite(f):
        return 1.0, None, None
    tail = (1 - CONFIDENCE) / 2
    low = _noncentrality(f, df, residual_df, 1 - tail)
    high = _noncentrality(f, df, residual_df, tail)
    return f * df / (f * df + residual_df), low / (low + n), high / (high + n)


def _noncentrality(f: float, df: float, residual_df: float, below: float) -> float:
    """The noncentrality under which F stays below `f` with probability `below`; at least 0."""
    from scipy.optimize import brentq  # Takes a while to load: only where an analysis is read.

    if fdtr(df, residual_df, f) <= below:
        return 0.0
    ceiling = _REACH * (f * df + df + 10)
    return float(brentq(lambda c: _noncentral_f(f, df, residual_df, c) - below, 0, ceiling))


def _noncentral_f(f: float, df: float, residual_df: float, noncentrality: float) -> float:
    """P(F <= f). Where the series does not converge (tens of thousands of degrees of freedom),
    Patnaik's approximation, by a central F of the same two moments, which is close there.

    Reference: P. B. Patnaik, "The non-central chi-square and F-distributions and their
    applications", Biometrika 36 (1949), 202-232.
    """
    exact = float(ncfdtr(df, residual_df, noncentrality, f))
    if np.isfinite(exact):
        return exact
    moved = df + noncentrality
    return float(fdtr(moved**2 / (moved + noncentrality), residual_df, f * df / moved))


# ---------------------------------------------------------------- assumptions


def check_assumptions(residuals: Floats, cell: Integers) -> list[AssumptionCheck]:
    """Return both checks; one that the figures do not allow (too few of them) is left out."""
    checks: list[AssumptionCheck] = []
    if len(residuals) >= _FEWEST_RESIDUALS:
        checks.append(_normality(residuals))
    if np.bincount(cell).min() >= _FEWEST_PER_CELL:
        checks.append(_equal_variances(residuals, cell))
    return checks


def _normality(residuals: Floats) -> AssumptionCheck:
    # Takes a second to load: only where it is needed.
    from scipy.stats import normaltest, shapiro

    few = len(residuals) <= _MOST_FOR_SHAPIRO
    found = (shapiro if few else normaltest)(residuals / residuals.std())
    return AssumptionCheck(
        assumption="normality",
        test="Shapiro-Wilk" if few else "D'Agostino-Pearson",
        statistic=float(found.statistic),
        p=float(found.pvalue),
        rejected=bool(found.pvalue < SIGNIFICANT),
    )


def _equal_variances(residuals: Floats, cell: Integers) -> AssumptionCheck:
    from scipy.stats import levene

    order = np.argsort(cell, kind="stable")
    found = levene(*np.split(residuals[order], np.cumsum(np.bincount(cell))[:-1]))
    known = np.isfinite(found.statistic)  # unless nothing scatters within any cell
    return AssumptionCheck(
        assumption="equal-variance",
        test="Brown-Forsythe",
        statistic=float(found.statistic) if known else np.inf,
        p=float(found.pvalue) if known else 0.0,
        rejected=bool(not known or found.pvalue < SIGNIFICANT),
    )
