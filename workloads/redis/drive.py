"""Drives the server of `redis` with redis-benchmark, and checks that it still answers rightly.

First every key gets a value, so that what the server holds at the end is known although
redis-benchmark chooses keys at random. Then come the timed steps: values of several sizes take
each other's place, strings grow, containers fill and are read. Prints a line `rate STEP FIGURE`
(requests per second) per step and `answers right` at the end; exits 1 on the first wrong answer.

Usage: drive.py PORT
"""

from __future__ import annotations

import csv
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

HOST = "127.0.0.1"
KEYS = 20_000
CLIENTS = 20
PIPELINE = 16
# Whole rounds of all clients' pipelines, so that redis-benchmark sends exactly this many.
ROUND = CLIENTS * PIPELINE
STEP_TIMEOUT_S = 60
# Commands of the driver itself that are on their way together.
BATCH = 500
FIRST_VALUE = b"first"
KEY = "key:__rand_int__"
FIELD = "field:__rand_int__"
VALUE_SIZES = (16, 300, 4000, 60)


class Step(NamedTuple):
    """One run of redis-benchmark; `rounds` is in units of ROUND requests."""

    name: str
    rounds: int
    command: list[str]

    @property
    def requests(self) -> int:
        return self.rounds * ROUND


QUEUE = Step("lpush-40", 500, ["LPUSH", "queue", "q" * 40])

STEPS = [
    *(Step(f"set-{size}", 400, ["SET", KEY, "v" * size]) for size in VALUE_SIZES),
    Step("append-100", 300, ["APPEND", KEY, "a" * 100]),
    Step("get", 500, ["GET", KEY]),
    QUEUE,
    Step("lrange-100", 100, ["LRANGE", "queue", "0", "99"]),
    Step("hset-30", 400, ["HSET", "table", FIELD, "h" * 30]),
    Step("zadd", 300, ["ZADD", "ranking", "__rand_int__", FIELD]),
    Step("sadd", 500, ["SADD", "members", FIELD]),
]


Command = tuple[bytes, ...]


class Server:
    """A connection that speaks as much of the protocol as the checks need."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=STEP_TIMEOUT_S)
        self._replies = self._socket.makefile("rb")

    def _send(self, commands: list[Command]) -> None:
        parts = []
        for words in commands:
            parts.append(b"*%d\r\n" % len(words))
            parts += [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
        self._socket.sendall(b"".join(parts))

    def _reply(self) -> bytes | int:
        line = self._replies.readline().rstrip(b"\r\n")
        kind, rest = line[:1], line[1:]
        if kind == b"$":
            size = int(rest)
            return self._replies.read(size + 2)[:-2] if size >= 0 else b""
        if kind == b":":
            return int(rest)
        if kind == b"+":
            return rest
        sys.exit(f"drive.py: the server answered {line.decode(errors='replace')!r}")

    def ask(self, *words: bytes) -> bytes | int:
        return next(self.ask_all([words]))

    def ask_all(self, commands: list[Command]) -> Iterator[bytes | int]:
        """The answers in order; one batch is on its way at a time, so neither side waits long."""
        for start in range(0, len(commands), BATCH):
            batch = commands[start : start + BATCH]
            self._send(batch)
            for _ in batch:
                yield self._reply()


def key(number: int) -> bytes:
    """The key that redis-benchmark makes of KEY for this number."""
    return b"key:%012d" % number


def expect(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        sys.exit(f"drive.py: {what} is {found!r} and should be {wanted!r}")


def fill(server: Server) -> None:
    for answer in server.ask_all([(b"SET", key(number), FIRST_VALUE) for number in range(KEYS)]):
        expect("the answer to SET", answer, b"OK")


def benchmark(port: int, step: Step) -> float:
    """Requests per second of one step."""
    options = ["-h", HOST, "-p", str(port), "-c", str(CLIENTS), "-P", str(PIPELINE)]
    options += ["-n", str(step.requests), "-r", str(KEYS), "--csv"]
    done = subprocess.run(
        ["redis-benchmark", *options, *step.command],
        stdout=subprocess.PIPE,
        text=True,
        timeout=STEP_TIMEOUT_S,
        check=True,
    )
    rows = list(csv.DictReader(done.stdout.splitlines()))
    if len(rows) != 1:
        sys.exit(f"drive.py: redis-benchmark printed {done.stdout!r}")
    return float(rows[0]["rps"])


def check_value(value: bytes) -> None:
    """A value is what some SET left there, with what APPEND added since."""
    stem = value.rstrip(b"a")
    if stem != FIRST_VALUE and stem not in {b"v" * size for size in VALUE_SIZES}:
        sys.exit(f"drive.py: a value of {len(value)} bytes was never sent: {value[:40]!r}…")
    expect("what APPEND added, beyond whole hundreds,", (len(value) - len(stem)) % 100, 0)


def check(server: Server) -> None:
    containers = [b"queue", b"table", b"ranking", b"members"]
    expect("DBSIZE", server.ask(b"DBSIZE"), KEYS + len(containers))
    expect("the length of the queue", server.ask(b"LLEN", b"queue"), QUEUE.requests)
    expect("the queue's last entry", server.ask(b"LINDEX", b"queue", b"-1"), b"q" * 40)
    for count in (b"HLEN", b"table"), (b"ZCARD", b"ranking"), (b"SCARD", b"members"):
        found = server.ask(*count)
        if not isinstance(found, int) or not 0 < found <= KEYS:
            sys.exit(f"drive.py: {count[0].decode()} is {found!r}")
    for value in server.ask_all([(b"GET", key(number)) for number in range(KEYS)]):
        if not isinstance(value, bytes):
            sys.exit(f"drive.py: GET answered the number {value}")
        check_value(value)


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    port = int(sys.argv[1])
    server = Server(port)
    fill(server)
    for step in STEPS:
        print(f"rate {step.name} {benchmark(port, step):.1f}", flush=True)
    check(server)
    print("answers right")


if __name__ == "__main__":
    main()
