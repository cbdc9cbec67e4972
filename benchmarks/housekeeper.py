"""What does the background thread cost: programs that work, and a process that only sleeps?

    PYTHONPATH=lab python3 benchmarks/housekeeper.py docs/results/housekeeper.json [SECONDS]

Instructions are those of all threads, counted by Valgrind's callgrind, which lets one thread run at
a time; each ratio is of the default, background:auto, to background:off, of the means of PAIRS
runs in turn. The programs are those of the core study's micro-benchmarks that run threads, at SCALE
percent of their work: in a program of one thread there is no background thread. Under Valgrind they
run some fifty times slower, so that the background thread wakes as often in a fiftieth of the work;
what it takes at full speed is its share of the process's processor time, the median of PAIRS runs,
both by the kernel, as last seen before the end.

The process that sleeps has had 64 MiB in threads and freed them; its processor time is the
kernel's, of all its threads, in SECONDS (60) from two seconds after its last call on.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from heapfit import paths

ROOT = Path(__file__).resolve().parents[1]
MICRO = ROOT / "workloads/micro"
THREAD = "heapfit-reclaim"
SETTLES_S = 2
PAIRS = 7
SCALE = 10
# As in the core study, but for the threads of many-threads: Valgrind has 500 at most.
COMMANDS = {
    "churn-threads": "churn --live 100000 --size 64 --threads 2",
    "larson": "larson --threads 2",
    "producer-consumer": "producer-consumer",
    "pipeline": "pipeline",
    "thread-churn": "thread-churn",
    "many-threads": "many-threads --threads 400 --rounds 60",
}
NS = 1_000_000_000


def environment(settings: str) -> dict[str, str]:
    """Return this environment with the library and its options."""
    library = str(paths.library("default"))
    return {**os.environ, "LD_PRELOAD": library, "HEAPFIT_OPTIONS": settings}


def instructions(command: list[str], settings: str) -> int:
    """Return how many a run takes, in all its threads."""
    words = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *command]
    done = subprocess.run(
        words, env=environment(settings), check=True, capture_output=True, text=True
    )
    found = re.search(r"Collected : (\d+)", done.stderr)
    assert found is not None, done.stderr
    return int(found[1])


def processor_ns(pid: int, name: str = "") -> int:
    """Return the processor time of all threads that a process has now, or of those of a name."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(
        int((task / "schedstat").read_text().split()[0])
        for task in tasks
        if name in (task / "comm").read_text()
    )


def share(command: list[str]) -> float:
    """Return the background thread's share of the processor time of a run at full speed."""
    taken = of_thread = 0
    with subprocess.Popen(
        command, env=environment(""), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        while process.poll() is None:
            with contextlib.suppress(OSError, IndexError):  # a thread ends, or the process
                of_thread = max(of_thread, processor_ns(process.pid, THREAD))
                stat = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
                taken = int(stat[11]) + int(stat[12])
            time.sleep(0.02)
    return of_thread / NS / (taken / os.sysconf("SC_CLK_TCK"))


def idle_ns(program: Path, seconds: int) -> int:
    """Return the processor time that a process takes which sleeps after its work."""
    with subprocess.Popen(
        [program, "64"],
        env=environment(""),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        time.sleep(SETTLES_S)
        before = processor_ns(process.pid)
        time.sleep(seconds)
        taken = processor_ns(process.pid) - before
        process.stdin.close()
    return taken


SLEEPER = """
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static size_t each;
static void *works(void *unused)
{
    char *blocks[1024];
    for (int i = 0; i < 1024; i++) memset(blocks[i] = malloc(each / 1024), 1, each / 1024);
    for (int i = 0; i < 1024; i++) free(blocks[i]);
    return unused;
}
static void *sleeps(void *unused)
{
    works(unused);
    getchar();
    return unused;
}
int main(int argc, char **argv)
{
    pthread_t threads[4];
    each = ((size_t)(argc > 1 ? atoi(argv[1]) : 64) << 20) / 4;
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, i < 2 ? sleeps : works, NULL);
    for (int i = 2; i < 4; i++) pthread_join(threads[i], NULL);
    puts("ready");
    fflush(stdout);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    return 0;
}
"""


def compiled(source: Path, folder: Path) -> Path:
    """Return the program that a C source makes."""
    program = folder / source.stem
    subprocess.run(["cc", "-std=gnu17", "-O2", "-pthread", source, "-o", program], check=True)
    return program


def counted(command: list[str]) -> dict[str, list[int]]:
    """Return the instructions of PAIRS runs of a program under each setting."""
    counts: dict[str, list[int]] = {"off": [], "auto": []}
    for _ in range(PAIRS):
        for setting, of_setting in counts.items():
            words = [*command, "--scale", str(SCALE)]
            of_setting.append(instructions(words, f"background:{setting}"))
    return counts


def ratio(counts: dict[str, list[int]]) -> float:
    """Return the ratio of means: how threads wait for each other is of two kinds in `pipeline`, of
    which a median would be one or the other."""
    return round(statistics.fmean(counts["auto"]) / statistics.fmean(counts["off"]), 4)


def main() -> None:
    seconds = int(sys.argv[2]) if len(sys.argv) > 2 else 60
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        programs, shares = {}, {}
        for test, words in COMMANDS.items():
            name, *arguments = words.split()
            command = [str(compiled(MICRO / f"{name}.c", folder)), *arguments]
            shares[test] = round(statistics.median(share(command) for _ in range(PAIRS)), 5)
            programs[test] = counted(command)
            print(f"{test}: {ratio(programs[test])}, {shares[test]}", flush=True)
        (folder / "sleeper.c").write_text(SLEEPER)
        idle = idle_ns(compiled(folder / "sleeper.c", folder), seconds)
        ratios = {program: ratio(counts) for program, counts in programs.items()}
        result = {
            "scale": SCALE,
            "instructions": programs,
            "ratios": ratios,
            "ratio": round(statistics.geometric_mean(ratios.values()), 4),
            "shares": shares,
            "idle_seconds": seconds,
            "idle_processor_s": round(idle / NS, 6),
        }
    Path(sys.argv[1]).write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
