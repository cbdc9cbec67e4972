"""A workload's metrics that a command of the user's prints when the program has ended.

The command runs without the allocator, in the workload's folder, on the lab's processors. The last
line that it prints must be a number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from heapfit.records import CommandMetric, TrialStatus
from heapfit.trial import output, preload, verdict
from heapfit.trial.launcher import CouldNotStart, Running
from heapfit.trial.placeholders import Placeholders

# For the file with the program's standard output; the others are those of any command.
STDOUT_PLACEHOLDER = "{stdout}"

# It reads what a program wrote; one that takes longer than this hangs.
TIMEOUT_S = 60.0


@dataclass(frozen=True)
class CommandRunner:
    """What the commands of one trial have in common."""

    launcher: Path
    placeholders: Placeholders
    cpus: list[int]
    environment: Mapping[str, str]
    folder: Path
    stdout: Path

    def figure(self, metric: CommandMetric) -> float:
        """Run the command of `metric` and return its number; raise `Rejected` if there is none."""
        out, err = (self.folder / f"metric-{kind}.txt" for kind in ("out", "err"))
        exit_code = self._run(metric, out, err)
        if exit_code != 0:
            last_words = _last_line(err)
            said = f" (it says: {last_words})" if last_words else ""
            raise _failed(metric, f"{verdict.how_it_ended(exit_code)}{said}")
        printed = _last_line(out)
        try:
            return output.number(printed)
        except ValueError as error:
            raise verdict.Rejected(
                TrialStatus.MISMATCH,
                f"the last line that the command of metric {metric.name} prints is no usable "
                f"number: {printed[:80]!r}",
            ) from error

    def _run(self, metric: CommandMetric, out: Path, err: Path) -> int:
        words = self.placeholders.expand_all(metric.command)
        try:
            with Running(
                self.launcher,
                [word.replace(STDOUT_PLACEHOLDER, str(self.stdout)) for word in words],
                cpus=self.cpus,
                directory=self.placeholders.workload.here.resolve(),
                environment=preload.clean_environment(),
                changes=self.environment,
                stdin=None,
                stdout=out,
                stderr=err,
            ) as running:
                ended = running.wait(TIMEOUT_S)
        except CouldNotStart as error:
            raise _failed(metric, str(error)) from error
        if ended is None:
            raise _failed(metric, f"it still ran after {TIMEOUT_S:g} s")
        return ended.exit_code


def _failed(metric: CommandMetric, reason: str) -> verdict.Rejected:
    return verdict.Rejected(
        TrialStatus.FAILED, f"the command of metric {metric.name} failed: {reason}"
    )


def _last_line(path: Path) -> str:
    text = output.tail(path).decode(errors="replace").strip()
    return text.rpartition("\n")[2].strip()
