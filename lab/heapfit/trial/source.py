"""What every metric source has in common.

A source says which figures it gives, whether this machine can give them, and is told about the
course of a run: it is attached, the program begins, time passes, it ended. `metrics.py` lists them
and `run.py` drives them.

Most sources look at the run that is timed. One that slows the program down has `own_run`: the
program is then run once more for this source alone, and no other figure comes from that run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from heapfit.records import Metric, TrialStatus
from heapfit.trial.launcher import Ended
from heapfit.trial.verdict import Rejected


class SourceFailed(Rejected):
    """A source could not do its part in this run; the message says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(TrialStatus.FAILED, reason)


def cost(name: str, label: str, unit: str, source: str) -> Metric:
    """Return a metric of which less is better, as it is of nearly all."""
    return Metric(name=name, label=label, unit=unit, better="lower", source=source)


class Source:
    """Base of all metric sources; one instance per run of a program."""

    metrics: ClassVar[Sequence[Metric]] = ()

    # Whether the program is to be run once more for this source alone, since what it does to the
    # program would spoil the others' figures. `slowdown` is how many times as long that run may
    # take at most.
    own_run: ClassVar[bool] = False
    slowdown: ClassVar[float] = 1.0

    # Processor time that `sample` has spent within a limit of its own, which makes no look rarer.
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
        """Return the process that signals are meant for, where `program` is what was started."""
        return program

    @classmethod
    def is_attached(cls) -> bool:
        """Tell whether `attach` does anything."""
        return cls.attach is not Source.attach

    def attach(self, launcher: int) -> None:
        """The process `launcher` is about to start the program."""

    def begin(self, root: int) -> None:
        """The program runs; its tree hangs below the process `root`, which does not count."""

    @classmethod
    def is_sampled(cls) -> bool:
        """Tell whether `sample` does anything."""
        return cls.sample is not Source.sample

    def sample(self, now_s: float) -> None:
        """Some milliseconds have passed; `now_s` is the monotonic clock.

        The dearer a call, the rarer it comes: see `observe`.
        """

    def figures(self, ended: Ended) -> dict[str, float]:
        """Return this run's figures by metric name."""
        return {}

    def close(self) -> None:
        """Let go of what is held open; comes last, whether the run went well or not."""
