"""Names of call sites: from addresses and mappings of a process that has ended."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from heapfit.trace.convert import convert
from heapfit.trace.native import MALLOC, Event, Writer
from heapfit.trace.sites import Mapping, Places, parse_mappings

# Calls a function through a pointer, so that a return address lies in `caller`.
SOURCE = """
#include <stdio.h>
__attribute__((noinline)) void *here(void) { return __builtin_return_address(0); }
__attribute__((noinline)) void *caller(void) { void *at = here(); __asm__ volatile(""); return at; }
int main(void)
{
    printf("%p\\n", caller());
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) fputs(line, stdout);
}
"""


def run(program: Path) -> tuple[int, list[str]]:
    """The return address, and the mappings of code as a trace has them."""
    first, *maps = subprocess.run([program], capture_output=True, text=True).stdout.splitlines()
    lines = []
    for each in maps:
        words = each.split(None, 5)
        if "x" in words[1] and len(words) > 5:
            start, end = words[0].split("-")
            lines.append(f"{start} {end} {words[2]} {words[5]}")
    return int(first, 16), lines


@pytest.mark.parametrize("flags", [["-pie", "-fPIE"], ["-no-pie"], ["-pie", "-Wl,-z,noseparate-code"]])
def test_a_site_has_its_function_file_and_line(flags: list[str], tmp_path: Path) -> None:
    (tmp_path / "p.c").write_text(SOURCE)
    command = ["cc", "-g", "-O1", *flags, "-o", tmp_path / "a b", tmp_path / "p.c"]
    subprocess.run(command, check=True)
    address, lines = run(tmp_path / "a b")
    frame = Places(parse_mappings(lines)).frame(address)
    assert frame.module == str(tmp_path / "a b")
    assert frame.function == "caller"
    assert frame.file is not None
    assert Path(frame.file).name == "p.c"
    assert frame.line == 4


def test_an_address_outside_all_mappings_has_no_name() -> None:
    places = Places([Mapping(0x1000, 0x2000, 0, "/nowhere")])
    assert places.frame(0x500).module is None
    assert places.frame(0x1000).module is None  # the call before it is not in there
    assert places.frame(0x2000).module == "/nowhere"
    assert places.frame(0x2001).module is None


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # opening it would wait for ever
    (tmp_path / "text").write_text("no ELF")
    for name in ("pipe", "text", "missing"):
        places = Places([Mapping(0x1000, 0x2000, 0, str(tmp_path / name))])
        frame = places.frame(0x1800)
        assert (frame.module, frame.function) == (str(tmp_path / name), None)


@pytest.mark.parametrize(
    "line", ["", "1000", "1000 2000", "1000 2000 0", "x y z /bin/sh", "2000 1000 0 /bin/sh"]
)
def test_a_line_that_is_no_mapping_is_left_out(line: str) -> None:
    assert parse_mappings([line]) == []


def test_the_table_has_names_and_places_in_files(tmp_path: Path) -> None:
    libc = ctypes.CDLL(None)
    address = ctypes.cast(libc.qsort, ctypes.c_void_p).value or 0
    line = next(
        line
        for line in Path("/proc/self/maps").read_text().splitlines()
        if int(line.split("-")[0], 16) <= address < int(line.split("-")[1].split()[0], 16)
    )
    words = line.split(None, 5)
    start, end = words[0].split("-")
    with Writer(tmp_path / "a.hft", {}) as writer:
        writer.thread(0, 1, "main")
        writer.site(0, 0x10)
        writer.site(1, address + 4)
        writer.modules([f"{start} {end} {words[2]} {words[5]}"])
        writer.event(0, Event(5, MALLOC, address=16, size=8, usable=8, site=2))
    convert(tmp_path / "a.hft", tmp_path / "named")
    convert(tmp_path / "a.hft", tmp_path / "plain", symbols=False)
    unknown, known = pq.read_table(tmp_path / "named" / "sites.parquet").to_pylist()
    assert (unknown["module"], unknown["function"], unknown["caller"]) == (None, None, 0)
    assert "qsort" in known["function"]
    assert known["module"] == words[5]
    assert known["offset"] == address + 4 - int(start, 16) + int(words[2], 16)
    assert (known["caller"], known["allocations"], known["bytes"]) == (1, 1, 8)
    _, plain = pq.read_table(tmp_path / "plain" / "sites.parquet").to_pylist()
    assert plain == {**known, "function": None, "file": None, "line": None}
