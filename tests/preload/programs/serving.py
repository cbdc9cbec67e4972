"""What the scripts that try servers out share: start one, ask until it answers, end all of it.

A server's processes must all hold what was to be preloaded. Forked ones never pass through the
dynamic loader, so its own account does not name them; the kernel's memory maps do.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 60
POLL_S = 0.05

# What root becomes for a program that refuses to run as root: nobody, who owns nothing else.
_NOBODY = 65534
NOT_ROOT: dict[str, Any] = (
    {"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
)


def free_port() -> int:
    """Return a port on loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


@contextlib.contextmanager
def serving(
    command: Sequence[str], answers: Callable[[], bool], stop: signal.Signals = signal.SIGTERM
) -> Iterator[int]:
    """Run a server that stays in the foreground, not as root, from its first answer to its end.

    Yields its process id, asks it to end with the signal `stop`, and prints its exit code. What
    it printed is in server.log, and on stderr when it does not come up. Nothing of it is left.
    """
    with open("server.log", "wb") as log:
        server = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **NOT_ROOT
        )
    try:
        _wait_for_answer(server, answers)
        yield server.pid
        server.send_signal(stop)
        print("server's exit code", server.wait(timeout=STOP_TIMEOUT_S))
    finally:
        if server.poll() is None:
            for process in family(server.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            server.wait()


def _wait_for_answer(server: subprocess.Popen[bytes], answers: Callable[[], bool]) -> None:
    until = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < until and server.poll() is None:
        if answers():
            return
        time.sleep(POLL_S)
    sys.stderr.write(Path("server.log").read_text(errors="replace"))
    sys.exit("the server did not come up")


def wait_until(what: str, holds: Callable[[], bool], timeout_s: float = STOP_TIMEOUT_S) -> None:
    """Wait for `holds`; end this script with `what` did not come about."""
    until = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > until:
            sys.exit(f"within {timeout_s} s this did not come about: {what}")
        time.sleep(POLL_S)


def family(root: int) -> list[int]:
    """Return `root` and all processes that descend from it."""
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The name before the last bracket may hold anything; the parent is the second after it.
            parent = int(status.read_text(errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(status.parent.name))
    found = [root]
    for process in found:
        found += children.get(process, [])
    return found


def check_preloaded(server: int) -> None:
    """Print whether all processes of `server` hold what this script itself has preloaded.

    Without a preload they trivially do, so that a run with and one without print the same.
    """
    library = os.environ.get("LD_PRELOAD", "")
    mapped = [maps for process in family(server) if (maps := memory_maps(process))]
    has_all = bool(mapped) and all(library in maps for maps in mapped)
    print("preloaded in all of the server's processes:", has_all)


def memory_maps(process: int) -> str:
    """Return the memory map of `process` whole; "" where it has ended.

    The kernel gives a map in parts of a page, and of a process that ends meanwhile no further ones:
    only what is followed by another look at a living process is known to be whole.
    """
    maps = Path(f"/proc/{process}/maps")
    with contextlib.suppress(OSError):
        found = maps.read_text(errors="replace")
        if maps.read_bytes():
            return found
    return ""
