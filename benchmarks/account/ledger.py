"""Which share of a real program's anonymous memory has a cause, and does the sum agree?

Eight programs run with the library preloaded. The ledger is asked for while there is load, and once
more when the load has ended and the process sleeps, by the same call as `heapfit ctl PID ledger`.
What the kernel counts is read from /proc/PID/smaps right before and right after, and the mean of
the two is compared. Where these differ by more than a percent, memory has come or gone meanwhile,
and nothing can be said of the sum to a percent: then it is looked again, some times.

No cause have the rows that say no more than that the memory is there: `anonymous`, mappings that
the program has made itself, and `brk`. These are also where a JVM's heap is, and V8's. What the
ledger does not list at all is in the difference of the sums.
"""

from __future__ import annotations

import http.client
import os
import re
import shutil
import socket
import statistics
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from heapfit import paths
from heapfit.live import Client, Ledger, listening

from account.common import ROOT, Figures, Row, hear, percent, say, started, under_heapfit, until

NO_CAUSE = ("anonymous", "brk")
LEAST_SHARE = 0.95
MOST_DIFFERENCE = 0.01
BETWEEN_LOOKS_S = 0.3
TRIES = 10  # for each look
LOAD, AFTER = "load", "after"

# A process at one moment: the program, which of the two moments it is at.
Moments = Iterator[tuple[str, int]]


@dataclass(frozen=True)
class Scale:
    """How much is done: seconds of load before the first look, and looks at each moment."""

    seconds: float = 4.0
    looks: int = 5


@dataclass(frozen=True)
class Program:
    """A program, the commands that it needs, and what is to be looked at."""

    needs: tuple[str, ...]
    moments: Callable[[Path, Scale], Moments]


# ---------------------------------------------------------------- looking


@dataclass(frozen=True)
class Kernels:
    """What the kernel counts, in bytes."""

    resident: int
    anonymous: int


def kernels(pid: int) -> Kernels:
    text = Path(f"/proc/{pid}/smaps").read_text()
    resident, anonymous = (
        sum(map(int, re.findall(rf"^{name}: +(\d+) kB$", text, re.MULTILINE))) * 1024
        for name in ("Rss", "Anonymous")
    )
    return Kernels(resident, anonymous)


def judged(ledger: Ledger, before: Kernels, after: Kernels) -> Figures:
    """Return what one look comes to, with what that is computed from."""
    causes = {each.name: each.resident for each in ledger.causes()}
    anonymous = (before.anonymous + after.anonymous) / 2
    resident = (before.resident + after.resident) / 2
    without = sum(causes.get(name, 0) for name in NO_CAUSE)
    named: Counter[str] = Counter()
    for row in ledger.rows:
        if row.cause in NO_CAUSE:
            named[row.name] += row.resident
    return {
        "share": round(1 - without / anonymous, 4),
        "difference": round(abs(ledger.resident - resident) / resident, 5),
        "ledger": ledger.resident,
        "complete": ledger.complete,
        "smaps": [before.resident, after.resident],
        "anonymous": [before.anonymous, after.anonymous],
        "causes": causes,
        "without": dict(named.most_common(5)),
    }


def is_steady(one: Figures) -> bool:
    """Whether the kernel counted nearly the same before and after."""
    least, most = sorted(one["smaps"])
    return bool(most - least <= MOST_DIFFERENCE * most)


def look(pid: int) -> Figures:
    client = Client(pid)
    before = kernels(pid)
    ledger = client.ledger()
    return judged(ledger, before, kernels(pid))


def looked_at(program: Program, folder: Path, scale: Scale) -> Figures:
    found: Figures = {}
    for moment, pid in program.moments(folder, scale):
        looks: list[Figures] = []
        unsteady = 0
        while len(looks) < scale.looks:
            one = look(pid)
            if is_steady(one) or unsteady == TRIES * scale.looks:
                looks.append(one)
            else:
                unsteady += 1
            time.sleep(BETWEEN_LOOKS_S)
        found[moment] = {
            "unsteady": unsteady,
            "share": statistics.median(each["share"] for each in looks),
            "difference": statistics.median(each["difference"] for each in looks),
            "looks": looks,
        }
    return found


# --------------------------------------------------------------- programs


def asleep(pid: int) -> None:
    """Wait until all threads have slept at several looks, but no longer than some seconds: some
    programs have a thread that never rests."""
    quiet = 0
    deadline = time.monotonic() + 10
    while quiet < 5 and time.monotonic() < deadline:
        states = []
        with suppress(OSError):  # a thread ends
            for task in Path(f"/proc/{pid}/task").iterdir():
                states.append((task / "stat").read_text().rpartition(")")[2].split()[0])
        quiet = quiet + 1 if states and set(states) <= {"S"} else 0
        time.sleep(0.1)


def listens(pid: int) -> None:
    until(lambda: pid in [each.pid for each in listening()], f"{pid} listens")


@contextmanager
def preloaded(command: list[str], folder: Path, **more: str) -> Iterator[subprocess.Popen[str]]:
    """Start a program with the library; it can be asked when the block begins."""
    with started(command, folder, under_heapfit("control:on", **more)) as process:
        listens(process.pid)
        yield process


REDIS_LOAD = "-q -l -d 700 -r 50000 -t set,get,hset,incr"


def redis(folder: Path, scale: Scale) -> Moments:
    path = str(folder / "redis.sock")
    words = ["redis-server", "--port", "0", "--unixsocket", path, "--save", "", "--daemonize", "no"]
    with preloaded(words, folder) as server:
        until(Path(path).exists, "redis listens")
        with started(["redis-benchmark", "-s", path, *REDIS_LOAD.split()], folder, {**os.environ}):
            time.sleep(scale.seconds)
            yield LOAD, server.pid
        asleep(server.pid)
        yield AFTER, server.pid


SQL = (
    "INSERT INTO t(name, more) SELECT 'row ' || value, hex(randomblob(value % 60)) "
    "FROM generate_series(1, 2000);\n"
    "DELETE FROM t WHERE id % 3 = 0;\nSELECT count(*), sum(length(more)) FROM t;\n"
)


def sqlite(folder: Path, scale: Scale) -> Moments:
    with preloaded(["sqlite3", ":memory:"], folder) as shell:
        assert shell.stdin is not None
        stdin, ended = shell.stdin, threading.Event()
        stdin.write("CREATE TABLE t(id INTEGER PRIMARY KEY, name, more);CREATE INDEX n ON t(name);")

        def feed() -> None:
            while not ended.is_set():
                stdin.write(SQL)
                stdin.flush()
            stdin.write("SELECT 'ended';\n")
            stdin.flush()

        feeder = threading.Thread(target=feed)
        feeder.start()
        listener = threading.Thread(
            target=lambda: all(hear(shell) != "ended" for _ in iter(int, 1))
        )
        listener.start()
        time.sleep(scale.seconds)
        yield LOAD, shell.pid
        ended.set()
        feeder.join()
        listener.join()
        asleep(shell.pid)
        yield AFTER, shell.pid


PYTHON = """
import json, os, sys
kept, rows = [], []
while not os.path.exists("ended"):
    rows = [{"name": f"row {i}", "values": [str(i)] * (i % 9)} for i in range(20000)]
    rows = json.loads(json.dumps(rows))
    kept = [*kept[-20000:], *rows[::7]]
del rows
print("ended", flush=True)
sys.stdin.read()
"""
NODE = """
const fs = require("fs"), zlib = require("zlib");
let kept = [];
function work() {
    const rows = Array.from({length: 20000}, (_, i) => ({name: `row ${i}`, values: [i, i + 1]}));
    const text = Buffer.from(JSON.stringify(rows));
    kept.push(zlib.gzipSync(text), text.subarray(0, 9000), Buffer.alloc(100000, 1));
    if (kept.length > 600) kept = kept.slice(-300);
    if (fs.existsSync("ended")) { console.log("ended"); process.stdin.resume(); }
    else setImmediate(work);
}
work();
"""
JAVA = """
import java.io.*; import java.nio.*; import java.nio.file.*; import java.util.*;
import java.util.zip.*;
public class Load {
    public static void main(String[] arguments) throws Exception {
        Map<Integer, String> kept = new HashMap<>();
        List<ByteBuffer> buffers = new ArrayList<>();
        for (int round = 0; !Files.exists(Path.of("ended")); round++) {
            for (int i = 0; i < 20000; i++) kept.put((i * 31 + round) % 200000, "row " + i);
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            try (GZIPOutputStream zip = new GZIPOutputStream(out)) {
                zip.write(kept.values().toString().getBytes());
            }
            buffers.add(ByteBuffer.allocateDirect(200000).put(new byte[200000]));
            if (buffers.size() > 100) buffers.subList(0, 50).clear();
        }
        System.out.println("ended");
        System.in.read();
    }
}
"""


def looping(command: list[str], folder: Path, scale: Scale, **more: str) -> Moments:
    """A program that works until there is a file `ended`, then says so and sleeps."""
    with preloaded(command, folder, **more) as process:
        time.sleep(scale.seconds)
        yield LOAD, process.pid
        (folder / "ended").touch()
        while hear(process) != "ended":
            pass
        asleep(process.pid)
        yield AFTER, process.pid


def python(folder: Path, scale: Scale) -> Moments:
    command = ["/usr/bin/python3", "-c", PYTHON]
    return looping(command, folder, scale, PYTHONMALLOC="malloc")


def node(folder: Path, scale: Scale) -> Moments:
    return looping(["node", "-e", NODE], folder, scale)


def java(folder: Path, scale: Scale) -> Moments:
    (folder / "Load.java").write_text(JAVA)
    subprocess.run(["javac", "Load.java"], cwd=folder, check=True)
    return looping(["java", "-Xmx256m", "-cp", ".", "Load"], folder, scale)


PHP = """<?php
$rows = [];
for ($i = 0; $i < 20000; $i++) $rows[] = ["name" => "row $i", "values" => [$i, $i + 1]];
$rows = json_decode(json_encode($rows), true);
usort($rows, fn($a, $b) => strcmp($a["name"], $b["name"]));
echo md5(serialize($rows));
"""
NGINX = """
daemon off; master_process off; worker_processes 1; error_log stderr; pid nginx.pid;
events { worker_connections 256; }
http {
    access_log off; gzip on; gzip_types text/plain; gzip_comp_level 6;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    server { listen 127.0.0.1:PORT; root .; default_type text/plain; }
}
"""
CLIENTS = 8


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@contextmanager
def visitors(port: int) -> Iterator[None]:
    """Ask a server for the same again and again while the block runs."""
    ended = threading.Event()

    def visit() -> None:
        while not ended.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            with suppress(OSError, http.client.HTTPException):
                for _ in range(50):
                    connection.request("GET", "/index.txt", headers={"Accept-Encoding": "gzip"})
                    connection.getresponse().read()
                    if ended.is_set():
                        break
            connection.close()

    threads = [threading.Thread(target=visit) for _ in range(CLIENTS)]
    for each in threads:
        each.start()
    try:
        yield
    finally:
        ended.set()
        for each in threads:
            each.join()


def visited(command: list[str], port: int, folder: Path, scale: Scale, **more: str) -> Moments:
    with preloaded(command, folder, **more) as server:
        until(lambda: answers(port), f"{command[0]} answers")
        with visitors(port):
            time.sleep(scale.seconds)
            yield LOAD, server.pid
        asleep(server.pid)
        yield AFTER, server.pid


def deepbind(folder: Path) -> str:
    """Return what is preloaded with PHP, whose extensions would find another malloc alone."""
    library = folder / "deepbind.so"
    source = ROOT / "workloads" / "php" / "deepbind.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl"], check=True)
    return f"{paths.library()}:{library}"


def php(folder: Path, scale: Scale) -> Moments:
    (folder / "answer.php").write_text(PHP)
    port = free_port()
    command = ["php", "-S", f"127.0.0.1:{port}", "answer.php"]
    return visited(command, port, folder, scale, USE_ZEND_ALLOC="0", LD_PRELOAD=deepbind(folder))


def nginx(folder: Path, scale: Scale) -> Moments:
    port = free_port()
    (folder / "nginx.conf").write_text(NGINX.replace("PORT", str(port)))
    (folder / "index.txt").write_text("".join(f"line {i} of many\n" for i in range(40_000)))
    command = ["nginx", "-p", f"{folder}/", "-c", f"{folder}/nginx.conf", "-e", "stderr"]
    return visited(command, port, folder, scale)


CPP = """
#include <algorithm>
#include <functional>
#include <map>
#include <regex>
#include <string>
#include <variant>
#include <vector>
template <int N> struct each {
    std::map<std::string, std::vector<std::variant<int, std::string>>> rows;
    int work(const std::string &text) {
        rows[text].push_back(N);
        for (auto &[name, values] : rows)
            std::sort(values.begin(), values.end(), [](auto &a, auto &b) { return a < b; });
        return std::regex_search(text, std::regex("a+")) + each<N - 1>().work(text);
    }
};
template <> struct each<0> { int work(const std::string &) { return 0; } };
int main(int, char **words) { return each<COUNT>().work(words[0]); }
"""


def clang(folder: Path, scale: Scale) -> Moments:
    """Its object file goes to a pipe that nobody reads: so it stands still with its work done."""
    (folder / "load.cc").write_text(CPP.replace("COUNT", "100"))
    command = ["clang-16", "-std=c++17", "-O2", "-g", "-c", "load.cc", "-o", "-"]
    with preloaded(command, folder) as compiler:
        time.sleep(scale.seconds)
        yield LOAD, compiler.pid
        waits = Path(f"/proc/{compiler.pid}/wchan")
        until(lambda: "pipe" in waits.read_text(), "clang has written", 600)
        yield AFTER, compiler.pid


PROGRAMS = {
    "redis": Program(("redis-server", "redis-benchmark"), redis),
    "sqlite3": Program(("sqlite3",), sqlite),
    "node": Program(("node",), node),
    "python3": Program(("/usr/bin/python3",), python),
    "java": Program(("java", "javac"), java),
    "php": Program(("php",), php),
    "nginx": Program(("nginx",), nginx),
    "clang": Program(("clang-16",), clang),
}


def missing(program: Program) -> list[str]:
    """Return which commands it lacks here."""
    return [each for each in program.needs if shutil.which(each) is None]


def measure(scratch: Path, scale: Scale, only: list[str]) -> Figures:
    found: Figures = {"no_cause": list(NO_CAUSE), "programs": {}, "skipped": {}}
    for name in only:
        lacks = missing(PROGRAMS[name])
        if lacks:
            found["skipped"][name] = lacks
            say(f"ledger: {name} is skipped: there is no {' or '.join(lacks)}")
            continue
        folder = scratch / name
        folder.mkdir()
        found["programs"][name] = of = looked_at(PROGRAMS[name], folder, scale)
        for moment, each in of.items():
            say(f"ledger: {name}, {moment}: {each['share']:.4f}, off by {each['difference']:.4%}")
    return found


def rows(found: Figures) -> list[Row]:
    made = []
    for name, of in found["programs"].items():
        shares = [of[moment]["share"] for moment in (LOAD, AFTER)]
        differences = [of[moment]["difference"] for moment in (LOAD, AFTER)]
        shown = [*map(percent, shares), *(percent(each, 2) for each in differences)]
        made.append(
            Row(
                f"`{name}`, under load and afterwards: memory with a cause; off `smaps` by",
                f"≥ {percent(LEAST_SHARE, 0)}; ≤ {percent(MOST_DIFFERENCE, 0)}",
                "{}, {}; {}, {}".format(*shown),
                min(shares) >= LEAST_SHARE and max(differences) <= MOST_DIFFERENCE,
            )
        )
    return made
