"""bench.py measures what it says and fails when an allocator does not do the same work."""

from __future__ import annotations

import importlib.util
import json
import math
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.full

MICRO = Path(__file__).resolve().parents[2] / "workloads" / "micro"
MEBIBYTE = 2**20


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    """The script as a module."""
    specification = importlib.util.spec_from_file_location("micro_bench", MICRO / "bench.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["micro_bench"] = module  # dataclasses look their module up
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two mallocs: the system's own again, and one that hands each block out twice."""
    folder = tmp_path_factory.mktemp("libraries")
    nothing = folder / "nothing.c"
    nothing.write_text("int heapfit_nothing;\n")
    sources = {"same": nothing, "wrong": Path(__file__).with_name("micro_faulty_malloc.c")}
    for name, source in sources.items():
        library = str(folder / f"{name}.so")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, str(source)], check=True)
    return {name: folder / f"{name}.so" for name in sources}


def run_bench(*arguments: str, fault: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(MICRO / "bench.py"), *arguments]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "FAULT": fault},
    )


def test_ratios_are_to_the_best_allocator_that_is_not_the_subject(bench: ModuleType) -> None:
    table = {("a", "heapfit"): 1.0, ("a", "x"): 2.0, ("a", "y"): 3.0}
    ratios = bench.ratios_to_best(table, "heapfit")
    assert ratios == {("a", "heapfit"): 0.5, ("a", "x"): 1.0, ("a", "y"): 1.5}


def test_the_geometric_mean_of_a_ratio_and_its_inverse_is_one(bench: ModuleType) -> None:
    assert bench.geometric_mean([4.0, 0.25]) == pytest.approx(1.0)
    assert math.isnan(bench.geometric_mean([]))


def test_a_run_reports_every_allocator_and_keeps_every_trial(
    libraries: dict[str, Path], tmp_path: Path
) -> None:
    trials = tmp_path / "trials.json"
    done = run_bench(
        f"same={libraries['same']}",
        "--only=churn,pareto",
        "--scale=1",
        "--replicates=2",
        f"--json={trials}",
    )
    assert done.returncode == 0, done.stderr
    assert "geometric mean" in done.stdout
    runs = json.loads(trials.read_text())
    assert len(runs) == 2 * 2 * 2
    assert {run["allocator"] for run in runs} == {"glibc", "same"}
    assert all(run["figures"]["wall_s"] > 0 for run in runs)


def test_an_allocator_that_prints_something_else_fails_the_run(libraries: dict[str, Path]) -> None:
    done = run_bench(
        f"wrong={libraries['wrong']}",
        "--only=churn",
        "--scale=1",
        "--replicates=1",
        fault="same-block-twice",
    )
    assert done.returncode == 1
    assert "prints something else" in done.stderr


def test_an_allocator_that_breaks_a_program_fails_the_run(libraries: dict[str, Path]) -> None:
    done = run_bench(
        f"wrong={libraries['wrong']}",
        "--only=pareto",
        "--scale=1",
        "--replicates=1",
        fault="misaligned",
    )
    assert done.returncode == 1
    assert "pareto under wrong: exit code 1" in done.stderr
    assert "is misaligned" in done.stderr


def test_probes_show_their_own_figures() -> None:
    done = run_bench("--only=sleeper", "--replicates=1")
    assert done.returncode == 0, done.stderr
    assert "resident memory while it sleeps (MiB)" in done.stdout


def test_an_unknown_test_is_named_with_the_known_ones() -> None:
    done = run_bench("--only=nonsense")
    assert done.returncode != 0
    assert "nonsense" in done.stderr
    assert "churn" in done.stderr


def test_peak_memory_is_the_programs_own_not_that_of_the_measuring_process(
    tmp_path: Path,
) -> None:
    launcher, program, cost = tmp_path / "launch", tmp_path / "sleeper", tmp_path / "cost.json"
    subprocess.run(["cc", "-static", "-o", str(launcher), str(MICRO / "launch.c")], check=True)
    subprocess.run(["cc", "-pthread", "-o", str(program), str(MICRO / "sleeper.c")], check=True)
    ballast = bytearray(200 * MEBIBYTE)
    ballast[::4096] = b"x" * len(ballast[::4096])  # resident while the child starts
    subprocess.run([str(launcher), str(cost), "-", str(program)], check=True, capture_output=True)
    assert ballast
    assert json.loads(cost.read_text())["peak_rss_bytes"] < 16 * MEBIBYTE
