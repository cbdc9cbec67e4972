"""Run a command in a process group of its own: when its time is up, nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def run(
    command: Sequence[str | Path], *, timeout_s: float, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run `command` and return what it printed; `options` are those of subprocess.Popen.

    Raises TimeoutExpired, with what was printed so far, once all processes of the group are killed.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="backslashreplace",
        start_new_session=True,
        **options,
    )
    try:
        stdout, stderr = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        raise subprocess.TimeoutExpired(command, timeout_s, stdout, stderr) from None
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)
