"""The command line. `main` is the `heapfit` command; each command has a module of its own.

A command's module parses, calls and prints, nothing else; it is imported only when its command is
used. `heapfit run` and `heapfit lib` stand in front of other programs, so their usual forms are
understood without loading the parser that all the rest goes through.
"""

import io
import sys

from heapfit.cli.failures import reported
from heapfit.text import SPELLED_OUT


def main() -> None:
    """Run the command that the arguments name and exit: 0 done, 1 failed, 2 usage, 3 untold."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # None where it was closed
            stream.reconfigure(errors=SPELLED_OUT)
    sys.exit(reported(lambda: _dispatch(sys.argv[1:])))


def _dispatch(arguments: list[str]) -> int:
    from heapfit.cli.quick import done_quickly  # here, where Ctrl-C is answered

    if done_quickly(arguments):
        return 0
    from heapfit.cli.commands import application

    return application(arguments)
