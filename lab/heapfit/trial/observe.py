"""Watch a running program until it ends, and sample the metric sources at a bounded cost. For a
server under test: wait until it accepts, and stop it as an administrator would.

There is no sampling thread: the wait for the launcher's report is cut into periods, and the sources
are sampled in between. Each source's period follows from the cost of its last samples, so that a
tree of a hundred processes is sampled less often than a single one, and an expensive source does
not make a cheap one rare.
"""

import signal
import socket
import time
from collections import deque
from collections.abc import Sequence

from heapfit.errors import UsageError
from heapfit.records import TrialStatus
from heapfit.trial.launcher import Ended, Running
from heapfit.trial.outcome import Rejected, how_it_ended
from heapfit.trial.source import Source

# Share of one processor's time that a source may take. The lab promises to stay under 0.5 % of a
# trial's wall time; the rest of that budget is for starting and reaping.
SAMPLING_SHARE = 0.004
MIN_PERIOD_S = 0.005
# The least of so many samples is what one costs; until they are there, the pause is bounded.
_COSTS, _FIRST_PAUSE_S = 3, 0.05


# A server has work to do on SIGTERM (saving, closing); one that needs longer than this hangs.
STOP_GRACE_S = 20.0
_POLL_S = 0.01
_CONNECT_TIMEOUT_S = 1.0
# Shells and the JVM exit with 128 more than the signal's number once they have handled it.
_STOPPED = (0, -signal.SIGTERM, 128 + signal.SIGTERM)


def observe(
    running: Running, sources: Sequence[Source], timeout_s: float, server: Running | None = None
) -> Ended:
    """Return how `running` ended. With a `server`, the sources observe that instead.

    Raises `Rejected` if it still runs when its time is over, or if the server ends first. Ends no
    process: its caller does.
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
            reason = f"still ran after {timeout_s:g} s and was ended"
            raise Rejected(TrialStatus.TIMEOUT, reason)
        if server is not None and (dead := server.wait(0.0)) is not None:
            how = how_it_ended(dead.exit_code)
            raise _server_failed(f"the server was not there to the end: {how}")
        for sampling in samplings:
            if now_s >= sampling.due_s:
                sampling.take(now_s)


class _Sampling:
    """When a source is sampled next."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._costs_s: deque[float] = deque(maxlen=_COSTS)
        self.due_s = time.monotonic() + MIN_PERIOD_S

    def take(self, now_s: float) -> None:
        before_s = time.thread_time() - self._source.limited_s
        self._source.sample(now_s)
        cost_s = time.thread_time() - self._source.limited_s - before_s
        self._costs_s.append(cost_s)
        # What only one of them took was something else, such as a collection of Python's garbage.
        # It must not leave the program unseen for seconds.
        pause_s = min(self._costs_s) / SAMPLING_SHARE
        if len(self._costs_s) < _COSTS:
            pause_s = min(pause_s, _FIRST_PAUSE_S)
        self.due_s = now_s + max(MIN_PERIOD_S, pause_s)


# --------------------------------------------------------------- servers


def ready_port(condition: str) -> int | None:
    """Return the port of an expanded `ready` condition, `tcp:PORT`; None: it is ready at once."""
    if condition == "started":
        return None
    kind, _, port = condition.partition(":")
    if kind != "tcp" or not port.isdecimal():
        raise UsageError(
            f"a server's 'ready' is tcp:PORT, tcp:{{port}} or started, not {condition!r}"
        )
    return int(port)


def wait_until_ready(server: Running, port: int, timeout_s: float) -> None:
    """Return when the server accepts a connection on loopback."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if (dead := server.wait(_POLL_S)) is not None:
            how = how_it_ended(dead.exit_code)
            daemon = "; if it turns into a daemon, have it stay in the foreground"
            advice = daemon if dead.exit_code == 0 else ""
            raise _server_failed(f"the server ended before it was ready: {how}{advice}")
        if _accepts(port):
            return
    raise _server_failed(f"the server did not accept on port {port} within {timeout_s:g} s")


def stop_server(server: Running, process: int, patience: float = 1.0) -> Ended:
    """Ask the server to end and return what it used from its start to its end.

    `process` is the one to ask; `patience` is how many times the usual grace it has.
    """
    grace_s = STOP_GRACE_S * patience
    server.signal(signal.SIGTERM, process)
    ended = server.wait(grace_s)
    if ended is None:
        raise _server_failed(f"the server still ran {grace_s:g} s after SIGTERM")
    if ended.exit_code not in _STOPPED:
        how = how_it_ended(ended.exit_code)
        raise _server_failed(f"the server did not end well on SIGTERM: {how}")
    return ended


def _accepts(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_CONNECT_TIMEOUT_S):
            return True
    except OSError:
        return False


def _server_failed(reason: str) -> Rejected:
    return Rejected(TrialStatus.FAILED, reason)
