"""Recordings: run a program under the recorder, find what it wrote, steer a recorder that runs.

options   what the recorder is told, and how it is written in the program's environment
run       run a program to its end under libheapfit-record.so
written   what is in the files that came of it, as far as their blocks' headers say
attach    start and stop the recorder of a running process, and bring it in where there is none
"""

from heapfit.record.attach import (
    Attached,
    Recorder,
    RecorderState,
    attach,
    can_attach,
    follow,
    told_to_stop,
)
from heapfit.record.options import OPTIONS, VARIANT, RecordOptions, seen_from, variables
from heapfit.record.run import NothingRecorded, Recording, run
from heapfit.record.written import Written, check_room, examine, is_written
