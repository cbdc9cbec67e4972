"""What a trial's levels come to for its program: parameters, options of heapfit's, environment.

A study sets some names and varies others, and a variant of an allocator sets some for its own
trials; a name that is mentioned in none of these ways has the workload's own default. The names are
those of `records.Factor`. No name is both varied and set by a variant: the plan sees to that.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from heapfit.records import ENVIRONMENT_PREFIX, OPTION_PREFIX, PlannedTrial, Study


@dataclass(frozen=True)
class Levels:
    """The values of one trial."""

    parameters: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, study: Study, planned: PlannedTrial) -> Levels:
        """Return the values of the trial `planned` of `study`."""
        own = study.allocator(planned.allocator).parameters
        values = {**study.workload.parameters, **study.parameters, **own, **planned.levels}
        return cls(
            parameters={name: values[name] for name in study.workload.parameters},
            options=_prefixed(values, OPTION_PREFIX),
            environment=_prefixed(values, ENVIRONMENT_PREFIX),
        )


def _prefixed(values: dict[str, str], prefix: str) -> dict[str, str]:
    return {
        name.removeprefix(prefix): value
        for name, value in values.items()
        if name.startswith(prefix)
    }
