"""The tools that look into PHP's memory operations, on the smallest of the applications."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from loopback import free_port

pytestmark = pytest.mark.full

WORKLOADS = Path(__file__).resolve().parents[2] / "workloads"
PHP = WORKLOADS / "php"
SHOP = WORKLOADS / "php-shop"
SYSTEM_PYTHON = "/usr/bin/python3"
FPM = "/usr/sbin/php-fpm8.2"
TIMEOUT_S = 200


@pytest.fixture(scope="module")
def data(prepared: Callable[[str], Path]) -> Path:
    """The shop's data."""
    return prepared(SHOP.name)


@pytest.fixture(scope="module")
def cpu_share() -> ModuleType:
    """The tool as a module; its neighbours are found as they are when it is run.

    Other workloads have modules of the same names, so these do not stay among the loaded ones.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(PHP))
        for path in PHP.glob("*.py"):
            patch.delitem(sys.modules, path.stem, raising=False)
            patch.setitem(sys.modules, path.stem, None)  # so that what was there comes back
            patch.delitem(sys.modules, path.stem)
        import cpu_share  # type: ignore[import-not-found]

        return cpu_share  # type: ignore[no-any-return]


def run(tool: str, *arguments: str | Path) -> str:
    """Run a tool on the shop and return what it printed."""
    words = [SYSTEM_PYTHON, PHP / tool, "--application", SHOP, *arguments]
    done = subprocess.run(
        list(map(str, words)), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def counted(data: Path, scratch: Path, mode: str, port: int) -> dict[str, float]:
    scratch.mkdir()
    printed = run(
        "count.py", "--data", data, "--scratch", scratch, "--mode", mode, "--port", str(port),
        "--requests", "50", "--warmup", "20",
    )  # fmt: skip
    lines = printed.splitlines()
    assert lines[-1] == "answers right"
    return {name: float(value) for name, value in map(str.split, lines[:-1])}


@pytest.mark.full
def test_calls_are_counted_alike_whichever_heap_serves_them(data: Path, tmp_path: Path) -> None:
    dodging = counted(data, tmp_path / "dodging", "defrag-dodging", free_port())
    region = counted(data, tmp_path / "region", "region", free_port())
    assert dodging["mallocs_per_request"] > 100
    assert 0 < dodging["frees_per_request"] <= dodging["mallocs_per_request"]
    for name in ("mallocs_per_request", "frees_per_request", "mean_malloc_bytes"):
        assert region[name] == pytest.approx(dodging[name], rel=0.02)
    assert dodging["peak_used_bytes"] <= dodging["peak_heap_bytes"]


@pytest.mark.full
def test_a_simulated_request_has_more_instructions_than_misses(data: Path) -> None:
    printed = run("simulate.py", "--data", data, "--requests", "8", "--modes", "zend,region")
    rows = [line.strip("| ").split(" | ") for line in printed.splitlines()]
    head, _, zend, region = rows
    assert head[:2] == ["mode", "instructions"]
    assert (zend[0], region[0]) == ("zend", "region")
    instructions, _, data_misses, _ = (number(cell) for cell in zend[1:])
    assert 100_000 < instructions < 100_000_000
    assert 0 < data_misses < instructions / 10
    assert zend[1].endswith("(1.000)")
    assert 0.5 < number(region[1]) / instructions < 2


def number(cell: str) -> float:
    return float(cell.split()[0].replace(",", ""))


# --------------------------------------------------------------- samples of the CPU


def address_of(name: str) -> int:
    """Where a function of the C library is in this process."""
    function: Any = getattr(ctypes.CDLL("libc.so.6"), name)
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)


def test_a_sample_belongs_to_what_its_address_is_in(cpu_share: ModuleType) -> None:
    here = cpu_share.Map.of(os.getpid(), frozenset())
    for name in ("malloc", "free", "realloc", "calloc", "malloc_trim"):
        assert here.part(address_of(name)) == cpu_share.MEMORY
    for name in ("qsort", "printf", "getpid"):
        assert here.part(address_of(name)) == cpu_share.REST
    assert here.part(0xFFFFFFFF81000000) == cpu_share.KERNEL
    assert here.part(16) == cpu_share.REST


def test_a_preloaded_allocator_is_memory_operations_all_over(
    cpu_share: ModuleType, library: Path
) -> None:
    script = f"import sys; sys.path.insert(0, {str(PHP)!r}); import cpu_share, ctypes, os\n"
    script += f"own = ctypes.CDLL({str(library)!r})\n"
    script += "address = ctypes.cast(own.malloc_trim, ctypes.c_void_p).value\n"
    script += f"found = cpu_share.Map.of(os.getpid(), frozenset([{os.path.realpath(library)!r}]))\n"
    script += "print(found.part(address))"
    environment = {**os.environ, "LD_PRELOAD": str(library)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == cpu_share.MEMORY


def test_zends_manager_is_found_in_a_binary_without_local_symbols(cpu_share: ModuleType) -> None:
    lines = subprocess.run(
        ["nm", "--dynamic", "--defined-only", FPM], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    places = {words[2]: int(words[0], 16) for words in map(str.split, lines)}
    first, end = cpu_share.manager_of(FPM, "php-fpm")
    for name in ("_emalloc", "_efree_32", "_erealloc2", "_ecalloc", "zend_mm_gc", "_estrdup"):
        assert first <= places[name] < end
    for name in ("zend_hash_find", "execute_ex", "zend_compile_file"):
        assert not first <= places[name] < end
