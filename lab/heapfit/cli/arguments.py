"""What the commands' arguments share: the user's own program, lists, and the common options."""

from __future__ import annotations

from typing import Annotated

import typer

from heapfit.errors import UsageError

AsJson = Annotated[
    bool, typer.Option("--json", help="Print JSON, for programs, instead of text for people.")
]


def split_program(arguments: list[str]) -> tuple[list[str], list[str] | None]:
    """Split heapfit's own arguments from the user's program, which follows the first `--`.

    >>> split_program(["run", "--set", "verbose=1", "--", "make", "--", "all"])
    (['run', '--set', 'verbose=1'], ['make', '--', 'all'])
    >>> split_program(["doctor"])
    (['doctor'], None)
    """
    if "--" not in arguments:
        return arguments, None
    divider = arguments.index("--")
    return arguments[:divider], arguments[divider + 1 :]


def split_list(text: str) -> list[str]:
    """Return the items of a comma-separated list.

    >>> split_list("glibc, heapfit")
    ['glibc', 'heapfit']
    """
    return [item.strip() for item in text.split(",") if item.strip()]


def split_cores(text: str, available: int) -> list[int]:
    """Return the numbers of cores of a comma-separated list, each between 1 and `available`.

    Raises UsageError for anything else.
    """
    cores = []
    for item in split_list(text):
        if not item.isdecimal() or not 1 <= int(item) <= available:
            raise UsageError(
                f"--cores takes numbers from 1 to {available} (what this machine has), not {item!r}"
            )
        cores.append(int(item))
    if not cores:
        raise UsageError("--cores needs at least one number of cores")
    return sorted(set(cores))
