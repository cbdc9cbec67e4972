"""Plan a study, run it, and keep what it measured.

`plan.py` lays out the trials, `factors.py` checks what they vary, `journal.py` keeps them on disk,
`execute.py` runs what is missing, `stopping.py` says when that is enough. `series.py` does the same
for a study of many parts: workloads, probes, and the experiments of `experiments.py`.
"""

from heapfit.study.execute import Progress, execute
from heapfit.study.experiments import ChosenExperiment, shaped
from heapfit.study.factors import remarks
from heapfit.study.journal import Journal, check_takes, is_running, load, looks, note_look
from heapfit.study.plan import DEFAULT_SEED, default_cores, plan
from heapfit.study.series import (
    SeriesPlan,
    SeriesProgress,
    command_line,
    execute_series,
    is_series,
    load_problems,
    load_series,
    plan_series,
)

__all__ = [
    "DEFAULT_SEED",
    "ChosenExperiment",
    "Journal",
    "Progress",
    "SeriesPlan",
    "SeriesProgress",
    "check_takes",
    "command_line",
    "default_cores",
    "execute",
    "execute_series",
    "is_running",
    "is_series",
    "load",
    "load_problems",
    "load_series",
    "looks",
    "note_look",
    "plan",
    "plan_series",
    "remarks",
    "shaped",
]
