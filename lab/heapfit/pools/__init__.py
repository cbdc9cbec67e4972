"""What libheapfit-pools.so decided in a run of a program, and why.

The library writes an *explanation* when the process ends: its groups with their call chains, what
was seen of their first objects, where they were placed. `explanation.py` has its records, `run.py`
makes one by running a program, `graph.py` draws what points to what.
"""

from heapfit.pools.explanation import VARIABLE, Explanation, Group, main_process, read
