"""A command that outlasts its time leaves nothing behind, and what it printed is not lost."""

from __future__ import annotations

import subprocess
import time

import process_groups
import psutil
import pytest

pytestmark = pytest.mark.full

ENDS_S = 30


def test_what_a_command_prints_and_how_it_ends_is_returned() -> None:
    done = process_groups.run(["sh", "-c", "echo here; echo there >&2; exit 3"], timeout_s=60)
    assert (done.returncode, done.stdout, done.stderr) == (3, "here\n", "there\n")


def test_of_a_command_that_takes_too_long_no_process_is_left() -> None:
    # It ends itself, and what it has started holds on to the output.
    command = ["sh", "-c", "sleep 1000 & echo $!; exit"]
    with pytest.raises(subprocess.TimeoutExpired) as late:
        process_groups.run(command, timeout_s=2)
    started = int(str(late.value.stdout))
    deadline = time.monotonic() + ENDS_S
    while runs(started):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def runs(number: int) -> bool:
    """Whether a process goes on; one that nobody has reaped yet does not."""
    try:
        return psutil.Process(number).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False
