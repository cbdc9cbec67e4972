"""Studies of experiments, from the file to the trials: factors, variants, several workloads, and
what makes no sense in any study file."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Heapfit, assert_one_line
from study_files import STUDY, trials_in, write_study

pytestmark = pytest.mark.usefixtures("library")

SERVICE = """\
name = "service"
title = "A service"
question = "How is it told what to do?"
[run]
command = ["sh", "-c", "echo who={who} mode=$MODE options=$HEAPFIT_OPTIONS >&2; echo rate={rate}00"]
timeout_s = 500
[check]
stdout = "ignore"
[parameters]
who = "nobody"
rate = "1"
[[metrics]]
name = "rate"
label = "rate"
unit = "1/s"
pattern = '(?m)^rate=([0-9]+)$'
better = "higher"
"""

EXPERIMENTS = """\
name = "treatments"
title = "Treatments"
question = "Which treatment helps?"
allocators = ["plain", "tuned", "glibc", "heapfit", "recorded", "wrapped"]
baseline = "plain"
subject = "tuned"
replicates = 2
warmups = 0
weights = { time = 2, memory = 1 }

[[variants]]
name = "plain"
title = "As it comes"
allocator = "glibc"
parameters = { who = "plain" }

[[variants]]
name = "tuned"
title = "Told what we know"
allocator = "heapfit"
environment = { MODE = "fast" }
parameters = { who = "tuned", rate = 2 }
options = { decay_ms = 7 }

[[variants]]
name = "recorded"
title = "Every event"
allocator = "glibc"
record = {}

[[variants]]
name = "wrapped"
title = "Started by a tool"
allocator = "glibc"
wrapper = ["sh", "-c", "echo wrapped >&2; exec \\"$@\\"", "sh"]

[[experiments]]
name = "served"
workload = "service/"
primary_metric = "rate"
metrics = ["rate", "recorded_events"]
[experiments.factors]
cores = [1]

[[experiments]]
name = "rates"
workload = "service/workload.toml"
metrics = ["rate", "wall_s"]
replicates = 3
warmups = 1
[experiments.factors]
allocator = ["glibc", "heapfit"]
rate = [1, 2]
"env.MODE" = ["", "fast"]
[experiments.quick]
factors = { rate = [4] }
[[experiments.published]]
title = "Table 1"
source = "A paper"
metric = "wall_s"
columns = ["allocator", "1"]
rows = [["glibc", "4.2"]]

[[experiments]]
name = "all"
title = "Both"
workloads = ["service/", "second/"]
metrics = ["wall_s"]
[experiments.factors]
allocator = ["heapfit"]
cores = [1]
"option.decay_ms" = [0]

[[figures]]
name = "cost"
title = "What it costs"
metric = "wall_s"
experiments = ["all"]
subject = "heapfit"
reference = "best-peer"
combine = "geometric-mean"
"""


def write(folder: Path, old: str = "", new: str = "") -> Path:
    """Write the study and its workloads, with one change, and return the study's file."""
    assert old in EXPERIMENTS
    for name in ("service", "second"):
        (folder / name).mkdir()
        (folder / name / "workload.toml").write_text(SERVICE.replace('"service"', f'"{name}"'))
    path = folder / "treatments.toml"
    path.write_text(EXPERIMENTS.replace(old, new, 1) if old else EXPERIMENTS)
    return path


@pytest.fixture(scope="module")
def finished(run_heapfit: Heapfit, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a study that has run whole; tests must not change it."""
    folder = tmp_path_factory.mktemp("experiments")
    result = run_heapfit("study", "run", write(folder), "--out", folder / "out")
    assert result.returncode == 0, result.stderr
    return folder / "out"


@pytest.mark.full
def test_each_cell_of_the_design_is_measured_as_often_as_asked(finished: Path) -> None:
    trials = trials_in(finished / "rates")
    counting = [each for each in trials if not each["planned"]["warmup"]]
    assert (len(trials), len(counting)) == (8 + 3 * 8, 3 * 8)
    cells = {
        (each["planned"]["allocator"], *each["planned"]["levels"].values()) for each in counting
    }
    assert len(cells) == 2 * 4
    for trial in counting:
        assert trial["status"] == "ok"
        assert trial["metrics"]["rate"] == 100 * int(trial["planned"]["levels"]["rate"])
    for part in ("all.service", "all.second"):
        trials = trials_in(finished / part)
        # A warm-up, which several blocks of one cell need, and the study's replicates.
        assert [each["planned"]["allocator"] for each in trials] == ["heapfit"] * (1 + 2)


@pytest.mark.full
def test_a_variants_trials_get_what_it_sets_and_others_do_not(finished: Path) -> None:
    trials = trials_in(finished / "served")
    assert {each["status"] for each in trials} == {"ok"}
    seen = {each["planned"]["allocator"]: each["stderr_tail"] for each in trials}
    assert seen["plain"] == "who=plain mode= options=\n"
    assert seen["tuned"] == "who=tuned mode=fast options=decay_ms:7\n"
    assert seen["wrapped"] == "wrapped\nwho=nobody mode= options=\n"
    counted = [each for each in trials if each["metrics"].get("recorded_events", 0) > 0]
    assert {each["planned"]["allocator"] for each in counted} == {"recorded"}
    assert seen["glibc"] == seen["heapfit"] == "who=nobody mode= options=\n"


@pytest.mark.full
def test_installed_means_variants_of_what_is_installed(
    run_heapfit: Heapfit, tmp_path: Path
) -> None:
    study = write(tmp_path, 'allocator = "heapfit"', 'allocator = "ptmalloc3"')
    text = study.read_text().replace("options = { decay_ms = 7 }\n", "")
    study.write_text(text.replace('subject = "tuned"', 'subject = "heapfit"'))
    result = run_heapfit(
        *("study", "run", study, "--out", tmp_path / "out", "--allocators", "installed")
    )
    assert result.returncode == 0, result.stderr
    planned = {each["planned"]["allocator"] for each in trials_in(tmp_path / "out" / "served")}
    assert planned == {"plain", "glibc", "heapfit", "recorded", "wrapped"}


# What is changed in a study file, into what, and what is said of it.
SENSELESS = [
    ("rate = [1, 2]", "rate = [1, 2, 1]", ["'1' occurs twice in 'factors.rate"]),
    ('"env.MODE"', "raet", ["experiment rates: unknown factor 'raet'", "'rate'"]),
    ("option.decay_ms", "option.decay", ["unknown option 'decay'", "'decay_ms'"]),
    ('workloads = ["service/", "second/"]', "", ["'workload' or 'workloads'"]),
    ('experiments = ["all"]', 'experiments = ["al"]', ["did you mean 'all'"]),
    ('"wall_s"\nexperiments', '"llc_misses"\nexperiments', ["not a metric of"]),
    # Whatever setting came last in a block was taken for all of them.
    ('cores = [1]\n"option', 'cores = [1, 2]\n"option', ["all.service varies cores"]),
    ('allocator = "heapfit"', 'allocator = "heapfti"', ["variant 'tuned'", "'heapfit'?"]),
    ("rate = 2 ", "rates = 2 ", ["variant 'tuned': unknown parameter of service: 'rates'"]),
    ("decay_ms = 7", "decay = 7", ["unknown option 'decay'", "'decay_ms'"]),
    ("cores = [1]", "cores = [1]\nwho = [1, 2]", ["'who' is set by the variant 'plain'"]),
    ("warmups = 0", "warmpus = 0", ["unknown key 'warmpus'", "'warmups'"]),
    ('probes = ["sleeper/"]', 'probes = ["churn/"]', ["both a workload and a probe"]),
    ('metric = "peak_rss_bytes"', 'metric = "peak"', ["unknown metric 'peak'"]),
]


@pytest.mark.parametrize(("old", "new", "said"), SENSELESS)
def test_a_study_file_that_makes_no_sense_is_refused_before_anything_runs(
    run_heapfit: Heapfit, tmp_path: Path, old: str, new: str, said: list[str]
) -> None:
    if old in EXPERIMENTS:
        study = write(tmp_path, old, new)
    else:
        assert old in STUDY
        study = write_study(tmp_path, STUDY.replace(old, new, 1))
    result = run_heapfit("study", "run", study, "--out", tmp_path / "out")
    assert_one_line(result, 2, said)
    assert not (tmp_path / "out").exists()
