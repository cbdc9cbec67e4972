"""A command that is forked is as apart from the others as one that is started."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest
from conftest import Heapfit
from engine_helpers import wait_until_gone
from warm_start import WarmStart

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("library")]


def test_each_command_has_arguments_environment_folder_and_files_of_its_own(
    run_heapfit: Heapfit, tmp_path: Path
) -> None:
    script = 'cat; echo "$WORD"; pwd; echo "$1" >&2; ls -l /proc/self/fd | wc -l; exit 7'
    result = run_heapfit(
        *("run", "--", "sh", "-c", script, "sh", "told"),
        stdin="put in\n",
        environment={"WORD": "given"},
        folder=tmp_path,
    )
    assert result.returncode == 7
    # ls shows a line of its own, the standard files, and the folder that it reads
    assert result.stdout.split("\n") == ["put in", "given", str(tmp_path), "5", ""]
    assert result.stderr == "told\n"
    assert run_heapfit("run", "--", "sh", "-c", "echo ${WORD-none}").stdout == "none\n"


def test_commands_run_beside_each_other(run_heapfit: Heapfit, tmp_path: Path) -> None:
    waiting = f"while [ ! -e {tmp_path}/go ]; do sleep 0.01; done"
    ended = list[int]()
    other = threading.Thread(
        target=lambda: ended.append(run_heapfit("run", "--", "sh", "-c", waiting).returncode)
    )
    other.start()
    assert run_heapfit("run", "--", "touch", tmp_path / "go").returncode == 0
    other.join()
    assert ended == [0]


def test_a_command_that_takes_too_long_is_ended_and_others_go_on(
    warm_start: WarmStart, run_heapfit: Heapfit, tmp_path: Path
) -> None:
    script = f"echo $$ > {tmp_path}/pid; exec sleep 1000"
    pid = tmp_path / "pid"
    for timeout_s in (3, 12, 48):  # until the command has had time to begin
        with pytest.raises(subprocess.TimeoutExpired):
            warm_start.run(
                ["run", "--", "sh", "-c", script],
                stdin=None,
                environment=dict(os.environ),
                folder=None,
                timeout_s=timeout_s,
            )
        if pid.exists() and pid.read_text():
            break
    assert not wait_until_gone([int(pid.read_text())])
    assert run_heapfit("--version").returncode == 0
