"""A fit as one page, `fit.html`: the answer, the trade-off drawn, what was tried, how to deploy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from heapfit import __version__
from heapfit.advice import recommend
from heapfit.files import write_text
from heapfit.fit.answer import interval
from heapfit.fit.deploy import shell_line
from heapfit.fit.facts import labelled
from heapfit.fit.goal import BALANCE, parse
from heapfit.fit.state import State
from heapfit.report import Reading
from heapfit.report.page import FigureStore, render
from heapfit.report.pareto import pareto
from heapfit.report.recommendation import titles
from heapfit.text import shell_word

FILE = "fit.html"
_REMEDY = "the trials are safe, so make room and repeat the command"


def write(state: State, reading: Reading | None, files: Sequence[Path], folder: Path) -> Path:
    """Write the page of a fit that has its answer into `folder`, and return its path. `reading` is
    of the study with the verdict, `files` are those that deploy the choice."""
    answer = state.answer
    assert answer is not None, "it is written when there is one"
    trade_off = None
    if reading is not None:
        names = [each.name for each in reading.study.allocators]
        advice = recommend(reading.readings, parse(BALANCE).weights)
        trade_off = pareto(advice, names, titles(advice, reading.study))
    text = render(
        "fit.html.j2",
        FigureStore(),
        title=reading.study.workload.title if reading else state.request.command,
        command=state.request.command,
        answer=answer,
        facts=labelled(state.facts) if state.facts else {},
        notes=state.notes,
        interval=interval,
        trade_off=trade_off,
        candidates=state.candidates,
        deploy=[(each.name, each.read_text(encoding="utf-8")) for each in files],
        shell_line=shell_line(files[0]) if files else "",
        shell_word=shell_word,
        where=files[0].parent if files else None,
        generator=f"heapfit {__version__}",
    )
    path = folder / FILE
    write_text(path, text, _REMEDY)
    return path
