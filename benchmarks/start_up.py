"""How many system calls does a program make that calls malloc once, under each library?

    PYTHONPATH=lab python3 benchmarks/start_up.py docs/results/start-up.json

counts them with strace, those of the dynamic loader included: a library that is preloaded costs
nine or ten of these, whatever it does. The count does not depend on how busy the machine is.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from heapfit import paths

PROGRAM = "#include <stdlib.h>\nint main(void) { return malloc(100) == NULL; }\n"
VARIANTS = ["default", "pools", "hardened"]


def system_calls(program: Path, library: Path | None) -> int:
    """Return how many calls one run of `program` makes."""
    log = program.with_suffix(".log")
    command = ["strace", "-f", "-qqq", "-e", "signal=none", "-o", str(log)]
    if library is not None:
        command += ["-E", f"LD_PRELOAD={library}"]
    subprocess.run([*command, str(program)], check=True)
    return len(log.read_text().splitlines())


def count_all(folder: Path) -> dict[str, int]:
    """Return the calls under glibc alone and under each library; `folder` is for files."""
    source, program = folder / "one.c", folder / "one"
    source.write_text(PROGRAM)
    subprocess.run(["gcc", "-O1", "-fno-builtin", source, "-o", program], check=True)
    counts = {"glibc": system_calls(program, None)}
    for variant in VARIANTS:
        counts[variant] = system_calls(program, paths.library(variant))
    return counts


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        counts = count_all(Path(folder))
    Path(sys.argv[1]).write_text(json.dumps(counts, indent=2) + "\n")


if __name__ == "__main__":
    main()
