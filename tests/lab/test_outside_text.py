"""Names of functions, commands and files have brackets, and are shown as they are."""

from __future__ import annotations

import io

import pytest
from conftest import Heapfit
from heapfit.catalogue import load_workloads
from heapfit.cli import output
from rich.console import Console

HOSTILE = "to_string[abi:cxx11] [/x] [bold]"


def test_nothing_that_is_printed_is_read_as_markup(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for console in (output.results, output.messages):
        assert isinstance(console, Console)
        printed = io.StringIO()
        monkeypatch.setattr(console, "file", printed)
        rows = output.table(HOSTILE)
        rows.add_row(HOSTILE)
        console.print(rows)
        console.print(HOSTILE)
        assert printed.getvalue().count(HOSTILE) == 3


@pytest.mark.full
def test_every_workload_is_shown(run_heapfit: Heapfit) -> None:
    for name in load_workloads():
        result = run_heapfit("workloads", "show", name)
        assert result.returncode == 0, result.stderr
