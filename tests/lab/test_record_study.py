"""The study of the recorder, and what any study says of programs that are recorded."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from conftest import Heapfit, assert_one_line
from heapfit.catalogue import allocators_of, libraries_of, workloads_of
from heapfit.catalogue.studies import load_studies
from heapfit.catalogue.variants import check_variants
from heapfit.records import StudyDefinition
from heapfit.trial.metrics import METRIC_NAMES
from study_files import trials_in

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("library")]

ROOT = Path(__file__).resolve().parents[2]
STUDY = ROOT / "studies" / "record.toml"
PROGRAMS = {"redis", "sqlite", "xml-transform", "python-tree", "cc1plus"}
GOALS = {"record": 1.3, "record-site": 1.6, "sampled": 1.01}


@pytest.fixture(scope="module")
def study() -> StudyDefinition:
    return load_studies()["record"]


# ------------------------------------------------------------------------- its file


def test_its_programs_and_metrics_exist(study: StudyDefinition) -> None:
    workloads = workloads_of(study, [each.workload for each in study.experiments])
    assert {each.name for each in workloads} == PROGRAMS
    for experiment in study.experiments:
        assert set(experiment.metrics) <= set(METRIC_NAMES)


def test_its_treatments_are_variants_that_are_valid(study: StudyDefinition) -> None:
    check_variants(STUDY, study)
    assert set(libraries_of(study, allocators_of(study)).values()) == {"glibc"}
    recorded = {each.name: each.record for each in study.variants if each.record is not None}
    assert all(settings["children"] == "on" for settings in recorded.values())
    assert set(recorded) == {"record", "record-site", "record-sites", "sampled"}
    assert recorded["sampled"]["sample"] == "512k"


def test_each_goal_is_set_against_the_program_that_is_not_recorded(study: StudyDefinition) -> None:
    assert {study.subject_of(each): each.goal for each in study.figures} == GOALS
    for figure in study.figures:
        assert figure.peers == ["none"]
        assert {each.workload for each in study.experiments_of(figure)} == PROGRAMS


# ------------------------------------------------------- a study of recorded programs

WORKLOAD = """\
name = "allocate"
title = "Allocate"
question = "How long does it take?"
[run]
command = ["/usr/bin/python3", "-S", "-c", "print(sum(len(str(i)) for i in range(20000)))"]
environment = { PYTHONMALLOC = "malloc" }
"""

TREATMENTS = """\
name = "watched"
title = "Watched"
question = "What does watching cost?"
allocators = ["none", "recorded", "sampled", "wrapped", "heaptrack", "heapfit-recorded"]
baseline = "none"
subject = "recorded"
replicates = 1
warmups = 0

[[variants]]
name = "none"
title = "Not watched"
allocator = "glibc"

[[variants]]
name = "recorded"
title = "Every event"
allocator = "glibc"
record = {}

[[variants]]
name = "sampled"
title = "A sample"
allocator = "glibc"
record = { sample = "64k" }

[[variants]]
name = "heapfit-recorded"
title = "Every event, over heapfit"
allocator = "heapfit"
record = {}

[[variants]]
name = "wrapped"
title = "Started by a tool"
allocator = "glibc"
wrapper = ["sh", "{study}/wrapper.sh", "{scratch}"]

[[variants]]
name = "heaptrack"
title = "heaptrack"
allocator = "glibc"
wrapper = ["sh", "HEAPTRACK", "{scratch}"]

[[experiments]]
name = "run"
workload = "allocate.toml"
metrics = ["recorded_events", "recorded_bytes_per_event"]
[experiments.factors]
cores = [1]
"""

WRAPPER = """\
echo "wrapped in $1" >&2
shift
exec "$@"
"""


def write(folder: Path, old: str = "", new: str = "") -> Path:
    """Write the study with one change, its workload and its tool, and return the study's file."""
    assert old in TREATMENTS
    (folder / "allocate.toml").write_text(WORKLOAD)
    (folder / "wrapper.sh").write_text(WRAPPER)
    text = TREATMENTS.replace("HEAPTRACK", str(STUDY.with_suffix("") / "heaptrack.sh"))
    path = folder / "watched.toml"
    path.write_text(text.replace(old, new, 1) if old else text)
    return path


@pytest.fixture(scope="module")
def finished(run_heapfit: Heapfit, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a study that has run whole; tests must not change it."""
    folder = tmp_path_factory.mktemp("watched")
    result = run_heapfit("study", "run", write(folder), "--out", folder / "out")
    assert result.returncode == 0, result.stderr
    (folder / "said").write_text(result.stdout)
    return folder / "out"


@pytest.fixture(scope="module")
def trials(finished: Path) -> dict[str, dict[str, object]]:
    found = trials_in(finished / "run")
    assert {each["status"] for each in found} == {"ok"}
    return {each["planned"]["allocator"]: each for each in found}


def figure(trial: dict[str, object], name: str) -> float | None:
    metrics = trial["metrics"]
    assert isinstance(metrics, dict)
    return metrics.get(name)


def test_a_recorded_program_has_its_events_counted(trials: dict[str, dict[str, object]]) -> None:
    for name in ("recorded", "heapfit-recorded"):
        events = figure(trials[name], "recorded_events")
        assert events is not None
        assert events > 40_000
        size = figure(trials[name], "recorded_bytes_per_event")
        assert size is not None
        assert 0.5 < size < 20
    sampled = figure(trials["sampled"], "recorded_events")
    assert sampled is not None
    assert sampled < 4000


@pytest.mark.parametrize("name", ["none", "wrapped", "heaptrack"])
def test_a_program_that_is_not_recorded_has_no_such_figures(
    trials: dict[str, dict[str, object]], name: str
) -> None:
    assert figure(trials[name], "recorded_events") is None


def test_a_tool_starts_the_program_in_the_trials_folder(
    trials: dict[str, dict[str, object]],
) -> None:
    said = str(trials["wrapped"]["stderr_tail"])
    assert said.startswith("wrapped in /")
    assert said.endswith("/scratch\n")


def test_reports_say_how_a_program_was_watched(finished: Path) -> None:
    said = " ".join((finished.parent / "said").read_text().split())
    assert "recorded: Every event (glibc, recorded)" in said
    assert "sampled: A sample (glibc, recorded sample = 64k)" in said
    assert "wrapped: Started by a tool (glibc, under sh wrapper.sh)" in said


def test_how_a_program_is_watched_makes_another_study(run_heapfit: Heapfit, finished: Path) -> None:
    study = write(finished.parent, 'sample = "64k"', 'sample = "32k"')
    result = run_heapfit("study", "run", study, "--out", finished)
    write(finished.parent)
    assert_one_line(result, 2, ["holds another study: allocators differ"])


def test_what_heaptrack_wrote_is_read_by_heaptrack(tmp_path: Path) -> None:
    script = STUDY.with_suffix("") / "heaptrack.sh"
    program = ["/usr/bin/python3", "-S", "-c", "print(1)"]
    done = subprocess.run(["sh", script, tmp_path, *program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "1\n")
    raw = tmp_path / "heaptrack.raw.zst"
    shown = subprocess.run(
        f"sleep 1; zstd -dc {raw} | head -c 200", shell=True, capture_output=True
    )
    assert b"heaptrack" in shown.stdout or shown.stdout.startswith(b"v ")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('sample = "64k"', 'sampel = "64k"', ["'sampled'", "option of the recorder", "'sample'?"]),
        ('sample = "64k"', 'sample = "much"', ["variant 'sampled': option sample"]),
        ('sample = "64k"', "sites = 65", ["variant 'sampled'", "between 0 and 64"]),
    ],
)
def test_a_recorder_that_cannot_be_told_this_is_refused(
    run_heapfit: Heapfit, tmp_path: Path, old: str, new: str, said: list[str]
) -> None:
    result = run_heapfit("study", "run", write(tmp_path, old, new), "--out", tmp_path / "out")
    assert_one_line(result, 2, said)


def test_the_page_of_results_has_the_command_that_makes_them() -> None:
    page = (ROOT / "docs" / "results" / "record.md").read_text(encoding="utf-8")
    assert "heapfit study run record --quick" in page


def test_study_json_has_the_settings_of_each_treatment(finished: Path) -> None:
    plan = json.loads((finished / "run" / "study.json").read_text())
    by_name = {each["name"]: each for each in plan["allocators"]}
    assert by_name["sampled"]["record"] == {"sample": "64k"}
    assert by_name["recorded"]["record"] == {}
    assert by_name["none"]["record"] is None
    assert by_name["wrapped"]["wrapper"][1] == str(finished.parent / "wrapper.sh")
