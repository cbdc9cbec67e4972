"""Run one trial in a process of its own: `python -m heapfit.study.one_trial`.

A worker of a cluster runs its trials this way. Its own process has threads and timers that would
share the processor and the interpreter with the sampling of a trial, and it cannot interrupt a
thread of its own, whereas this process can be ended. The request comes on standard input and the
answer goes to standard output, both JSON.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path
from types import FrameType

from pydantic import BaseModel

from heapfit.errors import HeapfitError
from heapfit.records import PlannedTrial, Study, Trial
from heapfit.trial import run_trial

_PR_SET_PDEATHSIG = 1


class Request(BaseModel):
    """What to run. The study is as this machine has it, without its plan."""

    study: Study
    planned: PlannedTrial
    reference: Trial | None
    data: Path | None
    workspace: Path
    parent: int


class Answer(BaseModel):
    """What came of it: a trial, or why there is none."""

    trial: Trial | None = None
    error: str | None = None


def main() -> None:
    """Answer the one request on standard input."""
    signal.signal(signal.SIGTERM, _end)
    request = Request.model_validate_json(sys.stdin.read())
    _end_with(request.parent)
    try:
        trial = run_trial(
            request.study, request.planned, request.workspace, request.reference, request.data
        )
    except HeapfitError as error:
        answer = Answer(error=str(error))
    else:
        answer = Answer(trial=trial)
    sys.stdout.write(answer.model_dump_json())


def _end(number: int, frame: FrameType | None) -> None:
    """End, and on the way out the program that runs."""
    sys.exit(128 + number)


def _end_with(parent: int) -> None:
    """Have this process ended when the worker is: nobody would take its answer."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # It died before the line above could take effect.
        sys.exit(1)


if __name__ == "__main__":
    main()
