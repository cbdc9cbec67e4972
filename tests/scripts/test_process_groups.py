"""A command that outlasts its time leaves nothing behind, and what it printed is not lost."""

from __future__ import annotations

import subprocess

import process_groups
import psutil
import pytest


def test_what_a_command_prints_and_how_it_ends_is_returned() -> None:
    done = process_groups.run(["sh", "-c", "echo here; echo there >&2; exit 3"], timeout_s=60)
    assert (done.returncode, done.stdout, done.stderr) == (3, "here\n", "there\n")


def test_of_a_command_that_takes_too_long_no_process_is_left() -> None:
    # It ends itself, and what it has started holds on to the output.
    command = ["sh", "-c", "sleep 1000 & echo $!; exit"]
    with pytest.raises(subprocess.TimeoutExpired) as late:
        process_groups.run(command, timeout_s=2)
    started = int(str(late.value.stdout))
    if psutil.pid_exists(started):  # killed, though nobody may have reaped it yet
        assert psutil.Process(started).status() == psutil.STATUS_ZOMBIE
