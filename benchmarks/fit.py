#!/usr/bin/env python3
"""Does `heapfit fit` keep what it is for? Gains, promises, false ones, and what a replay foretells.

    .venv/bin/python benchmarks/fit.py gains        memory against each program's best default
    .venv/bin/python benchmarks/fit.py time         time in the allocator likewise, by replays
    .venv/bin/python benchmarks/fit.py promises     what ordinary fits promise, measured again
    .venv/bin/python benchmarks/fit.py false        programs that no allocator helps
    .venv/bin/python benchmarks/fit.py tau          replays beside programs: Kendall's tau
    .venv/bin/python benchmarks/fit.py grid         what fit finds of a whole grid's best

Each program's result goes into docs/results/fit.json as soon as it is there; what is there is not
measured again, so that an interrupted part goes on. `--only NAME` takes one program. The studies
stay in heapfit-results/benchmark-fit, where `heapfit report` opens them; to measure anew, move that
folder and the file away. `scripts/update-docs verdict` then writes the table of docs/method.md.

Run it on a quiet machine, after `cmake --build --preset release`, with the allocators and the
workloads installed. On two cores: gains and time some four hours each, promises two, false half an
hour, tau an hour and a half, grid two hours for each program; a third of that with `--time 5m
--blocks 3`. What was spent is stored with each result.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "lab"))

from heapfit import catalogue  # noqa: E402
from heapfit.cli.provide import named_allocators, provide_allocators  # noqa: E402
from heapfit.fit import foretold, goal, search  # noqa: E402
from heapfit.fit.answer import interval  # noqa: E402
from heapfit.records import InstalledAllocator, Study, Verdict, Workload  # noqa: E402
from heapfit.replay import (  # noqa: E402
    agreements,
    halved,
    make_plan,
    measured_by_replay,
    replay_workload,
    shown_metrics,
)
from heapfit.report import Reading, read  # noqa: E402
from heapfit.study import default_cores, execute, plan  # noqa: E402

RESULTS = ROOT / "docs" / "results" / "fit.json"
STUDIES = ROOT / "heapfit-results" / "benchmark-fit"
HEAPFIT = [sys.executable, "-m", "heapfit"]

SERVERS = ("redis", "ad-server", "trading", "rails")
PROGRAMS = (*SERVERS, "sqlite", "xml-transform", "perl-pods", "lua")
# With the usual goal, and with others.
PROMISED = (*PROGRAMS, *(f"{each}:{goal}" for goal in ("memory", "time") for each in PROGRAMS))
TAU_PROGRAMS = ("sqlite", "xml-transform", "perl-pods", "lua", "redis")
GRID_PROGRAMS = ("xml-transform", "perl-pods")

# What hardly allocates, whatever it does.
UNHELPED = {
    "awk": ["awk", "BEGIN { for (i = 0; i < 20000000; i++) s += i; print s }"],
    "perl": ["perl", "-e", "my $s = 0; $s = ($s * 31 + $_) % 65521 for 1 .. 20000000; print $s"],
    "sha256sum": ["sh", "-c", "head -c 500M /dev/zero | sha256sum"],
    "gzip": ["sh", "-c", "head -c 100M /dev/zero | gzip -9 | wc -c"],
    "grep": ["sh", "-c", "yes needle | head -n 30000000 | grep -c hay; true"],
    "bc": ["sh", "-c", "echo 'scale=4000; 4*a(1)' | bc -l"],
}

GRID_BLOCKS = 6
# `at equal time` and `at equal memory` of the goals.
TIME_BOUND, MEMORY_BOUND = "wall_s<=1.01", "replay_peak_bytes<=1.02"
MEAN, PEAK, REPLAYED_TIME = "mean_rss_bytes", "peak_rss_bytes", "allocator_s"


@dataclass(frozen=True)
class Effort:
    """How long each fit may take, and the blocks of each study of the allocators' defaults.

    Twice as many measure a program beside its replay.
    """

    time: str
    blocks: int


@dataclass(frozen=True)
class Part:
    """A row of the table: its programs, and what is measured of each."""

    programs: Sequence[str]
    measure: Callable[[str, Effort], dict[str, Any]]


# ------------------------------------------------------------------- the parts


def gains(name: str, effort: Effort) -> dict[str, Any]:
    """Mean resident memory of the choice beside that of the best default, at equal time."""
    best = best_default(workload_of(name), MEAN, effort.blocks)
    folder = STUDIES / f"gains-{name}"
    answer = fit([name], folder, "--goal", "mean", "--keep", TIME_BOUND, "--time",
                 effort.time, "--baseline", best)  # fmt: skip
    return {"best_default": best, **chosen(answer, "mean"), "folder": folder.name}


def time_gains(name: str, effort: Effort) -> dict[str, Any]:
    """Time in the allocator, by a replay of a recording of all calls, at equal memory."""
    trace = recording(name)
    best = best_default(replay_workload(make_plan(trace)), REPLAYED_TIME, effort.blocks)
    folder = STUDIES / f"time-{name}"
    answer = fit([str(trace)], folder, "--goal", "time", "--keep", MEMORY_BOUND, "--time",
                 effort.time, "--baseline", best)  # fmt: skip
    return {"best_default": best, **chosen(answer, "time"), "folder": folder.name}


def promises(name: str, effort: Effort) -> dict[str, Any]:
    """What an ordinary fit promises of time and memory, and what a fresh run finds."""
    program, _, wanted = name.partition(":")
    folder, again = STUDIES / f"promised-{name}", STUDIES / f"again-{name}"
    answer = fit([program], folder, "--goal", wanted or "balance", "--time", effort.time)
    if answer["choice"] is None:
        return {"choice": None, "promises": []}
    told = read(folder / "confirm")
    study = told.study
    pair = [study.allocator(study.baseline), study.allocator(answer["choice"])]
    # Twice the blocks, so that the fresh figure adds little chance of its own.
    fresh = study_of(study.workload, pair, 2 * told.blocks, step=500)
    execute(fresh, again, data=data_of(study.workload))
    found = read(again)
    made = []
    for metric in (study.primary_metric, PEAK, MEAN):
        before, now = (verdict(each, metric, answer["choice"]) for each in (told, found))
        if before is None or now is None or before.low is None or before.high is None:
            continue
        holds = before.low <= now.estimate <= before.high
        made.append({"metric": metric, "told": interval(before), "again": interval(now),
                     "within": holds})  # fmt: skip
    return {"choice": answer["choice"], "promises": made}


def false_ones(name: str, effort: Effort) -> dict[str, Any]:
    """What is chosen where nothing helps: it should be nothing."""
    folder = STUDIES / f"false-{name}"
    answer = fit(["--", *UNHELPED[name]], folder, "--time", effort.time)
    return {"choice": answer["choice"], "why": answer["why"], "folder": folder.name}


def tau(name: str, effort: Effort) -> dict[str, Any]:
    """How a replay's ranking agrees with the program's, and halves of the program's own.

    Valgrind counts the instructions of one run of each, of which a second would say the same.
    """
    workload = workload_of(name)
    allocators = plain(replayable=True)
    played = replay_workload(make_plan(recording(name)))
    shown = shown_metrics(system_calls=False, instructions=True)
    studies = {
        "real": study_of(workload, allocators, 2 * effort.blocks),
        "counted": study_of(workload, allocators, 1, warmups=0, shown=["instructions"]),
        "replayed": study_of(played, allocators, 1, warmups=0, shown=shown, is_replay=True),
    }
    readings = {}
    for what, study in studies.items():
        folder = STUDIES / f"tau-{what}-{name}"
        execute(study, folder, data=data_of(study.workload))
        readings[what] = read(folder)
    replayed, real = readings["replayed"].summary, readings["real"]
    found = {
        "memory": agreements(replayed, real.summary, halved(real.readings)),
        "instructions": agreements(replayed, readings["counted"].summary),
    }
    return {
        what: {"tau": each.tau, "halves": each.halves}
        for what, ranked in found.items()
        for each in ranked
        if each.what == what
    }


def grid(name: str, effort: Effort) -> dict[str, Any]:
    """The best gain of all allocators with all settings, and what fit finds of it."""
    workload = workload_of(name)
    allocators = plain()
    entries = catalogue.load_allocators()
    every = [
        catalogue.with_setting(each, setting)
        for each in allocators
        for setting in entries[each.name].settings
    ]
    where = STUDIES / f"grid-{name}"
    execute(study_of(workload, [*allocators, *every], GRID_BLOCKS), where, data=data_of(workload))
    best = min(ratios(read(where)).items(), key=lambda each: each[1])
    answer = fit([name], STUDIES / f"grid-fit-{name}", "--goal", "mean", "--time", effort.time)
    # By the grid's own figures, so that both are measured alike.
    found = ratios(read(where)).get(answer["choice"] or "", 1.0)
    share = (1 - found) / (1 - best[1]) if best[1] < 1 else 1.0
    return {"best": best[0], "ratio": best[1], "choice": answer["choice"], "share": share}


PARTS = {
    "gains": Part(PROGRAMS, gains),
    "time": Part(PROGRAMS, time_gains),
    "promises": Part(PROMISED, promises),
    "false": Part(tuple(UNHELPED), false_ones),
    "tau": Part(TAU_PROGRAMS, tau),
    "grid": Part(GRID_PROGRAMS, grid),
}


# ------------------------------------------------------------------- measuring


def fit(subject: Sequence[str], folder: Path, *options: str) -> dict[str, Any]:
    """Return the answer of `heapfit fit`, which goes on where it was interrupted."""
    split = subject.index("--") if "--" in subject else len(subject)
    command = [*HEAPFIT, "fit", *subject[:split], *options, "--out", str(folder), "--json",
               *subject[split:]]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "lab")}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE,
                          text=True, check=False)  # fmt: skip
    if done.returncode not in (0, 1, 3) or not done.stdout:
        raise SystemExit(f"heapfit fit ended with {done.returncode}; the same command goes on")
    answer: dict[str, Any] = json.loads(done.stdout)["answer"]
    return answer


def chosen(answer: dict[str, Any], figure: str) -> dict[str, Any]:
    """Return the choice with its ratio to the baseline; 1 where it is to stay."""
    for each in answer["standings"]:
        if each["name"] == answer["choice"] and each[figure]:
            found = each[figure]
            return {"choice": each["name"],
                    **{name: found[name] for name in ("estimate", "low", "high")}}  # fmt: skip
    stays = {"choice": answer["choice"], "estimate": 1.0, "low": 1.0, "high": 1.0}
    for each in answer["standings"]:  # Better, but whether it keeps the bound could not be told.
        if each["keeps"] == "untold" and each[figure] and each[figure]["high"] < 1:
            told = {what: {name: each[what][name] for name in ("estimate", "low", "high")}
                    for what in (figure, "time")}  # fmt: skip
            return {**stays, "untold": {"name": each["name"], **told}}
    return stays


def best_default(workload: Workload, metric: str, blocks: int) -> str:
    """Return the allocator without settings that has least of `metric`."""
    where = STUDIES / f"defaults-{workload.name}"
    is_replay = metric == REPLAYED_TIME
    study = study_of(workload, plain(replayable=is_replay), blocks, is_replay=is_replay)
    execute(study, where, data=data_of(workload))
    medians = {e.allocator: e.median for e in read(where).summary.estimates if e.metric == metric}
    return min(medians, key=lambda name: medians[name])


def study_of(
    workload: Workload,
    allocators: Sequence[InstalledAllocator],
    blocks: int,
    step: int = 0,
    warmups: int = 1,
    shown: Sequence[str] = (),
    *,
    is_replay: bool = False,
) -> Study:
    """Return a study of these, the first of which is the baseline."""
    return plan(workload, list(allocators), baseline=allocators[0].name,
                cores=[default_cores(workload)], replicates=blocks, warmups=warmups, seed=7 + step,
                shown=list(shown), only=measured_by_replay() if is_replay else None)  # fmt: skip


def plain(*, replayable: bool = False) -> list[InstalledAllocator]:
    """Return all installed allocators as they are, glibc first."""
    entries = catalogue.load_allocators()
    usual = {n: n for n, each in entries.items() if not (replayable and each.by_call_site)}
    return provide_allocators(named_allocators(None, usual, installed=True), install=False)


def workload_of(name: str) -> Workload:
    return catalogue.resolve_workload(name)


def data_of(workload: Workload) -> Path | None:
    return catalogue.prepare_workload(workload, print) if workload.prepare else None


def recording(name: str) -> Path:
    """Return a recording of every call of a workload's program, made now unless it is there."""
    workload = workload_of(name)
    folder = STUDIES / f"recorded-{name}"
    folder.mkdir(parents=True, exist_ok=True)
    glibc = plain()[0]
    setup = search.Setup(
        workload=workload, baseline=glibc, cores=default_cores(workload),
        goal=goal.parse("balance"), keep=[], time_s=3600, timeout_s=3600, command="",
        compare=lambda *_: "",
    )  # fmt: skip
    return foretold.recorded_in_full(setup, folder, data_of(workload)).trace


def verdict(reading: Reading, metric: str, name: str) -> Verdict | None:
    """Return the verdict on `name` beside the baseline."""
    for each in reading.summary.verdicts:
        if each.metric == metric and {each.first, each.second} == {name, reading.study.baseline}:
            return each if each.first == name else each.turned()
    return None


def ratios(reading: Reading) -> dict[str, float]:
    """Return by allocator its mean memory to the baseline's, of those that take no longer."""
    bound = float(TIME_BOUND.partition("<=")[2])
    found = {}
    for each in reading.study.allocators:
        memory, time = (
            verdict(reading, m, each.name) for m in (MEAN, reading.study.primary_metric)
        )
        if memory and time and time.estimate <= bound:
            found[each.name] = memory.estimate
    return found


# ----------------------------------------------------------------------- keeping


def stored() -> dict[str, Any]:
    """Return what has been measured so far: by part, then by program."""
    if not RESULTS.exists():
        return {}
    kept: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return kept


def keep(part: str, name: str, found: dict[str, Any]) -> None:
    """Put a program's result beside the others."""
    kept = stored()
    kept.setdefault(part, {})[name] = {**found, "measured": f"{datetime.now(UTC):%Y-%m-%d}"}
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    unfinished = RESULTS.with_suffix(".tmp")
    unfinished.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    unfinished.replace(RESULTS)


def parse_arguments() -> argparse.Namespace:
    """Return what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--only", metavar="NAME", action="append", help="only these programs")
    parser.add_argument("--time", default="15m", help="what each fit may take; default: 15m")
    parser.add_argument(
        "--blocks",
        type=int,
        default=10,
        help="blocks of each study of the allocators' defaults; default: %(default)s",
    )
    return parser.parse_args()


def main() -> int:
    """Measure what a part lacks."""
    arguments = parse_arguments()
    part, effort = PARTS[arguments.part], Effort(arguments.time, arguments.blocks)
    for name in arguments.only or part.programs:
        if name not in part.programs:
            raise SystemExit(f"{arguments.part} has no {name}; it has {', '.join(part.programs)}")
        if name in stored().get(arguments.part, {}):
            print(f"{name}: there already")
            continue
        print(f"{arguments.part}: {name}", flush=True)
        keep(arguments.part, name, {**part.measure(name, effort), **asdict(effort)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
