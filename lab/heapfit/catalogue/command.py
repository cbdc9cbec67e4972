"""Run the helper programs of an installation: apt-get, dpkg-query, pip, preparations."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from heapfit.errors import HeapfitError


def run_quietly(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    timeout_s: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `command` with its output captured, whatever its exit code; no terminal as its input.

    `environment` is added to this process's own, without LD_PRELOAD: a helper runs on the system's
    allocator. Raises HeapfitError when the program is missing or takes longer than `timeout_s`.
    """
    inherited = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    try:
        return subprocess.run(
            command,
            env={**inherited, **(environment or {})},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except FileNotFoundError as error:
        raise HeapfitError(f"cannot run {command[0]!r}: no such program") from error
    except OSError as error:
        raise HeapfitError(f"cannot run {command[0]!r}: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise HeapfitError(f"{command[0]!r} did not finish within {timeout_s:g} s") from error


def filled(word: str, places: Mapping[str, Path]) -> str:
    """Return a word of a command with each `{name}` replaced by its place."""
    for name, place in places.items():
        word = word.replace(f"{{{name}}}", str(place))
    return word


def last_line(result: subprocess.CompletedProcess[str]) -> str:
    """Return the last line that a failed program said, for an error of one line."""
    lines = [line for line in (result.stderr or result.stdout).splitlines() if line.strip()]
    return lines[-1].strip() if lines else f"exit code {result.returncode}"
