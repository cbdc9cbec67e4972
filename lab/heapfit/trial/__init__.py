"""Run a program once under one allocator on given cores, and take its figures.

`run.py` leads; each metric source is a module of its own (`resources`, `memory`, the program's own
figures in `output`); `launcher` and `launch.c` start the program and guarantee its end.
"""

from heapfit.trial.run import BUILTIN_METRICS, run_trial, unavailable_metrics

__all__ = ["BUILTIN_METRICS", "run_trial", "unavailable_metrics"]
