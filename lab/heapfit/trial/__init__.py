"""Run a program once under one allocator on given cores, and take its figures.

`run.py` leads and `attempt.py` is one run of the program, which `launcher` and `launch.c` start and
guarantee to end; `metrics.py` lists the metric sources; `outcome.py` judges.
"""

from heapfit.trial.metrics import (
    BUILTIN_METRIC_NAMES,
    BUILTIN_METRICS,
    METRIC_NAMES,
    OPTIONAL_METRIC_NAMES,
    find_metric,
    find_metrics,
    unavailable_metrics,
)
from heapfit.trial.run import run_trial
