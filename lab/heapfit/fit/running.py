"""Record a service that is running, through the recorder that it was started with."""

from __future__ import annotations

import math
import re
import shutil
import signal
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from heapfit.errors import HeapfitError
from heapfit.files import replacing
from heapfit.host.proc import environment_of
from heapfit.live.processes import NotListening
from heapfit.record import Recorder, check_room
from heapfit.record.options import OPTIONS_VARIABLE
from heapfit.study.journal import cannot_write
from heapfit.text import shell_word

# Of the whole time, what the recording has, and how long it is at most: a minute of a service's
# work has its usual calls, and can be played.
_SHARE, _LONGEST_S = 0.1, 60.0
_LATE_S = 2  # after which it ends by itself, where nobody stops it
_SAMPLED = re.compile(r"\bsample:0*[1-9]")  # of 0 bytes, it is no sample


def seconds(time_s: float) -> float:
    """Return how long a service is recorded where everything may take `time_s`."""
    return min(_SHARE * time_s, _LONGEST_S)


def record(recorder: Recorder, to: Path, for_s: float) -> None:
    """Have `recorder` record its process for a while, and put the recording at `to`. It is stopped
    and nothing is left where it was written, however this ends; of a kill, it ends by itself."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C does
    made = Path(recorder.start(math.ceil(for_s) + _LATE_S).file)
    try:
        time.sleep(for_s)
        recorder.stop()
        check_room(made)
        with replacing(to) as unfinished:
            shutil.copyfile(made, unfinished)
    except OSError as error:
        raise cannot_write(to.parent, error) from error
    finally:
        with suppress(HeapfitError):  # Its process has ended, and with it the recording.
            recorder.stop()
        with suppress(OSError):
            made.unlink()
        signal.signal(signal.SIGTERM, before)


def recorded_on(trace: Path) -> str:
    """Return when the recording was made that a folder has."""
    return f"{datetime.fromtimestamp(trace.stat().st_mtime):%-d %B %Y, %H:%M}"


def recorder_of(pid: int) -> Recorder:
    """Return the recorder of process `pid`, which is at rest.

    Raises HeapfitError, with what to do, for a process that cannot be recorded.
    """
    try:
        recorder = Recorder(pid)
        before = recorder.status()
    except NotListening as error:
        raise HeapfitError(
            f"{error}. While it does its usual work, this fits a recording of it: heapfit record "
            f"--pid {pid} --for 1m -o {pid}.hft && heapfit fit {pid}.hft"
        ) from error
    settings = (environment_of(pid) or {}).get(OPTIONS_VARIABLE, "")
    if _SAMPLED.search(settings):
        raise HeapfitError(
            f"process {pid} was started to be recorded as a sample, which cannot be replayed; "
            "start it by heapfit record --later without --sample"
        )
    if before.recording:
        raise HeapfitError(
            f"process {pid} is being recorded already, to {before.file}; end that with "
            f"heapfit ctl {pid} record stop, then repeat this, or run: "
            f"heapfit fit {shell_word(before.file)}"
        )
    return recorder
