"""Visits to service.py, each answer checked; prints what they took.

Four clients at a time, each with visitors of its own, so that every answer can be foretold. Some
visitors come often and most seldom, and titles differ in length, as they do.

Usage: load.py PORT VISITORS
"""

import json
import random
import socket
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

HOST = "127.0.0.1"
CLIENTS = 4
VISITS = 4000  # of each client
SEED = 7


def client(number: int, port: int, visitors: int) -> list[float]:
    """Sends one client's visits; returns how many seconds each answer took."""
    chance = random.Random(SEED + number)
    seen: Counter[str] = Counter()
    took = []
    with socket.create_connection((HOST, port)) as connection, connection.makefile("rb") as answers:
        for _ in range(VISITS):
            visitor = f"{number}-{int(visitors * chance.random() ** 3)}"
            page, title = f"/item/{chance.randrange(10_000)}", "x" * chance.randrange(10, 800)
            request = json.dumps({"visitor": visitor, "page": page, "title": title})
            seen[visitor] += 1
            start = time.perf_counter()
            connection.sendall(request.encode() + b"\n")
            answer = json.loads(answers.readline())
            took.append(time.perf_counter() - start)
            if answer != {"visits": seen[visitor]}:
                sys.exit(f"{visitor}: visit {seen[visitor]} was answered with {answer}")
    return took


def main() -> None:
    port, visitors = int(sys.argv[1]), int(sys.argv[2])
    start = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        clients = [pool.submit(client, number, port, visitors) for number in range(CLIENTS)]
        took = sorted(second for each in clients for second in each.result())
    elapsed = time.perf_counter() - start
    print(f"visits per second: {len(took) / elapsed:.1f}")
    print(f"99 of 100 within: {took[len(took) * 99 // 100] * 1000:.3f} ms")
    print("answers right")


if __name__ == "__main__":
    main()
