"""Prepares the data of every application that calls are counted of, each in a folder of its name.

Usage: prepare.py FOLDER
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

WORKLOADS = Path(__file__).resolve().parents[1]
APPLICATION = "application.toml"


def applications() -> list[Path]:
    """The folders of the applications, by name."""
    return sorted(path.parent for path in WORKLOADS.glob(f"php-*/{APPLICATION}"))


def command_of(application: Path, data: Path) -> list[str]:
    """The command of the workload's own preparation."""
    described = tomllib.loads((application / "workload.toml").read_text(encoding="utf-8"))
    words: list[str] = described.get("prepare", {}).get("command", [])
    places = {"{here}": str(application), "{data}": str(data)}
    for name, place in places.items():
        words = [word.replace(name, place) for word in words]
    return words


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for application in applications():
        data = Path(sys.argv[1]).resolve() / application.name
        data.mkdir(parents=True, exist_ok=True)
        command = command_of(application, data)
        if command and subprocess.run(command, cwd=application).returncode != 0:
            sys.exit(f"prepare.py: the preparation of {application.name} failed")


if __name__ == "__main__":
    main()
