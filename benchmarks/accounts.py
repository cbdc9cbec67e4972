#!/usr/bin/env python3
"""What is heapfit's account of memory worth?

Five parts, each in a module of benchmarks/account that says how it measures:

  ledger   the share of real programs' anonymous memory that has a cause, and how far the ledger's
           sum is from what the kernel counts
  pinners  how often the call site that pins free memory is the first that is named
  sampler  instructions with the sampler on, off, and not there at all
  sums     how often the intervals of a sampled recording hold what a full one counts
  flames   time and memory from a large recording to its page, beside heaptrack

    cmake --preset release && cmake --build --preset release
    .venv/bin/python benchmarks/accounts.py --json docs/results/accounts.json

and `scripts/update-docs accounts` then writes the table of docs/results/account.md. With `--only`
the parts that are not named keep the figures that the file has. All but `flames` are counts, which
other work on the machine hardly changes; for `flames` it must be quiet, and has to have 20 GB of
disk free at 100 million events. Needs Debian's redis-server, redis-tools, sqlite3, nodejs, python3,
openjdk-17-jdk-headless, php-cli, nginx, clang-16, valgrind and heaptrack; programs that are missing
are named and left out.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from account import flames, ledger, pinners, sampler, sums
from account.common import Figures, Row, say

PARTS = ("ledger", "pinners", "sampler", "sums", "flames")
ROWS: dict[str, Callable[[Figures], list[Row]]] = {
    "ledger": ledger.rows,
    "pinners": pinners.rows,
    "sampler": sampler.rows,
    "sums": sums.rows,
    "flames": flames.rows,
}
DEFAULT_SEED = 1


def measured(part: str, scratch: Path, arguments: argparse.Namespace) -> Figures:
    """Return the figures of a part."""
    small: bool = arguments.small
    if part == "ledger":
        scale = ledger.Scale(seconds=1, looks=1) if small else ledger.Scale()
        return ledger.measure(scratch, scale, arguments.programs or list(ledger.PROGRAMS))
    if part == "pinners":
        return pinners.measure(
            scratch, pinners.Scale(programs=2) if small else pinners.Scale(), arguments.seed
        )
    if part == "sampler":
        commands = arguments.commands or [*sampler.COMMANDS, *sampler.REAL]
        return sampler.measure(
            scratch, sampler.Scale(runs=1, work=10) if small else sampler.Scale(), commands
        )
    if part == "sums":
        of_test = sums.Scale(programs=(32 << 20,), runs=2)
        return sums.measure(scratch, of_test if small else sums.Scale(), arguments.seed)
    return flames.measure(
        scratch, flames.Scale(events=arguments.events, beside=not (small or arguments.alone))
    )


def all_rows(kept: dict[str, Any]) -> list[Row]:
    """Return the table's rows of all parts that there are."""
    return [row for part in PARTS if part in kept for row in ROWS[part](kept[part])]


def listed(known: list[str]) -> Callable[[str], list[str]]:
    """Return what reads names of these, separated by commas."""

    def read(text: str) -> list[str]:
        names = text.split(",")
        unknown = sorted(set(names) - set(known))
        if unknown:
            raise argparse.ArgumentTypeError(f"no such: {', '.join(unknown)}")
        return names

    return read


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", type=listed(list(PARTS)), help="parts, separated by commas")
    parser.add_argument("--json", type=Path, help="where every figure goes")
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED, help="of generated programs")
    parser.add_argument("--events", type=int, default=flames.EVENTS, help="of flames")
    parser.add_argument("--alone", action="store_true", help="flames without heaptrack beside it")
    parser.add_argument("--programs", type=listed(list(ledger.PROGRAMS)), help="of ledger")
    parser.add_argument(
        "--commands", type=listed([*sampler.COMMANDS, *sampler.REAL]), help="of sampler"
    )
    parser.add_argument("--small", action="store_true", help="as little work as in the tests")
    parser.add_argument("--scratch", type=Path, help="a folder for what is large")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    kept: dict[str, Any] = {}
    if arguments.json is not None and arguments.json.exists():
        kept = json.loads(arguments.json.read_text(encoding="utf-8"))
    for part in arguments.only or PARTS:
        with tempfile.TemporaryDirectory(prefix="heapfit-accounts-", dir=arguments.scratch) as name:
            found = measured(part, Path(name), arguments)
        kept[part] = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "kernel": platform.release(),
            **found,
        }
        for row in ROWS[part](found):
            say(str(row))
        if arguments.json is not None:  # after each part, so that none is lost
            arguments.json.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    print("| figure | goal | measured |")
    print("|---|---|---|")
    for row in all_rows(kept):
        print(f"| {row.figure} | {row.goal} | {row.measured} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
