"""Sends visitors to the telephone directory with wrk, and checks what they left there.

Waits until the workers are ready, lets the visitors of `visitor.lua` make their rounds (the table
of all people, the form of one, its update), and compares the database with what they say they
stored. Prints one figure a line and `answers right` at the end; exits 1 when a page or the database
is wrong.

Usage: drive.py PORT SCRATCH WORKERS THREADS REQUESTS
"""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from workers import Workers

HERE = Path(__file__).resolve().parent
# A round: table, form, update.
REQUESTS_A_ROUND = 3
# One visitor is answered while the other reads, so that a worker's thread always has work.
VISITORS_A_THREAD = 2
START_TIMEOUT_S = 60.0
# wrk goes by time alone: it is interrupted when all visitors are through, or after this long.
LOAD_TIMEOUT_S = 240
# A visitor may have to wait for a worker to start.
ANSWER_TIMEOUT_S = 60
MICROSECOND = 1e-6


def fail(reason: str) -> None:
    sys.exit(f"drive.py: {reason}")


@dataclass
class Report:
    """What wrk told at its end."""

    requests: int = 0
    duration_s: float = 0.0
    latency_p50_s: float = 0.0
    latency_p99_s: float = 0.0
    errors: dict[str, int] = field(default_factory=dict)
    stored: dict[int, str] = field(default_factory=dict)

    def read(self, line: str) -> None:
        match line.split(" "):
            case ["requests", number]:
                self.requests = int(number)
            case ["duration_us", duration]:
                self.duration_s = float(duration) * MICROSECOND
            case ["latency_us", median, late]:
                self.latency_p50_s = float(median) * MICROSECOND
                self.latency_p99_s = float(late) * MICROSECOND
            case ["errors", kind, number]:
                self.errors[kind] = int(number)
            case ["stored", person, *phone]:
                self.stored[int(person)] = " ".join(phone)


def people_in(scratch: Path) -> dict[int, str]:
    """Every person's number as the database has it now."""
    database = sqlite3.connect(scratch / "directory.sqlite3")
    try:
        return dict(database.execute("SELECT id, phone FROM people"))
    finally:
        database.close()


def wrk(port: int, visitors: int, rounds: int, people: int) -> list[str]:
    command = ["wrk", "--threads", visitors, "--connections", visitors]
    command += ["--duration", f"{LOAD_TIMEOUT_S}s", "--timeout", f"{ANSWER_TIMEOUT_S}s"]
    command += ["--script", HERE / "visitor.lua", f"http://127.0.0.1:{port}/people"]
    command += ["--", visitors, rounds, people]
    return [str(word) for word in command]


def visit(command: list[str], visitors: int) -> Report:
    """Run wrk until all visitors are through; end the program at the first wrong page."""
    report = Report()
    waiting = visitors
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        for line in map(str.rstrip, running.stdout):
            if line.startswith("wrong: "):
                running.kill()
                fail(line)
            if line == "finished":
                waiting -= 1
                if waiting == 0:
                    running.send_signal(signal.SIGINT)
            report.read(line)
    if waiting > 0:
        fail(
            f"{waiting} of {visitors} visitors did not finish; wrk ended with {running.returncode}"
        )
    return report


def check(report: Report, requests: int, scratch: Path) -> None:
    if report.requests != requests:
        fail(f"{report.requests} requests were answered, not {requests}")
    troubles = {kind: count for kind, count in report.errors.items() if count > 0}
    if troubles:
        fail(f"connections had errors: {troubles}")
    stored = people_in(scratch)
    wrong = [person for person in stored if stored[person] != report.stored.get(person)]
    if wrong or len(stored) != len(report.stored):
        fail(f"the database does not have what was stored, of {wrong or 'somebody'}")


def main() -> None:
    if len(sys.argv) != 6:
        sys.exit(__doc__)
    scratch = Path(sys.argv[2])
    port, count, threads, requests = map(int, (sys.argv[1], *sys.argv[3:]))
    visitors = VISITORS_A_THREAD * count * threads
    rounds = max(1, requests // (REQUESTS_A_ROUND * visitors))
    requests = rounds * REQUESTS_A_ROUND * visitors

    workers = Workers(scratch / "ledger", count)
    workers.wait_until_started(time.monotonic() + START_TIMEOUT_S)
    people = len(people_in(scratch))
    if visitors > people:
        fail(f"{visitors} visitors cannot each have some of {people} people to themselves")
    workers.begin()
    report = visit(wrk(port, visitors, rounds, people), visitors)
    used = workers.end()
    check(report, requests, scratch)

    print(f"requests_per_s {requests / report.duration_s:.3f}")
    print(f"latency_p50_s {report.latency_p50_s:.6f}")
    print(f"latency_p99_s {report.latency_p99_s:.6f}")
    print(f"ruby_rss_bytes {used.rss_bytes:.0f}")
    print(f"ruby_pss_bytes {used.pss_bytes:.0f}")
    print(f"ruby_cpu_s_per_request {used.serving_cpu_s / requests:.9f}")
    print(f"ruby_start_cpu_s {used.start_cpu_s:.6f}")
    print(f"restarts {used.restarts}")
    print("answers right")


if __name__ == "__main__":
    main()
