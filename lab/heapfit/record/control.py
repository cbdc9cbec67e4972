"""Start and stop the recorder of a running process, over the socket that it listens on."""

from __future__ import annotations

from heapfit.errors import HeapfitError
from heapfit.live.client import Asker, Reply
from heapfit.live.processes import why_not_recording
from heapfit.live.records import Count

SERVICE = "heapfit-record"


class RecorderState(Reply):
    """Whether events are written down now, and the file of the present recording or the last."""

    recording: bool = False
    file: str = ""
    events: Count = 0
    bytes: Count = 0
    lost: Count = 0


class Recorder(Asker):
    """The recorder in one process. Every method may raise HeapfitError with what to do."""

    service = SERVICE

    def start(self) -> RecorderState:
        """Begin a new recording, unless one is being made."""
        return self._ask("start", RecorderState)

    def stop(self) -> RecorderState:
        """End the recording; the file is whole when this returns."""
        return self._ask("stop", RecorderState)

    def status(self) -> RecorderState:
        """Return what the recorder does, and change nothing."""
        return self._ask("status", RecorderState)

    def _why_not(self) -> HeapfitError:
        return why_not_recording(self.process.pid)
