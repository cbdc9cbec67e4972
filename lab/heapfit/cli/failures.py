"""Turn what went wrong into one line on stderr and an exit code."""

import errno
import os
import sys
import textwrap
from collections.abc import Callable
from typing import Any

from heapfit.errors import HeapfitError, UsageError, unknown
from heapfit.text import SPELLED_OUT

DEBUG_VARIABLE = "HEAPFIT_DEBUG"
_NUMBERS = {"int": "a whole number", "float": "a number"}  # of a type as pydantic names it
# What a shell reports for a program that a signal ended: SIGINT; SIGPIPE, which Python ignores.
INTERRUPTED = 128 + 2
READER_LEFT = 128 + 13


class Interrupted(HeapfitError):
    """Ctrl-C, where a command has nothing of its own to say of it."""

    exit_code = INTERRUPTED


def reported(work: Callable[[], int]) -> int:
    """Do `work` and return its exit code; an error becomes a line that says what to do.

    With HEAPFIT_DEBUG=1 the error is raised as it is, with its traceback.
    """
    try:
        return _with_output_closed(work)
    except KeyboardInterrupt:
        print("heapfit: interrupted", file=sys.stderr)
        return INTERRUPTED
    except SystemExit as ended:  # Typer ends so, with a 1, when nobody reads any more.
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        return READER_LEFT
    except Exception as error:
        if os.environ.get(DEBUG_VARIABLE) == "1":
            raise
        message, exit_code = explain(error)
        if message:
            print(_wrapped(f"heapfit: {message}"), file=sys.stderr)
        return exit_code


def explain(error: Exception) -> tuple[str, int]:
    """Return the line and the exit code for `error`; no line when nobody is left to read it."""
    exit_code = getattr(error, "exit_code", HeapfitError.exit_code)
    if isinstance(error, HeapfitError):
        return _one_line(str(error)), exit_code
    if hasattr(error, "format_message"):  # Typer's own; it need not be loaded to know them.
        return _one_line(_usage(error)), UsageError.exit_code
    if isinstance(error, BrokenPipeError):
        return "", READER_LEFT
    if isinstance(error, OSError):
        return _one_line(_system(error)), exit_code
    what = _one_line(f"{type(error).__name__}: {error}")
    return f"internal error: {what}; {DEBUG_VARIABLE}=1 shows where", exit_code


def _wrapped(line: str) -> str:
    """Return `line` in lines of whole words where a terminal shows them; words stay whole."""
    try:
        width = os.get_terminal_size(sys.stderr.fileno()).columns
        return textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)
    except (OSError, ValueError):  # It is none, or one that gives 0 for a width that it lacks.
        return line


def _with_output_closed(work: Callable[[], int]) -> int:
    """Do `work`, then flush: a full disk or a reader that has left must show here, not at exit."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # The descriptor was closed when the program started.
            setattr(sys, name, open(os.devnull, "w", errors=SPELLED_OUT))  # noqa: SIM115
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
    message = _bad_value(error) or str(error.format_message()).rstrip(".")
    message = message[:1].lower() + message[1:]
    if context and message.startswith("got unexpected"):
        takes_program = "-- CMD" in context.command.get_usage(context)
        advice = f"; for a program write -- before it: {context.command_path} -- CMD"
        return f"{message}{advice if takes_program else ''}"
    example = getattr(context.command, "epilog", None) if context and _is_missing(error) else None
    return f"{message}; {example[:1].lower()}{example[1:]}" if example else message


_SHOULD_BE = "Input should be "  # pydantic's way to say it


def _bad_value(error: Any) -> str | None:
    """What Typer leaves to pydantic: name the value, and what was expected of it."""
    errors = getattr(error.__cause__, "errors", None)
    if errors is None:
        return None
    first = errors()[0]
    kind = str(first["type"]).partition("_")[0]
    name = max(error.param.opts, key=len)
    if kind in _NUMBERS:
        return f"{name} takes {_NUMBERS[kind]}, not {first['input']!r}"
    said = str(first["msg"]).removeprefix("Value error, ").rstrip(".")
    if said.startswith(_SHOULD_BE):
        return f"{name} must be {said.removeprefix(_SHOULD_BE)}, not {first['input']}"
    return f"{name}: {said}"


def _unknown_option(option: str, options: list[str], listed_by: str) -> str:
    """Those that begin with it, or with a single letter, are as near as each other."""
    begins = f"-{option}" if len(option) == len("-x") else option
    near = [f"{name!r}" for name in options if begins.startswith("--") and name.startswith(begins)]
    if near:
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
        errno.EACCES: _permission(error.filename),
        errno.EPERM: _permission(error.filename),
    }.get(error.errno or 0, "")
    return f"{where}{what.lower()}{advice}"


def _permission(file: object) -> str:
    """Return the advice on a file that may not be opened: most are results to be written."""
    if isinstance(file, str) and os.path.exists(file) and not os.access(file, os.R_OK):
        return "; run heapfit as a user who may read it"
    if isinstance(file, str) and file.startswith("/proc/"):
        return "; run heapfit as the user of that process, or as root with CAP_SYS_PTRACE"
    return "; choose a place that you may write to"


def _one_line(text: str) -> str:
    """Join lines; spaces within them stay, as they may be a command's."""
    return " ".join(filter(None, map(str.strip, text.splitlines())))
