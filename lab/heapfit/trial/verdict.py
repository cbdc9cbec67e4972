"""Judge a finished program: did it end well, under the allocator meant, with the right output?

Everything that fails here is reported with its reason and never counted as a time.
"""

from __future__ import annotations

import signal
from pathlib import Path

from heapfit.records import Trial, TrialStatus
from heapfit.trial import output, preload

# How the reason begins of a trial that measured another allocator than it was to.
WITHOUT_ALLOCATOR = "ran without the allocator"


class Rejected(Exception):
    """The trial is not a measurement; says which kind of failure it is and why."""

    def __init__(self, status: TrialStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


def how_it_ended(exit_code: int) -> str:
    """Say in words what `Ended.exit_code` means.

    >>> how_it_ended(3)
    'exit code 3'
    >>> how_it_ended(-11)
    'killed by SIGSEGV (Segmentation fault)'
    """
    if exit_code >= 0:
        return f"exit code {exit_code}"
    number = -exit_code
    try:
        name = signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"killed by signal {number}"
    return f"killed by {name} ({signal.strsignal(number)})"


def check_exit(exit_code: int, expected: int) -> None:
    if exit_code != expected:
        wanted = "" if exit_code < 0 else f", {expected} expected"
        raise Rejected(TrialStatus.FAILED, f"{how_it_ended(exit_code)}{wanted}")


def check_preload(watch: preload.PreloadWatch, stderr: Path) -> None:
    """Reject a program that ran without the allocator under whose name it was to be measured."""
    complaint = preload.loader_complaint(output.head(stderr))
    if complaint is not None:
        raise Rejected(TrialStatus.FAILED, f"{WITHOUT_ALLOCATOR}: {complaint}")
    if watch.missing:
        raise Rejected(
            TrialStatus.FAILED,
            f"{WITHOUT_ALLOCATOR}: {watch.obstacle}"
            if watch.obstacle
            else f"{WITHOUT_ALLOCATOR}, whose library never appeared in it; "
            "does it start another program without its environment?",
        )


def check_same_output(trial_digest: str | None, reference: Trial | None, *, own: bool) -> None:
    """Reject output that differs from the reference's; `own` says that both are of the same."""
    if reference is None or trial_digest == reference.output_sha256:
        return
    name = reference.planned.allocator
    if own:
        reason = (
            f"{name} does not give the same output on every run; "
            "if that is as it should be, compare with --output ignore"
        )
    else:
        reason = f"gives other output than under {name}"
    raise Rejected(TrialStatus.MISMATCH, reason)
