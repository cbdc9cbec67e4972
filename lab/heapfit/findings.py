"""What the analysis of a designed study found: exchanged by statistics, advice and report.

Made from a study and its trials by `statistics.analyse` and `advice.recommend`, never stored apart
from them. As in `records.py`, plain data.
"""

from typing import Literal

from pydantic import Field

from heapfit.records import Record, Verdict


class Transform(Record):
    """The scale on which the analysis was made: x to the power `exponent`, the logarithm at 0."""

    exponent: float  # 1: as measured; -1: the reciprocal, 1/x
    name: str  # as a reader writes it: `x`, `1/x`, `log x`, `sqrt x`
    box_cox: float | None  # the exponent of greatest likelihood; None: no fit
    low: float | None = None
    high: float | None = None
    reason: str  # why this scale, one sentence


class AssumptionCheck(Record):
    """One assumption of the analysis of variance, tested on the residuals."""

    assumption: Literal["normality", "equal-variance"]
    test: str  # the test's name, for example `Shapiro-Wilk`
    statistic: float
    p: float
    rejected: bool  # not rejecting it is no proof of it


class AnovaRow(Record):
    """A row of the table: a factor, an interaction, the blocks, the residual, the total."""

    source: str  # `allocator`, `allocator:cores`, `block`, `residual`, `total`
    df: float
    sum_sq: float
    f: float | None = None
    p: float | None = None
    df_error: float | None = None  # of the denominator of F
    eta_sq: float | None = None  # partial eta squared
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
    # On the measured scale, taken back from that of the analysis (the geometric mean for `log x`),
    # of blocks of equal weight.
    mean: float
    low: float  # 95 % interval of this mean alone
    high: float
    upper: str = ""
    lower: str = ""


class LettersTable(Record):
    """Tukey's comparison within each level of the other factor, one table for each setting of any
    third factors."""

    rows: str  # the factor down the table, as a rule the allocator
    columns: str
    at: dict[str, str] = Field(default={})  # levels of the factors not in the table
    cells: list[LetterCell]


class Difference(Record):
    """Two levels of one factor, compared where the other factors are held."""

    factor: str
    first: str
    second: str
    at: dict[str, str]  # levels of the other factors
    ratio: float  # of first to second, of (back-transformed) means; infinite if second is 0
    low: float  # 95 % interval, simultaneous over the family of comparisons
    high: float  # infinite where second cannot be told from 0
    p: float  # adjusted for the family
    method: str  # `Tukey HSD`


class PowerNote(Record):
    """How many replicates would show a difference of `effect` (0.02: two per cent)."""

    effect: float
    power: float = 0.8
    replicates: int | None  # None: more than anybody would run
    residual_cv: float  # standard deviation of a trial over the mean
    achieved: float = 0  # the power for `effect` of the study as run
    detectable: float | None = None  # the effect that the study as run shows with `power`


class Analysis(Record):
    """The analysis of one metric of one study as papers make it, which no verdict rests on."""

    metric: str
    factors: list[str]  # of more than one level, in the order of the design
    transform: Transform
    checks_before: list[AssumptionCheck]  # on the measured scale
    checks: list[AssumptionCheck]  # on the scale of the analysis
    anova: list[AnovaRow]
    letters: list[LettersTable]
    # Of the tables' row factor, then of their column factor, in every setting.
    differences: list[Difference]
    power: PowerNote
    left_out: str = ""  # what of the study has no part in it, and why


class Standing(Record):
    """An allocator's place in a recommendation. Costs are ratios to the best; 1 is the best."""

    allocator: str
    score: float  # weighted geometric mean of the costs; lower is better
    costs: dict[str, float]  # by `time`, `memory`, `fragmentation`
    metrics: dict[str, float]  # the figures behind the costs, by metric
    on_front: bool  # on the Pareto front of the costs, which are estimates: for the drawing
    unbeaten: bool  # no other is shown to be better in one respect and not worse in another
    tied_with_best: bool  # not to be told apart from the first


class SettingWinner(Record):
    """Who is best in one setting, where a study has several."""

    at: dict[str, str]  # levels of the factors other than the allocator
    best: str
    tied: list[str]  # others that the best is not shown to be better than there


class Advice(Record):
    """A ranking under weights, with its reasons."""

    weights: dict[str, float]  # those that count: others have no metric here
    metrics: dict[str, str] = Field(default={})  # what stands for each weight
    standings: list[Standing]  # best first
    recommended: str | None  # None: nothing that is shown decides
    keeps: bool = False  # whether that is the baseline
    differs: bool = False  # whether any difference that matters is shown
    told: bool = False  # whether there are trials enough to say so
    # Where no other than the baseline is recommended: a sentence for each weight in which a gain
    # of 5 % over it may be hidden, with what would tell.
    untold: list[str] = Field(default=[])
    # On the scores, over all settings: what time is set against memory.
    scores: list[Verdict] = Field(default=[])
    # Who would be better than the baseline, but loses wall time, where processor time decides.
    slow: list[str] = Field(default=[])
    reasons: str  # two sentences; none where `untold` says all
    small: str = ""  # of a small program: what a difference in memory may be
    basis: str = ""  # why processor time stands for time, where it does
    by_setting: list[SettingWinner] = Field(default=[])  # empty: one setting only
    # What the reader must know besides: weights and allocators that do not count and why, settings
    # where another allocator is better.
    notes: list[str] = Field(default=[])
