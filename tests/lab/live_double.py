"""A process that answers as heapfit's control channel does, for tests of those who ask.

As a fixture's object it listens under the number of the test's own process; run as a program, under
its own, and it prints "ready". It answers by the protocol: a line of JSON for each line, several
lines per connection, one connection at a time. `behave` replaces the answers, to be a bad server.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

MIB = 1 << 20
LINE_MAX = 256

# In force at most while shrunk.
MOST_SHRUNK = {
    "free_page_threshold": MIB,
    "thread_span_threshold": 0,
    "shared_span_threshold": 4 * MIB,
    "decay_ms": 10,
    "zeroed_reserve": 0,
}

Answer = Callable[[str], bytes | None]


def option(name: str, kind: str, value: str, **more: Any) -> dict[str, Any]:
    described = {"minimum": 0, "maximum": 1 << 46, "unlimited": False, "choices": [], "live": True}
    text = {"description": f"what {name} is for", "initial": value}
    return {"name": name, "kind": kind, "value": value, **described, **text, **more}


class Double:
    """The state of a process with a heap, and the thread that answers for it."""

    def __init__(self, number: int | None = None, behave: Answer | None = None) -> None:
        self.number = os.getpid() if number is None else number
        self.shrunk = False
        self.asked: list[str] = []
        self.looks = 0
        self.behave = behave or self.answer
        self.options = {
            each["name"]: each
            for each in (
                option("lockless_threads", "number", "unlimited", unlimited=True),
                option("free_page_threshold", "size", "unlimited", unlimited=True),
                option("thread_span_threshold", "size", "4194304"),
                option("shared_span_threshold", "size", "unlimited", unlimited=True),
                option("decay_ms", "number", "500", unlimited=True, maximum=(1 << 31) - 1),
                option("remote_free_batch", "number", "256", minimum=1, maximum=4096),
                option("huge_pages", "choice", "auto", live=False, choices=["never", "auto"]),
                option("zeroed_reserve", "size", "0"),
            )
        }
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._socket.bind(f"\0heapfit/{self.number}")
        self._socket.listen(4)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(timeout=60)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:  # closed
                return
            with connection, connection.makefile("rb") as lines:
                try:
                    self._converse(connection, lines)
                except OSError:
                    continue  # the other side has left

    def _converse(self, connection: socket.socket, lines: Any) -> None:
        for line in iter(lambda: lines.readline(LINE_MAX), b""):
            request = line.decode().rstrip("\n")
            self.asked.append(request)
            reply = self.behave(request)
            if reply is None:
                return
            connection.sendall(reply)

    # ---------------------------------------------------------------- answers

    def answer(self, request: str) -> bytes:
        known: dict[str, Callable[[], dict[str, Any]]] = {
            "stats": lambda: {"stats": self.stats()},
            "options": lambda: {
                "options": [self._in_force(each) for each in self.options.values()]
            },
            "ledger": lambda: {"ledger": self.ledger(), "complete": True},
        }
        if request not in known:
            reply = {"ok": False, "error": f"there is no request '{request}'"}
        else:
            reply = {"ok": True, **known[request]()}
        return json.dumps(reply).encode() + b"\n"

    def ledger(self) -> list[dict[str, Any]]:
        """Rows of one cause more than once."""
        live = {"cause": "live", "name": "", "in_heap": True, "swapped": 0}
        file = {"cause": "file", "in_heap": False, "heap": -1, "thread": 0, "swapped": 0}
        return [
            {**live, "heap": -1, "thread": 0, "resident": 20 * MIB},
            {**live, "heap": 1, "thread": 4711, "resident": 40 * MIB},
            {**file, "name": "/lib/libc.so.6", "resident": 2 * MIB},
            {**file, "name": "/lib/libc.so.6", "resident": 3 * MIB},
        ]

    def _in_force(self, option: dict[str, Any]) -> dict[str, Any]:
        value, most = option["value"], MOST_SHRUNK.get(option["name"]) if self.shrunk else None
        bounded = most is not None and not (value.isdecimal() and int(value) <= most)
        return {**option, "in_force": str(most) if bounded else value}

    def stats(self) -> dict[str, Any]:
        """Figures that grow from look to look, ten purges and twenty refills each."""
        self.looks += 1
        n = self.looks
        total = {
            "live_objects": 1000 + n,
            "live_bytes": (64 + n % 8) * MIB,
            "free_bytes": 4 * MIB,
            "dirty_bytes": 0 if self.shrunk else 16 * MIB,
            "cached_bytes": 2 * MIB,
            "zeroed_bytes": 8 * MIB,
            "own_bytes": MIB,
            "footprint": 95 * MIB,
            "resident": (80 + n % 3) * MIB,
            "committed": 128 * MIB,
            "purged": 10 * n * MIB,
            "purges": 10 * n,
            "commits": 5 + n,
            "refills": 20 * n,
            "remote_batches": 2 * n,
            "remote_blocks": 512 * n,
            "zeroed_hits": 3 * n,
            "zeroed_misses": n,
            "heaps": 5,
            "heaps_idle": 2,
            "a_member_of_a_later_version": 1,
        }
        classes = [
            {"block_size": size, "spans": spans, "live_objects": live, "free_objects": 100}
            for size, spans, live in ((16, 4, 9000), (48, 40, 50_000), (1024, 8, 300), (80, 0, 0))
        ]
        heaps = [
            {"number": 0, "thread": 0, "spans": 3, "live_bytes": MIB, "refills": 0},
            {"number": 1, "thread": 4711, "spans": 40, "live_bytes": 40 * MIB, "refills": 15 * n},
            {"number": 2, "thread": -1, "spans": 9, "live_bytes": 23 * MIB, "refills": 5 * n},
        ]
        return {
            "format": "heapfit-stats/1",
            "version": "0.1.0",
            "pid": self.number,
            "time_ms": 1000 * n,
            "shrunk": self.shrunk,
            "total": total,
            "classes": classes,
            "heaps": heaps,
            "nodes": [{"node": 0, "dirty_bytes": 16 * MIB, "zeroed_bytes": 0, "crossings": 0}],
        }


if __name__ == "__main__":
    with Double():
        print("ready", flush=True)
        signal.pause()
