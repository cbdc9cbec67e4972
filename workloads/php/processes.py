"""Start a server's processes on given processors, wait until they answer, and end them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 15.0
_POLL_S = 0.02
_LAST_WORDS_BYTES = 1500
_PR_SET_CHILD_SUBREAPER = 36  # <sys/prctl.h>


class Failed(Exception):
    """A process did not do its part; the message says which, and its last words."""


@dataclass
class Process:
    """A child of this process, with a log of its own."""

    name: str
    child: subprocess.Popen[bytes]
    log: Path
    stop_signal: signal.Signals

    @property
    def pid(self) -> int:
        return self.child.pid

    def check(self) -> None:
        """Raise `Failed` when the process has ended by itself."""
        code = self.child.poll()
        if code is not None:
            raise Failed(f"{self.name} ended with {code}: {self.last_words()}")

    def last_words(self) -> str:
        try:
            return self.log.read_bytes()[-_LAST_WORDS_BYTES:].decode(errors="replace").strip()
        except OSError:
            return ""

    def wait_until(self, is_ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not is_ready():
            self.check()
            if time.monotonic() > deadline:
                raise Failed(f"{self.name} was not ready in time: {self.last_words()}")
            time.sleep(_POLL_S)

    def stop(self) -> None:
        """End it as an administrator would; by force when it hangs."""
        if self.child.poll() is not None:
            return
        self.child.send_signal(self.stop_signal)
        try:
            self.child.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
            raise Failed(f"{self.name} hung and was killed: {self.last_words()}") from None


def start(
    name: str,
    command: Sequence[str],
    *,
    folder: Path,
    cpus: set[int],
    environment: Mapping[str, str],
    stop_signal: signal.Signals = signal.SIGTERM,
) -> Process:
    """Start `command` in `folder`; what it says goes to a file there that bears its name."""
    log = folder / f"{name}.log"
    with _running_on(cpus), log.open("ab") as stream:
        try:
            child = subprocess.Popen(
                list(command),
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
            )
        except OSError as error:
            raise Failed(f"cannot start {command[0]}: {error.strerror}") from error
    return Process(name, child, log, stop_signal)


@contextlib.contextmanager
def _running_on(cpus: set[int]) -> Iterator[None]:
    """A child inherits where its parent may run, before it forks in its turn."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def adopt_orphans() -> None:
    """Become the parent of what a server leaves behind when it is killed: its workers."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_orphans() -> None:
    """Kill what is left below this program, once its servers have ended."""
    own = Path(f"/proc/self/task/{os.getpid()}/children")
    while children := own.read_text().split():
        for child in map(int, children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, 0)


def accepts(path: str) -> bool:
    """Tell whether somebody listens at the socket `path`."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
        return True


def accepts_on(port: int) -> bool:
    """Tell whether somebody listens on the loopback `port`."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
