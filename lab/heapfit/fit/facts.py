"""What is known of a program before anything is tried on it, and conditions on that.

A fact that nothing is known of is None; a condition on it is neither met nor missed, and what
depends on it is tried.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable

from heapfit.errors import UsageError, unknown
from heapfit.options import size_in_bytes
from heapfit.records import Record
from heapfit.text import bytes_text, percent

_CONDITION = re.compile(r"(\w+) (<|>|>=) ([0-9.]+)([kmg]?)")
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    ">": operator.gt,
    ">=": operator.ge,
}


class Facts(Record):
    """What a program does, in base units; shares are parts of one."""

    cores: float  # that it may use
    python: float  # 1: its malloc is called by Python
    php: float = 0  # likewise
    ruby: float = 0
    # How its interpreter keeps objects where no malloc is called, so that no recording has them.
    hidden: str = ""
    grows: str = ""  # who holds more and more, so that it is the program that needs mending
    huge_pages: float | None  # 0: never, 1: where they are asked for, 2: always
    wall_s: float | None = None
    processor_share: float | None = None  # processor time of wall time
    faults_per_s: float | None = None  # minor page faults, but for the first of each page
    peak_rss_bytes: float | None = None
    threads: float | None = None  # of one process, at the same time
    # From a recording:
    allocating_threads: float | None = None
    allocations: float | None = None  # of a whole run
    allocations_per_s: float | None = None
    live_bytes: float | None = None  # at most
    live_share: float | None = None  # of the heap's own memory, anonymous, what was live at most
    mean_live_share: float | None = None  # likewise, over the recording's course
    large_share: float | None = None  # of the bytes, those in blocks of more than 32 KiB
    remote_share: float | None = None  # of the frees, those by another thread


_OF_USE = ("live_share", "mean_live_share")
_INTERPRETERS = {"python": "Python", "php": "PHP", "ruby": "Ruby"}
# How each is told, in the order in which it is.
_LABELS = {
    "wall_s": "one run",
    "processor_share": "on a processor",
    "cores": "cores",
    "threads": "threads at once",
    "allocating_threads": "threads that allocate",
    "peak_rss_bytes": "peak resident memory",
    "live_share": "in use at the peak",
    "mean_live_share": "in use on average",
    "faults_per_s": "repeated page faults a second",
    "allocations_per_s": "allocations a second",
    "large_share": "bytes in blocks above 32 KiB",
    "remote_share": "freed by another thread",
}
_HUGE_PAGES = {0.0: "never", 1.0: "on request (madvise)", 2.0: "always"}


def labelled(facts: Facts) -> dict[str, str | None]:
    """Return the facts that there are, by what they are called."""
    known = facts.model_dump()
    return {
        label: shown(name, known[name])
        for name, label in _LABELS.items()
        if known[name] is not None
    }


def of_mean(condition: str) -> str:
    """Return a condition as one on the mean of memory, in place of its peak.

    >>> of_mean("live_share < 0.8"), of_mean("threads > 2")
    ('mean_live_share < 0.8', 'threads > 2')
    """
    name, *rest = condition.split()
    return " ".join([f"mean_{name}" if name == "live_share" else name, *rest])


def shown(name: str, value: float) -> str:
    """Return a fact as it is told.

    >>> shown("live_share", 0.5), shown("peak_rss_bytes", 2**20), shown("threads", 4)
    ('50 %', '1 MiB', '4')
    """
    if name.endswith("_share"):
        return percent(value)
    if name.endswith("_bytes"):
        return bytes_text(round(value))
    return f"{value:.2f} s" if name == "wall_s" else f"{value:,.0f}"


def holds(condition: str, facts: Facts) -> bool | None:
    """Return whether `condition` is met; None: nothing is known of its fact.

    >>> facts = Facts(cores=2, python=0, huge_pages=1, threads=4)
    >>> holds("threads > 2", facts), holds("python >= 1", facts), holds("live_share < 0.8", facts)
    (True, False, None)
    """
    name, sign, bound = _parsed(condition)
    value = getattr(facts, name)
    if name in _OF_USE and facts.hidden:
        return False
    return None if value is None else _COMPARE[sign](value, bound)


def is_of_interpreter(condition: str) -> bool:
    """Whether a condition asks for a program that an interpreter runs."""
    return _parsed(condition)[0] in _INTERPRETERS


def is_of_idle(conditions: Iterable[str]) -> bool:
    """Whether conditions ask for a program that sleeps."""
    return any(_parsed(each)[0] == "processor_share" for each in conditions)


def told(condition: str, facts: Facts) -> str:
    """Return a condition with what its fact is: `threads at once: 4, not > 4`."""
    name, sign, bound = _parsed(condition)
    value, met = getattr(facts, name), holds(condition, facts)
    if name in _OF_USE and facts.hidden:
        return f"{_LABELS[name]}: not known, for {facts.hidden}"
    if is_of_interpreter(condition):
        return f"it is {'' if met else 'not '}a {_INTERPRETERS[name]} program"
    if name == "huge_pages":
        return f"huge pages: {_HUGE_PAGES[value]}"
    if name == "processor_share":
        return "the program sleeps" if met else "the program does not sleep"
    said = f"{_LABELS[name]}: {shown(name, value)}"
    return said if met else f"{said}, not {sign} {shown(name, bound)}"


def asked(condition: str) -> str:
    """Return a condition of which nothing is known yet.

    >>> asked("peak_rss_bytes > 64m"), asked("processor_share < 0.5")
    ('peak resident memory > 64 MiB', 'the program sleeps')
    """
    name, sign, bound = _parsed(condition)
    if name == "processor_share":
        return "the program sleeps"
    if name == "huge_pages":
        return "huge pages: always" if bound > 1 else "huge pages are on"
    return f"{_LABELS[name]} {sign} {shown(name, bound)}"


def _parsed(condition: str) -> tuple[str, str, float]:
    found = _CONDITION.fullmatch(condition)
    if found is None:
        raise UsageError(f"{condition!r} is no condition such as 'threads > 2'")
    name, sign, number, suffix = found.groups()
    if name not in Facts.model_fields:
        raise unknown("fact", name, Facts.model_fields)
    return name, sign, float(number) * size_in_bytes(f"1{suffix}")
