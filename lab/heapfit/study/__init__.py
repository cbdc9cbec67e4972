"""Plan a study, run it, and keep what it measured.

`plan.py` lays out the trials, `journal.py` keeps them on disk, `execute.py` runs what is missing.
"""

from heapfit.study.execute import Progress, execute
from heapfit.study.journal import Journal, load
from heapfit.study.plan import DEFAULT_SEED, plan

__all__ = ["DEFAULT_SEED", "Journal", "Progress", "execute", "load", "plan"]
