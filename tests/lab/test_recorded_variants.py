"""Variants of a study that are recorded, or started by a tool."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Heapfit
from study_files import trials_in

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("library")]


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
allocators = ["none", "recorded", "sampled", "wrapped", "heapfit-recorded"]
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
    path = folder / "watched.toml"
    path.write_text(TREATMENTS.replace(old, new, 1) if old else TREATMENTS)
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
    assert figure(trials["none"], "recorded_events") is None
    assert figure(trials["wrapped"], "recorded_events") is None


def test_a_tool_starts_the_program_in_the_trials_folder(
    trials: dict[str, dict[str, object]],
) -> None:
    said = str(trials["wrapped"]["stderr_tail"])
    assert said.startswith("wrapped in /")
    assert said.endswith("/scratch\n")
