"""A core dump of a program under heapfit holds what is in use, and not the address space reserved.

gdb's gcore writes all that is mapped and not excluded, zeros too: a whole reservation would fill
the disk.
"""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

SUBJECT = Path(__file__).parent / "programs/core_subject.c"
MIB = 1 << 20
# It holds 37 MiB; more is made accessible in advance, and the program's own mappings come on top.
CORE_MAX = 96 * MIB
PATIENCE_S = 120


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiled = tmp_path_factory.mktemp("core") / "subject"
    subprocess.run(["gcc", "-O1", "-pthread", SUBJECT, "-o", compiled], check=True)
    return compiled


@pytest.fixture
def subject(program: Path, library: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [program],
        env={"LD_PRELOAD": str(library)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.communicate()


def held(subject: subprocess.Popen[str]) -> dict[str, str]:
    """What each address holds, as the program says."""
    assert subject.stdout is not None
    lines = [subject.stdout.readline() for _ in range(16)]
    return dict(line.strip().split(" ", 1) for line in lines)


def bound_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (8 * CORE_MAX, 8 * CORE_MAX))


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


def test_all_that_is_accessible_is_dumped_and_nothing_else(
    subject: subprocess.Popen[str],
) -> None:
    """What the kernel and crash reporters go by: the flags of each mapping."""
    objects = [int(address, 16) for address in held(subject)]
    dumped, excluded = 0, 0
    for start, end, access, flags in mappings(subject.pid):
        if any(start <= address < end for address in objects):
            assert access.startswith("rw"), hex(start)
            assert "dd" not in flags, hex(start)
            dumped += 1
        elif end - start > CORE_MAX:
            assert "dd" in flags, hex(start)
            excluded += 1
    assert dumped
    assert excluded


def mappings(pid: int) -> Iterator[tuple[int, int, str, list[str]]]:
    """Of a process: start, end, access, the kernel's flags."""
    start, end, access = 0, 0, ""
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if words[0] == "VmFlags:":
            yield start, end, access, words[1:]
        elif not words[0].endswith(":"):
            start, end = (int(bound, 16) for bound in words[0].split("-"))
            access = words[1]
