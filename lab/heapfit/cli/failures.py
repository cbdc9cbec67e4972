"""Turn what went wrong into one line on stderr and an exit code."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from typing import Any

from heapfit.errors import HeapfitError, UsageError, unknown

DEBUG_VARIABLE = "HEAPFIT_DEBUG"
INTERRUPTED = 128 + 2  # What a shell reports for a program that SIGINT ended.


def reported(work: Callable[[], int]) -> int:
    """Do `work` and return its exit code; an error becomes a line that says what to do.

    With HEAPFIT_DEBUG=1 the error is raised as it is, with its traceback.
    """
    try:
        return _with_output_closed(work)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if os.environ.get(DEBUG_VARIABLE) == "1":
            raise
        message, exit_code = explain(error)
        if message:
            print(f"heapfit: {message}", file=sys.stderr)
        return exit_code


def explain(error: Exception) -> tuple[str, int]:
    """Return the line and the exit code for `error`; no line when nobody is left to read it."""
    if isinstance(error, HeapfitError):
        return _one_line(str(error)), error.exit_code
    if hasattr(error, "format_message"):  # Typer's own; it need not be loaded to know them.
        return _one_line(_usage(error)), UsageError.exit_code
    if isinstance(error, BrokenPipeError):
        return "", HeapfitError.exit_code
    if isinstance(error, OSError):
        return _one_line(_system(error)), HeapfitError.exit_code
    what = _one_line(f"{type(error).__name__}: {error}")
    return f"internal error: {what}; {DEBUG_VARIABLE}=1 shows where", HeapfitError.exit_code


def _with_output_closed(work: Callable[[], int]) -> int:
    """Do `work`, then flush: a full disk or a reader that has left must show here, not at exit."""
    try:
        exit_code = work()
        sys.stdout.flush()
        return exit_code
    except OSError:
        # What could not be written is still buffered, and Python would try again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def _usage(error: Any) -> str:
    option = getattr(error, "option_name", None)
    context = getattr(error, "ctx", None)
    if option and context:
        known = [name for param in context.command.params for name in getattr(param, "opts", ())]
        options = [name for name in known if name.startswith("-")]
        if option not in options:
            return _unknown_option(option, options, f"{context.command_path} --help")
    message = str(error.format_message()).rstrip(".")
    message = message[:1].lower() + message[1:]
    example = getattr(context.command, "epilog", None) if context and _is_missing(error) else None
    return f"{message}; {example[:1].lower()}{example[1:]}" if example else message


def _unknown_option(option: str, options: list[str], listed_by: str) -> str:
    """Of a single letter, those that begin with it are as near as each other."""
    letter = option.removeprefix("-")
    near = [f"{name!r}" for name in options if name.startswith(f"--{letter}")]
    if len(letter) == 1 and near:
        return f"unknown option {option!r}; did you mean {' or '.join(near)}?"
    return str(unknown("option", option, options, listed_by))


def _is_missing(error: Any) -> bool:
    return type(error).__name__ == "MissingParameter"


def _system(error: OSError) -> str:
    what = error.strerror or str(error)
    where = f"{error.filename}: " if error.filename else ""
    advice = {
        errno.ENOSPC: "; make room, then run the same command again",
        errno.EDQUOT: "; make room, then run the same command again",
        errno.EACCES: "; choose a place that you may write to",
        errno.EPERM: "; choose a place that you may write to",
    }.get(error.errno or 0, "")
    return f"{where}{what.lower()}{advice}"


def _one_line(text: str) -> str:
    return " ".join(text.split())
