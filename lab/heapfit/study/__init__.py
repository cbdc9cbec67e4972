"""Plan a study, run it, and keep what it measured.

`plan.py` lays out the trials, `journal.py` keeps them on disk, `identity.py` records what is
measured, `execute.py` runs what is missing, `stopping.py` says when that is enough. For a study of
many parts (workloads, probes, and experiments), `series_plan.py` and `series.py` do the same.
`cluster.py` runs a study on many machines.
"""

from heapfit.study.execute import Progress, execute
from heapfit.study.journal import (
    Journal,
    check_takes,
    is_running,
    load,
    looks,
    note_look,
    set_aside,
)
from heapfit.study.plan import DEFAULT_SEED, default_cores, plan, remarks
from heapfit.study.series import (
    SeriesProgress,
    command_line,
    execute_series,
    is_series,
    load_problems,
    load_series,
)
from heapfit.study.series_plan import ChosenExperiment, SeriesPlan, plan_series, shaped
