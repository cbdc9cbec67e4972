"""The options of the heapfit library: their names, kinds of value, and how they are written.

This table is what the command line checks `--set` against. The library reads the same names from
`HEAPFIT_OPTIONS="name:value,name:value"`. Standard library only, see `paths`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from heapfit.errors import UsageError, unknown

VARIABLE = "HEAPFIT_OPTIONS"

_SIZE = re.compile(r"\d+[kmg]?", re.IGNORECASE)
_NUMBER = re.compile(r"\d+")
_SWITCH = ("0", "1")


@dataclass(frozen=True)
class Option:
    """An option of the library. `choices` is set for those that take one of a few words."""

    name: str
    meaning: str
    kind: str = "size"
    choices: tuple[str, ...] = ()

    def check(self, value: str) -> None:
        """Raise UsageError unless the library would accept `value`."""
        if self.choices and value not in self.choices:
            raise unknown(f"value of option {self.name}:", value, self.choices)
        if self.kind == "size" and not _SIZE.fullmatch(value):
            raise UsageError(f"option {self.name}: {value!r} is no size; write one like 64k or 2m")
        if self.kind == "number" and not _NUMBER.fullmatch(value):
            raise UsageError(f"option {self.name}: {value!r} is no whole number")
        if not value or "," in value:
            raise UsageError(f"option {self.name}: the value must not be empty or hold a comma")


def _switch(name: str, meaning: str) -> Option:
    return Option(name, meaning, "switch", _SWITCH)


OPTIONS: dict[str, Option] = {
    option.name: option
    for option in (
        Option("lockless_threads", "thread heaps before threads share heaps", "number"),
        Option("free_page_threshold", "free committed bytes kept per heap before purging"),
        Option("thread_span_threshold", "free address space kept per thread"),
        Option("shared_span_threshold", "free address space kept in the shared cache"),
        Option("decay_ms", "age after which free memory is purged", "number"),
        Option("remote_free_batch", "frees collected before a remote batch is sent", "number"),
        Option(
            "huge_pages",
            "when 2 MiB pages back the heap",
            "choice",
            ("never", "auto", "always", "hugetlb"),
        ),
        Option("zeroed_reserve", "bytes kept cleared for calloc"),
        _switch("cache_line_align", "round small blocks to cache lines"),
        Option("numa", "memory from the thread's own node", "choice", ("auto", "off")),
        Option("profile", "file for the recorder's trace", "path"),
        Option("pool_min_objects", "objects of a group before it gets a pool", "number"),
        Option("pool_max_size", "largest object that is pooled"),
        _switch("stats_at_exit", "print statistics at exit"),
        _switch("verbose", "print what was understood"),
    )
}


def parse_settings(settings: Iterable[str]) -> dict[str, str]:
    """Turn `name=value` words into a dictionary, checking every name and value.

    >>> parse_settings(["decay_ms=10", "huge_pages=never"])
    {'decay_ms': '10', 'huge_pages': 'never'}
    """
    parsed = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise UsageError(f"--set takes name=value, not {setting!r}")
        if name not in OPTIONS:
            raise unknown("option", name, OPTIONS)
        OPTIONS[name].check(value)
        parsed[name] = value
    return parsed


def merge(existing: str, settings: dict[str, str]) -> str:
    """Return the value of `HEAPFIT_OPTIONS` with `settings` in place of what `existing` says.

    What `existing` holds beyond `settings` is left as it is, whether understood or not: the
    library itself reports nonsense.

    >>> merge("decay_ms:5,verbose:1", {"decay_ms": "10"})
    'verbose:1,decay_ms:10'
    """
    kept = [entry for entry in existing.split(",") if entry.split(":")[0] not in settings]
    return ",".join([*filter(None, kept), *(f"{name}:{value}" for name, value in settings.items())])
