"""The options of the heapfit library: their names, kinds of value, and how they are written.

This table is what the command line checks `--set` against; it says the same as the table in
`allocator/api/options_table.c`, by which `HEAPFIT_OPTIONS="name:value,name:value"` is read, by each
variant of the library those that it has. Standard library only, see `paths`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from heapfit.errors import UsageError, unknown

VARIABLE = "HEAPFIT_OPTIONS"

_UNLIMITED = "unlimited"
_SUFFIXES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_VALUE = re.compile(r"([0-9]+)([kmg]?)", re.IGNORECASE)


@dataclass(frozen=True)
class Option:
    """An option of the library. A size may be written with a suffix; a flag is 0 or 1; a choice
    is one of its words, which the library numbers from `minimum` to `maximum`; the word "unlimited"
    may stand for a maximum that is no limit; and `words` for the minimum and the maximum. `variant`
    is the only library that has it; None: all have."""

    name: str
    kind: Literal["number", "size", "flag", "choice"]
    minimum: int
    maximum: int
    choices: tuple[str, ...] = ()
    unlimited: bool = False
    words: tuple[str, ...] = ()
    variant: str | None = None

    def check(self, value: str) -> None:
        """Raise UsageError unless the library accepts `value`."""
        if self.kind == "choice":
            if value not in self.choices:
                raise unknown(f"value of {self.name}", value, self.choices)
            return
        if (self.unlimited and value == _UNLIMITED) or value in self.words:
            return
        written = _VALUE.fullmatch(value)
        if written is None or (written[2] and self.kind != "size"):
            raise UsageError(f"option {self.name}: {value!r} is not a {self._wanted()}")
        if not self.minimum <= size_in_bytes(value) <= self.maximum:
            raise UsageError(
                f"option {self.name}: {value!r} is not between {self.minimum} and {self.maximum}"
            )

    def _wanted(self) -> str:
        return {
            "number": "whole number",
            "size": "size; write one like 64k or 2m",
            "flag": "flag; write 0 or 1",
        }[self.kind]


def size_in_bytes(text: str) -> int:
    """Return the number that a size stands for; ValueError when it is none.

    >>> size_in_bytes("512k")
    524288
    """
    written = _VALUE.fullmatch(text)
    if written is None:
        raise ValueError(f"{text!r} is not a size")
    return int(written[1]) * _SUFFIXES[written[2].lower()]


_NUMBER_UNLIMITED = (1 << 32) - 1
_BYTES_UNLIMITED = 1 << 46

POOLS = "pools"
HARDENED = "hardened"
_PLACINGS = ("judged", "all", "none", "off")
_CHAINS = ("adaptive", "1", "2", "3", "4", "full")

OPTIONS: dict[str, Option] = {
    option.name: option
    for option in (
        Option("lockless_threads", "number", 0, _NUMBER_UNLIMITED, unlimited=True),
        Option("share_first", "number", 0, _NUMBER_UNLIMITED, unlimited=True),
        Option("free_page_threshold", "size", 0, _BYTES_UNLIMITED, unlimited=True),
        Option("thread_span_threshold", "size", 0, _BYTES_UNLIMITED, unlimited=True),
        Option("shared_span_threshold", "size", 0, _BYTES_UNLIMITED, unlimited=True),
        Option("decay_ms", "number", 0, (1 << 31) - 1, unlimited=True),
        Option("remote_free_batch", "number", 1, 4096),
        Option("remote_free_bytes", "size", 1, _BYTES_UNLIMITED, unlimited=True),
        Option("remote_free_hand_over", "choice", 0, 1, choices=("full", "refill")),
        Option("huge_pages", "choice", 0, 3, choices=("never", "auto", "always", "hugetlb")),
        Option("memory_limit", "size", 0, _BYTES_UNLIMITED, words=("auto", "none")),
        Option("background", "choice", 0, 2, choices=("off", "on", "auto")),
        Option("zeroed_reserve", "size", 0, _BYTES_UNLIMITED),
        Option("cache_line_align", "flag", 0, 1),
        Option("numa", "choice", 0, 1, choices=("auto", "off")),
        Option("reservation", "size", 0, 1 << 46),
        Option("control", "choice", 0, 1, choices=("off", "on")),
        Option("deepbind", "choice", 0, 1, choices=("drop", "keep")),
        Option("guard_sample", "size", 0, _BYTES_UNLIMITED),
        Option("sample", "size", 0, _BYTES_UNLIMITED),
        Option("stats_at_exit", "choice", 0, 2, choices=("0", "1", "json")),
        Option("verbose", "flag", 0, 1),
        Option("check_family", "flag", 0, 1, variant=HARDENED),
        Option("pools", "choice", 0, 3, choices=_PLACINGS, variant=POOLS),
        Option("pool_chain", "choice", 0, 5, choices=_CHAINS, variant=POOLS),
        Option("pool_merge", "flag", 0, 1, variant=POOLS),
        Option("pool_headers", "flag", 0, 1, variant=POOLS),
        Option("pool_segment_size", "size", 4096, 65536, variant=POOLS),
        Option("pool_min_objects", "number", 1, 1 << 20, variant=POOLS),
        Option("pool_max_size", "size", 16, 1024, variant=POOLS),
    )
}

# The setting with which a program can be asked and steered from outside (`heapfit.live`).
CONTROL_ON = "control=on"
# The one with which memory errors are looked for: for a service, a few dozen objects a second at
# most, and one page in memory for 32 MiB that live.
GUARD_ON = "guard_sample=32m"


def check(name: str, value: str) -> None:
    """Raise UsageError unless there is an option `name` that accepts `value`."""
    if name not in OPTIONS:
        raise unknown("option", name, OPTIONS)
    OPTIONS[name].check(value)


def parse_settings(settings: Iterable[str], variant: str) -> dict[str, str]:
    """Turn `name=value` words into a dictionary, checking every name and value.

    >>> parse_settings(["decay_ms=10", "thread_span_threshold=1m"], "default")
    {'decay_ms': '10', 'thread_span_threshold': '1m'}
    """
    parsed = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            meant = setting.replace(":", "=", 1) if ":" in setting else f"{setting}=VALUE"
            raise UsageError(f"an option is set by name=value: write {meant}, not {setting!r}")
        if name not in OPTIONS:
            raise unknown("option", name, OPTIONS)
        if OPTIONS[name].variant not in (None, variant):
            raise UsageError(f"only the variant {OPTIONS[name].variant} has the option {name}")
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
    entries = existing.split(",")
    kept = [entry for entry in entries if entry.split(":")[0].strip() not in settings]
    return ",".join([*filter(None, kept), *(f"{name}:{value}" for name, value in settings.items())])
