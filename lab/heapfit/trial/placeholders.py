"""Expand `{data}`, `{here}`, `{scratch}`, `{port}`, `{cores}` and parameters in a workload's texts.

Only these names are touched: other braces belong to the command (awk, JSON, shell) and stay.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from heapfit.errors import UsageError
from heapfit.records import Workload

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
        match name:
            case "here":
                return str(self.workload.here.resolve())
            case "scratch":
                return str(self.scratch)
            case "port":
                return str(self.port)
            case "cores":
                return str(self.cores)
            case _:
                return self._data_folder()

    def _data_folder(self) -> str:
        if self.data is None:
            raise UsageError(
                f"workload {self.workload.name!r} uses {{data}} but has no [prepare] step"
            )
        return str(self.data)
