"""A core dump of a program under heapfit holds what is in use, and not the address space reserved.

gdb's gcore writes all that is mapped and not excluded, zeros too: a whole reservation would fill
the disk.
"""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from subjects import compiled

pytestmark = pytest.mark.full

MIB = 1 << 20
# It holds 37 MiB; more is made accessible in advance, and the program's own mappings come on top.
CORE_MAX = 96 * MIB
PATIENCE_S = 120


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled("core_subject.c", tmp_path_factory.mktemp("core"))


@contextmanager
def subject_under(
    program: Path, library: Path, settings: str = ""
) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [program],
        env={"LD_PRELOAD": str(library), "HEAPFIT_OPTIONS": settings},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.communicate()


@pytest.fixture
def subject(program: Path, library: Path) -> Iterator[subprocess.Popen[str]]:
    with subject_under(program, library) as process:
        yield process


def held(subject: subprocess.Popen[str]) -> dict[str, str]:
    """What each address holds, as the program says."""
    assert subject.stdout is not None
    lines = [subject.stdout.readline() for _ in range(20)]
    return dict(line.strip().split(" ", 1) for line in lines)


def bound_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (8 * CORE_MAX, 8 * CORE_MAX))


@pytest.mark.unhardened("what is freed is cleared")
def test_gcore_writes_what_is_in_use_and_gdb_reads_it(
    subject: subprocess.Popen[str], program: Path, tmp_path: Path
) -> None:
    objects = held(subject)
    written = subprocess.run(
        ["gcore", "-o", tmp_path / "core", str(subject.pid)],
        preexec_fn=bound_files,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    core = tmp_path / f"core.{subject.pid}"
    assert core.is_file(), written.stdout + written.stderr
    assert core.stat().st_size < CORE_MAX
    looks = [argument for address in objects for argument in ("-ex", f"x/s {address}")]
    shown = subprocess.run(
        ["gdb", "-batch", "-nx", *looks, program, core],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    ).stdout
    for address, text in objects.items():
        assert f'{address}:\t"{text}"' in shown


GDB_SCRIPT = Path(__file__).parents[2] / "allocator/gdb/heapfit.py"


def gdb(*arguments: str | Path) -> list[str]:
    """What gdb says of the heap: the lines that heapfit's script has printed."""
    run = ["gdb", "-batch", "-nx", *arguments]
    done = subprocess.run(run, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    return done.stdout.splitlines()


def asks(*commands: str) -> list[str]:
    lines = [f"source {GDB_SCRIPT}", *(f"heapfit {command}" for command in commands)]
    return [argument for line in lines for argument in ("-ex", line)]


@pytest.mark.parametrize("from_core", [False, True], ids=["attached", "core"])
@pytest.mark.unhardened("large objects begin within their spans")
def test_gdb_says_what_an_address_belongs_to(
    subject: subprocess.Popen[str], program: Path, tmp_path: Path, from_core: bool
) -> None:
    objects = held(subject)
    where = {text: int(address, 16) for address, text in objects.items()}
    small, pages = where["a small object"], where["an object of some pages"]
    large, freed = where["a large object"], where["a freed object"]
    other = where["an object of another thread"]
    unfilled = where["a large object that does not fill its span"]
    freed_pages, freed_large = where["a freed object of some pages"], where["a freed large object"]
    asked = (small, pages, large, freed, other, unfilled, freed_pages, freed_large)
    target: list[str | Path] = ["-p", str(subject.pid)]
    if from_core:
        gdb("-ex", f"gcore {tmp_path / 'core'}", *target)
        target = [program, tmp_path / "core"]
    said = gdb(
        *target,
        *asks("stats", "heaps", *(f"block {at:#x}" for at in asked)),
    )
    blocks = [line for line in said if line.startswith("0x")]
    # The text stands 64 bytes before the end of what was asked for.
    assert blocks[0].startswith(f"{small:#x} is 36 bytes into a block of 112 bytes")
    assert blocks[1].startswith(f"{pages:#x} is {30000 - 64} bytes into a block of ")
    assert blocks[2].startswith(f"{large:#x} is {(1 << 20) - 64} bytes into a live large object")
    assert "live large object of 40960 bytes" in blocks[5]
    assert [line.rpartition(". ")[2] for line in blocks if "block" in line] == [
        "It is live.",
        "It is live.",
        "It is free.",
        "It is live.",
        "It is free.",
    ]
    assert "is in freed memory, which is kept by heap" in blocks[7]
    assert blocks[7].endswith(f"thread {subject.pid}.")
    assert f"thread {subject.pid}." in blocks[0]
    assert f"thread {subject.pid}." not in blocks[4]
    assert any(line.startswith("  37.039 MiB in large objects: 14") for line in said)
    assert "  0.250 MiB of freed spans that threads keep" in said
    assert any(line.split()[1:2] == [str(subject.pid)] for line in said), "no line of main's heap"


def test_gdb_says_so_of_a_process_without_heapfit(program: Path) -> None:
    process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        held(process)
        run = ["gdb", "-batch", "-nx", "-p", str(process.pid), *asks("stats")]
        done = subprocess.run(run, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert "does not use heapfit" in done.stderr
    finally:
        process.kill()
        process.communicate()
