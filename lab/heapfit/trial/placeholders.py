"""A trial's parameters, options and variables, and the placeholders of a workload's texts.

`{data}`, `{here}`, `{scratch}`, `{port}`, `{cores}` and parameters are expanded. Other braces
belong to the command (awk, JSON, shell) and stay.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from heapfit.errors import UsageError
from heapfit.records import ENVIRONMENT_PREFIX, OPTION_PREFIX, Study, Workload


@dataclass(frozen=True)
class Levels:
    """The parameters, options of heapfit's and variables of one trial.

    A study sets some names and varies others, and a variant of an allocator sets some for its own
    trials; any other name has the workload's own default. The names are those of `records.Factor`.
    The plan refuses a name that is both varied and set by a variant.
    """

    parameters: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, study: Study, allocator: str, levels: Mapping[str, str]) -> Levels:
        """Return the values of the trials of `allocator` at these levels of the study's factors."""
        own = study.allocator(allocator).parameters
        values = {**study.workload.parameters, **study.parameters, **own, **levels}
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


BUILTIN_NAMES = ("data", "here", "scratch", "port", "cores")


def _braced(names: Iterable[str]) -> re.Pattern[str]:
    return re.compile(r"\{(" + "|".join(map(re.escape, names)) + r")\}")


_BUILTIN = _braced(BUILTIN_NAMES)


@dataclass(frozen=True)
class Placeholders:
    """The values of one trial."""

    workload: Workload
    scratch: Path
    cores: int
    data: Path | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def port(self) -> int:
        """A loopback port that is free now; chosen once per trial."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return int(probe.getsockname()[1])

    def expand(self, text: str) -> str:
        """Return `text` with its placeholders replaced.

        The value of a parameter may hold the built-in ones (`threads = "{cores}"`), not others.
        """
        return self._parameter_names.sub(
            lambda found: self._expand_builtin(self.parameters.get(found[1], found[0])), text
        )

    def expand_all(self, texts: Iterable[str]) -> list[str]:
        return [self.expand(text) for text in texts]

    @cached_property
    def _parameter_names(self) -> re.Pattern[str]:
        return _braced([*BUILTIN_NAMES, *self.parameters])

    def _expand_builtin(self, text: str) -> str:
        return _BUILTIN.sub(lambda found: self._value(found[1]), text)

    def _value(self, name: str) -> str:
        if name == "here":
            return str(self.workload.here.resolve())
        if name == "data" and self.data is None:
            raise UsageError(
                f"workload {self.workload.name!r} uses {{data}} but has no [prepare] step"
            )
        return str(getattr(self, name))
