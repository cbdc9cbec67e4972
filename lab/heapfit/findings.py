"""What the analysis of a designed study found: exchanged by statistics, advice and report.

Made from a study and its trials by `statistics.analyse` and `advice.recommend`, never stored apart
from them. As in `records.py`, plain data.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from heapfit.records import Record, Verdict


class Transform(Record):
    """The scale on which the analysis was made: x to the power `exponent`, the logarithm at 0."""

    exponent: float = Field(description="1: as measured; -1: the reciprocal, 1/x.")
    name: str = Field(description="As a reader writes it: `x`, `1/x`, `log x`, `sqrt x`.")
    box_cox: float | None = Field(description="The exponent of greatest likelihood; None: no fit.")
    low: float | None = None
    high: float | None = None
    reason: str = Field(description="Why this scale, one sentence.")


class AssumptionCheck(Record):
    """One assumption of the analysis of variance, tested on the residuals."""

    assumption: Literal["normality", "equal-variance"]
    test: str = Field(description="The test's name, for example `Shapiro-Wilk`.")
    statistic: float
    p: float
    holds: bool


class AnovaRow(Record):
    """A row of the table: a factor, an interaction, the blocks, the residual, the total."""

    source: str = Field(description="`allocator`, `allocator:cores`, `block`, `residual`, `total`.")
    df: float
    sum_sq: float
    f: float | None = None
    p: float | None = None
    df_error: float | None = Field(default=None, description="Of the denominator of F.")
    eta_sq: float | None = Field(default=None, description="Partial eta squared.")
    eta_sq_low: float | None = None
    eta_sq_high: float | None = None


class LetterCell(Record):
    """A cell of the two-way table of means with its letters.

    Cells of a row (one level of `rows`) that share no upper-case letter differ; cells of a column
    that share no lower-case letter differ (the notation of the allocator comparison paper).
    """

    row: str
    column: str
    n: int
    mean: float = Field(
        description="On the measured scale, taken back from that of the analysis (the geometric "
        "mean for `log x`), of blocks of equal weight."
    )
    low: float = Field(description="95 % interval of this mean alone.")
    high: float
    upper: str = ""
    lower: str = ""


class LettersTable(Record):
    """Tukey's comparison within each level of the other factor, one table for each setting of any
    third factors."""

    rows: str = Field(description="The factor down the table, as a rule the allocator.")
    columns: str
    at: dict[str, str] = Field(default={}, description="Levels of the factors not in the table.")
    cells: list[LetterCell]


class Difference(Record):
    """Two levels of one factor, compared where the other factors are held."""

    factor: str
    first: str
    second: str
    at: dict[str, str] = Field(description="Levels of the other factors.")
    ratio: float = Field(
        description="Of first to second, of (back-transformed) means; infinite if second is 0."
    )
    low: float = Field(description="95 % interval, simultaneous over the family of comparisons.")
    high: float = Field(description="Infinite where second cannot be told from 0.")
    p: float = Field(description="Adjusted for the family.")
    method: str = Field(description="`Tukey HSD`.")


class PowerNote(Record):
    """How many replicates would show a difference of `effect` (0.02: two per cent)."""

    effect: float
    power: float = 0.8
    replicates: int | None = Field(description="None: more than anybody would run.")
    residual_cv: float = Field(description="Standard deviation of a trial over the mean.")
    achieved: float = Field(default=0, description="The power for `effect` of the study as run.")
    detectable: float | None = Field(
        default=None, description="The effect that the study as run shows with `power`."
    )


class Analysis(Record):
    """The analysis of one metric of one study as papers make it, which no verdict rests on."""

    metric: str
    factors: list[str] = Field(description="Of more than one level, in the order of the design.")
    transform: Transform
    checks_before: list[AssumptionCheck] = Field(description="On the measured scale.")
    checks: list[AssumptionCheck] = Field(description="On the scale of the analysis.")
    anova: list[AnovaRow]
    letters: list[LettersTable]
    differences: list[Difference] = Field(
        description="Of the tables' row factor, then of their column factor, in every setting."
    )
    power: PowerNote
    left_out: str = Field(default="", description="What of the study has no part in it, and why.")


class Standing(Record):
    """An allocator's place in a recommendation. Costs are ratios to the best; 1 is the best."""

    allocator: str
    score: float = Field(description="Weighted geometric mean of the costs; lower is better.")
    costs: dict[str, float] = Field(description="By `time`, `memory`, `fragmentation`.")
    metrics: dict[str, float] = Field(description="The figures behind the costs, by metric.")
    on_front: bool = Field(
        description="On the Pareto front of the costs, which are estimates: for the drawing."
    )
    unbeaten: bool = Field(
        description="Of none is it shown to be better in something and worse in nothing."
    )
    tied_with_best: bool = Field(description="Not to be told apart from the first.")


class SettingWinner(Record):
    """Who costs least in one setting, where a study has several."""

    at: dict[str, str] = Field(description="Levels of the factors other than the allocator.")
    best: str
    tied: list[str] = Field(description="Others that cannot be told apart from the best there.")


class Advice(Record):
    """A ranking under weights, with its reasons."""

    weights: dict[str, float] = Field(description="Those that count: others have no metric here.")
    metrics: dict[str, str] = Field(default={}, description="What stands for each weight.")
    standings: list[Standing] = Field(description="Best first.")
    recommended: str | None = Field(description="None: nothing that is shown decides.")
    keeps: bool = Field(default=False, description="Whether that is the baseline.")
    differs: bool = Field(
        default=False, description="Whether any difference that matters is shown."
    )
    told: bool = Field(default=False, description="Whether there are trials enough to say so.")
    scores: list[Verdict] = Field(
        default=[], description="On the scores, over all settings: what time is set against memory."
    )
    reasons: str = Field(description="Two sentences.")
    by_setting: list[SettingWinner] = Field(default=[], description="Empty: one setting only.")
    notes: list[str] = Field(
        default=[],
        description="What the reader must know besides: weights and allocators that do not count "
        "and why, settings where another allocator is better.",
    )
