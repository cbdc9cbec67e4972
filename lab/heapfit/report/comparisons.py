"""Tables in which allocators are compared by the verdicts: letters, and ratios to one reference.

Allocators that share a letter are not shown to differ. Beside the letters stand the same medians as
in every other table.
"""

import math
from itertools import combinations

from heapfit.findings import LetterCell
from heapfit.records import CORES, Estimate, Metric, Setting, Verdict
from heapfit.report.results import UNDECIDED, Results, verdict_text
from heapfit.report.tables import Cell, Row, Table
from heapfit.settings import factor_label, level_text, levels_label, setting_levels, varied
from heapfit.statistics.letters import letters
from heapfit.text import DASH, TIMES, Scale, capitalised

_DECIMALS = 3
_OVERALL = "all settings"
_SMALLEST_P = 0.0001
_DECIMALS_OF_P = 4

LEGEND = (
    "Each cell is the median of its trials, followed by letters, which compare down a column: two "
    "{}s that share a letter there cannot be told apart; with no letter in common they differ."
)  # to be filled with what a study compares


def letters_tables(results: Results, metric: Metric, scale: Scale) -> list[Table]:
    """Return the tables of a metric: allocators by the levels of the first factor that varies, one
    for each setting of the others. None where no verdict tells anything."""
    factors = varied(results.study)
    across = factors[0].name if factors else CORES
    tables: dict[tuple[tuple[str, str], ...], dict[str, Setting]] = {}
    for setting in results.settings:
        if results.outcome(setting, metric) is not None:
            levels = setting_levels(setting)
            at = tuple((f.name, levels[f.name]) for f in factors if f.name != across)
            tables.setdefault(at, {})[levels[across]] = setting
    return [
        _letters_table(results, metric, scale, levels_label(at), across, columns)
        for at, columns in tables.items()
    ]


def _letters_table(
    results: Results,
    metric: Metric,
    scale: Scale,
    title: str,
    across: str,
    columns: dict[str, Setting],
) -> Table:
    marks = {level: _letters(results, metric, setting) for level, setting in columns.items()}

    def cell(name: str, level: str) -> Cell:
        estimate = results.estimate(columns[level], metric, name)
        if estimate is None:
            return Cell()
        mark, is_best = marks[level].get(name, ("", False))
        return letters_cell(estimate, estimate.median, scale, mark, is_best=is_best)

    return Table(
        title=title,
        corner=f"{capitalised(results.study.noun)} / {factor_label(across)}",
        columns=list(map(level_text, columns)),
        rows=[
            Row(name, [cell(name, level) for level in columns])
            for name in results.allocators
            if any(name in own for own in marks.values())
        ],
    )


def _letters(results: Results, metric: Metric, setting: Setting) -> dict[str, tuple[str, bool]]:
    """The letters of each allocator that is compared, the worst first, and whether no other is
    shown to be better."""
    outcome = results.outcome(setting, metric)
    if outcome is None:
        return {}
    names = outcome.compared[::-1]
    different = [
        (first, second)
        for first, second in combinations(range(len(names)), 2)
        if (each := outcome.verdicts.get((names[first], names[second]))) and each.shown
    ]
    found = letters(range(len(names)), different)
    return {
        name: (mark, name not in outcome.beaten) for name, mark in zip(names, found, strict=True)
    }


def letters_cell(
    known: Estimate | LetterCell, middle: float, scale: Scale, letters: str, *, is_best: bool
) -> Cell:
    return Cell(
        text=scale.number(middle),
        is_best=is_best,
        letters=f"({letters})" if letters else "",
        interval=f"{scale.number(known.low)} to {scale.text(known.high)}, {known.n} trials",
    )


# ------------------------------------------------------- ratios to one reference


def ratio_table(results: Results, metric: Metric, scale: Scale, wanted: str | None) -> Table | None:
    """Return the verdicts on `wanted`, or on the baseline where there are none of it: over all
    settings, then in each."""
    own = [each for each in results.summary.verdicts if each.metric == metric.name and each.told]
    own.sort(key=lambda each: bool(each.at))
    for reference in filter(None, (wanted, results.baseline)):
        with_it = [
            each if each.second == reference else each.turned()
            for each in own
            if reference in (each.first, each.second)
        ]
        if with_it:
            return _ratio_table(with_it, reference, scale, capitalised(results.study.noun))
    return None


def _ratio_table(verdicts: list[Verdict], reference: str, scale: Scale, corner: str) -> Table:
    cells = {(each.first, _column(each)): _ratio_cell(each, scale) for each in verdicts}
    columns = list(dict.fromkeys(column for _, column in cells))
    methods = " and ".join(dict.fromkeys(each.method for each in verdicts))
    return Table(
        title=f"against {reference} ({methods})",
        corner=corner,
        columns=columns,
        rows=[
            Row(name, [cells.get((name, column), Cell()) for column in columns])
            for name in dict.fromkeys(name for name, _ in cells)
        ],
        subject=reference,
    )


def _column(verdict: Verdict) -> str:
    return levels_label(verdict.at.items()) or _OVERALL


def _ratio_cell(verdict: Verdict, scale: Scale) -> Cell:
    found = verdict_text(verdict, scale, TIMES, _DECIMALS)
    return Cell(
        text=("" if verdict.shown else UNDECIDED) + found.estimate,
        interval=f"{found.low} {DASH} {found.high}" if found.low else "",
        p=p_text(verdict.p),
    )


def p_text(p: float | None, *, bare: bool = False) -> str:
    """Return a p-value as it is printed.

    >>> p_text(0.00001), p_text(0.0312), p_text(0.0312, bare=True)
    ('p < 0.0001', 'p = 0.0312', '0.0312')
    """
    if p is None or math.isnan(p):
        return ""
    if p < _SMALLEST_P:
        return f"< {_SMALLEST_P:.4f}" if bare else f"p < {_SMALLEST_P:.4f}"
    return f"{p:.{_DECIMALS_OF_P}f}" if bare else f"p = {p:.{_DECIMALS_OF_P}f}"
