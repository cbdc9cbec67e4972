"""A study of one option's values under one allocator, as a contest between the values.

The values then are the treatments, the first of them the one to keep: what is recommended among
allocators is so among values, by the same verdicts, since both families hold the same pairs.
"""

from collections.abc import Sequence
from dataclasses import replace

from heapfit.records import (
    ENVIRONMENT_PREFIX,
    OPTION_PREFIX,
    Factor,
    InstalledAllocator,
    Study,
    Trial,
)
from heapfit.settings import level_label, varied
from heapfit.statistics.observations import Readings, read


class _OfValues(Study):
    @property
    def control(self) -> None:
        """Settings of one allocator have no baseline among them."""
        return None

    @property
    def noun(self) -> str:
        return "value"


def values_of(study: Study) -> list[InstalledAllocator]:
    """Return the allocator with each value of the one option or variable that the study varies,
    named after it; none where it varies more, or something that is not for a user to choose."""
    factors = varied(study)
    if len(study.allocators) > 1 or len(factors) != 1:
        return []
    [factor] = factors
    if not factor.name.startswith((OPTION_PREFIX, ENVIRONMENT_PREFIX)):
        return []
    return [_with(study.allocators[0], factor, level) for level in factor.levels]


def between_values(readings: Readings) -> Readings:
    """Return the readings with values as the treatments; as they are where `values_of` has none."""
    study = readings.study
    values = values_of(study)
    if not values:
        return readings
    contest = _OfValues(
        **{
            **{name: getattr(study, name) for name in Study.model_fields},
            "allocators": values,
            "baseline": values[0].name,
            "factors": [each for each in study.factors if len(each.levels) == 1],
        }
    )
    [factor] = varied(study)
    names = dict(zip(factor.levels, (each.name for each in values), strict=True))
    made = read(contest, _renamed(readings.trials, factor.name, names))
    return replace(made, figures=readings.figures)


def _with(allocator: InstalledAllocator, factor: Factor, level: str) -> InstalledAllocator:
    """Name it as verdicts between settings do."""
    own, changed = ("options", OPTION_PREFIX), ("environment", ENVIRONMENT_PREFIX)
    field, prefix = own if factor.name.startswith(OPTION_PREFIX) else changed
    settings = {**getattr(allocator, field), factor.name.removeprefix(prefix): level}
    return allocator.model_copy(update={"name": level_label(factor.name, level), field: settings})


def _renamed(trials: Sequence[Trial], factor: str, names: dict[str, str]) -> list[Trial]:
    made = []
    for trial in trials:
        levels = dict(trial.planned.levels)
        name = names[levels.pop(factor)]
        planned = trial.planned.model_copy(update={"allocator": name, "levels": levels})
        made.append(trial.model_copy(update={"planned": planned}))
    return made
