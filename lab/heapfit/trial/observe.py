"""Watch a running program until it ends, feeding the metric sources at a bounded cost.

There is no sampling thread: the wait for the launcher's report is cut into periods, and the sources
are asked in between. The period follows from what the last round cost, so that a tree of a hundred
processes is looked at less often than a single one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from heapfit.trial.launcher import Ended, Running
from heapfit.trial.server import ServerFailed
from heapfit.trial.source import Source
from heapfit.trial.verdict import how_it_ended

# Share of one processor's time that sampling may take. The lab promises to stay under 0.5 % of a
# trial's wall time; the rest of that budget is for starting and reaping.
SAMPLING_SHARE = 0.004
MIN_PERIOD_S = 0.005


class TimedOut(Exception):
    """The program still ran when its time was over."""


def observe(
    running: Running,
    sources: Sequence[Source],
    timeout_s: float,
    server: Running | None = None,
) -> Ended:
    """Return how `running` ended. With a `server`, the sources look at that instead.

    Raises `TimedOut`, or `ServerFailed` if the server ends first. Ends no process: its caller does.
    """
    for source in sources:
        source.begin((server or running).launcher_pid)
    deadline = time.monotonic() + timeout_s
    period_s = MIN_PERIOD_S
    spent_s = time.thread_time()
    while True:
        ended = running.wait(max(0.0, min(period_s, deadline - time.monotonic())))
        if ended is not None:
            return ended
        now_s = time.monotonic()
        if now_s >= deadline:
            raise TimedOut(f"still ran after {timeout_s:g} s and was ended")
        if server is not None and (dead := server.wait(0.0)) is not None:
            raise ServerFailed(
                f"the server was not there to the end: {how_it_ended(dead.exit_code)}"
            )
        for source in sources:
            source.sample(now_s)
        spent_before_s, spent_s = spent_s, time.thread_time()
        period_s = max(MIN_PERIOD_S, (spent_s - spent_before_s) / SAMPLING_SHARE)
