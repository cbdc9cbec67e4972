"""The usual forms of `heapfit run` and `heapfit lib`, understood with the standard library alone.

Whatever is not plainly one of these forms (a question for help, a typing mistake, --json) is left
to the full parser, which knows how to explain itself. Loading that one takes some 0.1 s, too much
in front of a program that is started often; this takes a fifth of it. A shell that completes a
command line is answered here, too.
"""

import os
import sys

from heapfit import paths
from heapfit.cli.completion import completed
from heapfit.cli.launch import become, environment_changes, refined

_OPTIONS = ("--variant", "--set")
_SWITCHES = ("--control", "--guard")


def done_quickly(arguments: list[str]) -> bool:
    """Do what `arguments` ask for when they are a usual form; return whether they were.

    For `run` this does not return: the process becomes the program.
    """
    if completed():
        return True
    if arguments == ["lib"]:
        sys.stdout.buffer.write(os.fsencode(paths.library()) + b"\n")
        return True
    if arguments[:1] == ["run"] and "--" in arguments:
        divider = arguments.index("--")
        options, command = _options(arguments[1:divider]), arguments[divider + 1 :]
        if options is not None and command:
            given: dict[str, list[str]] = {}
            for name, value in options:
                given.setdefault(name, []).append(value)
            variant = given.get("--variant", [paths.DEFAULT_VARIANT])[-1]
            settings = refined("--control" in given, "--guard" in given, given.get("--set", []))
            become(command, environment_changes(variant, settings))
    return False


def _options(words: list[str]) -> list[tuple[str, str]] | None:
    """Return the options in `words` with their values; None unless all are well-formed."""
    pairs: list[tuple[str, str]] = []
    rest = iter(words)
    for name in rest:
        value = "" if name in _SWITCHES else next(rest, "-")
        if name not in (*_OPTIONS, *_SWITCHES) or value.startswith("-"):
            return None
        pairs.append((name, value))
    return pairs
