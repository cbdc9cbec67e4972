"""Experiments over several workloads, and the figures that combine them against named peers."""

from __future__ import annotations

from pathlib import Path

import pytest
from heapfit.catalogue.studies import load_study
from heapfit.errors import UsageError

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("library")]

WORKLOAD = """\
name = "{name}"
title = "{name}"
question = "?"
[run]
command = ["sh", "-c", "sleep 0.{pause}; echo {name}"]
[parameters]
pause = "01"
"""

STUDY = """\
name = "several"
title = "Several workloads"
question = "How do they fare together?"
allocators = ["glibc", "heapfit", "slow"]
baseline = "glibc"
subject = "heapfit"
replicates = 4
quick_replicates = 1
warmups = 0

[[variants]]
name = "slow"
title = "heapfit, and a pause"
allocator = "heapfit"
parameters = { pause = 4 }

[[experiments]]
name = "all"
title = "Both"
workloads = ["first/", "second/workload.toml"]
metrics = ["wall_s"]
[experiments.factors]
cores = [1]
[experiments.quick]
workloads = ["first/"]
factors = { allocator = ["heapfit", "slow"] }

[[experiments]]
name = "alone"
workload = "first/"
metrics = ["wall_s"]
factors = { allocator = ["heapfit"], cores = [1] }

[[figures]]
name = "pause"
title = "What a pause costs"
metric = "wall_s"
experiments = ["all"]
subject = "slow"
peers = ["heapfit"]
reference = "best-peer"
combine = "geometric-mean"
best_goal = 1.0
worst_goal = 100.0

[[figures.published]]
title = "Table 7"
source = "A paper about pauses"
metric = "wall_s"
columns = ["program", "cost"]
rows = [["theirs", "12 %"]]
note = "Their clock was slow."
"""


def write(folder: Path, text: str = STUDY) -> Path:
    for name in ("first", "second"):
        (folder / name).mkdir()
        (folder / name / "workload.toml").write_text(WORKLOAD.replace("{name}", name))
    path = folder / "several.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('workloads = ["first/", "second/workload.toml"]', "", "'workload' or 'workloads'"),
        ('experiments = ["all"]', 'experiments = ["al"]', "did you mean 'all'"),
        ('metric = "wall_s"\nexperiments', 'metric = "llc_misses"\nexperiments', "not a metric of"),
        # Whatever setting came last in a block was taken for all of them.
        ("cores = [1]\n[", "cores = [1, 2]\n[", "all.first varies cores"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in STUDY
    with pytest.raises(UsageError, match=said):
        load_study(write(tmp_path, STUDY.replace(old, new)))
