"""How long does it take from a large recording to its page, and how much memory?

A program of many call sites is recorded in full: it walks down chains of eight calls, which it
draws, to allocate, and frees what it has allocated some thousand allocations later. Then `heapfit
profile FILE --page` runs as a command: measured are its time from the first to the last moment, and
the peak of resident memory of what it and its children hold at once. Beside it, heaptrack records
the same program, and heaptrack_print reads that, where both are there. (memray records programs in
Python alone.)
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from account.common import HEAPFIT, MIB, Figures, Row, compiled, lab_environment, say

GIB = 1 << 30
EVENTS = 100_000_000
GOAL_S, GOAL_BYTES = 60, 2 * GIB
# Bytes of the disk that an event may take: the recording has some 4, its tables the rest, twice.
ROOM_PER_EVENT = 200
LOOK_S = 0.1
TIMEOUT_S = 7200
# Of what stands beside: heaptrack 1.4 has been seen to come to no end.
BESIDE_TIMEOUT_S = 1200
DEPTH, WIDTH = 7, 4


@dataclass(frozen=True)
class Scale:
    """How many events the recording has; whether heaptrack records the same."""

    events: int = EVENTS
    beside: bool = True


_SOURCE = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { LIVE = 10000 };

static uint64_t state = 1;
static uint32_t drawn(uint32_t below)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407); /* Knuth, MMIX */
    return (uint32_t)(state >> 33) % below;
}
@FUNCTIONS@
int main(int count, char **words)
{
    static void *live[LIVE];
    uint64_t events = count > 1 ? strtoull(words[1], NULL, 10) : 1000;
    for (uint64_t i = 0; i < events / 2; i++) {
        uint32_t slot = drawn(LIVE);
        free(live[slot]);
        live[slot] = call_0_0(drawn(UINT32_MAX));
    }
    return 0;
}
"""


def source(depth: int = DEPTH, width: int = WIDTH) -> str:
    """Return the program: so many functions at each of so many levels, each calling all below."""
    lines = []
    for n in range(width):
        size = f"{16 << n} + way % {8 << n}"
        lines.append(f"static __attribute__((noinline)) void *call_{depth}_{n}(uint32_t way)\n{{")
        lines.append(f"    void *object = malloc({size});")
        lines.append('    __asm__ volatile("" : : "r"(object) : "memory");\n    return object;\n}')
    for level in range(depth - 1, -1, -1):
        for n in range(width if level else 1):
            name = f"call_{level}_{n}(uint32_t way)"
            lines.append(f"static __attribute__((noinline)) void *{name}\n{{\n    void *object;")
            lines.append(f"    switch (way % {width}) {{")
            for below in range(width):
                call = f"call_{level + 1}_{below}(way / {width})"
                lines.append(f"    case {below}: object = {call}; break;")
            lines.append("    default: abort();\n    }")
            # What is behind the call keeps it from being a jump, which no chain would show.
            lines.append(f'    __asm__ volatile("" : : "r"(object), "r"({n}) : "memory");')
            lines.append("    return object;\n}")
    return _SOURCE.replace("@FUNCTIONS@", "\n".join(lines))


# ------------------------------------------------------------ a command


def resident(pid: int) -> int:
    """Return what a process and its children have resident, in bytes; 0 where it is gone."""
    total = 0
    with suppress(OSError, IndexError):
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
        total = int(pages) * os.sysconf("SC_PAGE_SIZE")
        for task in Path(f"/proc/{pid}/task").iterdir():
            total += sum(resident(int(c)) for c in (task / "children").read_text().split())
    return total


def highest(pid: int) -> int:
    """Return the peak of a process's own resident memory, as the kernel has it; 0: gone."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def processor_s() -> float:
    """Return the processor time of all that was started here and has ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measured(command: list[str], folder: Path, limit_s: float = TIMEOUT_S) -> Figures:
    """Run a command, and return its seconds and its peak; an error when it fails."""
    begun, taken = time.monotonic(), processor_s()
    peak = 0
    with (folder / "printed").open("w") as printed:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=lab_environment(),
            stdout=printed,
            stderr=printed,
            start_new_session=True,
        )
        try:
            while process.poll() is None:
                peak = max(peak, resident(process.pid), highest(process.pid))
                if time.monotonic() - begun > limit_s:
                    raise SystemExit(f"{command!r} takes longer than {limit_s} s")
                time.sleep(LOOK_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # what it has started ends with it
                process.wait()
    if process.returncode != 0:
        raise SystemExit(f"{command!r} failed: {(folder / 'printed').read_text()[-2000:]}")
    return {
        "seconds": round(time.monotonic() - begun, 2),
        "processor_s": round(processor_s() - taken, 2),
        "peak": peak,
    }


def measure(scratch: Path, scale: Scale) -> Figures:
    free, needed = shutil.disk_usage(scratch).free, scale.events * ROOM_PER_EVENT
    if free < needed:
        raise SystemExit(f"flames: {scratch} has {free >> 20} MiB free of {needed >> 20} needed")
    program = compiled(source(), scratch, "flames", "-fno-omit-frame-pointer")
    work = [str(program), str(scale.events)]
    say(f"flames: recording {scale.events:,} events")
    recording, page = scratch / "flames.hft", scratch / "flames.html"
    record = measured([*HEAPFIT, "record", "-o", str(recording), "--", *work], scratch)
    say(f"flames: profiling {recording.stat().st_size >> 20} MiB")
    profile = measured([*HEAPFIT, "profile", str(recording), "--page", str(page)], scratch)
    found = {
        "events": scale.events,
        "recording_bytes": recording.stat().st_size,
        "page_bytes": page.stat().st_size,
        "record": record,
        "profile": profile,
    }
    recording.unlink()
    if scale.beside and shutil.which("heaptrack") and shutil.which("heaptrack_print"):
        try:
            found["heaptrack"] = of_heaptrack(work, scratch)
        except SystemExit as error:
            found["heaptrack"] = {"failed": str(error)[-300:]}
            say("flames: heaptrack has failed")
    return found


def of_heaptrack(work: list[str], scratch: Path) -> Figures:
    """Return the same of heaptrack's recording, printed with what a flame graph is made of."""
    say("flames: the same by heaptrack")
    recording = scratch / "heaptrack"
    record = measured(["heaptrack", "-o", str(recording), *work], scratch, BESIDE_TIMEOUT_S)
    [written] = scratch.glob("heaptrack.*")
    stacks = scratch / "stacks"
    read = ["heaptrack_print", "-f", str(written), "-F", str(stacks)]
    found: Figures = {"record": record, "print": measured(read, scratch, BESIDE_TIMEOUT_S)}
    found["recording_bytes"] = written.stat().st_size
    written.unlink()
    return found


def rows(found: Figures) -> list[Row]:
    profile, events = found["profile"], f"{found['events']:,} events"
    made = [
        Row(
            f"from a recording of {events} to its page: time",
            f"≤ {GOAL_S} s for {EVENTS:,}",
            f"{profile['seconds']:.0f} s ({profile['processor_s']:.0f} s of a processor)",
            profile["seconds"] <= GOAL_S if found["events"] >= EVENTS else None,
        ),
        Row(
            "likewise: peak memory",
            f"≤ {GOAL_BYTES >> 30} GiB",
            f"{profile['peak'] / MIB:.0f} MiB",
            profile["peak"] <= GOAL_BYTES if found["events"] >= EVENTS else None,
        ),
        Row(
            "size of that page, and of the recording",
            "",
            f"{found['page_bytes'] / MIB:.1f} MiB, {found['recording_bytes'] / MIB:.0f} MiB",
            None,
        ),
    ]
    if "print" in found.get("heaptrack", {}):
        printed = found["heaptrack"]["print"]
        made.append(
            Row(
                "heaptrack_print, for heaptrack's recording of the same program: time, memory",
                "",
                f"{printed['seconds']:.0f} s, {printed['peak'] / MIB:.0f} MiB",
                None,
            )
        )
    return made
