"""Builds the programs of programs/pools/, each in the way that makes it hard to look into."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from comparison import PROGRAMS_FOLDER, Program, missing_packages

SOURCES = PROGRAMS_FOLDER / "pools"
# What Debian's own compilers are; another one may stand earlier in PATH.
GCC = ["/usr/bin/gcc", "-std=gnu17", "-pthread"]
# Go keeps its own work below HOME and obeys many variables.
WITHOUT_SETTINGS = ["env", "-i", "PATH=/usr/bin:/bin", "HOME={out}"]
BUILD_TIMEOUT_S = 240
SEED = 20100424

# Why an allocation goes to the ordinary heap if its caller cannot be understood.
NOT_UNDERSTOOD = frozenset({"no_unwind", "no_code", "stack"})


@dataclass(frozen=True)
class HardProgram:
    """A program and how it is built; `{out}` stands for the folder of what is built."""

    program: Program
    commands: list[list[str]]
    # Whether allocations must have been counted as not understood.
    falls_back: bool = False
    # What is done to the built file before it runs.
    damage: Callable[[Path], None] | None = None


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, timeout=BUILD_TIMEOUT_S)


def _placed(words: list[str], out: Path) -> list[str]:
    return [word.replace("{out}", str(out)).replace("{sources}", str(SOURCES)) for word in words]


def build(hard: HardProgram, out: Path) -> Program:
    """Builds a program in `out`, a new folder."""
    missing = missing_packages(hard.program)
    assert not missing, f"{hard.program.name} needs: apt-get install {' '.join(missing)}"
    out.mkdir()
    for command in hard.commands:
        _run(_placed(command, out))
    if hard.damage is not None:
        hard.damage(out / hard.program.name)
    return replace(hard.program, command=_placed(hard.program.command, out))


def _replace_section(program: Path, section: str, change: Callable[[bytearray], None]) -> None:
    content = program.with_suffix(".section")
    _run(["objcopy", f"--dump-section={section}={content}", str(program)])
    table = bytearray(content.read_bytes())
    change(table)
    content.write_bytes(table)
    _run(["objcopy", f"--update-section={section}={content}", str(program)])


def fill_frames_with_noise(program: Path) -> None:
    def change(table: bytearray) -> None:
        table[:] = random.Random(SEED).randbytes(len(table))

    _replace_section(program, ".eh_frame", change)


def built_program(
    name: str,
    commands: list[list[str]],
    packages: list[str],
    *,
    arguments: tuple[str, ...] = (),
    falls_back: bool = False,
) -> HardProgram:
    command = [f"{{out}}/{name}", *arguments]
    return HardProgram(Program(name, command, {name}, packages), commands, falls_back)


def c_program(name: str, source: str, flags: list[str], *, falls_back: bool = False) -> HardProgram:
    command = [*GCC, *flags, "-o", f"{{out}}/{name}", f"{{sources}}/{source}"]
    return built_program(name, [command], ["gcc", "libc6-dev"], falls_back=falls_back)


def damaged(hard: HardProgram, damage: Callable[[Path], None]) -> HardProgram:
    program = replace(hard.program, packages=["binutils", *hard.program.packages])
    return replace(hard, program=program, damage=damage)


def never_preloaded(hard: HardProgram) -> HardProgram:
    """A program that is started without the dynamic loader: it must not mind either."""
    return replace(hard, program=replace(hard.program, loaded_in=set()))


# No table at all: neither for the debugger nor for exceptions.
WITHOUT_FRAMES = [
    "-O2",
    "-fomit-frame-pointer",
    "-fno-asynchronous-unwind-tables",
    "-fno-unwind-tables",
    "-fno-exceptions",
]


def plugin(name: str, object_bytes: int) -> list[str]:
    flags = ["-O1", "-shared", "-fPIC", f"-DOBJECT_BYTES={object_bytes}"]
    return [*GCC, *flags, "-o", f"{{out}}/{name}.so", "{sources}/plugin.c"]


PROGRAMS = [
    c_program("unoptimised", "layers.c", ["-O0"]),
    c_program("optimised", "layers.c", ["-O3", "-flto", "-fomit-frame-pointer"]),
    never_preloaded(c_program("static_pie", "layers.c", ["-O2", "-static-pie"])),
    c_program("without_frames", "layers.c", WITHOUT_FRAMES, falls_back=True),
    damaged(c_program("noise", "layers.c", ["-O2"], falls_back=True), fill_frames_with_noise),
    built_program(
        "plugins",
        [
            plugin("first", 40),
            plugin("second", 56),
            [*GCC, "-O2", "-o", "{out}/plugins", "{sources}/plugins.c"],
        ],
        ["gcc", "libc6-dev"],
        arguments=("{out}/first.so", "{out}/second.so"),
    ),
    HardProgram(
        Program("luajit", ["/usr/bin/luajit", "{sources}/jit.lua"], {"luajit"}, ["luajit"]),
        commands=[],
        falls_back=True,
    ),
    built_program(
        "rust",
        [["/usr/bin/rustc", "-O", "-Cstrip=symbols", "-o", "{out}/rust", "{sources}/boxes.rs"]],
        ["rustc-web", "gcc", "libc6-dev"],
    ),
    built_program(
        "go",
        [[*WITHOUT_SETTINGS, "/usr/bin/go", "build", "-o", "{out}/go", "{sources}/cgo.go"]],
        ["golang-go", "gcc", "libc6-dev"],
    ),
]
