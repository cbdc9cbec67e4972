"""A server under test: wait until it accepts, and stop it as an administrator would."""

from __future__ import annotations

import signal
import socket
import time

from heapfit.errors import UsageError
from heapfit.trial.launcher import Ended, Running
from heapfit.trial.verdict import how_it_ended

# A server has work to do on SIGTERM (saving, closing); one that needs longer than this hangs.
STOP_GRACE_S = 20.0
_POLL_S = 0.01
_CONNECT_TIMEOUT_S = 1.0
_STOPPED = (0, -signal.SIGTERM)


class ServerFailed(Exception):
    """The server did not do its part; the message says how."""


def ready_port(condition: str) -> int:
    """Return the port of an expanded `ready` condition, `tcp:PORT`."""
    kind, _, port = condition.partition(":")
    if kind != "tcp" or not port.isdecimal():
        raise UsageError(f"a server's 'ready' is tcp:PORT or tcp:{{port}}, not {condition!r}")
    return int(port)


def wait_until_ready(server: Running, port: int, timeout_s: float) -> None:
    """Return when the server accepts a connection on loopback."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if (dead := server.wait(_POLL_S)) is not None:
            how = how_it_ended(dead.exit_code)
            raise ServerFailed(f"the server ended before it was ready: {how}")
        if _accepts(port):
            return
    raise ServerFailed(f"the server did not accept on port {port} within {timeout_s:g} s")


def stop(server: Running, process: int, patience: float = 1.0) -> Ended:
    """Ask the server to end and return what it used from its start to its end.

    `process` is the one to ask; `patience` is how many times the usual grace it has.
    """
    grace_s = STOP_GRACE_S * patience
    server.signal(signal.SIGTERM, process)
    ended = server.wait(grace_s)
    if ended is None:
        raise ServerFailed(f"the server still ran {grace_s:g} s after SIGTERM")
    if ended.exit_code not in _STOPPED:
        how = how_it_ended(ended.exit_code)
        raise ServerFailed(f"the server did not end well on SIGTERM: {how}")
    return ended


def _accepts(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_CONNECT_TIMEOUT_S):
            return True
    except OSError:
        return False
