"""Judge a finished program: check its exit and its output, and read the figures that it printed.

A trial that fails a check is reported with the reason, and its times never count. Output stays on
disk and is never read as a whole: a program may print gigabytes.
"""

import hashlib
import math
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, geometric_mean

from heapfit.records import CommandMetric, Metric, Trial, TrialStatus, Workload, WorkloadMetric
from heapfit.trial.search import SearchFailed, search

TAIL_BYTES = 4096
HEAD_BYTES = 65536

_COMBINE: dict[str, Callable[[list[float]], float]] = {
    "sum": math.fsum,
    "mean": fmean,
    "geometric-mean": geometric_mean,
    "last": lambda figures: figures[-1],
}

# The reason for rejecting a trial begins with this if it measured another allocator than its own.
WITHOUT_ALLOCATOR = "ran without the allocator"


class Rejected(Exception):
    """The trial is no measurement; `status` and `reason` say why."""

    def __init__(self, status: TrialStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


def mismatch(reason: str) -> Rejected:
    """Return the rejection of a program that ended well and whose output is wrong."""
    return Rejected(TrialStatus.MISMATCH, reason)


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


def it_says(stderr: str) -> str:
    """Return the last line of what a program wrote, as it stands behind a reason.

    >>> it_says("trace\\nno such file\\n"), it_says("")
    (' (it says: no such file)', '')
    """
    last_line = stderr.strip().rpartition("\n")[2].strip()
    return f" (it says: {last_line})" if last_line else ""


def check_exit(exit_code: int, expected: int, program: str, *, is_load: bool = False) -> None:
    """Reject a program that ended otherwise than it should; a load drives a server."""
    if exit_code != expected:
        wanted = "" if exit_code < 0 else f", {expected} expected"
        who = f"the load ({program}) failed: " if is_load else ""
        why = _TIME_WAS_UP if (program, exit_code) == ("timeout", 124) else ""
        raise Rejected(TrialStatus.FAILED, f"{who}{how_it_ended(exit_code)}{wanted}{why}")


# GNU coreutils, timeout(1).
_TIME_WAS_UP = (
    ", since timeout ended the program; let it end by itself, or measure a service by a workload "
    "file: heapfit workloads new --for 30s -- CMD"
)


def check_same_output(trial_digest: str | None, reference: Trial | None, *, own: bool) -> None:
    """Reject output that differs from the reference's; `own`: both are of one treatment."""
    if reference is None or trial_digest == reference.output_sha256:
        return
    name = reference.planned.allocator
    if own:
        reason = (
            f"under {name} the program does not give the same output on every run; "
            "if that is as it should be, compare with --output ignore"
        )
    else:
        reason = f"gives different output than under {name}"
    raise mismatch(reason)


# ---------------------------------------------------------------- output


def as_metric(declared: WorkloadMetric | CommandMetric) -> Metric:
    """Return a workload's own metric in the form that a study's report uses."""
    by = "the program"
    if isinstance(declared, CommandMetric):
        by = f"{declared.command[0]} after the trial"
    return Metric(
        name=declared.name,
        label=declared.label,
        unit=declared.unit,
        better=declared.better,
        source=f"printed by {by}",
    )


def tail(path: Path, size: int = TAIL_BYTES) -> bytes:
    """Return the last `size` bytes of a file that may be large or missing."""
    if not path.exists():
        return b""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - size))
        return file.read()


def head(path: Path, size: int = HEAD_BYTES) -> bytes:
    """Return the first `size` bytes of a file that may be large or missing."""
    if not path.exists():
        return b""
    with path.open("rb") as file:
        return file.read(size)


def digest(paths: Sequence[Path]) -> str | None:
    """Return one SHA-256 for the contents of all `paths`, in their order; None for none.

    Raises `Rejected` for a file that the program should have written and did not.
    """
    if not paths:
        return None
    return hashlib.sha256("".join(map(_file_digest, paths)).encode()).hexdigest()


def _file_digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise mismatch(f"wrote no file {path.name}: {error.strerror}") from error


def figures(workload: Workload, stdout: Path) -> dict[str, float]:
    """Check `must_match` and read the workload's own metrics from standard output.

    Raises `Rejected` where something is not to be found or is not a number.
    """
    must_match = workload.check.must_match
    patterns = [metric.pattern for metric in workload.metrics]
    try:
        if must_match is not None and search(stdout, [must_match], every=False) == [[]]:
            raise mismatch(f"did not print anything that matches {must_match!r}")
        found = search(stdout, patterns, every=True)
    except SearchFailed as failed:
        raise mismatch(f"printed output that cannot be judged: {failed}") from failed
    return {
        metric.name: _figure(metric, texts)
        for metric, texts in zip(workload.metrics, found, strict=True)
        if texts or not metric.optional
    }


def _figure(metric: WorkloadMetric, printed: Sequence[str]) -> float:
    if not printed:
        raise mismatch(f"did not print its metric {metric.name} ({metric.pattern!r})")
    try:
        return _COMBINE[metric.combine]([number(text) for text in printed])
    except (ValueError, ArithmeticError) as error:
        raise mismatch(
            f"printed a metric {metric.name} that is no usable number: {error}"
        ) from error


def number(text: str) -> float:
    """Return the number in `text`; raise `ValueError` if there is none, or if it is not finite."""
    figure = float(text)
    if not math.isfinite(figure):
        raise ValueError(f"{text.strip()!r} is not finite")
    return figure
