"""Show a study's answer: the tables, or JSON, and where the page is."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heapfit.cli.output import print_json, printable_json, results, say_page, warn
from heapfit.study import is_running, note_look
from heapfit.study.journal import EARLIER
from heapfit.study.series import parts_of
from heapfit.text import counted

if TYPE_CHECKING:
    from heapfit.records import Summary
    from heapfit.report import Reading

_COUNTS = ("trials_done", "trials_planned")


def show(
    folder: Path,
    *,
    as_json: bool,
    beside: Callable[[Reading], dict[str, Any]] | None = None,
    weights: Mapping[str, float] | None = None,
) -> Path:
    """Print the answer of the study in `folder`, write its page and return the page's path.

    What is found `beside` it is part of the JSON. `weights` replace those of the study.
    """
    _collect_no_cycles()
    # SciPy and Plotly take a second to load; a typing mistake is told without waiting for them.
    from heapfit.report import json_report, read, terminal, write_reading

    reading = read(folder, weights)
    _say_how_far(folder, [reading.summary], 1)
    more = beside(reading) if beside else {}
    if as_json and more:
        report = json.loads(json_report.text(reading))
        print_json({**report, **more})
    elif as_json:
        print(printable_json(json_report.text(reading)), end="")
    else:
        terminal.render(reading, results)
        results.print()
    if reading.blocks:
        note_look(folder, reading.blocks)
    page = write_reading(reading, folder)  # What stands in its way does not hide the answer.
    say_page(page, as_json=as_json)
    return page


def show_series(folder: Path, *, as_json: bool) -> Path:
    """Do the same for the study of many parts in `folder`."""
    _collect_no_cycles()
    from heapfit.report import SeriesReading, json_report, terminal, write_series

    reading = SeriesReading(folder)
    summary = reading.summary
    measured = {**summary.workloads, **summary.probes, **summary.experiments}
    begun = [each for name, each in measured.items() if name not in summary.problems]
    _say_how_far(folder, begun, len(parts_of(summary.series)) - len(summary.problems))
    if as_json:
        print(printable_json(json_report.series_text(reading)), end="")
    else:
        terminal.render_series(reading, results)
        results.print()
    for name, part in reading.parts.items():  # The page of each has verdicts.
        if part.blocks:
            note_look(folder / name, part.blocks)
    page = write_series(reading, folder)
    say_page(page, as_json=as_json)
    return page


def _say_how_far(folder: Path, begun: Sequence[Summary], parts: int) -> None:
    """Say so, before the figures, where they are of a study that is not finished."""
    done, planned = (sum(getattr(each, name) for each in begun) for name in _COUNTS)
    running = is_running(folder)
    if done < planned or len(begun) < parts or running:
        where = f" of {len(begun)} of {parts} parts" if parts > 1 else ""
        state = "is still running" if running else "is not finished"
        then = "" if running else "; repeat its command to continue"
        if folder.absolute().parent.name == EARLIER:
            then = "; it was put aside and will not be continued"
        counts = f"{done:,} of {counted(planned, 'trial')}{where} are done so far"
        warn(f"note: the study in {folder} {state}: {counts}{then}")


def _collect_no_cycles() -> None:
    """Stop looking for cycles: records have none, the command ends soon, and looking through a
    hundred thousand trials again and again takes longer than reading them."""
    gc.disable()
