"""The recorded traces that come with heapfit: whole, small, anonymous, and what their page says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from conftest import Heapfit
from heapfit.record import examine
from heapfit.trace.convert import convert
from sampling import sampled

pytestmark = pytest.mark.full

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "traces" / "README.md"
TRACES = sorted(PAGE.parent.glob("*.hft"))
LARGEST = 1_000_000
PROGRAMS = {"redis", "sqlite", "xalan", "python", "cc1plus", "php"}


def test_there_is_one_of_each_program_and_its_page_names_them() -> None:
    assert {path.stem for path in TRACES} == PROGRAMS
    rows = re.findall(r"^\| \[`(\w+)\.hft`\].*\| ([0-9,]+) \| [0-9.]+ \|$", PAGE.read_text(), re.M)
    assert {name: int(size.replace(",", "")) for name, size in rows} == {
        path.stem: path.stat().st_size for path in TRACES
    }


@pytest.mark.parametrize("path", sampled({path.stem: path for path in TRACES}, "sqlite"))
def test_a_trace_is_whole_small_and_says_nothing_of_a_machine(
    path: Path, run_heapfit: Heapfit
) -> None:
    written = examine(path)
    assert written.whole
    assert written.size <= LARGEST
    assert written.events >= 150_000
    result = run_heapfit("trace", "info", "--json", path)
    assert result.returncode == 0, result.stderr
    info = json.loads(result.stdout)["info"]
    assert not {"program", "arguments", "pid", "allocator", "started_unix_ns"} & set(info)


@pytest.mark.parametrize("path", sampled({path.stem: path for path in TRACES}, "sqlite"))
def test_every_object_has_a_call_site_and_most_die(path: Path, tmp_path: Path) -> None:
    summary = convert(path, tmp_path / "tables", symbols=False)
    assert summary.totals.unmatched_frees <= summary.totals.frees // 100
    assert not summary.problems.damaged_bytes
    objects = pq.read_table(tmp_path / "tables" / "objects.parquet", columns=["site", "died_ns"])
    assert objects.num_rows == summary.objects
    sites = objects["site"].to_numpy()
    assert (sites > 0).all()
    assert objects["died_ns"].null_count < objects.num_rows
