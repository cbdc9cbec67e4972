"""Do the intervals of a sampled recording hold what a full recording counts?

Each program is deterministic: a dozen call sites allocate objects of their own sizes in turn, from
16 bytes to a few hundred KiB, some of which stay. It is recorded in full once, which gives the
exact totals, and then many times by a sample. Of each call site with at least a hundredth of all
bytes, each run tells an estimate of its bytes and its blocks; what counts is in what share of
(site, run) pairs the 95 % interval holds the exact total. The intervals are those that `heapfit
profile --json` states of each amount, or `heapfit diff` by default.

Programs are of several sizes, so that there are sites with a dozen samples and sites with hundreds.
"""

from __future__ import annotations

import os
import random
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from heapfit.diff.recordings import _bytes, _objects
from heapfit.options import size_in_bytes
from heapfit.profile.files import converted
from heapfit.profile.sections import sites
from heapfit.profile.tally import Tally
from heapfit.profile.trace import Trace
from heapfit.record import RecordOptions, run

from account.common import MIB, Figures, Row, compiled, percent, say

SAMPLE = "64k"
SITES = 12
LEAST_SHARE = 0.01
GOAL = 0.94
CALLS_FOLLOWED = 8
CONFIDENCE = 0.95
# Bounds between sites by how many samples of them there are in a run.
FEW, MANY = 20, 100


@dataclass(frozen=True)
class Scale:
    """What each program allocates in all, and how often it is recorded by a sample."""

    programs: tuple[int, ...] = (32 * MIB, 96 * MIB, 256 * MIB, 640 * MIB)
    runs: int = 50
    sample: str = SAMPLE


_SOURCE = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define SITE(n)                                                                                  \\
    static __attribute__((noinline)) void *site_##n(size_t size)                                 \\
    {                                                                                            \\
        void *object = malloc(size);                                                             \\
        if (object == NULL) abort();                                                             \\
        __asm__ volatile("" : : "r"(object), "r"(n) : "memory");                                 \\
        return object;                                                                           \\
    }
@FUNCTIONS@
static void *(*const sites[])(size_t) = {@NAMES@};
static const struct { uint32_t least, most, share; } of[] = {@SITES@};
enum { SITES = sizeof of / sizeof *of, LIVE = 4096 };

static uint64_t state = @SEED@;
static uint32_t drawn(uint32_t below)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407); /* Knuth, MMIX */
    return (uint32_t)(state >> 33) % below;
}

int main(void)
{
    static void *live[LIVE];
    uint64_t asked[SITES] = {0}, all = 0;
    while (all < UINT64_C(@BYTES@)) {
        int site = (int)drawn(SITES);
        if (asked[site] * 10000 > (uint64_t)of[site].share * all) continue;
        size_t size = of[site].least + drawn(of[site].most - of[site].least + 1);
        uint32_t slot = drawn(LIVE);
        free(live[slot]);
        live[slot] = sites[site](size);
        asked[site] += size;
        all += size;
    }
    return 0;
}
"""


def source(seed: int, size: int) -> str:
    """Return a program whose sites have drawn sizes, and drawn shares of all bytes."""
    draw = random.Random(seed)
    parts = [draw.uniform(1, 12) ** 1.5 for _ in range(SITES)]
    shares = [max(60, round(10_000 * each / sum(parts))) for each in parts]
    shares[0] += max(0, 10_000 - sum(shares))  # so that there is always one that may go on
    drawn = []
    for share in shares:
        least = round(16 * 2 ** draw.choice([0, 1, 1, 2, 2, 3, 4, 5, 6, 8, 10, 12]))
        drawn.append((least, round(least * draw.uniform(1, 4)), share))
    text = _SOURCE
    for name, value in {
        "FUNCTIONS": " ".join(f"SITE({n})" for n in range(SITES)),
        "NAMES": ", ".join(f"site_{n}" for n in range(SITES)),
        "SITES": ", ".join("{" + ", ".join(map(str, site)) + "}" for site in drawn),
        "SEED": str(seed),
        "BYTES": str(size),
    }.items():
        text = text.replace(f"@{name}@", value)
    return text


def recorded(program: Path, sample: int) -> Tally:
    """Record a run and return what a profile's call sites are made from."""
    path = program.with_suffix(".hft")
    path.unlink(missing_ok=True)
    run([str(program)], path, RecordOptions(sample=sample, sites=CALLS_FOLLOWED), {**os.environ})
    tally = Tally()
    with (
        converted(path) as folder,
        tempfile.TemporaryDirectory() as aside,
        Trace(folder, Path(aside)) as trace,
    ):
        sites.count(trace, tally)
    return tally


def by_function(found: Tally) -> Iterator[tuple[str, Figures]]:
    """Yield the program's sites: bytes and blocks as value, low, high and standard error."""
    for site in sites.finish(found).by_bytes:
        name = re.split(r"\W", site.chain[0])[0]
        if name.startswith("site_"):
            of = site.amount
            told = {
                "bytes": (_bytes(of, of, 0), of.bytes_error),
                "blocks": (_objects(of, of, 0), of.objects_error),
            }
            yield name, {key: [s.value, s.low, s.high, error] for key, (s, error) in told.items()}


def holds(interval: list[float], exact: float) -> bool:
    """Whether it does; a total is a whole number, and one that is sampled for certain has none."""
    _, low, high, _ = interval
    return low - 0.5 <= exact <= high + 0.5


def of_program(program: Path, runs: int, sample: str) -> Figures:
    """Return how often each site's intervals hold its totals."""
    exact = dict(by_function(recorded(program, 0)))
    total = sum(each["bytes"][0] for each in exact.values())
    counted = {
        name: {key: each[key][0] for key in ("bytes", "blocks")}
        for name, each in exact.items()
        if each["bytes"][0] >= LEAST_SHARE * total
    }
    held: Counter[tuple[str, str]] = Counter()
    sums: Counter[tuple[str, str]] = Counter()
    off: defaultdict[tuple[str, str], float] = defaultdict(float)
    for _ in range(runs):
        told = dict(by_function(recorded(program, size_in_bytes(sample))))
        for name, totals in counted.items():
            for key, true in totals.items():
                # A site that is not in the sample is told to have nothing.
                interval = told.get(name, {}).get(key, [0.0] * 4)
                held[name, key] += holds(interval, true)
                sums[name, key] += interval[0]
                off[name, key] += ((interval[0] - true) / interval[3]) ** 2 if interval[3] else 0.0
    return {
        "bytes": total,
        "runs": runs,
        "sites": {
            name: {
                "samples": round(totals["bytes"] / size_in_bytes(sample), 1),
                **totals,
                "held": {key: held[name, key] for key in totals},
                # The mean estimate over the total, and of squared errors over those stated: 1.
                "mean": {
                    key: round(sums[name, key] / runs / true, 4) for key, true in totals.items()
                },
                "off": {key: round(off[name, key] / runs, 3) for key in totals},
            }
            for name, totals in counted.items()
        },
    }


def measure(scratch: Path, scale: Scale, seed: int) -> Figures:
    programs = []
    for number, size in enumerate(scale.programs):
        program = compiled(source(seed + number, size), scratch, f"sums_{number}")
        one = of_program(program, scale.runs, scale.sample)
        programs.append(one)
        held, pairs = counts([one], "bytes")
        say(f"sums: {size >> 20} MiB, {len(one['sites'])} sites: held in {held} of {pairs}")
    return {"seed": seed, "sample": scale.sample, "programs": programs}


def counts(
    programs: list[Figures], key: str, least: float = 0, most: float = float("inf")
) -> tuple[int, int]:
    """Return in how many pairs the interval held, of how many, of sites with so many samples."""
    held = pairs = 0
    for each in programs:
        for site in each["sites"].values():
            if least <= site["samples"] < most:
                held += site["held"][key]
                pairs += each["runs"]
    return held, pairs


def share_with_interval(held: int, pairs: int) -> str:
    """Return a share and its interval, by Clopper and Pearson (1934).

    >>> share_with_interval(190, 200)
    '95.0 % (91.0 % to 97.6 %)'
    """
    from scipy.stats import beta

    tail = (1 - CONFIDENCE) / 2
    low = beta.ppf(tail, held, pairs - held + 1) if held else 0.0
    high = beta.ppf(1 - tail, held + 1, pairs - held) if held < pairs else 1.0
    return f"{percent(held / pairs)} ({percent(low)} to {percent(high)})"


def rows(found: Figures) -> list[Row]:
    made = []
    for key in ("bytes", "blocks"):
        held, pairs = counts(found["programs"], key)
        if pairs:
            figure = (
                f"{key} of a call site within the 95 % interval of `--sample {found['sample']}`"
            )
            told = f"{share_with_interval(held, pairs)} of {pairs:,}"
            made.append(Row(figure, f"≥ {percent(GOAL, 0)}", told, held / pairs >= GOAL))
    for words, *bounds in (("fewer than 20", 0, FEW), ("100 or more", MANY, float("inf"))):
        held, pairs = counts(found["programs"], "bytes", *bounds)
        if pairs:
            figure = f"likewise bytes, of sites with {words} samples"
            made.append(Row(figure, "", share_with_interval(held, pairs), None))
    return made
