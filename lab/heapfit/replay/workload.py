"""A plan as a workload: a program like any other, which a study runs under each allocator."""

from enum import StrEnum

from heapfit.meaning import REPLAYED_MEMORY, REPLAYED_TIME, WALL
from heapfit.records import Workload, WorkloadCheck, WorkloadMetric, WorkloadRun
from heapfit.replay.plan import Plan, find_replayer
from heapfit.text import counted
from heapfit.trial.system_calls import CALLS, metric_name


class Speed(StrEnum):
    """As fast as it goes, or as it was recorded."""

    MAX = "max"
    REAL = "real"


class Touch(StrEnum):
    """What of a new block is written to."""

    PAGE = "page"
    LINE = "line"
    NONE = "none"


# By name: label and unit. `native/replay.c` prints them, a line each.
_METRICS = {
    REPLAYED_TIME: ("Allocator time", "s"),
    "allocator_ns_per_event": ("Allocator time per event", "ns"),
    "own_ns_per_event": ("Replayer's own time per event", "ns"),
    "replay_s": ("Wall time of the replay", "s"),
    "waited_s": ("Waiting of threads for others", "s"),
    REPLAYED_MEMORY: ("Peak resident heap", "bytes"),
    "replay_mean_bytes": ("Mean resident heap", "bytes"),
    "heap_fragmentation": ("Peak resident / peak live", "ratio"),
    "mean_heap_fragmentation": ("Mean resident / mean live", "ratio"),
    "replay_faults": ("Page faults", "count"),
}
_SHOWN = (
    REPLAYED_TIME,
    "own_ns_per_event",
    "replay_s",
    REPLAYED_MEMORY,
    "replay_mean_bytes",
    "heap_fragmentation",
    "mean_heap_fragmentation",
    "replay_faults",
)

_NS_PER_S = 1e9
# A replay that takes longer hangs: some microseconds an event, and never less than minutes.
_TIMEOUT_S = 300.0
_TIMEOUT_S_PER_EVENT = 5e-6


def replay_workload(
    plan: Plan, *, speed: Speed = Speed.MAX, touch: Touch = Touch.PAGE, age: float = 0.0
) -> Workload:
    """Return the workload that plays `plan`, on a heap aged to `age` times the recording's peak."""
    facts = plan.facts
    threads = counted(facts.threads, "thread")
    aged = f" on a heap aged to {age:g} times its peak" if age else ""
    options = ["--speed", speed, "--touch", touch, *(["--age", f"{age:g}"] if age else [])]
    return Workload(
        name=f"replay-{plan.trace.stem}-{plan.key[:6]}",
        title=f"Replay of {plan.trace.name}, {facts.events:,} events of {threads}{aged}",
        question="How do the recorded calls fare under each allocator?",
        run=WorkloadRun(
            command=[str(find_replayer()), *options, str(plan.path)],
            timeout_s=_timeout_s(plan, speed),
        ),
        check=WorkloadCheck(stdout="ignore", must_match=f"^plan {facts.checksum}$"),
        metrics=[
            WorkloadMetric(
                name=name, label=label, unit=unit, pattern=rf"^{name} (\S+)$", better="lower"
            )
            for name, (label, unit) in _METRICS.items()
        ],
        primary_metric=REPLAYED_TIME,
        here=plan.path.parent,
    )


def measured_by_replay() -> list[str]:
    """Return the names of the metrics that say something of a replay, its own first.

    Most of what is measured of the process from outside includes the replayer's tables, and its run
    without calls. Wall time is kept to estimate how long a study will still take.
    """
    return [*_METRICS, *map(metric_name, CALLS), "instructions", WALL]


def shown_metrics(*, system_calls: bool, instructions: bool = False) -> list[str]:
    """Return the names of the metrics that a replay's report shows.

    System calls take a further run in each trial, and so do instructions where the processor does
    not count them.
    """
    calls = map(metric_name, CALLS) if system_calls else []
    return [*_SHOWN, *calls, *(["instructions"] if instructions else [])]


def _timeout_s(plan: Plan, speed: Speed) -> float:
    facts = plan.facts
    recorded_s = facts.duration_ns / _NS_PER_S if speed is Speed.REAL else 0.0
    return max(_TIMEOUT_S, 2 * recorded_s + facts.events * _TIMEOUT_S_PER_EVENT)
