"""`heapfit` started many times at the price of one: a process that has loaded what commands stand
on, and forks.

A command of the lab takes longer to load NumPy, SciPy and its own modules than to do what a test
asks of it. This program loads them once, and forks for each command. The modules of the command
line are not among them: they look at the environment as they are imported; test_cli_errors.py shows
that each command finds what it imports. Over its socket come a request, the descriptors of the
command's standard files, and a socket on which the process's number and its exit code go back.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

LOADED = (
    *("numpy", "scipy.interpolate", "scipy.linalg", "scipy.optimize", "scipy.special"),
    *("jinja2", "psutil", "pydantic.main", "rich.console", "rich.progress", "rich.table", "typer"),
    *("importlib.metadata", "tomllib"),
    *("heapfit.catalogue", "heapfit.report", "heapfit.study", "heapfit.doctor", "heapfit.trial"),
)
_LARGEST_MESSAGE = 1 << 17  # bytes; the arguments and the environment of one command
_STANDARD_FILES = 3


class WarmStart:
    """The process that commands are forked from. End it with `close`."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                env=environment,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        self._sending = threading.Lock()

    def run(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        folder: Path | None,
        timeout_s: float,
    ) -> subprocess.CompletedProcess[str]:
        """Run `heapfit` with `arguments`; raises TimeoutExpired as subprocess.run does."""
        request = json.dumps([arguments, dict(environment), str(folder or Path.cwd())]).encode()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with open(os.devnull, "rb") as put, _output() as out, _output() as err, ours:
            files = [put.fileno(), out.fileno(), err.fileno(), theirs.fileno()]
            with theirs, self._sending:
                socket.send_fds(self._socket, [request], files)
            process = int(ours.recv(_LARGEST_MESSAGE))
            ours.settimeout(timeout_s)
            try:
                code = int(ours.recv(_LARGEST_MESSAGE))
            except TimeoutError:
                os.kill(process, signal.SIGKILL)
                raise subprocess.TimeoutExpired(list(arguments), timeout_s) from None
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(list(arguments), code, out.read(), err.read())

    def close(self) -> None:
        self._socket.close()  # the process ends when nobody is left to ask it
        self._process.wait()


def _output() -> tempfile._TemporaryFileWrapper[str]:
    return tempfile.TemporaryFile("w+", encoding="utf-8")


def _serve(requests: socket.socket) -> Sequence[str]:
    """Fork for each request until nobody is left to make one.

    Returns in a command's process alone, with its arguments. Another one waits for its end.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # who waits is not waited for
    size, count = _LARGEST_MESSAGE, _STANDARD_FILES + 1
    while True:
        message, files, _, _ = socket.recv_fds(requests, size, count, flags=socket.MSG_CMSG_CLOEXEC)
        if not message:
            sys.exit()
        if os.fork() == 0:
            break
        for file in files:
            os.close(file)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    answer = socket.socket(fileno=files.pop())
    process = os.fork()
    if process == 0:
        return _become(json.loads(message), files)
    answer.send(str(process).encode())
    _, status = os.waitpid(process, 0)
    # One that took too long, and was killed, is not waited for any more.
    with contextlib.suppress(BrokenPipeError):
        answer.send(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _become(request: tuple[list[str], dict[str, str], str], files: Sequence[int]) -> Sequence[str]:
    """Take the place, the environment and the standard files of a command; return its arguments."""
    arguments, environment, folder = request
    for standard, file in enumerate(files):
        os.dup2(file, standard)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    return arguments


def _exit_code_of_heapfit() -> int:
    try:
        runpy.run_module("heapfit", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def main() -> None:
    """Load, serve, and in each fork be `heapfit`."""
    for name in LOADED:
        importlib.import_module(name)
    from heapfit import catalogue
    from heapfit.report import page

    # What is made at the first use, too: the records' validators, the parts of every page.
    catalogue.load_studies(), catalogue.load_workloads(), catalogue.load_allocators()
    page.plotly()
    for template in page.environment().list_templates(extensions=["j2"]):
        page.environment().get_template(template)
    gc.collect()
    gc.freeze()  # else the collector would touch, and so copy, all of it in each fork
    sys.argv[1:] = _serve(socket.socket(fileno=int(sys.argv[1])))
    sys.path[0] = ""  # as of `python -m`; it was this file's folder
    code = _exit_code_of_heapfit()
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    # Python's own end would take all modules to pieces, and so copy most of what was loaded.
    os._exit(code)


if __name__ == "__main__":
    main()
