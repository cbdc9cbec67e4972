"""Whether a recording has all of its program: what lives at its end was never freed only then."""

from collections.abc import Mapping
from typing import Any

# Why recordings end with their programs, as the recorder says it. All else is before a program's
# end: a disk that is full, a request, a time that is over, a part that was cut out.
_ENDS_OF_PROGRAMS = (
    "exit",
    "_exit",
    "_Exit",
    "quick_exit",
    "SIGTERM",
    "SIGINT",
    "SIGHUP",
    "daemon",  # the process ended, and another one goes on
    "not served",
)
# What tools write; of which recordings they made the file stands beside it.
_WRITTEN_BY_TOOLS = ("written", "anonymised", "merged")
NO_END = "it was cut short"


def ended_early(end: Mapping[str, Any] | None) -> str:
    """Return why a recording ended before its program did; nothing if it did not.

    >>> ended_early({"reason": "exit"}), ended_early({"reason": "stop"}), ended_early(None)
    ('', 'stop', 'it was cut short')
    >>> ended_early({"reason": "merged", "ends": [{"reason": "exit"}, {"reason": "cut"}]})
    'cut'

    A part that was cut out up to the end of its trace ended as that did.

    >>> ended_early({"reason": "cut"}), ended_early({"reason": "cut", "ends": [{"reason": "exit"}]})
    ('cut', '')
    """
    if end is None:
        return NO_END
    reason = str(end.get("reason", "exit"))
    if reason in _WRITTEN_BY_TOOLS or "ends" in end:
        return next(filter(None, map(ended_early, end.get("ends", []))), "")
    return "" if reason in _ENDS_OF_PROGRAMS else reason
