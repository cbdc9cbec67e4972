"""The ledger of real programs: each resident page has a cause, and the kernel counts as many.

And how the rows are added up and shown, on an answer that is known.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import Heapfit, assert_fits_everywhere, heapfit_command
from heapfit.live import Ledger, listening, openmetrics, present
from heapfit.live.records import LedgerRow
from live_double import MIB, Double
from prometheus_client.openmetrics.parser import text_string_to_metric_families

DEADLINE_S = 60.0

# ------------------------------------------------------------- real programs

_DOCUMENTS = """
import json, sys
rows = [{"name": f"row {i}", "values": [str(i)] * (i % 9)} for i in range(60000)]
kept = rows[::7]
del rows
print("ready", flush=True)
sys.stdin.read()
"""
_TABLE = """
CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, more TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60000)
  INSERT INTO t SELECT i, 'row ' || i, hex(randomblob(i % 60)) FROM n;
DELETE FROM t WHERE id % 3 = 0;
CREATE INDEX names ON t(name);
SELECT 'ready';
"""


@dataclass(frozen=True)
class Running:
    process: subprocess.Popen[str]

    @property
    def pid(self) -> str:
        return str(self.process.pid)

    def hear(self, word: str) -> None:
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            if line.strip() == word:
                return
        pytest.fail(f"the program ended before it said {word!r}")

    def say(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text)
        self.process.stdin.flush()


Start = Callable[..., Running]


@pytest.fixture
def start(clean_environment: dict[str, str], tmp_path: Path) -> Iterator[Start]:
    """Starts a program under heapfit so that it can be asked; all are ended after the test."""
    running: list[subprocess.Popen[str]] = []

    def started(*command: str | Path, variant: str = "default", **environment: str) -> Running:
        process = subprocess.Popen(
            heapfit_command("run", "--variant", variant, "--control", "--", *command),
            env={**clean_environment, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
        running.append(process)
        until(lambda: process.pid in [each.pid for each in listening()])
        return Running(process)

    yield started
    for process in running:
        process.kill()
        process.communicate()


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, "it never came to hold"
        time.sleep(0.05)


def python(start: Start, folder: Path, variant: str = "default") -> Running:
    words = ["/usr/bin/python3", "-c", _DOCUMENTS]
    program = start(*words, variant=variant, PYTHONMALLOC="malloc")
    program.hear("ready")
    return program


def python_in_pools(start: Start, folder: Path) -> Running:
    return python(start, folder, "pools")


def sqlite(start: Start, folder: Path) -> Running:
    program = start("sqlite3", ":memory:")
    program.say(_TABLE)
    program.hear("ready")
    return program


@dataclass(frozen=True)
class Kernels:
    """What the kernel says of a process, in bytes."""

    resident: int
    anonymous: int


def kernels(pid: str) -> Kernels:
    text = Path(f"/proc/{pid}/smaps").read_text()
    sizes = {
        name: sum(map(int, re.findall(rf"^{name}: +(\d+) kB$", text, re.MULTILINE))) * 1024
        for name in ("Rss", "Anonymous")
    }
    return Kernels(sizes["Rss"], sizes["Anonymous"])


@pytest.mark.parametrize("program", [python_in_pools, sqlite], ids=lambda each: each.__name__)
def test_all_that_a_program_has_resident_has_a_cause(
    run_heapfit: Heapfit,
    start: Start,
    tmp_path: Path,
    program: Callable[[Start, Path], Running],
) -> None:
    pid = program(start, tmp_path).pid
    until(lambda: Path(f"/proc/{pid}/syscall").read_text() != "running\n")
    found = json.loads(run_heapfit("ctl", pid, "ledger", "--json").stdout)
    counted = kernels(pid)
    assert found["complete"] is True
    assert found["resident"] == pytest.approx(counted.resident, rel=0.01)
    bytes_of = {each["cause"]: each["resident"] for each in found["causes"]}
    unexplained = bytes_of.get("anonymous", 0)
    assert unexplained <= 0.05 * counted.anonymous
    assert found["heap_resident"] >= 0.8 * counted.anonymous
    assert bytes_of["live"] >= 2 * MIB
    assert ("pools" in bytes_of) is (program is python_in_pools)
    assert bytes_of["pinned"] > 0
    names = {row["name"] for row in found["rows"] if row["cause"] == "file"}
    assert any("/libc.so" in name for name in names)
    assert any("/libheapfit" in name for name in names)


def test_the_ledger_is_a_table_for_people_and_fits_everywhere(
    run_heapfit: Heapfit, start: Start, tmp_path: Path
) -> None:
    pid = python(start, tmp_path).pid
    shown = run_heapfit("ctl", pid, "ledger", environment={"COLUMNS": "80"}).stdout
    for words in ("the heap", "live", "pinned", "outside", "stack", "libc.so.6", "MiB", pid):
        assert words in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert_fits_everywhere(run_heapfit, ["ctl", pid, "ledger"])


# ---------------------------------------------------------------- adding up


def row(cause: str, resident: int, **more: Any) -> LedgerRow:
    in_heap = {"in_heap": cause not in ("file", "stack", "anonymous")}
    return LedgerRow.model_validate({"cause": cause, "resident": resident, **in_heap, **more})


LEDGER = Ledger(
    [
        row("file", 3, name="/lib/a.so"),
        row("file", 4, name="/lib/b.so"),
        row("file", 2, name="/lib/a.so"),
        row("tables", 8),
        row("later", 1),
        row("live", 100, swapped=7),
        row("live", 50, heap=1, thread=11),
        row("kept", 20, heap=1, thread=11),
        row("live", 90, heap=2, thread=12),
        row("stack", 5, thread=11),
    ],
    complete=True,
)


def test_causes_are_added_up_in_the_order_in_which_they_are_read() -> None:
    found = [(each.name, each.in_heap, each.resident) for each in LEDGER.causes()]
    assert found == [
        ("live", True, 240),
        ("kept", True, 20),
        ("tables", True, 8),
        ("later", True, 1),
        ("file", False, 9),
        ("stack", False, 5),
    ]
    assert LEDGER.causes()[0].swapped == 7
    assert LEDGER.causes()[3].meaning == "a cause of a later version"
    assert (LEDGER.resident, LEDGER.heap_resident) == (283, 269)


def test_a_scraper_gets_the_ledger_if_it_is_asked_for() -> None:
    with Double():
        me = [present(os.getpid())]
        with_it = families(openmetrics.text(lambda: me, with_ledgers=True))
        without = families(openmetrics.text(lambda: me))
    samples = {
        (each.labels["where"], each.labels["cause"]): each.value
        for each in with_it["heapfit_ledger_bytes"].samples
    }
    assert samples == {("heap", "live"): 60 * MIB, ("outside", "file"): 5 * MIB}
    assert "heapfit_ledger_bytes" not in without


def families(text: str) -> dict[str, Any]:
    return {each.name: each for each in text_string_to_metric_families(text)}


def test_what_the_process_could_not_tell_is_said(run_heapfit: Heapfit) -> None:
    with Double() as double:
        assert "not all" not in run_heapfit("ctl", str(os.getpid()), "ledger").stdout
        answer = double.answer
        double.behave = lambda request: answer(request).replace(b"true}", b"false}")
        result = run_heapfit("ctl", str(os.getpid()), "ledger")
    assert "This is incomplete" in result.stdout
