"""Run a program under the variant with pools, and read what its processes explained."""

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from heapfit.errors import HeapfitError
from heapfit.host.program import starting
from heapfit.pools.explanation import VARIABLE, Explanation, read


def explain(command: Sequence[str], environment: Mapping[str, str]) -> list[Explanation]:
    """Run `command` with `environment`, which has the library, and return what it explained.

    Each process that ended in order has its own. What the program prints goes to standard error, so
    that standard output is left to the answer. Raises HeapfitError where there is nothing to read,
    CannotRun where the program cannot be started.
    """
    with TemporaryDirectory(prefix="heapfit-pools-") as folder:
        path = str(Path(folder, "%p.json"))
        status = _run(command, {**environment, VARIABLE: path})
        found = sorted(Path(folder).iterdir())
        if not found:
            raise HeapfitError(f"{command[0]} explained nothing: {_why_nothing(status)}")
        return [read(each) for each in found]


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the program to its end. Ctrl-C is for the program: if it ends in order, it explains."""
    sys.stdout.flush()
    with starting(command):
        program = subprocess.Popen(command, env=environment, stdout=sys.stderr.fileno())
    with program:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            return program.wait()
        finally:
            signal.signal(signal.SIGINT, before)


def _why_nothing(status: int) -> str:
    if status < 0:
        return f"signal {-status} ended it before it could ({signal.strsignal(-status)})"
    return (
        "it ended by _exit, or does not use the library; heapfit doctor -- CMD says whether "
        f"its malloc can be replaced (exit code {status})"
    )
