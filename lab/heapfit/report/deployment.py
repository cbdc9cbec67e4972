"""The lines that put a recommendation to use: by heapfit, and by the environment alone."""

from __future__ import annotations

import shlex

from heapfit import catalogue, options
from heapfit.advice.values import values_of
from heapfit.findings import Advice
from heapfit.meaning import REPLAYED_TIME
from heapfit.records import InstalledAllocator, Study
from heapfit.text import visible
from heapfit.trial.placeholders import BUILTIN_NAMES
from heapfit.trial.preload import environment_changes

DEPLOYMENT = "To run what is recommended:"

# In place of a command that only means something within a trial.
_SOME_COMMAND = "CMD"


def deployment(study: Study, advice: Advice | None) -> list[str]:
    """Return the lines; none where there is nothing to change, or no line would do it."""
    if advice is None or advice.recommended is None or advice.keeps:
        return []
    values = values_of(study)
    chosen = next(each for each in values or study.allocators if each.name == advice.recommended)
    # Of a tool there is no such line, and of programs under one allocator nothing but the choice.
    if chosen.record is not None or chosen.wrapper or study.noun == "program":
        return []
    command = _command(study, chosen)
    word = shlex.quote(catalogue.treatment_word(chosen))
    lines = []
    if not values:  # The name of a value is no allocator's.
        word = shlex.quote(catalogue.treatment_word(chosen))
        lines.append(f"heapfit run --allocator {word} -- {command}")
    # Its own options alone: those that the reader's environment has are not of the study.
    changes = environment_changes(chosen, {options.VARIABLE: ""})
    variables = [f"{name}={shlex.quote(value)}" for name, value in changes.items() if value]
    if variables:
        lines.append(" ".join([*variables, command]))
    return [visible(line) for line in lines]


def _command(study: Study, chosen: InstalledAllocator) -> str:
    """Return the study's command as a shell takes it, if it stands on its own and is not the
    replayer of a recording."""
    words = study.command
    if any(metric.name == REPLAYED_TIME for metric in study.metrics):
        return _SOME_COMMAND
    if chosen.program is not None:
        own = chosen.parameters[catalogue.PROGRAM]
        words = [word.replace(catalogue.PLACEHOLDER, own) for word in words]
    names = {*BUILTIN_NAMES, *study.workload.parameters}
    if any(f"{{{name}}}" in word for name in names for word in words):
        return _SOME_COMMAND
    return shlex.join(words)
