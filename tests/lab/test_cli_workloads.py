"""`heapfit workloads`: what there is, what it needs, and getting it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Heapfit, assert_one_line


def test_the_list_names_every_workload(run_heapfit: Heapfit) -> None:
    for arguments in (["workloads"], ["workloads", "list"]):
        result = run_heapfit(*arguments)
        assert result.returncode == 0, result.stderr
        for name in ("xml-transform", "python-tree", "redis", "sqlite"):
            assert name in result.stdout


def test_installing_makes_a_workload_ready(run_heapfit: Heapfit, empty_home: Path) -> None:
    install = ("workloads", "install", "xml-transform")
    empty = {"HEAPFIT_HOME": str(empty_home)}
    result = run_heapfit(*install, environment=empty)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "xml-transform: ready\n"
    [described] = json.loads(run_heapfit(*install, "--json", environment=empty).stdout)
    assert described["missing"] == []
    assert described["prepared"] is True


def test_show_prints_the_command(run_heapfit: Heapfit) -> None:
    shown = run_heapfit("workloads", "show", "sqlite")
    assert shown.returncode == 0, shown.stderr
    assert "sqlite3" in shown.stdout
    described = json.loads(run_heapfit("workloads", "show", "sqlite", "--json").stdout)
    assert described["run"]["command"][0] == "sqlite3"


@pytest.mark.parametrize("command", ["install", "show"])
def test_an_unknown_workload_is_told_the_nearest(run_heapfit: Heapfit, command: str) -> None:
    result = run_heapfit("workloads", command, "sqllite")
    assert_one_line(result, 2, ["unknown workload 'sqllite'", "did you mean 'sqlite'?"])


def test_install_wants_names(run_heapfit: Heapfit) -> None:
    assert_one_line(run_heapfit("workloads", "install"), 2, ["--all"])
