"""Play a trace back under any allocator: what the recorded program asked of its heap, and no more.

`plan.py` makes a plan of a trace (`native/plan.h`), once; `workload.py` makes a workload of the
plan, which `heapfit-replay` plays under one allocator after the other like any program;
`against.py` compares the outcome with a study of the real program.
"""

from heapfit.replay.against import Agreement, agreements, check_common, halved
from heapfit.replay.plan import Plan, make_plan
from heapfit.replay.workload import Speed, Touch, measured_by_replay, replay_workload, shown_metrics
