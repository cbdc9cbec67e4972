"""Start one program through `heapfit-launch` and learn how it ended and what it used.

Why a helper process of its own stands between the lab and the program is told in `launch.c`. The
wheel carries it compiled, beside this module; a source checkout compiles it once.
"""

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from heapfit.compiling import compiled_once
from heapfit.errors import HeapfitError

PROGRAM_NAME = "heapfit-launch"
SOURCE = Path(__file__).with_name("launch.c")
COMPILER_FLAGS = ("-std=c17", "-O2")

_NO_FD = -1

# Ending a tree is a few kills and reaps; a process that hangs longer in the kernel is not ours to
# mend.
STOP_TIMEOUT_S = 30.0


class CouldNotStart(Exception):
    """The program could not be started; the message says why."""


@dataclass(frozen=True)
class Ended:
    """How a program ended and what its whole tree used. Times in seconds, sizes in bytes."""

    status: int
    wall_s: float
    user_s: float
    system_s: float
    max_rss_bytes: int
    minor_faults: int
    major_faults: int
    voluntary_switches: int
    involuntary_switches: int
    left_running: int  # processes that outlived the program, as a daemon does

    @property
    def exit_code(self) -> int:
        """The exit code, or minus the number of the signal that killed the program."""
        return os.waitstatus_to_exitcode(self.status)


def find_launcher() -> Path:
    """Return the compiled helper, compiling it where the package has none."""
    packaged = SOURCE.with_name(PROGRAM_NAME)
    return compiled_once(packaged, [*COMPILER_FLAGS, str(SOURCE)], [SOURCE])


class Running:
    """A program under the launcher. As a context manager it never leaves a process behind."""

    def __init__(
        self,
        launcher: Path,
        command: Sequence[str],
        *,
        cpus: Sequence[int],
        directory: Path,
        environment: Mapping[str, str],
        changes: Mapping[str, str],
        stdin: Path | None,
        stdout: Path,
        stderr: Path,
        attach: Callable[[int], None] | None = None,
        witness: Path | None = None,
    ) -> None:
        """Start `command`; `environment` is the launcher's, with `changes` the program's.

        The launcher traces the tree and writes what every process ran into the file `witness`.
        `attach` is called with the launcher's process id before that starts the program.
        Raises `CouldNotStart` when the program does not come to run.
        """
        self.command = list(command)
        self.pid = 0
        self._unread = b""
        self._ended: Ended | None = None
        self._reports, report_fd = os.pipe()
        hold_fd, go_fd = os.pipe() if attach else (_NO_FD, _NO_FD)
        witness_fd = os.open(witness, os.O_WRONLY | os.O_CREAT | os.O_APPEND) if witness else _NO_FD
        fds = (report_fd, hold_fd, witness_fd)
        inherited = [fd for fd in fds if fd != _NO_FD]
        arguments = [str(launcher), *map(str, fds), ",".join(map(str, cpus))]
        arguments += [f"{name}={value}" for name, value in changes.items()]
        try:
            with (
                (stdin or Path(os.devnull)).open("rb") as its_input,
                stdout.open("wb") as its_output,
                stderr.open("wb") as its_errors,
            ):
                self._process = subprocess.Popen(
                    [*arguments, "--", *command],
                    stdin=its_input,
                    stdout=its_output,
                    stderr=its_errors,
                    cwd=directory,
                    env=environment,
                    pass_fds=inherited,
                    start_new_session=True,  # so that Ctrl-C reaches the lab alone
                )
        except BaseException as error:
            os.close(self._reports)
            if go_fd != _NO_FD:
                os.close(go_fd)
            if isinstance(error, OSError):
                raise CouldNotStart(
                    f"cannot run {command[0]!r}: {error.filename}: {(error.strerror or '').lower()}"
                ) from error
            raise
        finally:
            for fd in inherited:
                os.close(fd)
        try:
            if attach:
                self._attach(attach, go_fd)
            self._read_start()
        except BaseException:
            self.stop()
            raise

    @property
    def launcher_pid(self) -> int:
        """Root of the process tree: the program and its orphans are this process's descendants."""
        return self._process.pid

    @property
    def ended(self) -> Ended | None:
        return self._ended

    def fileno(self) -> int:
        """What to watch with `select`: readable when there is a report for `wait` to read."""
        return self._reports

    def wait(self, timeout_s: float) -> Ended | None:
        """Return how the program ended, or None if it still runs after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while self._ended is None:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self._reports], [], [], left)[0]:
                return None
            self._take(self._read_line())
        return self._ended

    def signal(self, number: signal.Signals, process: int | None = None) -> None:
        """Send a signal to the program, or to one `process` of it, if the program still runs."""
        if self.wait(0.0) is None:
            with contextlib.suppress(ProcessLookupError):  # it may end at this very moment
                os.kill(process or self.pid, number)

    def stop(self) -> None:
        """End the program and everything it started, at once. Harmless when it has ended."""
        if self._process.returncode is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._reports >= 0:
            os.close(self._reports)
            self._reports = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()

    def _attach(self, attach: Callable[[int], None], go_fd: int) -> None:
        try:
            attach(self.launcher_pid)
            # A launcher that has died meanwhile is noticed by its missing report.
            with contextlib.suppress(BrokenPipeError):
                os.write(go_fd, b"\n")
        finally:
            os.close(go_fd)  # whoever gives up here releases the launcher

    def _read_start(self) -> None:
        words = self._read_line().split()
        if words[:1] == [b"started"]:
            self.pid = int(words[1])
        elif words[:1] == [b"failed"]:
            raise CouldNotStart(self._start_failure(words[1].decode(), int(words[2])))
        else:
            raise HeapfitError(
                f"{PROGRAM_NAME} did not start; is {self.command[0]!r} killed at once?"
            )

    def _start_failure(self, step: str, error: int) -> str:
        where = "" if step == "exec" else f" ({step})"
        return f"cannot run {self.command[0]!r}: {os.strerror(error).lower()}{where}"

    def _read_line(self) -> bytes:
        """Return the next report without its newline, or nothing if the launcher died."""
        while b"\n" not in self._unread:
            chunk = os.read(self._reports, 4096)
            if not chunk:
                return b""
            self._unread += chunk
        line, self._unread = self._unread.split(b"\n", 1)
        return line

    def _take(self, line: bytes) -> None:
        words = line.split()
        if words[:1] != [b"ended"]:
            raise HeapfitError(
                f"{PROGRAM_NAME} was killed while {self.command[0]!r} ran; run it again"
            )
        status, wall_ns, user_us, system_us, max_rss_kib, *counts = map(int, words[1:])
        self._ended = Ended(
            status, wall_ns / 1e9, user_us / 1e6, system_us / 1e6, max_rss_kib * 1024, *counts
        )
