"""The analysis of a metric as papers make it: its tables, and sentences that need no statistics.

Letters are laid out in the notation of "Comparison of user-level memory allocators" (the stock
trading middleware): each mean is followed by letters in brackets, upper case for the comparison
along its row, lower case for the one down its column.
"""

from collections.abc import Sequence

from heapfit.findings import (
    Analysis,
    AnovaRow,
    AssumptionCheck,
    LetterCell,
    LettersTable,
    PowerNote,
)
from heapfit.records import ALLOCATOR, CORES, SIGNIFICANT, Metric
from heapfit.report.comparisons import letters_cell, p_text
from heapfit.report.tables import Cell, Row, Table
from heapfit.settings import factor_label, factor_title, level_text, levels_label
from heapfit.text import TIMES, Scale, counted, join_words, percent, visible

# Rows of the table that are no effect.
_NO_EFFECT = ("block", "machine", "residual", "total")

_ASSUMPTIONS = {
    "normality": "residuals are normally distributed",
    "equal-variance": "all cells scatter alike",
}


def _source_label(source: str) -> str:
    """Return a row's name: factors without their kind, an interaction with a multiplication sign.

    >>> _source_label("allocator:option.huge_pages").split()[::2]
    ['allocator', 'huge_pages']
    """
    return f" {TIMES} ".join(factor_label(part) for part in source.split(":"))


def anova_table(analysis: Analysis) -> Table:
    """Return the table of an analysis of variance; the p-values of effects beyond chance stand
    out."""
    return Table(
        title="Analysis of variance",
        corner="Source",
        columns=["DF", "SS", "MS", "F", "p", "partial η² (interval)"],
        rows=[
            Row(
                _source_label(row.source),
                [
                    Cell(f"{row.df:g}"),
                    Cell(f"{row.sum_sq:.4g}"),
                    Cell(f"{row.sum_sq / row.df:.4g}" if _has_mean_square(row) else ""),
                    Cell("" if row.f is None else f"{row.f:,.2f}"),
                    Cell(p_text(row.p, bare=True), is_best=_is_significant(row)),
                    Cell(_eta_text(row)),
                ],
            )
            for row in analysis.anova
        ],
    )


def _has_mean_square(row: AnovaRow) -> bool:
    return row.df > 0 and row.source != "total"


def _eta_text(row: AnovaRow) -> str:
    """Return the share of the scatter that a row explains, with its interval if that is known."""
    if row.eta_sq is None:
        return ""
    if row.eta_sq_low is None or row.eta_sq_high is None:
        return f"{row.eta_sq:.3f}"
    return f"{row.eta_sq:.3f} ({row.eta_sq_low:.3f} to {row.eta_sq_high:.3f})"


def _effects(rows: list[AnovaRow]) -> list[AnovaRow]:
    """Return the rows that are effects: factors and their interactions."""
    return [row for row in rows if row.source not in _NO_EFFECT and row.p is not None]


def _is_significant(row: AnovaRow) -> bool:
    return row.p is not None and row.p < SIGNIFICANT


def _anova_sentence(analysis: Analysis) -> str:
    """Return which factors matter, the strongest first, and whether the best allocator depends on
    the others."""
    rows = _effects(analysis.anova)
    if not rows:
        return ""
    real = sorted(filter(_is_significant, rows), key=lambda row: -(row.eta_sq or 0.0))
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
                (f"{_source_label(row.source)}:", _f_with_freedom(row, residual), p_text(row.p)),
            )
        )
        for row in _effects(rows)
    ]


def sentences(analysis: Analysis, replicates: int) -> list[str]:
    """Return everything that is to be said of an analysis before its numbers."""
    said = [
        _anova_sentence(analysis),
        _checks_sentence(analysis),
        _power_sentence(analysis.power, replicates),
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


def _check_sentence(check: AssumptionCheck) -> str:
    verdict = "is rejected" if check.rejected else "is not rejected"
    return f"{check.test}, {p_text(check.p)}: {verdict}"


def assumptions(analysis: Analysis) -> list[tuple[str, str, str]]:
    """Each assumption: what it says, the test as measured, the test on the scale of the analysis.

    The last is empty where both are the same scale."""
    before, after = (
        {check.assumption: _check_sentence(check) for check in found}
        for found in (analysis.checks_before, analysis.checks)
    )
    transformed = analysis.transform.exponent != 1
    return [
        (_ASSUMPTIONS[each], before.get(each, ""), after.get(each, "") * transformed)
        for each in dict.fromkeys([*before, *after])
    ]


def _checks_sentence(analysis: Analysis) -> str:
    """Return whether the analysis stands on firm ground, in one sentence."""
    failing = [_ASSUMPTIONS[check.assumption] for check in analysis.checks if check.rejected]
    if not analysis.checks:
        return ""
    if not failing:
        return "Nothing was found against the assumptions of the analysis."
    return f"It does not hold that {join_words(failing)}; the verdicts do not need it."


def _power_sentence(note: PowerNote, replicates: int) -> str:
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
    name = _source_label(row.source)
    return name if row.eta_sq is None else f"{name} (partial η² {row.eta_sq:.2f})"


def _f_with_freedom(row: AnovaRow, residual: float | None) -> str:
    if row.f is None:
        return ""
    freedom = f"{row.df:g}" + ("" if residual is None else f", {residual:g}")
    return f"F({freedom}) = {row.f:.4g},"


def letters_tables(analysis: Analysis, metric: Metric, scale: Scale) -> list[Table]:
    """Return the tables of means with Tukey's letters."""
    return [_letters_table(table, metric, scale) for table in analysis.letters if table.cells]


def _letters_table(table: LettersTable, metric: Metric, scale: Scale) -> Table:
    """Lay out a paper's `table`, its rows and columns in the order of its cells."""
    cells = {(cell.row, cell.column): cell for cell in table.cells}
    columns = list(dict.fromkeys(cell.column for cell in table.cells))
    leading = {column: _leading_letters(table.cells, column, metric) for column in columns}

    def cell(row: str, column: str) -> Cell:
        own = cells.get((row, column))
        if own is None:
            return Cell()
        is_best = bool(leading[column] & set(own.lower))
        return letters_cell(own, own.mean, scale, own.upper + own.lower, is_best=is_best)

    return Table(
        title=levels_label(table.at.items()),
        corner=" / ".join(filter(None, (factor_title(table.rows), factor_label(table.columns)))),
        columns=list(map(level_text, columns)),
        rows=[
            Row(row, [cell(row, column) for column in columns])
            for row in dict.fromkeys(cell.row for cell in table.cells)
        ],
    )


def _leading_letters(cells: Sequence[LetterCell], column: str, metric: Metric) -> set[str]:
    """The lower-case letters of the best mean of a column."""
    own = [cell for cell in cells if cell.column == column]
    sign = 1 if metric.better == "lower" else -1
    return set(min(own, key=lambda cell: sign * cell.mean).lower)


def legend(analysis: Analysis) -> str:
    """Say how a paper's letters are read, in words for somebody who never saw such a table."""
    table = next(each for each in analysis.letters if each.cells)
    one = ALLOCATOR if table.rows == ALLOCATOR else f"level of {factor_label(table.rows)}"
    words = (
        "Each cell is the mean of its trials, followed by letters. Lower-case letters compare down "
        f"a column: two {_plural(one)} that share a lower-case letter there cannot be told apart; "
        "with no letter in common they differ (Tukey, p < 0.05)."
    )
    if not any(cell.upper for cell in table.cells):
        return words
    across = (
        "numbers of cores" if table.columns == CORES else f"levels of {factor_label(table.columns)}"
    )
    return (
        f"{words} Upper-case letters compare along a row in the same way: one {one} at different "
        f"{across}."
    )


def _plural(one: str) -> str:
    return f"{one}s" if one == ALLOCATOR else one.replace("level", "levels", 1)
