"""A redis-server is filled, loaded by redis-benchmark, saved by a fork, and read back.

It listens on a socket file in the present folder only. What is printed does not depend on the
order in which clients were served.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

SOCKET = "redis.sock"
KEYS = 3000
REQUESTS = 20000
START_TIMEOUT_S = 200
SAVE_TIMEOUT_S = 200
STEP_TIMEOUT_S = 200

# Sizes of values, and redis-benchmark's names of what to do with them.
BENCHMARKS = {10: "set,get,lpush,lrange_100,hset,zadd", 500: "set,get,lpush,hset", 9000: "set,get"}

SERVER = [
    *("redis-server", "--port", "0", "--unixsocket", SOCKET, "--save", "", "--appendonly", "no"),
    *("--dbfilename", "kept.rdb", "--enable-debug-command", "local", "--logfile", "server.log"),
]


def client(*words: str, stdin: str | None = None, must: bool = True) -> str:
    done = subprocess.run(
        ["redis-cli", "-s", SOCKET, *words],
        input=stdin,
        stdout=subprocess.PIPE,
        text=True,
        timeout=STEP_TIMEOUT_S,
        check=must,
    )
    return done.stdout.strip()


def wait_for(what: str, wanted: str, command: list[str], timeout_s: float) -> None:
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        if Path(SOCKET).exists() and wanted in client(*command, must=False):
            return
        time.sleep(0.05)
    sys.exit(f"the server did not {what} within {timeout_s} s")


def commands() -> str:
    """Values of many sizes in every kind of container, some of them removed again."""
    lines = []
    for number in range(KEYS):
        value = "v" * (number * 37 % 3000 + 1)
        lines.append(f"SET key:{number} {value}")
        lines.append(f"RPUSH list:{number % 20} {value[:200]}")
        lines.append(f"HSET hash:{number % 30} field:{number} {value[:80]}")
        lines.append(f"ZADD zset:{number % 10} {number * 31 % 997} member:{number}")
        lines.append(f"APPEND log:{number % 5} {value[:50]}")
        if number % 3 == 0:
            lines.append(f"DEL key:{number * 2 // 3}")
    return "\n".join(lines) + "\n"


def benchmark() -> None:
    """Random keys under a prefix of their own; they are removed again, so their number is free."""
    options = ["-s", SOCKET, "-n", str(REQUESTS), "-r", "2000", "-c", "20", "-P", "8", "-q"]
    for size, tests in BENCHMARKS.items():
        subprocess.run(
            ["redis-benchmark", *options, "-d", str(size), "-t", tests],
            stdout=subprocess.DEVNULL,
            timeout=STEP_TIMEOUT_S,
            check=True,
        )
    counted = client("EVAL", COUNT_AND_REMOVE, "0")
    print("benchmark left its keys:", int(counted) > 1000)


COUNT_AND_REMOVE = """
local count = 0
for _, pattern in ipairs({'key:0*', 'mylist*', 'myhash*', 'myzset*'}) do
  for _, key in ipairs(redis.call('KEYS', pattern)) do
    if key ~= 'key:0' then count = count + redis.call('UNLINK', key) end
  end
end
return count
"""


def session() -> None:
    client(stdin=commands())
    digest = client("DEBUG", "DIGEST")
    print("filled", client("DBSIZE"), digest)
    benchmark()
    print("unchanged", client("DEBUG", "DIGEST") == digest)
    client("BGSAVE")
    saved = "rdb_last_bgsave_status:ok"
    wait_for("save", "rdb_bgsave_in_progress:0", ["INFO", "persistence"], SAVE_TIMEOUT_S)
    print("saved", saved in client("INFO", "persistence"))
    client("DEBUG", "RELOAD", "NOSAVE")
    print("read back", client("DBSIZE"), client("DEBUG", "DIGEST") == digest)


server = subprocess.Popen(SERVER, stdout=subprocess.DEVNULL)
try:
    wait_for("start", "PONG", ["PING"], START_TIMEOUT_S)
    session()
    client("SHUTDOWN", "NOSAVE")
    print("exit code", server.wait(timeout=START_TIMEOUT_S))
finally:
    if server.poll() is None:
        server.kill()
        server.wait()
