"""Counts the calls of one scenario: an application, read only or with a share of edits.

Usage: calls.py SCENARIO FOLDER [COUNT'S OPTIONS...]     FOLDER has the data that prepare.py made

A scenario is an application's name without `php-`; `-edits` at its end stands for the 20 % of edits
of the paper's read-write scenario.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

WORKLOADS = Path(__file__).resolve().parents[1]
COUNT = WORKLOADS / "php" / "count.py"
EDITING = "-edits"
EDITS = 20


def main() -> None:
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    scenario, data, options = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
    application = f"php-{scenario.removesuffix(EDITING)}"
    edits = EDITS if scenario.endswith(EDITING) else 0
    folders = ["--application", str(WORKLOADS / application), "--data", str(data / application)]
    words = [*folders, "--edits", str(edits), *options]
    os.execv(sys.executable, [sys.executable, str(COUNT), *words])


if __name__ == "__main__":
    main()
