"""The probes that profilers listen to from outside: their notes, and what a listener is told."""

from __future__ import annotations

import re
import struct
import subprocess
from math import expm1
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from heapfit import paths

VARIANTS = ["default", "hardened", "pools"]
REGISTERS = {"EM_X86_64": ("%rdi", "%rsi", "%rdx"), "EM_AARCH64": ("x0", "x1", "x2")}
NOTHING = {"EM_X86_64": b"\x90", "EM_AARCH64": bytes.fromhex("1f2003d5")}  # the instruction
MEAN = 4096
LARGE = 1 << 20

PROGRAM = """
#include <stdlib.h>
#include <string.h>
int main(void)
{
    static void *objects[2000];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 2000; i++) memset(objects[i] = malloc(1000), 1, 1000);
        for (int i = 0; i < 2000; i++) free(objects[i]);
    }
    free(memset(malloc(1 << 20), 1, 1 << 20));
}
"""


def probes(file: ELFFile) -> dict[str, tuple[int, int, int, str]]:
    """By provider and name: where a probe is, the base, its count of listeners, its arguments."""
    notes = file.get_section_by_name(".note.stapsdt").data()
    found, at = {}, 0
    while at < len(notes):
        owner_size, size, kind = struct.unpack_from("<3I", notes, at)
        assert (notes[at + 12 :][:owner_size], kind) == (b"stapsdt\0", 3)
        at += 12 + owner_size
        place, base, listeners = struct.unpack_from("<3Q", notes, at)
        provider, name, arguments, rest = notes[at + 24 : at + size].decode().split("\0")
        assert not rest
        found[f"{provider}:{name}"] = (place, base, listeners, arguments)
        at += (size + 3) // 4 * 4
    return found


@pytest.mark.parametrize("variant", VARIANTS)
def test_notes_say_where_probes_are_and_who_listens(variant: str) -> None:
    with paths.library(variant).open("rb") as stream:
        file = ELFFile(stream)
        machine = file["e_machine"]
        first, second, third = (f"8@{register}" for register in REGISTERS[machine])
        found = probes(file)
        assert {name: probe[3] for name, probe in found.items()} == {
            "otel_memory:alloc": f"{first} {second} {third}",
            "otel_memory:free": first,
        }
        code, counts = file.get_section_by_name(".text"), file.get_section_by_name(".probes")
        for place, base, listeners, _ in found.values():
            at = place - code["sh_addr"]
            nothing = NOTHING[machine]
            assert code.data()[at : at + len(nothing)] == nothing
            assert base == file.get_section_by_name(".stapsdt.base")["sh_addr"]
            at = listeners - counts["sh_addr"]
            assert counts.data()[at : at + 2] == bytes(2)
        assert len({listeners for _, _, listeners, _ in found.values()}) == 2


def heard(folder: Path, options: str) -> tuple[list[list[int]], list[int]]:
    """What gdb is told, which raises the counts of listeners as a profiler does."""
    (folder / "program.c").write_text(PROGRAM)
    command = ["gcc", "-fno-builtin", "program.c", "-o", "program"]
    subprocess.run(command, cwd=folder, check=True)
    said = {
        "alloc": r'printf "alloc %lu %lu %lu\n", $_probe_arg0, $_probe_arg1, $_probe_arg2',
        "free": r'printf "free %lu\n", $_probe_arg0',
    }
    script = [
        "set startup-with-shell off",
        f"set environment LD_PRELOAD {paths.library()}",
        f"set environment HEAPFIT_OPTIONS {options}",
        "break main",
        "run",
    ]
    for name, line in said.items():
        script += [f"break -probe-stap otel_memory:{name}", "commands", "silent", line]
        script += ["continue", "end"]
    (folder / "script").write_text("\n".join([*script, "continue", ""]))
    listened = subprocess.run(
        ["gdb", "-batch", "-nx", "-x", "script", "program"],
        cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=500,
        check=True,
    ).stdout  # fmt: skip
    assert "exited normally" in listened
    allocations = [line.split()[1:] for line in re.findall("^alloc .*", listened, re.MULTILINE)]
    frees = re.findall(r"^free (\d+)", listened, re.MULTILINE)
    return [[int(word) for word in each] for each in allocations], [int(each) for each in frees]


@pytest.mark.full
def test_a_listener_hears_of_sampled_objects_and_of_their_end(tmp_path: Path) -> None:
    allocations, frees = heard(tmp_path, f"sample:{MEAN}")
    for _, size, weighted in allocations:
        assert weighted == pytest.approx(size / -expm1(-size / MEAN), rel=1e-5, abs=1)
    small = [weighted for _, size, weighted in allocations if size == 1024]
    # 6,000 objects, each sampled by a chance of 0.22: five standard errors.
    assert sum(small) / 1024 == pytest.approx(6000, rel=0.125)
    assert [(size, weighted) for _, size, weighted in allocations if size == LARGE] == [
        (LARGE, LARGE)
    ]
    assert set(frees) <= {pointer for pointer, _, _ in allocations}
    # The last ones wait until their memory is given again.
    assert len(frees) > 0.6 * len(allocations)


@pytest.mark.full
def test_without_sampling_a_listener_hears_nothing(tmp_path: Path) -> None:
    assert heard(tmp_path, "sample:0") == ([], [])


@pytest.mark.full
def test_an_ebpf_program_hears_of_sampled_objects(tmp_path: Path) -> None:
    endless = PROGRAM.replace("round < 3", "round >= 0")
    command = ["gcc", "-fno-builtin", "-x", "c", "-", "-o", tmp_path / "program"]
    subprocess.run(command, input=endless, text=True, check=True)
    settings = {"LD_PRELOAD": str(paths.library()), "HEAPFIT_OPTIONS": f"sample:{MEAN}"}
    probe = f"usdt:{paths.library()}:otel_memory:"
    script = f'{probe}alloc {{ printf("%d %d\\n", arg1, arg2); @heard++; }} '
    script += f"{probe}free {{ if (@heard >= 100) {{ exit(); }} }}"
    with subprocess.Popen([tmp_path / "program"], env=settings) as program:
        listen = ["bpftrace", "-p", str(program.pid), "-e", script]
        listened = subprocess.run(listen, capture_output=True, text=True, timeout=500, check=True)
        program.kill()
    heard_of = re.findall(r"^(\d+) (\d+)$", listened.stdout, re.MULTILINE)
    assert len(heard_of) > 50
    for size, weighted in heard_of:
        assert int(weighted) == pytest.approx(
            int(size) / -expm1(-int(size) / MEAN), rel=1e-5, abs=1
        )
