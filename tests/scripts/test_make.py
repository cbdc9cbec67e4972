"""What `make` says to a person."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_last_line_of_a_build_says_what_is_there_and_how_to_use_it(tmp_path: Path) -> None:
    installed = tmp_path / "bin" / "heapfit"
    installed.parent.mkdir()
    installed.write_text("#!/bin/sh\necho heapfit 1.2.3\n")
    installed.chmod(0o755)
    made = ["--old-file", f"{tmp_path}/.wheel", f"VENV={tmp_path}", "build"]
    done = subprocess.run(
        ["make", "--no-print-directory", *made],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    last = done.stdout.splitlines()[-1]
    assert last.startswith("heapfit 1.2.3 is built (dist/) and installed")
    assert last.endswith(f"source {tmp_path}/bin/activate")
