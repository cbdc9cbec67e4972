"""Base of the metric sources that count events by `perf`: one counter for each metric."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

from heapfit.trial import perf
from heapfit.trial.launcher import Ended
from heapfit.trial.source import Source, SourceFailed


class PerfSource(Source):
    """Counts `events()` from the execution of the program until all of its tree has ended."""

    def __init__(self) -> None:
        self._counters: dict[str, perf.Counter] = {}

    @classmethod
    def events(cls) -> Mapping[str, perf.Event]:
        """Return the events by the metric that each is; raise `perf.Unavailable`."""
        raise NotImplementedError

    @classmethod
    def unavailable(cls) -> str | None:
        try:
            return perf.refusal(cls.events().values())
        except perf.Unavailable as reason:
            return str(reason)

    def attach(self, launcher: int) -> None:
        try:
            for metric, event in self.events().items():
                self._counters[metric] = perf.Counter(event, launcher)
        except perf.Unavailable as reason:
            raise SourceFailed(f"{metric} cannot be counted: {reason}") from reason

    def figures(self, ended: Ended) -> dict[str, float]:
        counts = {metric: counter.read() for metric, counter in self._counters.items()}
        return {metric: count for metric, count in counts.items() if count is not None}

    def close(self) -> None:
        with ExitStack() as closing:
            for counter in self._counters.values():
                closing.callback(counter.close)
        self._counters.clear()
