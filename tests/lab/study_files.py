"""A study of many workloads, small enough for a test: real programs, a hundredth of their work.

Also what tests read from a study's folder.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MICRO = Path(__file__).resolve().parents[2] / "workloads" / "micro"

STUDY = """\
name = "small"
title = "A small study"
question = "Does it work?"
workloads = ["churn/", "pareto/"]
probes = ["sleeper/"]
allocators = ["glibc", "heapfit"]
baseline = "glibc"
subject = "heapfit"
replicates = 2
warmups = 0
metrics = ["wall_s", "peak_rss_bytes"]

[[figures]]
name = "time"
title = "Time against the best peer"
metric = "primary"
reference = "best-peer"
combine = "geometric-mean"
goal = 1000.0

[[figures]]
name = "memory"
title = "Memory against the best peer"
metric = "peak_rss_bytes"
reference = "best-peer"
combine = "geometric-mean"
worst_goal = 0.001
"""

_WORKLOAD = """\
name = "small-{name}"
title = "Small {name}"
question = "Is this {name}?"
[install]
programs = ["cc"]
[prepare]
command = ["cc", "-std=c17", "-O1", "-pthread", "-o", "{{data}}/{name}", "{micro}/{name}.c", "-lm"]
[run]
command = ["{{data}}/{name}", {arguments}]
[check]
must_match = '(?m)^{proof}$'
"""

_SLEEPER_METRIC = """
[[metrics]]
name = "resident_bytes"
label = "resident memory while it sleeps"
unit = "bytes"
pattern = '(?m)^resident_bytes: ([0-9.]+)$'
better = "lower"
"""


def write_workload(folder: Path, name: str, arguments: str, proof: str = "check ok") -> None:
    """Write the workload `small-NAME` into `folder`/NAME; it prints `proof` when all went well."""
    (folder / name).mkdir()
    text = _WORKLOAD.format(name=name, micro=MICRO, arguments=arguments, proof=proof)
    (folder / name / "workload.toml").write_text(text)


def write_study(folder: Path, text: str = STUDY) -> Path:
    """Write a study of two workloads and a probe, and return its file."""
    write_workload(folder, "churn", '"--live", "1000", "--scale", "1"')
    write_workload(folder, "pareto", '"--scale", "1"')
    write_workload(folder, "sleeper", '"--scale", "1"')
    sleeper = folder / "sleeper" / "workload.toml"
    described = sleeper.read_text().replace("[check]", '[check]\nstdout = "ignore"')
    sleeper.write_text(described + _SLEEPER_METRIC)
    path = folder / "small.toml"
    path.write_text(text)
    return path


def trials_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "trials.jsonl").read_text().splitlines()]
