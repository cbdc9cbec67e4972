"""Watch a running program until it ends, feeding the metric sources at a bounded cost.

There is no sampling thread: the wait for the launcher's report is cut into periods, and the sources
are asked in between. Each source's period follows from what its last look cost, so that a tree of a
hundred processes is looked at less often than a single one, and a dear source does not make a cheap
one rare.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from heapfit.trial.launcher import Ended, Running
from heapfit.trial.server import ServerFailed
from heapfit.trial.source import Source
from heapfit.trial.verdict import how_it_ended

# Share of one processor's time that a source may take. The lab promises to stay under 0.5 % of a
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
    samplings = [_Sampling(source) for source in sources if source.is_sampled()]
    deadline = time.monotonic() + timeout_s
    while True:
        next_s = min([deadline, *(sampling.due_s for sampling in samplings)])
        ended = running.wait(max(0.0, next_s - time.monotonic()))
        if ended is not None:
            return ended
        now_s = time.monotonic()
        if now_s >= deadline:
            raise TimedOut(f"still ran after {timeout_s:g} s and was ended")
        if server is not None and (dead := server.wait(0.0)) is not None:
            raise ServerFailed(
                f"the server was not there to the end: {how_it_ended(dead.exit_code)}"
            )
        for sampling in samplings:
            if now_s >= sampling.due_s:
                sampling.take(now_s)


class _Sampling:
    """When a source is asked next."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.due_s = time.monotonic() + MIN_PERIOD_S

    def take(self, now_s: float) -> None:
        before_s = time.thread_time()
        self._source.sample(now_s)
        cost_s = time.thread_time() - before_s
        self.due_s = now_s + max(MIN_PERIOD_S, cost_s / SAMPLING_SHARE)
