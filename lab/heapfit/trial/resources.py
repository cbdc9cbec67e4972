"""Metric source: what the kernel accounted to the program, by `wait4` and `getrusage`.

The figures are those of RUSAGE_CHILDREN of the launcher once the whole tree is reaped: the
program, the children it waited for and theirs, and orphans that were left to the launcher. A child
whose parent ignores SIGCHLD is reaped by the kernel and accounted to nobody. Wall time runs from
just before the program is forked until the kernel says that it ended.
"""

from __future__ import annotations

from heapfit.records import Metric
from heapfit.trial.launcher import Ended
from heapfit.trial.source import Source

_RUSAGE = "getrusage over the program and all its descendants"


class Resources(Source):
    metrics = (
        Metric(
            name="wall_s",
            label="Wall time",
            unit="s",
            better="lower",
            source="monotonic clock from fork to the end of the program",
        ),
        Metric(name="user_s", label="User time", unit="s", better="lower", source=_RUSAGE),
        Metric(name="system_s", label="System time", unit="s", better="lower", source=_RUSAGE),
        Metric(
            name="minor_faults", label="Minor faults", unit="count", better="lower", source=_RUSAGE
        ),
        Metric(
            name="major_faults", label="Major faults", unit="count", better="lower", source=_RUSAGE
        ),
        Metric(
            name="voluntary_switches",
            label="Voluntary context switches",
            unit="count",
            better="lower",
            source=_RUSAGE,
        ),
        Metric(
            name="involuntary_switches",
            label="Involuntary context switches",
            unit="count",
            better="lower",
            source=_RUSAGE,
        ),
    )

    def figures(self, ended: Ended) -> dict[str, float]:
        return {
            "wall_s": ended.wall_s,
            "user_s": ended.user_s,
            "system_s": ended.system_s,
            "minor_faults": ended.minor_faults,
            "major_faults": ended.major_faults,
            "voluntary_switches": ended.voluntary_switches,
            "involuntary_switches": ended.involuntary_switches,
        }
