"""The micro-benchmarks do equal work under every allocator and notice one that is wrong."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import shared_home
from heapfit.records import Workload
from sampling import sampled

pytestmark = pytest.mark.full

REPOSITORY = Path(__file__).resolve().parents[2]
MICRO = REPOSITORY / "workloads" / "micro"
WORKLOADS = sorted(path.parent.name for path in MICRO.glob("*/workload.toml"))
PROGRAMS = sorted(path.stem for path in MICRO.glob("*.c") if path.stem != "launch")
FLAGS = ["-std=c17", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]

# A little of the work, and for the programs whose memory is not scaled by --scale, little of that.
SHORT = {
    "cold-sweep": ["--objects", "20000"],
    "idle-threads": ["--threads", "8"],
    "longest-call": ["--heap", "64m", "--milliseconds", "100"],
    "many-threads": ["--threads", "20"],
    "numa-columns": ["--size", "1m"],
    "page-reads": ["--footprint", "8m"],
    "scaling": ["--heap-limit", "2m", "--thread-limit", "4"],
    "sleeper": [],
    "sparse": ["--peak", "100m"],
}
# These print what they measure; the others' output must be equal from run to run.
PRINT_MEASUREMENTS = {
    *(
        "calloc-burst",
        "cold-sweep",
        "idle-threads",
        "longest-call",
        "numa-columns",
        "page-reads",
        "scaling",
    ),
    *("sleeper", "sparse"),
}
# Of other studies than the core one.
ELSEWHERE = {"calloc-burst", "numa-columns", "page-reads"}
# What the everyday run builds and runs: those that other tests here are about, too.
EVERYDAY = ["churn", "larson", "page-reads", "pareto", "producer-consumer", "zeroed"]
# These say that they need two cores where there is one.
NEED_TWO_CORES = {"false-sharing-distance"}


@pytest.fixture(scope="session")
def built() -> Path:
    """A folder with every program, built as strictly as the compiler can."""
    programs = [*PROGRAMS, "launch"]

    def compile_into(folder: Path) -> None:
        for name in programs:
            source, target = MICRO / f"{name}.c", folder / name
            subprocess.run(["cc", *FLAGS, "-o", str(target), str(source), "-lm"], check=True)

    # The full run has more programs than the everyday run.
    return shared_home.programs(f"micro-{len(programs)}", [Path(__file__), MICRO], compile_into)


def run(program: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    if program.name in NEED_TWO_CORES and len(os.sched_getaffinity(0)) < 2:
        pytest.skip(f"{program.name} needs two cores")
    words = [str(program), *arguments, "--scale", "1", *SHORT.get(program.name, [])]
    return subprocess.run(
        words, capture_output=True, text=True, env=os.environ | environment, check=False
    )


def digest(output: str) -> str:
    found = re.search(r"(?m)^digest: ([0-9a-f]{16})$", output)
    assert found, output
    return found[1]


@pytest.mark.parametrize("name", sampled(PROGRAMS, *EVERYDAY))
def test_a_program_passes_its_own_check(built: Path, name: str) -> None:
    done = run(built / name)
    assert done.returncode == 0, done.stderr
    assert re.search(r"(?m)^check ok$", done.stdout)
    assert re.search(r"(?m)^operations: [1-9]\d*$", done.stdout)
    assert re.search(r"(?m)^ops_per_s: \d+$", done.stderr)


@pytest.mark.parametrize(
    "name", sampled(sorted(set(PROGRAMS) - PRINT_MEASUREMENTS), "churn", "larson")
)
def test_a_program_prints_the_same_under_an_allocator_that_behaves_differently(
    built: Path, name: str
) -> None:
    plain = run(built / name)
    other = run(
        built / name,
        MALLOC_ARENA_MAX="1",
        MALLOC_PERTURB_="165",
        GLIBC_TUNABLES="glibc.malloc.tcache_count=0",
    )
    assert other.stdout == plain.stdout


@pytest.mark.parametrize("name", sampled(sorted(set(PROGRAMS) - {"sleeper"}), "churn", "larson"))
def test_another_seed_is_other_work(built: Path, name: str) -> None:
    assert digest(run(built / name).stdout) != digest(run(built / name, "--seed", "2").stdout)


@pytest.mark.parametrize("name", sampled(PROGRAMS, *EVERYDAY))
def test_a_program_explains_itself(built: Path, name: str) -> None:
    done = run(built / name, "--help")
    assert done.returncode == 0
    assert "--seed" in done.stdout
    assert "?" in done.stdout.splitlines()[0]


@pytest.mark.parametrize("order", ["0", "1"])
def test_reads_find_the_same_wherever_the_memory_is_from(built: Path, order: str) -> None:
    runs = [
        run(built / "page-reads", "--in-order", order, "--source", source).stdout
        for source in ("0", "1", "2")
    ]
    assert len({digest(output) for output in runs}) == 1
    assert "huge_bytes: 0\n" in runs[1]


def test_far_memory_is_measured_only_where_there_is_some(built: Path) -> None:
    nodes = Path("/sys/devices/system/node/has_memory")
    several = nodes.exists() and not nodes.read_text().strip().isdigit()
    done = run(built / "numa-columns")
    assert ("rows_over_columns: " in done.stdout) == several
    assert ("one NUMA node" in done.stderr) != several


@pytest.mark.parametrize("arguments", [["--nonsense", "1"], ["--size"], ["--size", "many"]])
def test_wrong_arguments_are_a_usage_error(built: Path, arguments: list[str]) -> None:
    done = subprocess.run(
        [str(built / "churn"), *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "--help" in done.stderr


# ------------------------------------------------------------- wrong allocators


@pytest.fixture(scope="session")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shared library with a malloc that is wrong in the way that $FAULT names."""
    library = tmp_path_factory.mktemp("faulty") / "faulty.so"
    source = Path(__file__).with_name("micro_faulty_malloc.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return library


@pytest.mark.parametrize(
    ("name", "fault", "says"),
    [
        ("pareto", "overlapping-blocks", "was overwritten"),
        ("pareto", "misaligned", "is misaligned"),
        ("pareto", "no-memory", "no memory for"),
        ("larson", "same-block-twice", "was overwritten"),
        ("producer-consumer", "overlapping-blocks", "was overwritten"),
        ("zeroed", "dirty-calloc", "is not zero"),
        ("realloc-growth", "forgetful-realloc", "was lost while its block grew"),
    ],
)
def test_a_wrong_allocator_is_noticed(
    built: Path, faulty: Path, name: str, fault: str, says: str
) -> None:
    done = run(built / name, LD_PRELOAD=str(faulty), FAULT=fault)
    assert done.returncode == 1, done.stdout
    assert says in done.stderr
    assert "check ok" not in done.stdout


@pytest.mark.parametrize("name", ["churn", "pareto"])
def test_blocks_handed_out_twice_change_the_digest(built: Path, faulty: Path, name: str) -> None:
    """Two owners of one whole block agree on its ends, so only the sum of tags can tell."""
    done = run(built / name, LD_PRELOAD=str(faulty), FAULT="same-block-twice")
    assert done.returncode == 0
    assert digest(done.stdout) != digest(run(built / name).stdout)


@pytest.mark.parametrize("name", sorted(NEED_TWO_CORES))
def test_what_one_core_cannot_show_is_not_measured(built: Path, name: str) -> None:
    core = min(os.sched_getaffinity(0))
    words = ["taskset", "--cpu-list", str(core), str(built / name), "--scale", "1"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "on two cores only" in done.stderr
    assert "seconds" not in done.stderr


# ------------------------------------------------------------- workloads, study


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_is_complete(name: str) -> None:
    with (MICRO / name / "workload.toml").open("rb") as file:
        workload = Workload.model_validate(tomllib.load(file))
    assert workload.name == name
    program = workload.run.command[0].removeprefix("{data}/")
    assert program in PROGRAMS
    assert workload.prepare is not None
    assert f"{{here}}/../{program}.c" in workload.prepare.command
    own = {metric.name for metric in workload.metrics} | {"wall_s", "peak_rss_bytes"}
    assert workload.primary_metric in own


def test_the_core_study_uses_every_micro_workload_once() -> None:
    with (REPOSITORY / "studies" / "core.toml").open("rb") as file:
        study = tomllib.load(file)
    used = study["workloads"] + study["probes"]
    assert len(used) == len(set(used))
    assert set(WORKLOADS) - ELSEWHERE <= set(used)
