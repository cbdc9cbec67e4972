"""Which processes of a run did its work, and whether the allocator served them.

A library that is mapped somewhere in the tree says little: `sh -c ./static-program` has it in `sh`,
and a program with a malloc of its own maps it and never calls it. So one run of each treatment that
is not timed is traced by `heapfit-launch`, which writes down what every process ran, how much
processor time it used, and what it had loaded when it ended (`launch.c` tells the format).

The dynamic loader binds malloc to the first definition that it finds: the program's, then those of
LD_PRELOAD in their order.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from heapfit.host.elf import has_malloc
from heapfit.host.program import why_not_replaced
from heapfit.text import percent

# Above this part of the processor time without the allocator, a run does not measure it.
_MOST = 0.5


@dataclass
class _Image:
    """What a process was when it became another program, or ended."""

    event: str
    process: int
    cpu_ns: int
    exe: str = ""
    preload: list[str] = field(default_factory=list)
    code: set[str] = field(default_factory=set)


def why_not_served(witness: Path, library: Path) -> str | None:
    """Return why a run is none of the allocator `library`; None where it is, or nothing is known.

    `witness` is the file that the launcher wrote.
    """
    total_ns = 0
    unserved_ns: Counter[tuple[str, str]] = Counter()
    for exe, image, cpu_ns in _programs(witness):
        total_ns += cpu_ns
        if why := _why_not(exe, image, str(library.resolve())):
            unserved_ns[exe, why] += cpu_ns
    if unserved_ns.total() <= _MOST * total_ns:
        return None
    [((exe, why), cpu_ns)] = unserved_ns.most_common(1)
    return f"{percent(cpu_ns / total_ns)} of the processor time went to {exe}: {why}"


def _programs(witness: Path) -> Iterator[tuple[str, _Image | None, int]]:
    """Yield each program that a process ran, with the nanoseconds that it used there.

    What a process had loaded is known at its end only; before that, only its file is.
    """
    running: dict[int, tuple[str, int]] = {}  # of a process, its program and its time until now
    for image in _images(witness):
        exe, before_ns = running.get(image.process, ("", 0))
        cpu_ns = max(0, image.cpu_ns - before_ns)
        if image.event == "exit":
            yield image.exe, image, cpu_ns
        elif exe:
            yield exe, None, cpu_ns
        running[image.process] = image.exe, image.cpu_ns


def _images(witness: Path) -> Iterator[_Image]:
    image: _Image | None = None
    for line in witness.read_text(errors="surrogateescape").splitlines():
        kind, _, rest = line.partition(" ")
        if kind in {"exec", "exit"}:
            if image is not None:
                yield image
            process, cpu_ns = map(int, rest.split())
            image = _Image(kind, process, cpu_ns)
        elif image is not None and kind == "exe":
            image.exe = rest
        elif image is not None and kind == "preload":
            image.preload = [os.path.realpath(each) for each in rest.replace(":", " ").split()]
        elif image is not None and kind == "code":
            image.code.add(rest)
    if image is not None:
        yield image


def _why_not(exe: str, image: _Image | None, library: str) -> str | None:
    """Return why the malloc of a program is not that of `library`; None: it is, so far as known."""
    if found := _why_not_replaced(exe):
        return found
    if image is None:
        return None
    if library not in image.code:
        return "the library was not loaded into it; does what starts it clear LD_PRELOAD?"
    # Some programs write their title over their environment, and so over the list.
    known = image.preload if library in image.preload else [library]
    before = known[: known.index(library)]
    first = next((each for each in before if each in image.code and _has_malloc(each)), None)
    return first and f"its malloc is that of {first}, which stands first in LD_PRELOAD"


@cache
def _why_not_replaced(exe: str) -> str | None:
    return why_not_replaced(Path(exe))


@cache
def _has_malloc(library: str) -> bool:
    return has_malloc(Path(library))
