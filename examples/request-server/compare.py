#!/usr/bin/env python3
"""Run the request server under wrk in every memory mode and print what each cost.

    compare.py [--prefix PREFIX] [--program FILE] [--seconds N] [--repetitions N]
               [--malloc NAME=LIBRARY]...

Builds the server against the heapfit below PREFIX (where CMake finds it, if that is not given),
unless --program names one that is built. Every repetition runs all modes once, in an order of its
own, so that what the machine does meanwhile meets all of them. Server and wrk have cores of their
own where there are several. The table shows medians; CPU time per request is the figure with the
least noise.

Modes: glibc is `--memory malloc` with the C library's malloc; --malloc adds the same with another
library preloaded; malloc is the same with heapfit's; context, region and switch are the server's
own.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
SEED = 1
STOP_TIMEOUT_S = 30
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Mode:
    """A way to run the server: what it is told, and what is preloaded."""

    name: str
    memory: str
    preload: str = ""


@dataclass(frozen=True)
class Trial:
    """What one run under load cost."""

    requests_per_s: float
    latency_p50_s: float
    latency_p99_s: float
    cpu_s_per_request: float
    rss_bytes: int


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prefix", type=Path, help="where heapfit is installed")
    parser.add_argument("--program", type=Path, help="a server that is built already")
    parser.add_argument("--seconds", type=int, default=5, help="of load in each run")
    parser.add_argument("--repetitions", type=int, default=7, help="of each mode")
    parser.add_argument("--workers", type=int, default=2, help="threads of the server")
    parser.add_argument("--connections", type=int, default=16, help="that wrk keeps open")
    parser.add_argument("--malloc", action="append", default=[], metavar="NAME=LIBRARY")
    return parser.parse_args()


def build(folder: Path, prefix: Path | None) -> Path:
    """Build the server in a scratch folder."""
    where = [f"-Dheapfit_ROOT={prefix.resolve()}"] if prefix else []
    configure = ["cmake", "-S", str(HERE), "-B", str(folder), *where]
    for command in (configure, ["cmake", "--build", str(folder)]):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder / "request-server"


def of_c_library(program: Path) -> str:
    """What to preload for glibc's malloc in a program that is linked with heapfit's.

    The libraries that would have served it: libstdc++ for operator new, libc for malloc.
    """
    listing = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    found = re.findall(r"lib(?:stdc\+\+|c)\.so\.\d+ => (\S+)", listing)
    return ":".join(sorted(found, key=lambda path: "stdc++" not in path))


def all_modes(program: Path, others: list[str]) -> list[Mode]:
    """Every mode, in the order of the table."""
    preloaded = [other.partition("=") for other in others]
    return [
        Mode("glibc", "malloc", of_c_library(program)),
        *(Mode(name, "malloc", str(Path(path).resolve())) for name, _, path in preloaded),
        *(Mode(name, name) for name in ("malloc", "context", "region", "switch")),
    ]


def split_cores() -> tuple[set[int], set[int]]:
    """The cores of the server and those of wrk; the same where there is only one."""
    cores = sorted(os.sched_getaffinity(0))
    half = len(cores) // 2
    return (set(cores[:half]), set(cores[half:])) if half else (set(cores), set(cores))


@contextmanager
def running(program: Path, mode: Mode, workers: int, cores: set[int]) -> Iterator[tuple[int, int]]:
    """A server's process and port, while it runs on some cores."""
    command = [str(program), "--memory", mode.memory, "--workers", str(workers)]
    environment = {**os.environ, "LD_PRELOAD": mode.preload}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline().rpartition(":")[2])
            for thread in os.listdir(f"/proc/{process.pid}/task"):
                os.sched_setaffinity(int(thread), cores)
            yield process.pid, port
            process.send_signal(signal.SIGTERM)
            if process.wait(STOP_TIMEOUT_S) != 0:
                raise RuntimeError(f"{mode.name}: the server ended with {process.returncode}")
        finally:
            process.kill()


def cpu_s(pid: int) -> float:
    """CPU time that a process has used, of user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def rss_bytes(pid: int) -> int:
    """Resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return 1024 * int(re.findall(r"^VmRSS:\s*(\d+)", status, re.MULTILINE)[0])


def load(port: int, seconds: float, connections: int, cores: set[int]) -> dict[str, int]:
    """Drive the server; the figures that load.lua prints."""
    command = ["wrk", "--threads=1", f"--connections={connections}", f"--duration={seconds}s"]
    command += ["--timeout=60s"]  # on a busy machine an answer may take longer than 2 s
    command += [f"--script={HERE / 'load.lua'}", f"http://127.0.0.1:{port}"]
    pinned = ["taskset", "--cpu-list", ",".join(map(str, sorted(cores))), *command]
    output = subprocess.run(pinned, check=True, capture_output=True, text=True).stdout
    figures = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", output)}
    if figures["errors"] > 0 or figures["requests"] == 0:
        raise RuntimeError(f"the server did not answer all requests:\n{output}")
    return figures


def measure(program: Path, mode: Mode, how: argparse.Namespace) -> Trial:
    """Start a server, warm it up, load it."""
    server_cores, wrk_cores = split_cores()
    with running(program, mode, how.workers, server_cores) as (pid, port):
        load(port, 1, how.connections, wrk_cores)
        before = cpu_s(pid)
        figures = load(port, how.seconds, how.connections, wrk_cores)
        used = cpu_s(pid) - before
        resident = rss_bytes(pid)
    return Trial(
        requests_per_s=figures["requests"] / figures["duration_us"] * 1e6,
        latency_p50_s=figures["p50_us"] / 1e6,
        latency_p99_s=figures["p99_us"] / 1e6,
        cpu_s_per_request=used / figures["requests"],
        rss_bytes=resident,
    )


def table(trials: dict[str, list[Trial]]) -> str:
    """Medians of each mode, and its CPU time beside that of `malloc` in the same repetition."""
    lines = [
        f"{'':12}{'requests/s':>12}{'p50 ms':>9}{'p99 ms':>9}{'CPU us/request':>16}"
        f"{'to malloc':>11}{'RSS MiB':>9}"
    ]
    for name, runs in trials.items():
        ratios = [
            run.cpu_s_per_request / base.cpu_s_per_request
            for run, base in zip(runs, trials["malloc"], strict=True)
        ]
        lines.append(
            f"{name:12}{median(run.requests_per_s for run in runs):12.0f}"
            f"{median(run.latency_p50_s for run in runs) * 1e3:9.2f}"
            f"{median(run.latency_p99_s for run in runs) * 1e3:9.2f}"
            f"{median(run.cpu_s_per_request for run in runs) * 1e6:16.1f}"
            f"{median(ratios):11.3f}"
            f"{median(run.rss_bytes for run in runs) / 2**20:9.1f}"
        )
    return "\n".join(lines)


def main() -> int:
    how = options()
    order = random.Random(SEED)
    with tempfile.TemporaryDirectory() as scratch:
        program = how.program.resolve() if how.program else build(Path(scratch), how.prefix)
        modes = all_modes(program, how.malloc)
        trials: dict[str, list[Trial]] = {mode.name: [] for mode in modes}
        for repetition in range(how.repetitions):
            for mode in order.sample(modes, len(modes)):
                trials[mode.name].append(measure(program, mode, how))
            print(f"{repetition + 1} of {how.repetitions} repetitions done", file=sys.stderr)
    print(table(trials))
    return 0


if __name__ == "__main__":
    sys.exit(main())
