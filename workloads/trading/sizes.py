"""Shows how large the blocks are that the middleware asks for, process by process.

Runs the middleware once with the counter of `sizes.c` preloaded and the client beside it, and
prints two tables in Markdown: the most frequent sizes, and how large a share is how small.

Usage: sizes.py FOLDER [ORDERS]     FOLDER has the built programs
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
DICTIONARY = HERE / "dictionary.xml"
PROCESSES = ("gateway", "sessions", "data")
SESSIONS = 4
THREADS = 2
MOST_FREQUENT = 8
BOUNDS = (16, 24, 32, 48, 64, 128, 256, 1024, 4096)
TIMEOUT_S = 120
STOP_TIMEOUT_S = 20
# What `sizes.c` says of the sizes above its table.
LARGER = "larger"
BEYOND = 1 << 40


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(port: int) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    sys.exit("sizes.py: the middleware did not start")


def middleware(programs: Path, scratch: Path, port: int) -> list[str]:
    command = [programs / "trading", "--programs", programs, "--dictionary", DICTIONARY]
    command += ["--scratch", scratch, "--port", port, "--sessions", SESSIONS]
    command += ["--threads", THREADS, "--limit", 10**9]
    return [str(word) for word in command]


def client(programs: Path, scratch: Path, port: int, orders: int) -> list[str]:
    command = [programs / "trading-client", "--port", port, "--orders", orders]
    command += ["--sessions", SESSIONS, "--timeout", TIMEOUT_S, "--dictionary", DICTIONARY]
    command += ["--transcript", scratch / "reports.txt"]
    return [str(word) for word in command]


def read_counts(folder: Path, process: str) -> Counter[int]:
    """The requests of one process by size."""
    # The kernel cuts a program's name at 15 characters.
    (file,) = folder.glob(f"trading-{process[:6]}*.txt")
    pairs = [line.split() for line in file.read_text().splitlines()]
    return Counter({BEYOND if size == LARGER else int(size): int(n) for size, n in pairs})


def measure(programs: Path, orders: int) -> dict[str, Counter[int]]:
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        port = free_port()
        environment = {
            **os.environ,
            "LD_PRELOAD": str(programs / "sizes.so"),
            "TRADING_SIZES": folder,
        }
        with subprocess.Popen(middleware(programs, scratch, port), env=environment) as server:
            try:
                wait_for(port)
                command = client(programs, scratch, port, orders)
                subprocess.run(command, check=True, timeout=TIMEOUT_S, stdout=subprocess.DEVNULL)
            finally:
                server.terminate()
                server.wait(STOP_TIMEOUT_S)
        return {process: read_counts(scratch, process) for process in PROCESSES}


def print_row(*cells: object) -> None:
    print("|", " | ".join(map(str, cells)), "|")


def print_frequent(counts: dict[str, Counter[int]], orders: int) -> None:
    places = [f"{place}." for place in range(1, MOST_FREQUENT + 1)]
    print_row("process", "requests", "an order", *places)
    print_row("---", "---:", "---:", *("---:" for _ in places))
    for process, sizes in counts.items():
        total = sizes.total()
        best = [f"{size} B ({n / total:.1%})" for size, n in sizes.most_common(MOST_FREQUENT)]
        print_row(process, f"{total:,}", round(total / orders), *best)


def print_cumulative(counts: dict[str, Counter[int]]) -> None:
    print_row("process", *(f"≤ {bound} B" for bound in BOUNDS))
    print_row("---", *("---:" for _ in BOUNDS))
    for process, sizes in counts.items():
        total = sizes.total()
        below = [sum(n for size, n in sizes.items() if size <= bound) for bound in BOUNDS]
        print_row(process, *(f"{n / total:.1%}" for n in below))


def main() -> None:
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    orders = int(sys.argv[2]) if len(sys.argv) == 3 else 20_000
    counts = measure(Path(sys.argv[1]).resolve(), orders)
    print_frequent(counts, orders)
    print()
    print_cumulative(counts)


if __name__ == "__main__":
    main()
