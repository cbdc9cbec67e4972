"""A study's trials as rows: every one of them, each figure as the journal has it."""

from __future__ import annotations

import csv
import io
import json
from datetime import datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from conftest import Heapfit, assert_one_line
from heapfit.records import Factor, Study, Trial, TrialStatus
from heapfit.report.rows import Rows, csv_text
from report_data import Faults, keep, make_study, make_trials


@pytest.fixture
def kept(tmp_path: Path) -> tuple[Path, Study, list[Trial]]:
    """A study on disk with a factor, a failure and a figure that is missing."""
    factor = Factor(name="env.MODE", levels=["", 'a,"b'])
    study = make_study(("glibc", "heapfit"), cores=[2], factors=[factor], replicates=3)
    faults = Faults(
        status={"heapfit": (3, TrialStatus.FAILED, "killed by SIGSEGV, at once")},
        without={"glibc": (2, "user_s")},
    )
    trials = make_trials(study, faults)
    return keep(tmp_path / "results", study, trials[::-1]), study, trials


def test_csv_has_a_row_for_each_trial_with_every_figure(
    run_heapfit: Heapfit, kept: tuple[Path, Study, list[Trial]]
) -> None:
    folder, study, trials = kept
    result = run_heapfit("report", folder, "--csv")
    assert (result.returncode, result.stderr) == (0, "")
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert len(rows) == len(trials) == 16
    for row, trial in zip(rows, trials, strict=True):  # in the order of the plan
        planned = trial.planned
        assert (row["study"], row["treatment"]) == (study.name, planned.allocator)
        assert (row["cores"], row["env.MODE"]) == ("2", planned.levels["env.MODE"])
        assert int(row["order"]) == planned.index
        assert int(row["block"]) == planned.block
        assert row["warmup"] == ("true" if planned.warmup else "false")
        assert datetime.fromisoformat(row["started"]) == trial.started
        assert (row["status"], row["reason"]) == (trial.status.value, trial.reason)
        figures = {m.name: float(row[m.name]) for m in study.metrics if row[m.name]}
        assert figures == trial.metrics
    assert not (folder / "report.html").exists()


def test_parquet_has_the_same_rows_with_types_and_units(
    run_heapfit: Heapfit, kept: tuple[Path, Study, list[Trial]], tmp_path: Path
) -> None:
    folder, study, trials = kept
    files = tmp_path / "trials.csv", tmp_path / "trials.parquet"
    result = run_heapfit("report", folder, "--csv", files[0], "--parquet", files[1])
    assert (result.returncode, result.stdout) == (0, "")
    assert [line.rpartition(": ")[2] for line in result.stderr.splitlines()] == list(
        map(str, files)
    )
    assert files[0].read_text() == csv_text({study.name: (study, trials)})
    table = pq.read_table(files[1])
    read = table.to_pylist()
    assert read == list(Rows({study.name: (study, trials)}))
    assert {row["user_s"] is None for row in read} == {True, False}
    described = table.schema.field("peak_rss_bytes").metadata
    assert described == {b"label": b"Peak RSS", b"unit": b"bytes", b"better": b"lower"}


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--csv", "none/a.csv"], 2, "there is no folder none for a.csv; make it"),
        (["--csv", "--json"], 2, "--csv and --parquet write trials alone"),
        (["--csv", "--weights", "time=1"], 2, "leave out --open, --json and --weights"),
    ],
)
def test_what_cannot_be_written_is_explained(
    run_heapfit: Heapfit,
    kept: tuple[Path, Study, list[Trial]],
    options: list[str],
    code: int,
    said: str,
) -> None:
    assert_one_line(run_heapfit("report", kept[0], *options), code, [said])


def test_the_journal_is_documented_key_by_key(kept: tuple[Path, Study, list[Trial]]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference.md").read_text(encoding="utf-8")
    section = page.partition("### The journal")[2].partition("### Trials as a table")[0]
    line = json.loads((kept[0] / "trials.jsonl").read_text().splitlines()[0])
    for name in [*line, *line["planned"], *TrialStatus]:
        assert f"`{name}`" in section
    columns = page.partition("### Trials as a table")[2].partition("\n## ")[0]
    own = [*kept[1].factors, *kept[1].metrics]
    for name in set(Rows({"a": kept[1:]}).columns) - {each.name for each in own}:
        assert f"`{name}`" in columns
