"""Variants of a study: treatments that are more than a library, from the file to the report."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Heapfit, assert_one_line
from study_files import trials_in

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("library")]

SERVICE = """\
name = "service"
title = "A service"
question = "How is it told what to do?"
[run]
command = ["sh", "-c", "echo who={who} mode=$MODE options=$HEAPFIT_OPTIONS >&2; echo rate={rate}"]
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

STUDY = """\
name = "treatments"
title = "Treatments"
question = "Which treatment helps?"
allocators = ["plain", "tuned", "glibc", "heapfit", "recorded", "wrapped"]
baseline = "plain"
subject = "tuned"
replicates = 2
warmups = 0

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
workload = "service.toml"
primary_metric = "rate"
metrics = ["rate", "recorded_events"]
[experiments.factors]
cores = [1]
"""


def write(folder: Path, old: str = "", new: str = "") -> Path:
    """Write the study and its workload, with one change, and return the study's file."""
    assert old in STUDY
    (folder / "service.toml").write_text(SERVICE)
    path = folder / "treatments.toml"
    path.write_text(STUDY.replace(old, new, 1) if old else STUDY)
    return path


@pytest.fixture(scope="module")
def finished(run_heapfit: Heapfit, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a study that has run whole; tests must not change it."""
    folder = tmp_path_factory.mktemp("variants")
    result = run_heapfit("study", "run", write(folder), "--out", folder / "out")
    assert result.returncode == 0, result.stderr
    (folder / "said").write_text(result.stdout)
    return folder / "out"


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


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('allocator = "heapfit"', 'allocator = "heapfti"', ["variant 'tuned'", "'heapfit'?"]),
        ("rate = 2", "rates = 2", ["variant 'tuned': unknown parameter of service: 'rates'"]),
        ("decay_ms = 7", "decay = 7", ["unknown option 'decay'", "'decay_ms'"]),
        ("cores = [1]", "cores = [1]\nwho = [1, 2]", ["'who' is set by the variant 'plain'"]),
    ],
)
def test_a_senseless_variant_is_refused_before_anything_runs(
    run_heapfit: Heapfit, tmp_path: Path, old: str, new: str, said: list[str]
) -> None:
    result = run_heapfit("study", "run", write(tmp_path, old, new), "--out", tmp_path / "out")
    assert_one_line(result, 2, said)
    assert not (tmp_path / "out").exists()
