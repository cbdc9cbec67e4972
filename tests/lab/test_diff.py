"""`heapfit diff`: what of two runs may be set side by side, and what may not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Heapfit, assert_one_line
from heapfit.diff import Change, Diff, of_recordings, of_studies
from heapfit.diff.model import Span, change
from heapfit.diff.studies import is_of_program
from heapfit.records import Study, Trial
from heapfit.study import Journal
from heapfit.trial.metrics import find_metric
from report_data import make_study, make_trials
from trace_data import sampled, service, write_tables

Turn = Callable[[Trial], dict[str, float]]


def keep(folder: Path, study: Study, figures: Turn = lambda trial: trial.metrics) -> Path:
    """Put a study on disk whose trials have those `figures`."""
    with Journal(folder, study) as journal:
        for trial in make_trials(study):
            journal.append(trial.model_copy(update={"metrics": figures(trial)}))
    return folder


def slower_and_leaner(trial: Trial) -> dict[str, float]:
    """A machine that takes twice as long, and a heapfit that takes half the memory and is no longer
    the quicker one."""
    figures = {**trial.metrics, "wall_s": 2 * trial.metrics["wall_s"]}
    if trial.planned.allocator == "heapfit":
        figures["peak_rss_bytes"] /= 2
        figures["wall_s"] *= 1.3
    return figures


@pytest.fixture
def studies(tmp_path: Path) -> tuple[Path, Path]:
    old = make_study(("glibc", "heapfit", "jemalloc"), cores=[1], replicates=10)
    machine = old.machine.model_copy(update={"kernel": "6.6.9"})
    new = make_study(("glibc", "heapfit", "mimalloc"), cores=[1], replicates=10)
    new = new.model_copy(update={"machine": machine, "heapfit_version": "9.9"})
    return keep(tmp_path / "old", old), keep(tmp_path / "new", new, slower_and_leaner)


def by_name(diff: Diff, of: str) -> dict[str, Change]:
    return {each.name: each.change for each in diff.figures if each.of.startswith(of)}


def test_memory_and_counts_are_compared_and_times_are_not(studies: tuple[Path, Path]) -> None:
    diff = of_studies(*studies)
    heapfit, glibc = by_name(diff, "heapfit"), by_name(diff, "glibc")
    assert heapfit["Peak RSS"] is Change.LESS
    assert glibc["Peak RSS"] is not Change.LESS
    for name in ("Wall time", "User time", "Major faults", "Voluntary switches"):
        assert {heapfit[name], glibc[name]} == {Change.NOT_COMPARABLE}
    assert {each.of.partition(",")[0] for each in diff.figures} == {"glibc", "heapfit"}


def test_ratios_within_each_run_show_what_the_machine_hides(studies: tuple[Path, Path]) -> None:
    diff = of_studies(*studies)
    moved = {each.name: each.change for each in diff.ratios}
    assert moved["Wall time"] is Change.MORE  # though glibc takes twice as long, too
    assert moved["User time"] is Change.UNCLEAR
    assert any("within its own run" in each and "1 of" in each for each in diff.conclusions)


def test_what_has_changed_beside_the_program_is_named(studies: tuple[Path, Path]) -> None:
    diff = of_studies(*studies)
    assert {each.name: (each.old, each.new) for each in diff.changed} == {
        "heapfit": ("0.1.0", "9.9"),
        "Kernel": ("6.1.0-18-amd64", "6.6.9"),
    }
    said = " ".join(diff.conclusions)
    assert "may come from what has changed beside the program: Kernel" in said
    assert "In the old study alone: jemalloc" in said
    assert "In the new study alone: mimalloc" in said


def test_a_run_beside_itself_differs_in_nothing(studies: tuple[Path, Path]) -> None:
    diff = of_studies(studies[0], studies[0])
    assert diff.changed == []
    assert {each.change for each in [*diff.figures, *diff.ratios]} <= {
        Change.SAME,
        Change.UNCLEAR,
        Change.NOT_COMPARABLE,
    }
    assert "Counts and memory may be compared, and of none is a difference shown." in (
        diff.conclusions
    )


def test_few_trials_show_nothing_but_what_does_not_scatter(tmp_path: Path) -> None:
    study = make_study(("glibc", "heapfit"), cores=[1], replicates=3)

    def doubled(trial: Trial) -> dict[str, float]:
        twice = {name: 2 * value for name, value in trial.metrics.items()}
        return {**twice, "minor_faults": 2000.0}

    old = keep(tmp_path / "old", study, lambda t: {**t.metrics, "minor_faults": 1000.0})
    diff = of_studies(old, keep(tmp_path / "new", study, doubled))
    heapfit = by_name(diff, "heapfit")
    assert heapfit["Minor faults"] is Change.MORE
    assert heapfit["Peak RSS"] is Change.UNCLEAR
    assert any("fewer than 6 trials" in each for each in diff.conclusions)


def test_other_commands_and_baselines_are_told(tmp_path: Path) -> None:
    old = make_study(("glibc", "heapfit"), cores=[1], replicates=6)
    new = make_study(("heapfit", "glibc"), cores=[1], replicates=6)
    new = new.model_copy(update={"command": ["./other"]})
    diff = of_studies(keep(tmp_path / "old", old), keep(tmp_path / "new", new))
    said = " ".join(diff.conclusions)
    assert diff.ratios == []
    assert "The baselines differ" in said
    assert "The commands differ" in said


@pytest.mark.parametrize(
    ("name", "source", "is_own"),
    [
        ("wall_s", "", False),
        ("peak_rss_bytes", "", True),
        ("minor_faults", "", True),
        ("involuntary_switches", "", False),
        ("l1d_misses", "counter of the processor: loads", False),
        ("l1d_misses", "simulated by Valgrind", True),
    ],
)
def test_a_figure_is_the_programs_own_or_the_machines(name: str, source: str, is_own: bool) -> None:
    metric = find_metric("minor_faults").model_copy(
        update={"name": name, "source": source, "unit": "s" if name == "wall_s" else "count"}
    )
    assert is_of_program(metric) is is_own


def test_intervals_that_meet_show_nothing() -> None:
    low, high = Span(value=2, low=1, high=3), Span(value=4, low=3, high=5)
    assert change(low, high) is Change.UNCLEAR
    assert change(low, high.model_copy(update={"low": 3.1})) is Change.MORE
    assert change(high, low.model_copy(update={"high": 2.9})) is Change.LESS
    assert change(low, high.model_copy(update={"low": 3.1}), known=False) is Change.UNCLEAR


# ------------------------------------------------------------------ recordings


@pytest.fixture
def recordings(tmp_path: Path) -> tuple[Path, Path]:
    """A service that serves 60 requests, and one that serves 120."""
    return (
        write_tables(service(60), tmp_path / "old.tables"),
        write_tables(service(120), tmp_path / "new.tables"),
    )


def test_calls_and_bytes_of_recordings_are_compared_by_call_site(
    recordings: tuple[Path, Path],
) -> None:
    diff = of_recordings(*recordings)
    figures = {each.name: each for each in diff.figures}
    assert figures["Allocations"].change is Change.MORE
    assert figures["Allocations: bytes"].change is Change.MORE
    assert figures["Failed allocations"].change is Change.SAME
    assert figures["Duration"].change is Change.NOT_COMPARABLE
    apart = sum(s.new.value - s.old.value for s in diff.sites if s.name == "allocated: bytes")
    whole = figures["Allocations: bytes"]
    assert apart == whole.new.value - whole.old.value
    # What both do at their start, both do alike.
    assert diff.sites[0].name == "allocated: bytes"
    assert all("0x300" not in each.of.partition(" < ")[0] for each in diff.sites)
    assert any("With several threads" in each for each in diff.conclusions)


def test_a_recording_beside_itself_differs_in_nothing(recordings: tuple[Path, Path]) -> None:
    diff = of_recordings(recordings[0], recordings[0])
    assert (diff.changed, diff.sites) == ([], [])
    assert {each.change for each in diff.figures} == {Change.SAME, Change.NOT_COMPARABLE}


def test_a_site_is_the_same_when_its_lines_have_moved(tmp_path: Path) -> None:
    old = write_tables(service(30), tmp_path / "old.tables")
    new = tmp_path / "new.tables"
    shutil.copytree(old, new)
    _name_sites(old, 10)
    _name_sites(new, 17)
    assert of_recordings(old, new).sites == []


def _name_sites(folder: Path, line: int) -> None:
    """Give every site a function, and the same line of its file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = pq.read_table(folder / "sites.parquet").to_pylist()
    named = [
        {**row, "function": f"f{row['site']}", "file": "/src/a.c", "line": line} for row in rows
    ]
    schema = pq.read_schema(folder / "sites.parquet")
    pq.write_table(pa.Table.from_pylist(named, schema), folder / "sites.parquet")


def test_estimates_differ_only_where_their_intervals_do(tmp_path: Path) -> None:
    both = [
        write_tables(sampled(service(200), 4096, seed), tmp_path / f"{seed}.tables")
        for seed in (1, 2)
    ]
    diff = of_recordings(*both)
    figures = {each.name: each.change for each in diff.figures}
    assert figures["Allocations: bytes"] is Change.UNCLEAR
    assert any("estimates" in each for each in diff.conclusions)


# ---------------------------------------------------------------- the command


def test_each_kind_is_shown_in_every_form(
    run_heapfit: Heapfit, studies: tuple[Path, Path], recordings: tuple[Path, Path]
) -> None:
    for pair in (studies, recordings):
        for width in ("60", "80"):
            shown = run_heapfit("diff", *pair, environment={"COLUMNS": width, "NO_COLOR": "1"})
            assert (shown.returncode, shown.stderr) == (0, "")
            assert max(map(len, shown.stdout.splitlines())) <= int(width)
            assert "What may be concluded" in shown.stdout
            assert "not comparable" in shown.stdout
            assert "\x1b" not in shown.stdout
        plain: dict[str, Any] = json.loads(run_heapfit("diff", *pair, "--json").stdout)
        assert [plain["old"], plain["new"]] == list(map(str, pair))
        assert {each["change"] for each in plain["figures"]} <= set(Change)
        text = run_heapfit("diff", *pair, "--markdown").stdout
        tables = [line for line in text.splitlines() if line.startswith("|")]
        assert len(tables) > len(plain["figures"])


def test_names_from_outside_cannot_act_on_the_terminal(
    run_heapfit: Heapfit, studies: tuple[Path, Path], tmp_path: Path
) -> None:
    path = studies[1] / "study.json"
    path.write_text(path.read_text().replace("6.6.9", "6.6\\u001b[31m"))
    shown = run_heapfit("diff", *studies)
    assert shown.returncode == 0, shown.stderr
    assert "\x1b[31m" not in shown.stdout


@pytest.mark.parametrize(
    ("pick", "code", "said"),
    [
        (lambda s, r: (s[0], r[0]), 2, "must be of one kind"),
        (lambda s, r: (s[0], s[0] / "none"), 2, "there is no"),
        (lambda s, r: (s[0], s[0].parent), 2, "so it is no folder of results"),
        (lambda s, r: (s[0], s[0]), 2, "are the same; name two"),
        (lambda s, r: (r[0], r[0]), 2, "are the same; name two"),
        (lambda s, r: (s[0].parent, s[0].parent), 2, "not of a converted trace"),
        (lambda s, r: (s[0], s[1], "--json", "--markdown"), 2, "--json or --markdown"),
    ],
)
def test_what_cannot_be_compared_is_explained(
    run_heapfit: Heapfit,
    studies: tuple[Path, Path],
    recordings: tuple[Path, Path],
    pick: Callable[[Any, Any], tuple[Any, ...]],
    code: int,
    said: str,
) -> None:
    assert_one_line(run_heapfit("diff", *pick(studies, recordings)), code, [said])


def test_a_study_of_many_parts_asks_for_one_of_them(run_heapfit: Heapfit, tmp_path: Path) -> None:
    (tmp_path / "series.json").write_text("{}")
    assert_one_line(run_heapfit("diff", tmp_path, tmp_path), 2, ["name one of them"])
