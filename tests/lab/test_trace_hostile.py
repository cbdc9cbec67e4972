"""Small files that are made to cost much: what they cost is bounded by what they hold."""

from __future__ import annotations

import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pyarrow
import pytest
from conftest import Heapfit, assert_one_line
from heapfit.record.options import SITES_MAX
from heapfit.trace.native import MALLOC, Event, Reader, Writer

pytestmark = pytest.mark.full

INFO, EVENTS, SITES, END = 1, 2, 6, 7
MIB = 1 << 20

# What a call takes beyond what Python and its packages do, in bytes.
_MEASURE = """
import resource, sys
from pathlib import Path
from heapfit.trace import anonymise, convert
used = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = used()
{call}(Path(sys.argv[1]), Path(sys.argv[2]))
print(used() - before)
"""


class File:
    """A trace, block by block, as docs/trace-format.md describes it."""

    def __init__(self) -> None:
        self.bytes = bytearray(struct.pack("<8sHHI", b"heapfit\x1a", 2, 16, 0))
        self.blocks = 0
        self.block(INFO, b'{"pid": 1, "ticks_per_second_guess": 1000000000, "sites": 8}')

    def block(self, kind: int, payload: bytes, number: int = 0) -> File:
        stored = pyarrow.Codec("zstd", compression_level=9).compress(payload, asbytes=True)
        codec = 1
        if len(stored) >= len(payload):
            stored, codec = payload, 0
        sizes = (len(stored), len(payload))
        header = struct.pack(
            "<IBBHIIIIQQI", 0x31424648, kind, codec, 0, *sizes, number, 0, 0, 0, self.blocks
        )
        checksum = zlib.crc32(stored, zlib.crc32(header + bytes(4)))
        self.bytes += header + struct.pack("<I", checksum) + stored
        self.blocks += 1
        return self

    def write(self, path: Path) -> Path:
        self.block(EVENTS, bytes([MALLOC, 1, 8, 0, 32]))
        self.block(END, b'{"reason": "exit"}')
        path.write_bytes(self.bytes)
        return path


def taken(call: str, source: Path, target: Path) -> int:
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE.format(call=call), source, target],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout)


def test_sites_that_are_not_there_cost_nothing(tmp_path: Path) -> None:
    """One number said that there are four million sites: 50 seconds and 1.9 GB for a profile."""
    file = File().block(SITES, b"\0\x80\x20", number=(1 << 22) - 2).write(tmp_path / "a.hft")
    assert file.stat().st_size < 401
    assert taken("convert.convert", file, tmp_path / "tables") < 200 * MIB


def events_of_nothing(folder: Path) -> Path:
    """35 million frees in ten kilobytes."""
    made = File()
    for _ in range(100):
        made.block(EVENTS, bytes(MIB // 3 * 3))
    file = made.write(folder / "a.hft")
    assert file.stat().st_size < 11_000
    return file


@pytest.mark.parametrize(
    "command", [("profile",), ("trace", "anonymise"), ("replay", "--allocators", "glibc")]
)
def test_what_unpacks_to_far_more_than_its_size_is_refused_in_a_line(
    run_heapfit: Heapfit, tmp_path: Path, command: tuple[str, ...]
) -> None:
    file = events_of_nothing(tmp_path)
    result = run_heapfit(*command, file, folder=tmp_path)
    assert result.returncode == (2 if command[0] == "replay" else 1), result.stderr
    said = result.stderr.splitlines()[-1]  # anonymise has said where it writes
    assert said.startswith("heapfit: ")
    assert "unpacks to more than 100 times its size" in said
    assert "HEAPFIT_TRACE_EXPANSION" in said


def test_the_user_sets_the_limits(run_heapfit: Heapfit, tmp_path: Path) -> None:
    file = events_of_nothing(tmp_path)
    trusted = {"HEAPFIT_TRACE_EXPANSION": "100000"}
    assert run_heapfit("trace", "info", file, environment=trusted).returncode == 0
    with Writer(tmp_path / "b.hft", {}) as writer:
        for i in range(20_000):
            writer.event(0, Event(i, MALLOC, 16 * i + 16, size=8, usable=8))
    result = run_heapfit(
        "trace", "info", tmp_path / "b.hft", environment={"HEAPFIT_TRACE_MEMORY": "1m"}
    )
    assert_one_line(result, 1, ("more than 1 MiB of memory", "HEAPFIT_TRACE_MEMORY"))


def test_chains_of_calls_are_no_deeper_than_a_recorder_makes_them(tmp_path: Path) -> None:
    """Of 13 kilobytes folded stacks took 83 seconds and 56 MB."""
    with Writer(tmp_path / "a.hft", {}) as writer:
        for number in range(1, 201):
            writer.site(number - 1, 16 * number)
        writer.event(0, Event(0, MALLOC, 16, size=8, usable=8, site=200))
    with Reader(tmp_path / "a.hft") as reader:
        list(reader.events(1 << 10))
        callers = reader.sites()["caller"].tolist()
    assert callers == [0 if index % SITES_MAX == 0 else index for index in range(200)]
