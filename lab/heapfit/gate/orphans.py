"""Processes that outlive the program that has started them, as a daemon does.

While they are looked for, they become our children when their own parent ends
(PR_SET_CHILD_SUBREAPER), so that none is missed whatever it does to its environment or session.
"""

import ctypes
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from heapfit.host.proc import children

_SET_CHILD_SUBREAPER = 36  # prctl's
# A process that is about to end, as a pipe's last often is, gets so long.
_ENDING_S = 0.5
_LOOK_S = 0.02


@contextmanager
def adopted() -> Iterator[Callable[[], set[int]]]:
    """Yield the function that returns which processes, begun meanwhile, still run.

    They run on afterwards. Where the kernel lists no children, there are none.
    """
    before = set(children(os.getpid()))
    library = ctypes.CDLL(None)
    library.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield lambda: _left(before)
    finally:
        library.prctl(_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _left(before: set[int]) -> set[int]:
    until = time.monotonic() + _ENDING_S
    while True:
        begun = set(children(os.getpid())) - before
        found = {each for each in begun if not _reaped(each)}
        if not found or time.monotonic() >= until:
            return found
        time.sleep(_LOOK_S)


def _reaped(process: int) -> bool:
    try:
        return os.waitpid(process, os.WNOHANG)[0] == process
    except ChildProcessError:
        return True
