"""The interface of metric sources.

A source says which figures it gives and whether this machine can give them. During a run, `run.py`
tells it when it may attach, when the program begins, that time passes, and how the program ended.
`metrics.py` lists all sources.

Most sources observe the run that is timed. One that slows the program down has `own_run`: the
program is then run once more for this source alone, and no other figure comes from that run.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from heapfit.records import Metric, TrialStatus
from heapfit.trial.launcher import Ended
from heapfit.trial.outcome import Rejected


class SourceFailed(Rejected):
    """A source could not do its part in this run; the message says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(TrialStatus.FAILED, reason)


def cost(name: str, label: str, unit: str, source: str) -> Metric:
    """Return a metric of which less is better, as for nearly all."""
    return Metric(name=name, label=label, unit=unit, better="lower", source=source)


class Source:
    """Base of all metric sources; one instance per run of a program."""

    metrics: ClassVar[Sequence[Metric]] = ()

    # Whether the program is run once more for this source alone, because it would spoil the other
    # sources' figures. That run may take at most `slowdown` times as long.
    own_run: ClassVar[bool] = False
    slowdown: ClassVar[float] = 1.0

    # Processor time that `sample` has spent under a limit of its own; it does not make samples
    # rarer.
    limited_s: float = 0.0

    @classmethod
    def unavailable(cls) -> str | None:
        """Say why this machine cannot give these figures, or None if it can."""
        return None

    def wrap(self, command: list[str], folder: Path) -> list[str]:
        """Return the command that runs `command` under this source's tool.

        The tool may keep files in `folder`, that of the run. Only a source with `own_run` may
        return another command than `command`.
        """
        return command

    def to_signal(self, program: int) -> int:
        """Return the process that signals are meant for, where `program` was started."""
        return program

    @classmethod
    def is_attached(cls) -> bool:
        """Tell whether `attach` does anything."""
        return cls.attach is not Source.attach

    def attach(self, launcher: int) -> None:
        """The process `launcher` is about to start the program."""

    def begin(self, root: int) -> None:
        """The program runs; its processes are the descendants of `root`, which does not count."""

    @classmethod
    def is_sampled(cls) -> bool:
        """Tell whether `sample` does anything."""
        return cls.sample is not Source.sample

    def sample(self, now_s: float) -> None:
        """Some milliseconds have passed; `now_s` is the monotonic clock.

        The more a call costs, the rarer it comes: see `observe`.
        """

    def figures(self, ended: Ended) -> dict[str, float]:
        """Return this run's figures by metric name."""
        return {}

    def close(self) -> None:
        """Release what is held open; comes last, whether the run went well or not."""
