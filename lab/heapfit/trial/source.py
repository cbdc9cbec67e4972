"""What every metric source has in common.

A source says which figures it gives, whether this machine can give them, and is told about the
course of a trial: it begins, time passes, it ended. One module per source; `run.py` drives them.
"""

from __future__ import annotations

from collections.abc import Sequence

from heapfit.records import Metric
from heapfit.trial.launcher import Ended


class Source:
    """Base of all metric sources; one instance per trial."""

    metrics: Sequence[Metric] = ()

    @classmethod
    def unavailable(cls) -> str | None:
        """Say why this machine cannot give these figures, or None if it can."""
        return None

    def begin(self, root: int) -> None:
        """The program runs; its tree hangs below the process `root`, which does not count."""

    def sample(self, now_s: float) -> None:
        """Some milliseconds have passed; `now_s` is the monotonic clock. Must be cheap."""

    def figures(self, ended: Ended) -> dict[str, float]:
        """Return this trial's figures by metric name."""
        return {}
