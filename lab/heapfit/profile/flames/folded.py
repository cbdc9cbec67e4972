"""Stacks a line each, as FlameGraph's scripts, inferno and speedscope read them.

A line is the functions from the outermost on, joined by semicolons, a blank and the value.
"""

from collections import Counter

from heapfit.profile.flames.formats import Unit, What
from heapfit.profile.flames.stacks import Stacks, value
from heapfit.profile.trace import Summary
from heapfit.text import visible


def write(stacks: Stacks, summary: Summary, what: What, unit: Unit) -> bytes:
    """Return the lines, in alphabetical order; stacks of the same functions are one."""
    found: Counter[str] = Counter()
    for site, amounts in stacks.amounts.items():
        stack = ";".join(_word(name) for name, _ in stacks.frames(site))
        found[stack] += value(amounts, what, unit)
    lines = (f"{stack} {size}\n" for stack, size in sorted(found.items()) if size)
    return "".join(lines).encode(errors="replace")


def _word(name: str) -> str:
    """A name that neither ends its line nor its place in it.

    >>> _word("a;b\\n")
    'a:b\\\\n'
    """
    return visible(name).replace(";", ":")
