"""How often is the call site that pins free memory the first that the ledger names?

Each of twenty programs is generated from a seed. It has a peak in which several call sites allocate
objects in turn. Then all are freed but those that are meant to stay: those of the culprit, of which
one lives on nearly each page of its own sizes; those of a lesser pinner, which hold a quarter as
many pages at most; and those of dense sites, which hold memory without pinning any, since all of
their objects stay, side by side. What the generator has drawn is written down with the answer. The
ranking is that of `heapfit why PID`, from the option `sample`: the first site that its sentence
names.
"""

from __future__ import annotations

import random
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from heapfit.live.profile import Site
from heapfit.why import read
from heapfit.why.findings import findings

from account.common import MIB, Figures, Row, compiled, hear, say, started, under_heapfit

SAMPLE = "64k"
PROGRAMS = 20
GOAL = 19
PAGE = 4096
SMALLEST, LARGEST, BANDS = 24, 1200, 11


@dataclass(frozen=True)
class Scale:
    """How many programs, how much they hold at their peak, and how they are sampled."""

    programs: int = PROGRAMS
    peak: int = 96 * MIB
    sample: str = SAMPLE


@dataclass(frozen=True)
class Part:
    """Objects of one call site: what it is there for, their sizes, how many there are at the peak,
    and of how many one stays; 0: none. `site` is the one that allocates the others."""

    role: str
    site: int
    others: int
    least: int
    most: int
    count: int
    stays: int


@dataclass(frozen=True)
class Plan:
    """A program: its parts, the site that pins most, and whether another thread allocates."""

    seed: int
    culprit: int
    parts: list[Part]
    in_thread: bool


def planned(seed: int, peak: int) -> Plan:
    """Draw a program."""
    draw = random.Random(seed)
    sites = draw.sample(range(12), 12)
    culprit, lesser, *decoys = sites
    parts = []
    # Each part has size classes of its own, or dense objects would share pages with freed ones,
    # and pin these in truth.
    bands = draw.sample(range(BANDS), BANDS)

    def add(role: str, site: int, others: int, size: int, stays_each: float) -> None:
        """So many bytes of objects, one of which stays in each so many bytes."""
        least = round(SMALLEST * (LARGEST / SMALLEST) ** (bands.pop() / BANDS))
        most = round(least * draw.uniform(1, 1.15))
        mean = (least + most) / 2
        stays = max(1, round(stays_each / mean)) if stays_each else 0
        parts.append(Part(role, site, others, least, most, round(size / mean), stays))

    # Whether the objects that are freed beside it are its own or another site's.
    add("culprit", culprit, draw.choice([culprit, decoys[0]]), peak // 2, PAGE * draw.uniform(1, 2))
    add("lesser", lesser, draw.choice([lesser, decoys[0]]), peak // 8, PAGE * draw.uniform(1, 2))
    for site in decoys[1 : draw.randint(3, 6)]:
        add("peak", site, site, peak // 16, 0)
    for site in decoys[6 : draw.randint(8, 10)]:
        add("dense", site, site, round(peak / draw.uniform(8, 20)), 1)
    return Plan(seed, culprit, parts, draw.random() < 0.5)


_SOURCE = """
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Functions that are not one to the compiler, each with a call of its own. */
#define SITE(n)                                                                                  \\
    static __attribute__((noinline)) void *site_##n(size_t size)                                 \\
    {                                                                                            \\
        void *object = malloc(size);                                                             \\
        if (object == NULL) abort();                                                             \\
        memset(object, n + 1, size); /* so that it does not look free */                         \\
        __asm__ volatile("" : : "r"(object), "r"(n) : "memory");                                 \\
        return object;                                                                           \\
    }
@SITES@
static void *(*const sites[])(size_t) = {@NAMES@};
static const struct part { unsigned site, others, least, most, count, stays; } parts[] = {@PARTS@};
enum { PARTS = sizeof parts / sizeof *parts };

static uint64_t state = @SEED@;
static uint32_t drawn(uint32_t below)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407); /* Knuth, MMIX */
    return (uint32_t)(state >> 33) % below;
}

/* All parts in turn, a few objects of each at a time, as far as each goes. */
static void *peak(void *unused)
{
    void **freed[PARTS];
    unsigned done[PARTS] = {0}, kept_at[PARTS] = {0}, left = PARTS;
    for (int i = 0; i < PARTS; i++)
        freed[i] = mmap(NULL, sizeof(void *) * (size_t)parts[i].count, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    while (left > 0) {
        left = 0;
        for (int i = 0; i < PARTS; i++) {
            const struct part *part = &parts[i];
            for (unsigned n = drawn(8); n > 0 && done[i] < part->count; n--, done[i]++) {
                size_t size = part->least + drawn(part->most - part->least + 1);
                if (part->stays && done[i] % part->stays == 0)
                    kept_at[i] = done[i] + drawn(part->stays);
                if (part->stays && done[i] == kept_at[i]) sites[part->site](size);
                else freed[i][done[i]] = sites[part->others](size);
            }
            left += done[i] < part->count;
        }
    }
    for (int i = 0; i < PARTS; i++)
        for (unsigned n = 0; n < parts[i].count; n++) free(freed[i][n]);
    return unused;
}

int main(void)
{
    pthread_t thread;
    if (@IN_THREAD@) {
        if (pthread_create(&thread, NULL, peak, NULL) != 0) return 1;
        pthread_join(thread, NULL);
    } else {
        peak(NULL);
    }
    puts("ready");
    fflush(stdout);
    return getchar() != EOF;
}
"""


def source(plan: Plan) -> str:
    """Return the program."""
    numbers = range(12)
    parts = [(p.site, p.others, p.least, p.most, p.count, p.stays) for p in plan.parts]
    text = _SOURCE
    for name, value in {
        "SITES": " ".join(f"SITE({n})" for n in numbers),
        "NAMES": ", ".join(f"site_{n}" for n in numbers),
        "PARTS": ", ".join("{" + ", ".join(map(str, part)) + "}" for part in parts),
        "SEED": str(plan.seed),
        "IN_THREAD": str(int(plan.in_thread)),
    }.items():
        text = text.replace(f"@{name}@", value)
    return text


def function(site: Site) -> str:
    return re.split(r"\W", site.words[0])[0]


def answered(plan: Plan, folder: Path, sample: str) -> Figures:
    """Run a program, and return who it was and who is named."""
    program = compiled(source(plan), folder, f"program_{plan.seed}")
    with started([program], folder, under_heapfit(f"control:on,sample:{sample}")) as process:
        hear(process)
        reading = read(process.pid)
    assert reading.ledger is not None
    assert reading.profile is not None
    sentences = [each.sentence for each in findings(reading) if each.cause == "pinned"]
    first = re.search(r"objects that (\w+)", " ".join(sentences))
    named = [
        {
            "site": function(each),
            "pinned": round(each.pinned.value),
            "low": round(each.pinned.low),
            "high": round(each.pinned.high),
            "samples": len(each.samples),
        }
        for each in reading.profile.pinners()[:4]
    ]
    culprit = f"site_{plan.culprit}"
    return {
        "culprit": culprit,
        "is_first": first is not None and first[1] == culprit,
        "pinned": reading.ledger.pinned,
        "named": named,
        "plan": asdict(plan),
    }


def measure(scratch: Path, scale: Scale, seed: int) -> Figures:
    found = []
    for number in range(scale.programs):
        plan = planned(seed * 1000 + number, scale.peak)
        one = answered(plan, scratch, scale.sample)
        first = one["named"][0]["site"] if one["named"] else "nobody"
        say(f"pinners: {number + 1} of {scale.programs}: {one['culprit']}, named: {first}")
        found.append(one)
    return {"seed": seed, "sample": scale.sample, "peak": scale.peak, "programs": found}


def rows(found: Figures) -> list[Row]:
    right = sum(each["is_first"] for each in found["programs"])
    of = len(found["programs"])
    return [
        Row(
            f"programs whose largest pinner is named first, by `sample:{found['sample']}`",
            f"≥ {GOAL} of {PROGRAMS}",
            f"{right} of {of}",
            right >= GOAL / PROGRAMS * of,
        )
    ]
