"""Recordings: run a program under the recorder, find what it wrote, steer a recorder that runs.

options   what the recorder is told, and how it is written in the program's environment
run       run a program to its end under libheapfit-record.so
written   what is in the files that came of it, as far as their blocks' headers say
attach    bring the recorder into a process that was not started with it
control   start and stop the recorder of a running process
"""

from heapfit.record.attach import Attached, attach, can_attach, follow, told_to_stop
from heapfit.record.control import Recorder, RecorderState
from heapfit.record.options import (
    OPTIONS,
    OPTIONS_VARIABLE,
    VARIABLE,
    VARIANT,
    RecordOptions,
    seen_from,
    variables,
)
from heapfit.record.run import NothingRecorded, Recording, run
from heapfit.record.written import Written, examine, is_written

__all__ = [
    "OPTIONS",
    "OPTIONS_VARIABLE",
    "VARIABLE",
    "VARIANT",
    "Attached",
    "NothingRecorded",
    "RecordOptions",
    "Recorder",
    "RecorderState",
    "Recording",
    "Written",
    "attach",
    "can_attach",
    "examine",
    "follow",
    "is_written",
    "run",
    "seen_from",
    "told_to_stop",
    "variables",
]
