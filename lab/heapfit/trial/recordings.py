"""Metric source: what heapfit's recorder wrote while the program was timed.

A study's variant asks for it (`record`). Under any other treatment there is nothing, and the
figures are missing. All processes of the program count together.
"""

from __future__ import annotations

from pathlib import Path

from heapfit.record.written import examine
from heapfit.records import Metric
from heapfit.trial.launcher import Ended
from heapfit.trial.source import Source

# The folder, in that of a run, which the recorder writes to.
RECORDINGS = "recordings"

_SOURCE = "the headers of the recorder's files"


class Recordings(Source):
    metrics = (
        Metric(
            name="recorded_events",
            label="Events recorded",
            unit="count",
            better="higher",
            source=_SOURCE,
        ),
        Metric(
            name="recorded_bytes_per_event",
            label="Recording, for each event",
            unit="bytes",
            better="lower",
            source=_SOURCE,
        ),
    )

    def __init__(self) -> None:
        self._folder: Path | None = None

    def wrap(self, command: list[str], folder: Path) -> list[str]:
        self._folder = folder / RECORDINGS
        return command

    def figures(self, ended: Ended) -> dict[str, float]:
        files = [examine(path) for path in self._folder.iterdir()] if self._folder else []
        events = sum(each.events for each in files)
        if not events:
            return {}
        size = sum(each.size for each in files)
        return {
            "recorded_events": float(events),
            "recorded_bytes_per_event": size / events,
        }
