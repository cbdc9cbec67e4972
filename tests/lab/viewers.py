"""What exported profiles are read back with: Go's pprof."""

from __future__ import annotations

import functools
import os
import re
import subprocess
from pathlib import Path

_DEADLINE_S = 120


def pprof(path: Path | str, *options: str) -> str:
    """Return what `go tool pprof` prints of a file, or of what it fetches from an address."""
    _compile_pprof()
    done = _go_pprof([*options, str(path)], _DEADLINE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _go_pprof(arguments: list[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["go", "tool", "pprof", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": ""},
    )


@functools.cache
def _compile_pprof() -> None:
    """Go compiles a tool when it is first asked for, which takes minutes beside other work."""
    _go_pprof(["-h"], timeout_s=10 * _DEADLINE_S)


def pprof_top(path: Path, sample: str) -> dict[str, tuple[int, int]]:
    """Return the functions with what is theirs, and theirs and their callees', of a sample type."""
    unit = "count" if sample.endswith("objects") else "bytes"
    options = ("-top", "-nodefraction=0", "-nodecount=100000", f"-unit={unit}")
    text = pprof(path, *options, f"-sample_index={sample}")
    row = re.compile(r" *([0-9.]+)(?:B)? +\S+% +\S+% +([0-9.]+)(?:B)? +\S+% +(.+)")
    found = filter(None, map(row.fullmatch, text.splitlines()))
    return {each[3]: (round(float(each[1])), round(float(each[2]))) for each in found}
