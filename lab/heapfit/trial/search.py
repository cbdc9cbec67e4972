"""Search a program's output for patterns, for a limited time.

A pattern that backtracks can take for ever on output that does not fit it, and wrong output is what
it is there to notice. Python cannot interrupt a search from another thread, so it runs in a process
of its own: this very file, which therefore needs the standard library alone.
"""

import json
import mmap
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

# A gigabyte of output takes a simple pattern a few seconds.
TIMEOUT_S = 30.0


class SearchFailed(Exception):
    """A search came to no answer; the message says which and why."""


def search(path: Path, patterns: Sequence[str], *, every: bool) -> list[list[str]]:
    """Return for each of `patterns` what its first group, or else all of it, matched in `path`.

    Only the first match counts unless `every` one does. Patterns match bytes, `^` and `$` at lines:
    output need not be text. Raises `SearchFailed` when all together take longer than `TIMEOUT_S`.
    """
    if not patterns:
        return []
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", __file__],
            input=json.dumps([str(path), list(patterns), every]).encode(),
            capture_output=True,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as expired:
        answered = (expired.stdout or b"").count(b"\n")
        raise SearchFailed(
            f"{patterns[min(answered, len(patterns) - 1)]!r} does not finish within "
            f"{TIMEOUT_S:g} s; can it backtrack less?"
        ) from expired
    answers = done.stdout.splitlines()
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise SearchFailed(f"{patterns[len(answers)]!r} cannot be searched for ({said})")
    return [json.loads(answer) for answer in answers]


def _matches(path: Path, pattern: str, *, every: bool) -> list[str]:
    compiled = re.compile(pattern.encode(), re.MULTILINE)
    found = []
    with path.open("rb") as file:
        # Mapped, never read as a whole; but an empty file cannot be mapped.
        empty = path.stat().st_size == 0
        text = b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        for match in compiled.finditer(text):
            found.append(match[min(1, compiled.groups)] or b"")
            if not every:
                break
    return [piece.decode(errors="backslashreplace") for piece in found]


def _main() -> None:
    path, patterns, every = json.load(sys.stdin)
    for pattern in patterns:
        print(json.dumps(_matches(Path(path), pattern, every=every)), flush=True)


if __name__ == "__main__":
    _main()
