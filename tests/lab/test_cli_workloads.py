"""`heapfit workloads`: what there is, what it needs, and getting it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Heapfit, assert_one_line

pytestmark = pytest.mark.full


def test_a_workload_is_written_for_a_command(run_heapfit: Heapfit, tmp_path: Path) -> None:
    command = ["workloads", "new", "--", "sh", "-c", 'echo "a b"; exit 0']
    written = run_heapfit(*command, folder=tmp_path)
    assert written.returncode == 0, written.stderr
    assert "heapfit fit sh.toml" in written.stdout
    printed = run_heapfit(*command[:2], "-o", "-", *command[2:], folder=tmp_path)
    assert printed.stdout == (tmp_path / "sh.toml").read_text()
    assert not (tmp_path / "-").exists()
    quick = ("--allocators", "glibc,heapfit", "--replicates", "1", "--cores", "1")
    compared = run_heapfit("compare", "sh.toml", *quick, folder=tmp_path)
    assert compared.returncode == 0, compared.stderr
    assert_one_line(run_heapfit(*command, folder=tmp_path), 2, ["sh.toml is there already", "-o"])


def test_a_command_is_written_as_it_is(run_heapfit: Heapfit, tmp_path: Path) -> None:
    command = ["sh", "-c", ": 'café \U0001f600 \x7f \\ \"'"]
    written = run_heapfit("workloads", "new", "--json", "--", *command, folder=tmp_path)
    assert json.loads(written.stdout)["run"]["command"] == command


def test_a_workload_is_written_for_a_server(run_heapfit: Heapfit, tmp_path: Path) -> None:
    server = ["python3", "-m", "http.server", "8080"]
    written = run_heapfit(
        "workloads", "new", "--port", "8080", "-o", "s.toml", "--json", "--", *server,
        folder=tmp_path,
    )  # fmt: skip
    described = json.loads(written.stdout)
    assert described["server"]["command"] == ["python3", "-m", "http.server", "{port}"]
    assert described["server"]["ready"] == "tcp:{port}"
    assert described["run"]["command"][-1] == "http://127.0.0.1:{port}/"
    for name in ("it", "server"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    timed = run_heapfit(
        "workloads", "new", "--for", "1m", "-o", "t.toml", "--json", "--", "./it", folder=tmp_path
    )
    described = json.loads(timed.stdout)
    assert described["server"] == {**described["server"], "command": ["./it"], "ready": "started"}
    assert (described["run"]["command"], described["run"]["timeout_s"]) == (["sleep", "60"], 120.0)
    both = run_heapfit(
        "workloads", "new", "--for", "1m", "--port", "80", "--", "./it", folder=tmp_path
    )
    assert_one_line(both, 2, ["--port", "--for", "give one"])
    fixed = run_heapfit(
        "workloads", "new", "--port", "80", "--json", "--", "./server", folder=tmp_path
    )
    assert json.loads(fixed.stdout)["server"]["ready"] == "tcp:80"
    assert json.loads(fixed.stdout)["run"]["command"][-1] == "http://127.0.0.1:80/"


@pytest.mark.parametrize("options", [[], ["--port", "80"], ["--for", "3s"]])
def test_no_workload_is_written_for_a_program_that_is_not_there(
    run_heapfit: Heapfit, tmp_path: Path, options: list[str]
) -> None:
    result = run_heapfit("workloads", "new", *options, "--", "./nosuch", folder=tmp_path)
    assert_one_line(result, 2, ["there is no program './nosuch'"])
    assert not list(tmp_path.iterdir())
