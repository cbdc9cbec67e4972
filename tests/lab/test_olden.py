"""The Olden programs compute what models of them do, and notice an allocator that is wrong."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import olden_models
import pytest
import shared_home
from conftest import Heapfit
from heapfit import paths
from heapfit.catalogue import resolve_workload
from heapfit.records import InstalledAllocator, TrialStatus, Workload
from heapfit.study import plan
from heapfit.trial import run_trial
from sampling import sampled
from shared_home import workload_data
from study_files import trials_in

pytestmark = pytest.mark.full

REPOSITORY = Path(__file__).resolve().parents[2]
OLDEN = REPOSITORY / "workloads" / "olden"
PROGRAMS = sorted(path.stem for path in OLDEN.glob("*.c"))
WORKLOADS = sorted(path.parent.name for path in OLDEN.glob("*/workload.toml"))
FLAGS = ["-std=c17", "-Wall", "-Wextra", "-Werror", "-pthread"]
# Nothing is freed but what the published programs drop.
SANITIZERS = {"ASAN_OPTIONS": "detect_leaks=0"}

SMALL = {
    "bh": ["--bodies", "500"],
    "bisort": ["--levels", "10"],
    "em3d": ["--nodes", "300", "--degree", "7", "--steps", "5"],
    "health": ["--levels", "4", "--steps", "60"],
    "mst": ["--vertices", "100"],
    "perimeter": ["--levels", "8"],
    "treeadd": ["--levels", "12"],
    "tsp": ["--levels", "10"],
}
TINY = {
    "bh": ["--bodies", "1"],
    "bisort": ["--levels", "1"],
    "em3d": ["--nodes", "1", "--degree", "1"],
    "health": ["--levels", "1", "--steps", "1"],
    "mst": ["--vertices", "1"],
    "perimeter": ["--levels", "3"],
    "treeadd": ["--levels", "1"],
    "tsp": ["--levels", "1"],
}
IMPOSSIBLE = {
    "bh": ["--bodies", "0"],
    "bisort": ["--levels", "0"],
    "em3d": ["--nodes", "3", "--degree", "4"],
    "health": ["--levels", "16"],
    "mst": ["--vertices", "65537"],
    "perimeter": ["--levels", "2"],
    "treeadd": ["--levels", "41"],
    "tsp": ["--part", "1"],
}
# These have no random numbers.
WITHOUT_SEED = {"perimeter", "treeadd"}

every_program = pytest.mark.parametrize("name", PROGRAMS)
some_programs = pytest.mark.parametrize("name", sampled(PROGRAMS, "health", "treeadd"))
every_seed = pytest.mark.parametrize("seed", sampled({"1": 1, "2": 2, "3": 3}, "1"))


def build(thing: str, *flags: str) -> Path:
    def compile_into(folder: Path) -> None:
        for name in PROGRAMS:
            words = ["cc", *FLAGS, *flags, "-o", folder / name, OLDEN / f"{name}.c", "-lm"]
            subprocess.run([str(word) for word in words], check=True)

    return shared_home.programs(
        thing, [Path(__file__), OLDEN, OLDEN.parent / "micro" / "micro.h"], compile_into
    )


@pytest.fixture(scope="session")
def built() -> Path:
    """A folder with every program as the workloads have it."""
    return build("olden", "-O3")


@pytest.fixture(scope="session")
def sanitized() -> Path:
    flags = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    return build("olden-sanitized", *flags)


def run(program: Path, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(program), *map(str, arguments)],
        capture_output=True,
        text=True,
        env=os.environ | SANITIZERS | environment,
        timeout=60,
        check=False,
    )


def printed(program: Path, *arguments: object) -> dict[str, str]:
    """What a program that ends well prints, by name."""
    done = run(program, *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("check ok\n")
    return dict(re.findall(r"(?m)^([a-z ]+): (\S+)$", done.stdout))


# ------------------------------------------------------------------- any program


@some_programs
@pytest.mark.parametrize("sizes", sampled({"small": SMALL, "tiny": TINY}, "tiny"))
def test_a_program_touches_only_memory_of_its_own(
    sanitized: Path, name: str, sizes: dict[str, list[str]]
) -> None:
    assert int(printed(sanitized / name, *sizes[name])["operations"]) > 0


@some_programs
def test_output_is_the_same_under_every_variant_of_the_library(built: Path, name: str) -> None:
    plain = run(built / name, *SMALL[name])
    assert plain.returncode == 0, plain.stderr
    variants = paths.libraries()
    assert variants
    for library in variants.values():
        assert run(built / name, *SMALL[name], LD_PRELOAD=str(library)).stdout == plain.stdout


@some_programs
def test_output_is_the_same_when_the_c_library_behaves_differently(built: Path, name: str) -> None:
    other = run(
        built / name,
        *SMALL[name],
        MALLOC_PERTURB_="165",
        MALLOC_TOP_PAD_="0",
        GLIBC_TUNABLES="glibc.malloc.tcache_count=0",
    )
    assert other.stdout == run(built / name, *SMALL[name]).stdout


@every_program
def test_another_seed_is_other_work(built: Path, name: str) -> None:
    one, other = (printed(built / name, *SMALL[name], "--seed", seed) for seed in (1, 2))
    assert (one["digest"] == other["digest"]) == (name in WITHOUT_SEED)


@every_program
def test_a_program_explains_itself(built: Path, name: str) -> None:
    done = run(built / name, "--help")
    assert done.returncode == 0
    assert "?" in done.stdout.splitlines()[0]
    assert f"  {SMALL[name][0]} " in done.stdout


@every_program
def test_sizes_that_cannot_be_are_a_usage_error(built: Path, name: str) -> None:
    assert run(built / name, *IMPOSSIBLE[name]).returncode == 2


# ----------------------------------------------------------------- known answers


@pytest.mark.parametrize("levels", [1, 2, 9, 15])
def test_treeadd_counts_the_nodes(built: Path, levels: int) -> None:
    assert printed(built / "treeadd", "--levels", levels)["sum"] == str(2**levels - 1)


@every_seed
@pytest.mark.parametrize("levels", [1, 2, 3, 9])
def test_bisort_sorts(built: Path, levels: int, seed: int) -> None:
    found = printed(built / "bisort", "--levels", levels, "--seed", seed)
    assert found.items() >= olden_models.bisort(seed, levels).items()


@every_seed
@pytest.mark.parametrize("vertices", [1, 2, 5, 60])
def test_mst_finds_the_lightest_tree(built: Path, vertices: int, seed: int) -> None:
    found = printed(built / "mst", "--vertices", vertices, "--seed", seed)
    assert found["weight"] == str(olden_models.mst(seed, vertices))


@pytest.mark.parametrize("levels", [3, 4, 5, 8])
def test_perimeter_counts_the_sides_of_pixels(built: Path, levels: int) -> None:
    found = printed(built / "perimeter", "--levels", levels)
    assert found["perimeter"] == str(olden_models.perimeter(levels))


@every_seed
@pytest.mark.parametrize(("nodes", "degree"), [(1, 1), (3, 3), (40, 5)])
def test_em3d_computes_the_values_of_a_model(
    built: Path, nodes: int, degree: int, seed: int
) -> None:
    sizes = {"nodes": nodes, "degree": degree, "steps": 7}
    words = [word for name, value in sizes.items() for word in (f"--{name}", value)]
    found = printed(built / "em3d", *words, "--seed", seed)
    assert found["digest"] == olden_models.em3d(seed, **sizes)


@every_seed
@pytest.mark.parametrize("free", [0, 1])
def test_health_has_the_patients_of_a_model(built: Path, seed: int, free: int) -> None:
    sizes = ["--levels", 4, "--steps", 80, "--seed", seed, "--free", free]
    found = printed(built / "health", *sizes)
    assert found.items() >= olden_models.health(seed, levels=4, steps=80).items()


@every_seed
def test_bh_sums_over_all_bodies_when_it_opens_every_cell(built: Path, seed: int) -> None:
    sizes = ["--bodies", 400, "--steps", 1, "--seed", seed]
    error = {
        angle: float(printed(built / "bh", *sizes, "--angle", angle)["force error"])
        for angle in (0, 20, 100)
    }
    assert error[0] == 0
    assert error[0] < error[20] < error[100] < 0.05


@every_seed
@pytest.mark.parametrize(("levels", "part"), [(1, 2), (2, 2), (2, 3), (3, 2), (3, 7)])
def test_tsp_is_near_the_shortest_of_all_tours(
    built: Path, levels: int, part: int, seed: int
) -> None:
    words = ["--levels", levels, "--part", part, "--seed", seed]
    length = float(printed(built / "tsp", *words)["length"])
    shortest = olden_models.tsp_shortest(seed, levels)
    assert shortest - 1e-6 < length < 1.5 * shortest + 1e-6
    if levels < 3:  # all tours of three cities are the same
        assert length == pytest.approx(shortest, abs=1e-6)


@every_seed
def test_a_tour_of_many_cities_is_as_long_as_such_tours_are(built: Path, seed: int) -> None:
    """The shortest of n cities on a unit square comes to 0.7124 times the root of n."""
    length = float(printed(built / "tsp", "--levels", 14, "--seed", seed)["length"])
    assert 0.7 < length / 2 ** (14 / 2) < 1.1


# -------------------------------------------------------------- wrong allocators


@pytest.fixture(scope="session")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A malloc whose blocks of 40 bytes and more are wrong in the way that $FAULT names."""
    library = tmp_path_factory.mktemp("olden-faulty") / "faulty.so"
    source = Path(__file__).with_name("micro_faulty_malloc.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return library


@pytest.mark.parametrize("name", sampled(["bh", "em3d", "health", "perimeter", "tsp"], "health"))
@pytest.mark.parametrize("fault", ["no-memory", "misaligned", "overlapping-blocks"])
def test_a_wrong_allocator_is_noticed(built: Path, faulty: Path, name: str, fault: str) -> None:
    right = run(built / name, *SMALL[name])
    done = run(built / name, *SMALL[name], LD_PRELOAD=str(faulty), FAULT=fault)
    assert done.returncode != 0 or done.stdout != right.stdout


# --------------------------------------------------------------------- workloads


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_is_complete(name: str) -> None:
    with (OLDEN / name / "workload.toml").open("rb") as file:
        workload = Workload.model_validate(tomllib.load(file))
    assert workload.name == name
    assert workload.prepare is not None
    program = name.removeprefix("olden-")
    assert f"{{here}}/../{program}.c" in workload.prepare.command
    assert f"| `{name}` |" in (OLDEN / "README.md").read_text()


def test_every_program_is_a_workload() -> None:
    assert [f"olden-{name}" for name in PROGRAMS] == WORKLOADS


@pytest.mark.parametrize("name", sampled(WORKLOADS, "olden-treeadd"))
def test_a_workload_runs_with_small_sizes(name: str, tmp_path: Path) -> None:
    workload = resolve_workload(name)
    words = [word.removeprefix("--") for word in SMALL[name.removeprefix("olden-")]]
    small = dict(zip(words[::2], words[1::2], strict=True))
    glibc = InstalledAllocator(name="glibc", title="glibc", version="", library=None)
    study = plan(
        workload,
        [glibc],
        baseline="glibc",
        cores=[1],
        replicates=1,
        warmups=0,
        parameters=small,
    )
    trial = run_trial(study, study.plan[0], tmp_path, None, workload_data(workload))
    assert trial.status is TrialStatus.OK, f"{trial.reason}\n{trial.stderr_tail}"


def test_a_workload_is_compared_by_its_name(run_heapfit: Heapfit, tmp_path: Path) -> None:
    workload_data(resolve_workload("olden-health"))
    words = ["--allocators", "glibc,heapfit", "--replicates", "1", "--warmups", "0", "--cores", "1"]
    result = run_heapfit(
        "compare", "olden-health", *words, "--factor", "levels=2,3", "--out", tmp_path / "out"
    )
    assert result.returncode == 0, result.stderr
    trials = trials_in(tmp_path / "out")
    assert {trial["status"] for trial in trials} == {"ok"}
    assert {trial["planned"]["levels"]["levels"] for trial in trials} == {"2", "3"}
