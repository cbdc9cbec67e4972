"""Studies and trials for the tests of the reports: small, seeded, the same on every run.

The figures resemble a real comparison (heapfit and mimalloc close together, jemalloc leanest), so
that a report made from them reads like one.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from heapfit.records import (
    Factor,
    InstalledAllocator,
    Machine,
    Metric,
    PlannedTrial,
    Study,
    Trial,
    TrialStatus,
    Workload,
    WorkloadRun,
)
from heapfit.study import Journal

MIB = 2**20
START = datetime(2025, 3, 14, 9, 26, 53, tzinfo=UTC)


def _metric(name: str, label: str, unit: str = "count", source: str = "wait4") -> Metric:
    return Metric(name=name, label=label, unit=unit, better="lower", source=source)


METRICS = [
    _metric("wall_s", "Wall time", "s", "monotonic clock"),
    _metric("user_s", "User time", "s"),
    _metric("system_s", "System time", "s"),
    _metric("peak_rss_bytes", "Peak RSS", "bytes"),
    _metric("mean_rss_bytes", "Mean RSS", "bytes", "sampled over the process tree every 10 ms"),
    _metric("minor_faults", "Minor faults"),
    _metric("major_faults", "Major faults"),
    _metric("voluntary_switches", "Voluntary switches"),
    _metric("involuntary_switches", "Involuntary switches"),
]
RATE = _metric("requests_per_s", "Requests", "1/s", "the program's output").model_copy(
    update={"better": "higher"}
)

# Of one core: the time and the memory of each allocator relative to glibc.
_TIME = {"glibc": 1.0, "heapfit": 0.868, "jemalloc": 0.93, "mimalloc": 0.872, "tcmalloc": 0.91}
_MEMORY = {"glibc": 1.0, "heapfit": 0.97, "jemalloc": 0.91, "mimalloc": 1.12, "tcmalloc": 1.21}
_TITLES = {"glibc": "GNU C library", "heapfit": "heapfit"}


def make_study(
    allocators: Sequence[str] = tuple(_TIME),
    cores: Sequence[int] = (1, 2),
    replicates: int = 15,
    warmups: int = 1,
    metrics: Sequence[Metric] = tuple(METRICS),
    primary: str = "wall_s",
    command: Sequence[str] = ("xalan", "-xsl", "{here}/table.xsl", "-in", "{data}/mime.xml"),
    title: str = "XML transformation (xalan)",
    factors: Sequence[Factor] = (),
) -> Study:
    """Return a study with its plan in random order within blocks."""
    return Study(
        heapfit_version="0.1.0",
        created=START,
        name="xml-transform",
        title=title,
        command=list(command),
        workload=Workload(
            name="xml-transform",
            title=title,
            question="How fast are many small objects of mixed lifetimes?",
            run=WorkloadRun(command=list(command)),
        ),
        allocators=[_installed(name) for name in allocators],
        baseline=allocators[0],
        cores=list(cores),
        factors=list(factors),
        replicates=replicates,
        warmups=warmups,
        seed=20250314,
        timeout_s=60.0,
        metrics=list(metrics),
        primary_metric=primary,
        machine=Machine(
            hostname="bench-1",
            cpu="AMD EPYC 7R13 Processor",
            cores=2,
            memory_bytes=int(7.6 * 1024 * MIB),
            kernel="6.1.0-18-amd64",
            distribution="Debian GNU/Linux 12 (bookworm)",
            libc="glibc 2.36",
            virtual="kvm",
            huge_pages="madvise",
            notes=["The frequency governor is not visible from within this virtual machine."],
        ),
        plan=_plan(allocators, cores, factors, replicates, warmups),
        reproduce=f"heapfit compare xml-transform --allocators {','.join(allocators)} "
        f"--replicates {replicates} --seed 20250314",
    )


@dataclass
class Faults:
    """What shall go wrong in made trials: by allocator, from which replicate on, and how."""

    status: Mapping[str, tuple[int, TrialStatus, str]] = field(default_factory=dict)
    without: Mapping[str, tuple[int, str]] = field(default_factory=dict)

    def of(self, planned: PlannedTrial) -> tuple[TrialStatus, str]:
        start, status, reason = self.status.get(planned.allocator, (0, TrialStatus.OK, ""))
        return (status, reason) if planned.replicate >= start else (TrialStatus.OK, "")

    def lacks(self, planned: PlannedTrial, metric: str) -> bool:
        start, missing = self.without.get(planned.allocator, (0, ""))
        return metric == missing and planned.replicate >= start


def make_trials(study: Study, faults: Faults | None = None) -> list[Trial]:
    faults = faults or Faults()
    dice = random.Random(study.seed)
    moment = study.created
    trials = []
    for planned in study.plan:
        metrics = _figures(planned, study, dice)
        moment += timedelta(seconds=metrics.get("wall_s", 1.0) + 0.1)
        status, reason = faults.of(planned)
        succeeded = status is TrialStatus.OK
        trials.append(
            Trial(
                planned=planned,
                status=status,
                reason=reason,
                started=moment,
                exit_code=0 if succeeded else 139,
                metrics={k: v for k, v in metrics.items() if not faults.lacks(planned, k)}
                if succeeded
                else {},
                output_sha256="0" * 64,
                stderr_tail="" if succeeded else "Segmentation fault\n",
            )
        )
    return trials


def keep(folder: Path, study: Study, trials: Sequence[Trial]) -> Path:
    """Put a study on disk the way that `heapfit compare` does."""
    with Journal(folder, study) as journal:
        for trial in trials:
            journal.append(trial)
    return folder


def _plan(
    allocators: Sequence[str],
    cores: Sequence[int],
    factors: Sequence[Factor],
    replicates: int,
    warmups: int,
) -> list[PlannedTrial]:
    dice = random.Random(1)
    plan: list[PlannedTrial] = []
    names = [factor.name for factor in factors]
    further = [
        dict(zip(names, levels, strict=True))
        for levels in itertools.product(*(factor.levels for factor in factors))
    ]
    for block in range(warmups + replicates):
        cells = [
            (name, count, levels) for count in cores for levels in further for name in allocators
        ]
        dice.shuffle(cells)
        for name, count, levels in cells:
            plan.append(
                PlannedTrial(
                    index=len(plan),
                    block=block,
                    replicate=block - warmups,
                    allocator=name,
                    cores=count,
                    levels=levels,
                    warmup=block < warmups,
                )
            )
    return plan


def _figures(planned: PlannedTrial, study: Study, dice: random.Random) -> dict[str, float]:
    name = planned.allocator
    noise = math.exp(dice.gauss(0, 0.012) + abs(dice.gauss(0, 0.01)))
    time = 1.43 * _TIME.get(name, 1.0) * noise / (0.55 + 0.45 * planned.cores)
    time *= _effect(planned)
    memory = 82.0 * MIB * _MEMORY.get(name, 1.0) * math.exp(dice.gauss(0, 0.006))
    every = {
        "wall_s": time,
        "user_s": time * 0.93,
        "system_s": time * 0.06 * math.exp(dice.gauss(0, 0.05)),
        "peak_rss_bytes": float(int(memory)),
        "mean_rss_bytes": float(int(memory * 0.71)),
        "minor_faults": float(int(memory / 4096)),
        "major_faults": 0.0,
        "voluntary_switches": float(dice.randint(2, 9)),
        "involuntary_switches": float(dice.randint(12, 60)),
        "requests_per_s": 182_000 / time,
    }
    return {metric.name: every[metric.name] for metric in study.metrics}


def _effect(planned: PlannedTrial) -> float:
    """What further factors do to a trial's time: more threads cost, and some allocators more."""
    effect = 1.0
    for place, level in enumerate(planned.levels.values()):
        size = math.log2(1 + sum(map(int, filter(str.isdigit, level))))
        hurt = 2.5 if planned.allocator in ("glibc", "tcmalloc") else 1.0
        effect *= 1 + 0.06 * size * (hurt if place == 0 else 1.0)
    return effect


def _installed(name: str) -> InstalledAllocator:
    version = {"glibc": "2.36-9+deb12u4", "heapfit": "0.1.0"}.get(name, "5.3.0-1")
    return InstalledAllocator(
        name=name,
        title=_TITLES.get(name, name),
        version=version,
        library=None if name == "glibc" else Path(f"/usr/lib/x86_64-linux-gnu/lib{name}.so.2"),
        sha256=None if name == "glibc" else f"{abs(sum(map(ord, name))):064x}",
    )
