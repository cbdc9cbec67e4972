"""Shows how large the blocks are that the middleware asks for, process by process.

Runs the middleware once with the counter of `sizes.c` preloaded and the client beside it, and
prints two tables in Markdown: the most frequent sizes, and how large a share is how small.

With --record it runs under heapfit's recorder instead, LIBRARY being what `heapfit lib --variant
record` prints, and the recordings of the three processes are left in OUT. The same figures and
more come from these: docs/results/trading.md.

Usage: sizes.py FOLDER [ORDERS]     FOLDER has the built programs
       sizes.py FOLDER [ORDERS] --record LIBRARY OUT
"""

from __future__ import annotations

import os
import shutil
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
    (file,) = folder.glob(f"{short(process)}*.txt")
    pairs = [line.split() for line in file.read_text().splitlines()]
    return Counter({BEYOND if size == LARGER else int(size): int(n) for size, n in pairs})


def run(programs: Path, scratch: Path, orders: int, environment: dict[str, str]) -> dict[str, int]:
    """Run the middleware with what `environment` adds to ours, and the client beside it.

    Returns the numbers that its processes had, by name.
    """
    port = free_port()
    with subprocess.Popen(
        middleware(programs, scratch, port), env={**os.environ, **environment}
    ) as server:
        try:
            wait_for(port)
            numbers = {process: number_of(process, server.pid) for process in PROCESSES}
            command = client(programs, scratch, port, orders)
            subprocess.run(command, check=True, timeout=TIMEOUT_S, stdout=subprocess.DEVNULL)
            return numbers
        finally:
            server.terminate()
            server.wait(STOP_TIMEOUT_S)


def number_of(process: str, parent: int) -> int:
    """The number of one of the middleware's processes, children of `parent`."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    names = {int(child): Path(f"/proc/{child}/comm").read_text() for child in children}
    (number,) = [child for child, name in names.items() if name.startswith(short(process))]
    return number


def short(process: str) -> str:
    """How a process's name begins: the kernel cuts it at 15 characters."""
    return f"trading-{process[:6]}"


def measure(programs: Path, orders: int) -> dict[str, Counter[int]]:
    with tempfile.TemporaryDirectory() as folder:
        counter = {"LD_PRELOAD": str(programs / "sizes.so"), "TRADING_SIZES": folder}
        run(programs, Path(folder), orders, counter)
        return {process: read_counts(Path(folder), process) for process in PROCESSES}


def record(programs: Path, orders: int, library: Path, out: Path) -> None:
    """Leave a recording of each process in `out`, by its name."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        recorder = {
            "LD_PRELOAD": str(library.resolve()),
            "HEAPFIT_RECORD": f"{folder}/trace.hft",
            "HEAPFIT_RECORD_OPTIONS": "children:on",
        }
        numbers = run(programs, Path(folder), orders, recorder)
        for process, number in numbers.items():
            # The supervisor's copy that became the process by exec has a small file of its own.
            files = Path(folder).glob(f"trace.hft.{number}*")
            largest = max(files, key=lambda path: path.stat().st_size)
            shutil.copyfile(largest, out / f"{process}.hft")


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
    words, recorder = sys.argv[1:], []
    if "--record" in words:
        at = words.index("--record")
        words, recorder = words[:at], words[at + 1 :]
    if len(words) not in (1, 2) or len(recorder) not in (0, 2):
        sys.exit(__doc__)
    programs = Path(words[0]).resolve()
    orders = int(words[1]) if len(words) == 2 else 20_000
    if recorder:
        record(programs, orders, *map(Path, recorder))
        return
    counts = measure(programs, orders)
    print_frequent(counts, orders)
    print()
    print_cumulative(counts)


if __name__ == "__main__":
    main()
