"""What an analysis and an advice say, in sentences that need no statistics to be read."""

from __future__ import annotations

import math

from heapfit.findings import Advice, Analysis, AnovaRow, AssumptionCheck, PowerNote, Standing
from heapfit.meaning import PROCESSOR
from heapfit.records import SIGNIFICANT
from heapfit.report.settings import factor_label
from heapfit.text import TIMES, counted, join_words, percent, visible

# Rows of the table that are no effect.
_NO_EFFECT = ("block", "machine", "residual", "total")
_SMALLEST_P = 0.0001
_P_DECIMALS = 4
_UNBEATEN = "unbeaten"
UNBEATEN = "unbeaten: no other is shown to be better in one respect without being worse in another"

ASSUMPTIONS = {
    "normality": "residuals are normally distributed",
    "equal-variance": "all cells scatter alike",
}


def headline(advice: Advice) -> str:
    """Return the recommendation in a few words."""
    if not advice.told:
        return "Nothing can be said yet"
    if advice.recommended is None and not advice.differs:
        return "Nothing can be told" if advice.untold else "No difference shown that matters"
    by = ", by processor time" if PROCESSOR in advice.metrics.values() else ""
    if advice.recommended is None:
        return f"No recommendation{by}"
    verb = "Keep" if advice.keeps else "Recommended:"
    return f"{verb} {visible(advice.recommended)}{by}"


def weights_text(advice: Advice) -> str:
    """Return what counted how much, for example `time 2, memory 1`."""
    return ", ".join(f"{visible(name)} {weight:g}" for name, weight in advice.weights.items())


def one_line(advice: Advice) -> str:
    """Return the recommendation with its reasons as one paragraph."""
    return f"{headline(advice)}. {reasons_of(advice)}"


def reasons_of(advice: Advice) -> str:
    """Return the reasons, what cannot be told, and why processor time decides where it does."""
    return visible(" ".join(filter(None, (advice.reasons, *advice.untold, advice.basis))))


def standing_notes(advice: Advice, standing: Standing) -> str:
    """Return what is to be said of an allocator's place beside its figures."""
    is_tied = standing.tied_with_best and standing is not advice.standings[0]
    return join_words([*[_UNBEATEN] * standing.unbeaten, *["tied with the first"] * is_tied])


def costs_of(advice: Advice) -> list[str]:
    """Return the costs that any allocator has, in the order of the weights."""
    found = dict.fromkeys([*advice.weights, *(c for s in advice.standings for c in s.costs)])
    return [name for name in found if any(name in each.costs for each in advice.standings)]


def cost_text(standing: Standing, cost: str) -> str:
    """Return a cost as a ratio to the best, nothing where there is none."""
    return f"{standing.costs[cost]:.3f}{TIMES}" if cost in standing.costs else ""


def p_text(p: float | None, *, bare: bool = False) -> str:
    """Return a p-value as it is printed.

    >>> p_text(0.00001), p_text(0.0312), p_text(0.0312, bare=True)
    ('p < 0.0001', 'p = 0.0312', '0.0312')
    """
    if p is None or math.isnan(p):
        return ""
    if p < _SMALLEST_P:
        return f"< {_SMALLEST_P:.4f}" if bare else f"p < {_SMALLEST_P:.4f}"
    return f"{p:.{_P_DECIMALS}f}" if bare else f"p = {p:.{_P_DECIMALS}f}"


def source_label(source: str) -> str:
    """Return a row's name: factors without their kind, an interaction with a multiplication sign.

    >>> source_label("allocator:option.huge_pages").split()[::2]
    ['allocator', 'huge_pages']
    """
    return f" {TIMES} ".join(factor_label(part) for part in source.split(":"))


def f_text(row: AnovaRow) -> str:
    return "" if row.f is None else f"{row.f:,.2f}"


def eta_text(row: AnovaRow, *, interval: bool = False) -> str:
    """Return the share of the scatter that a row explains, with its `interval` if that is asked
    for."""
    if row.eta_sq is None:
        return ""
    known = interval and row.eta_sq_low is not None and row.eta_sq_high is not None
    bounds = f" ({row.eta_sq_low:.3f} to {row.eta_sq_high:.3f})" if known else ""
    return f"{row.eta_sq:.3f}{bounds}"


def effects(rows: list[AnovaRow]) -> list[AnovaRow]:
    """Return the rows that are effects: factors and their interactions."""
    return [row for row in rows if row.source not in _NO_EFFECT and row.p is not None]


def is_significant(row: AnovaRow) -> bool:
    return row.p is not None and row.p < SIGNIFICANT


def anova_sentence(analysis: Analysis) -> str:
    """Return which factors matter, the strongest first, and whether the best allocator depends on
    the others."""
    rows = effects(analysis.anova)
    if not rows:
        return ""
    real = sorted(filter(is_significant, rows), key=lambda row: -(row.eta_sq or 0.0))
    if not real:
        return "No factor has an effect that can be told from chance."
    single = [row for row in real if ":" not in row.source]
    crossed = [row for row in real if ":" in row.source]
    sentences = []
    if single:
        verb = "has an effect" if len(single) == 1 else "have effects"
        names = join_words([_with_share(row) for row in single])
        sentences.append(f"{names[:1].upper()}{names[1:]} {verb} beyond chance.")
    depends = sorted(
        {
            factor_label(part)
            for row in crossed
            if "allocator" in row.source.split(":")
            for part in row.source.split(":")
            if part != "allocator"
        }
    )
    if depends:
        sentences.append(f"What the allocator does depends on {join_words(depends)}.")
    elif any(row.source.startswith("allocator:") for row in rows):
        sentences.append(
            "It is not shown that what the allocator does depends on the other factors."
        )
    return " ".join(sentences)


def anova_short(analysis: Analysis) -> list[str]:
    """Return the table's effects in a line each, for a terminal."""
    rows = analysis.anova
    residual = next((row.df for row in rows if row.source == "residual"), None)
    return [
        " ".join(
            filter(
                None,
                (f"{source_label(row.source)}:", _f_with_freedom(row, residual), p_text(row.p)),
            )
        )
        for row in effects(rows)
    ]


def sentences(analysis: Analysis, replicates: int) -> list[str]:
    """Return everything that is to be said of an analysis before its numbers."""
    said = [
        anova_sentence(analysis),
        checks_sentence(analysis),
        power_sentence(analysis.power, replicates),
        visible(analysis.left_out),
    ]
    return [sentence for sentence in said if sentence]


def transform_sentence(analysis: Analysis) -> str:
    """Return the scale of the analysis and what Box and Cox's method says of it."""
    transform = analysis.transform
    if transform.box_cox is None:
        return visible(transform.reason)
    interval = ""
    if transform.low is not None and transform.high is not None:
        interval = f" (95 % interval {transform.low:.2f} to {transform.high:.2f})"
    return (
        f"{visible(transform.reason)} The exponent of greatest likelihood (Box-Cox) is "
        f"{transform.box_cox:.2f}{interval}; 1 leaves the figures as measured, 0 is the logarithm, "
        "-1 the reciprocal."
    )


def check_sentence(check: AssumptionCheck) -> str:
    verdict = "is rejected" if check.rejected else "is not rejected"
    return f"{check.test}, {p_text(check.p)}: {verdict}"


def checks_sentence(analysis: Analysis) -> str:
    """Return whether the analysis stands on firm ground, in one sentence."""
    failing = [ASSUMPTIONS[check.assumption] for check in analysis.checks if check.rejected]
    if not analysis.checks:
        return ""
    if not failing:
        return "Nothing was found against the assumptions of the analysis."
    return f"It does not hold that {join_words(failing)}; the verdicts do not need it."


def power_sentence(note: PowerNote, replicates: int) -> str:
    """Return how many replicates a small difference needs."""
    scatter = f"A trial scatters by {percent(note.residual_cv)}"
    aim = f"a difference of {percent(note.effect)} with {percent(note.power)} power"
    if note.replicates is None:
        return f"{scatter}: no reasonable number of replicates would show {aim}."
    found = (
        f" and shows differences from {percent(note.detectable)} on"
        if note.detectable is not None
        else ""
    )
    return (
        f"{scatter}: to show {aim} takes {counted(note.replicates, 'replicate')}; this study has "
        f"{replicates:,}{found}."
    )


def _with_share(row: AnovaRow) -> str:
    """A factor with the share of the scatter that it explains."""
    name = source_label(row.source)
    return name if row.eta_sq is None else f"{name} (partial η² {row.eta_sq:.2f})"


def _f_with_freedom(row: AnovaRow, residual: float | None) -> str:
    if row.f is None:
        return ""
    freedom = f"{row.df:g}" + ("" if residual is None else f", {residual:g}")
    return f"F({freedom}) = {row.f:.4g},"
