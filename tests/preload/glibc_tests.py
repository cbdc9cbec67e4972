"""glibc's own tests of malloc, compiled for the C library of this machine.

They come from Debian's source package, which apt fetches and verifies, into `build/`: they are
under the LGPL and no part of this project. apt is given lists of its own, so that the system's
stay as they are.
"""

from __future__ import annotations

import subprocess
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SUITE = "bookworm"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
FETCH_TIMEOUT_S = 300
COMPILE_TIMEOUT_S = 120

# Of the whole source: the tests, what their `support` library is made of, and headers of glibc's
# own build that any program can use.
FOLDERS = ("malloc/", "support/")
SKELETON = "test-skeleton.c"
HEADERS = ("array_length.h", "intprops.h", "libc-diag.h", "libc-pointer-arith.h", "verify.h")
# Where glibc would be installed and was built: no test here asks.
PATHS = (
    "OBJDIR OBJDIR_ELF_LDSO SRCDIR INSTDIR LIBDIR BINDIR SBINDIR SLIBDIR ROOTSBINDIR "
    "COMPLOCALEDIR SYSCONFDIR"
)


class Unavailable(Exception):
    """The source cannot be had on this machine, or not now."""


def fetch(folder: Path) -> Path:
    """The archive with glibc's source, fetched unless it is there already."""
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob("glibc_*.orig.tar.xz")):
        _apt_source(folder)
    return next(folder.glob("glibc_*.orig.tar.xz"))


def _apt_source(folder: Path) -> None:
    (folder / "lists/partial").mkdir(parents=True, exist_ok=True)
    (folder / "cache/archives/partial").mkdir(parents=True, exist_ok=True)
    sources = folder / "sources.list"
    sources.write_text(f"deb-src [signed-by={KEYRING}] http://deb.debian.org/debian {SUITE} main\n")
    options = [
        f"-oDir::Etc::SourceList={sources}",
        "-oDir::Etc::SourceParts=/dev/null",
        f"-oDir::State::Lists={folder / 'lists'}",
        f"-oDir::Cache={folder / 'cache'}",
    ]
    for command in (["update"], ["source", "--download-only", "glibc"]):
        try:
            done = subprocess.run(
                ["apt-get", *options, *command],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=FETCH_TIMEOUT_S,
                check=False,
            )
        except (FileNotFoundError, subprocess.TimeoutExpired) as error:
            raise Unavailable(f"apt-get {command[0]}: {error}") from error
        if done.returncode != 0:
            raise Unavailable(f"apt-get {command[0]}: {done.stderr.strip()}")


def compile_all(archive: Path, folder: Path, tests: list[str]) -> None:
    """Makes a program of each test, named as it is, in `folder`, unless all are there already."""
    if all((folder / test).exists() for test in tests):
        return
    source = _unpack(archive, folder)
    support = _support(source, folder)

    def one(test: str) -> None:
        _compile(source, [source / f"malloc/{test}.c", support], folder / test).check_returncode()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(one, tests))


def _unpack(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as tar:
        members = [member for member in tar if _is_wanted(member.name)]
        tar.extractall(folder, members, filter="data")
    source = next(path for path in folder.iterdir() if path.name.startswith("glibc-"))
    own = source / "own"
    own.mkdir(exist_ok=True)
    for header in HEADERS:
        (own / header).write_bytes((source / "include" / header).read_bytes())
    return source


def _is_wanted(name: str) -> bool:
    _, _, within = name.partition("/")
    headers = {f"include/{header}" for header in HEADERS}
    return within.startswith(FOLDERS) or within == SKELETON or within in headers


def _support(source: Path, folder: Path) -> Path:
    """What of `support` compiles outside of glibc's build, as a library; the rest no test needs."""
    objects = folder / "support"
    objects.mkdir(exist_ok=True)
    files = list((source / "support").glob("*.c"))

    def one(file: Path) -> None:
        _compile(source, ["-c", file], objects / f"{file.stem}.o")

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(one, files))
    library = folder / "libsupport.a"
    subprocess.run(["ar", "rcs", library, *sorted(objects.glob("*.o"))], check=True)
    return library


def _compile(
    source: Path, what: list[str | Path], result: Path
) -> subprocess.CompletedProcess[bytes]:
    command = [
        *["gcc", "-std=gnu11", "-O2", "-w", "-fno-builtin", "-D_GNU_SOURCE", "-DTIMEOUTFACTOR=1"],
        *["-include", "limits.h"],
        *(f"-I{source / folder}" for folder in ("own", "support", "")),
        *(f'-D{path}_PATH="/"' for path in PATHS.split()),
        *[*what, "-o", result, "-pthread", "-ldl"],
    ]
    return subprocess.run(command, capture_output=True, timeout=COMPILE_TIMEOUT_S, check=False)
