"""`heapfit study` on designed experiments: a user's own study file, from first run to bad input."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Heapfit, assert_one_line
from study_files import trials_in

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("library")]

SERVICE = """\
name = "service"
title = "A service of one's own"
question = "How does it fare?"
[run]
command = ["sh", "-c", "sleep {pause}; echo {threads} $MODE; echo rate={threads}00"]
timeout_s = 20
[parameters]
threads = "1"
pause = "0"
[[metrics]]
name = "rate"
label = "rate"
unit = "1/s"
pattern = '(?m)^rate=([0-9]+)$'
better = "higher"
"""

STUDY = """\
name = "mine"
title = "My own study"
question = "Which allocator fits?"
allocators = ["glibc", "heapfit"]
baseline = "glibc"
subject = "heapfit"
replicates = 2
quick_replicates = 1
weights = { time = 2, memory = 1 }

[[experiments]]
name = "threads"
title = "Threads"
workload = "service/"
primary_metric = "rate"
metrics = ["rate", "wall_s"]
replicates = 3
warmups = 0
timeout_s = 15
[experiments.factors]
threads = [1, 2]
"env.MODE" = ["", "fast"]
[experiments.quick]
factors = { threads = [4] }
[[experiments.published]]
title = "Table 1"
source = "A paper"
metric = "wall_s"
columns = ["allocator", "1"]
rows = [["glibc", "4.2"]]

[[experiments]]
name = "options"
workload = "service/workload.toml"
[experiments.factors]
allocator = ["heapfit"]
cores = [1]
"option.decay_ms" = [0, 1000]
[experiments.parameters]
threads = 3
"""


def write(folder: Path, old: str = "", new: str = "") -> Path:
    """Write the study and its workload, with one change, and return the study's file."""
    assert old in STUDY + SERVICE
    (folder / "service").mkdir()
    study, service = (text.replace(old, new, 1) if old else text for text in (STUDY, SERVICE))
    (folder / "service" / "workload.toml").write_text(service)
    path = folder / "mine.toml"
    path.write_text(study)
    return path


@pytest.fixture(scope="module")
def finished(run_heapfit: Heapfit, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a study that has run whole; tests must not change it."""
    folder = tmp_path_factory.mktemp("experiments")
    result = run_heapfit("study", "run", write(folder), "--out", folder / "out")
    assert result.returncode == 0, result.stderr
    return folder / "out"


def test_each_cell_of_the_design_is_measured_as_often_as_asked(finished: Path) -> None:
    trials = trials_in(finished / "threads")
    assert len(trials) == 4 + 3 * 2 * 4
    counting = [each for each in trials if not each["planned"]["warmup"]]
    cells = {
        (each["planned"]["allocator"], *each["planned"]["levels"].values()) for each in counting
    }
    assert len(cells) == 2 * 4
    for trial in counting:
        assert trial["status"] == "ok"
        assert trial["metrics"]["rate"] == 100 * int(trial["planned"]["levels"]["threads"])
    options = trials_in(finished / "options")
    assert {each["planned"]["allocator"] for each in options} == {"heapfit"}
    assert len(options) == 2 * (1 + 2)  # the study's warm-up and replicates


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("threads = [1, 2]", "threads = [1, 2, 1]", ["'1' occurs twice in 'factors.threads"]),
        (
            '"env.MODE"',
            "thraeds",
            ["experiment threads: unknown factor 'thraeds'", "'threads'"],
        ),
        ("option.decay_ms", "option.decay", ["unknown option 'decay'", "'decay_ms'"]),
    ],
)
def test_a_senseless_experiment_is_refused_before_anything_runs(
    run_heapfit: Heapfit, tmp_path: Path, old: str, new: str, said: list[str]
) -> None:
    study = write(tmp_path, old, new)
    result = run_heapfit("study", "run", study, "--out", tmp_path / "out")
    assert_one_line(result, 2, said)
    assert not (tmp_path / "out").exists()
