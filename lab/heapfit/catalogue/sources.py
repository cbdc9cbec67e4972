"""How an allocator's library comes onto this machine: a class for each kind of source.

What heapfit fetches itself lies in `allocators/NAME/` in the data folder, with `installed.json`,
which says which version it is. The folder appears by a rename once it is whole, so an interrupted
installation leaves nothing that looks finished.
"""

import hashlib
import json
import os
import platform
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from heapfit import __version__, paths
from heapfit.catalogue import cargo, debian
from heapfit.catalogue.command import filled, last_line, run_quietly
from heapfit.errors import HeapfitError, UsageError
from heapfit.files import check_name, replacing_folder
from heapfit.records import Allocator, AllocatorBuild, InstalledAllocator
from heapfit.text import shell_word

# The folder of the catalogue's own TOML files. Recipes name source files beside them as `{here}/…`.
CATALOGUE = Path(__file__).resolve().parent / "allocators"
_BESIDE = "{here}/"
_MACHINE = "{machine}"
_MANIFEST = "installed.json"

# What pip says of the versions that it found when it found no index either.
_NOT_EVEN_ONE_VERSION = "(from versions: none)"

# Told what goes on, a line before each step that takes a while.
Say = Callable[[str], None]


class Source:
    """One kind of source."""

    def find(self, allocator: Allocator) -> InstalledAllocator | None:
        """Return what is installed of `allocator`."""
        raise NotImplementedError

    def install(self, allocator: Allocator, say: Say) -> None:
        """Bring `allocator` onto this machine, or raise HeapfitError with what to do."""
        raise NotImplementedError


class System(Source):
    """The system's own allocator, which every machine has: nothing is preloaded."""

    def find(self, allocator: Allocator) -> InstalledAllocator | None:
        return InstalledAllocator(
            name=allocator.name,
            title=allocator.title,
            version=_libc_version(),
            library=None,
            environment=allocator.environment,
        )

    def install(self, allocator: Allocator, say: Say) -> None:
        raise HeapfitError(f"{allocator.name} comes with the system and cannot be installed")


class Heapfit(Source):
    """heapfit's own library, from the installation that this command belongs to.

    There is none in a source checkout that has not been built.
    """

    def find(self, allocator: Allocator) -> InstalledAllocator | None:
        library = paths.libraries().get(allocator.source.library or paths.DEFAULT_VARIANT)
        return describe(allocator, __version__, library) if library else None

    def install(self, allocator: Allocator, say: Say) -> None:
        paths.library(allocator.source.library or paths.DEFAULT_VARIANT)  # Says what is to be done.


class File(Source):
    """A library that the user names by its path."""

    def find(self, allocator: Allocator) -> InstalledAllocator | None:
        library = paths.expanded(allocator.source.library or "")
        version = allocator.source.version or "unknown"
        return describe(allocator, version, library) if library.is_file() else None

    def install(self, allocator: Allocator, say: Say) -> None:
        raise UsageError(f"{allocator.name}: there is no library at {allocator.source.library}")


class ByHand(Source):
    """An allocator that no package registry has: listed, so that its name says how to come by it.

    What the user builds is named by its path, not by the catalogue, and so never found.
    """

    def find(self, allocator: Allocator) -> InstalledAllocator | None:
        return None

    def install(self, allocator: Allocator, say: Say) -> None:
        raise HeapfitError(
            f"{allocator.name} is in no package registry; build its shared library and name it "
            f"{how_to_name(allocator)}"
        )


def how_to_name(allocator: Allocator) -> str:
    """Return what to write in place of the name of a `by-hand` allocator."""
    return f"{allocator.name}=path/to/lib.so"


class Debian(Source):
    """An allocator from a Debian package."""

    def find(self, allocator: Allocator) -> InstalledAllocator | None:
        package = _package_of(allocator)
        version = debian.version(package)
        if version is None:
            return None
        pattern = (allocator.source.library or "lib*.so*").replace(_MACHINE, platform.machine())
        matching = (file for file in debian.files(package) if fnmatch(file.name, pattern))
        library = next((file for file in matching if file.is_file()), None)
        return describe(allocator, version, library) if library else None

    def install(self, allocator: Allocator, say: Say) -> None:
        debian.install([_package_of(allocator)], say)


# ----------------------------------------------------- what heapfit fetches itself


class _Fetched(Source):
    """A library that is kept in the data folder."""

    def find(self, allocator: Allocator) -> InstalledAllocator | None:
        """Return what was fetched, unless the catalogue now has another version or recipe."""
        folder = _folder(allocator)
        try:
            manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
            version, library = manifest["version"], folder / manifest["library"]
        except (OSError, ValueError, KeyError):
            return None
        wanted = allocator.source.version
        if wanted not in (None, version) or manifest.get("build") != _made_by(allocator):
            return None
        return describe(allocator, version, library) if library.is_file() else None


class Wheel(_Fetched):
    """An allocator whose shared library travels in a wheel of the Python Package Index.

    The wheel is downloaded and only its library unpacked: nothing is installed into this Python.
    """

    def install(self, allocator: Allocator, say: Say) -> None:
        requirement = package = _package_of(allocator)
        if allocator.source.version:
            requirement = f"{package}=={allocator.source.version}"
        say(f"downloading {requirement} (pip)")
        with tempfile.TemporaryDirectory(prefix="heapfit-") as download:
            wheel = _download(requirement, Path(download))
            with replaced(_folder(allocator)) as folder:
                library = _extract(allocator, wheel, folder)
                _write_manifest(allocator, folder, wheel.name.split("-")[1], library)


class Crate(_Fetched):
    """An allocator compiled from the source that a crate carries, by its TOML file's recipe."""

    def find(self, allocator: Allocator) -> InstalledAllocator | None:
        _recipe(allocator)
        return super().find(allocator)

    def install(self, allocator: Allocator, say: Say) -> None:
        version, build = _recipe(allocator)
        with tempfile.TemporaryDirectory(prefix="heapfit-") as scratch:
            fetched, made = Path(scratch, "crate"), Path(scratch, "build")
            fetched.mkdir()
            made.mkdir()
            source = cargo.fetch(_package_of(allocator), version, fetched, say)
            if build.debian and debian.is_used():
                debian.install(build.debian, say)
            with replaced(_folder(allocator)) as folder:
                library = f"{allocator.name}.so"
                say(f"compiling {allocator.name}")
                places = {
                    "source": source,
                    "project": fetched,
                    "library": folder / library,
                    "here": CATALOGUE,
                }
                for words in build.commands:
                    _compile(allocator, _expanded(words, build, places), made)
                if not (folder / library).is_file():
                    raise HeapfitError(f"{allocator.name}: its commands did not make the library")
                _write_manifest(allocator, folder, version, library)


SOURCES: dict[str, Source] = {
    "system": System(),
    "heapfit": Heapfit(),
    "debian": Debian(),
    "pypi": Wheel(),
    "crate": Crate(),
    "file": File(),
    "by-hand": ByHand(),
}


def describe(allocator: Allocator, version: str, library: Path) -> InstalledAllocator:
    """Return the record of `allocator`, whose shared library is `library`."""
    path = library.absolute()
    check_name(path)
    paths.check_preloadable(path)
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise HeapfitError(f"cannot read {path}: {error.strerror}") from error
    return InstalledAllocator(
        name=allocator.name,
        title=allocator.title,
        version=version,
        library=path,
        sha256=digest,
        environment=allocator.environment,
    )


@contextmanager
def replaced(final: Path) -> Iterator[Path]:
    """Yield an empty folder that takes the place of `final` when the block ends without an error.

    Raises HeapfitError when the folder cannot be made or written.
    """
    with paths.keeping(final.parent), replacing_folder(final) as unfinished:
        yield unfinished


def _libc_version() -> str:
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION")
    except ValueError:
        libc = None
    if not libc:
        raise HeapfitError("this system's C library is not glibc; heapfit needs glibc")
    return libc.removeprefix("glibc ")


def _package_of(allocator: Allocator) -> str:
    """Return the package that `allocator` comes from; UsageError when its TOML names none."""
    if allocator.source.package is None:
        raise UsageError(f"{allocator.name}: its source must name a package")
    return allocator.source.package


def _folder(allocator: Allocator) -> Path:
    """Return where `allocator` is kept once it is installed."""
    return paths.data_dir() / "allocators" / allocator.name


def _write_manifest(allocator: Allocator, into: Path, version: str, library: str) -> None:
    """Record in the folder `into` which version its `library` is, and by what recipe if any."""
    manifest = {"version": version, "library": library, "build": _made_by(allocator)}
    (into / _MANIFEST).write_text(json.dumps(manifest) + "\n", encoding="utf-8")


def _made_by(allocator: Allocator) -> dict[str, Any] | None:
    """Return what the library was made by: the commands, and the digests of our files in them."""
    build = allocator.source.build
    if build is None:
        return None
    words = {word for command in build.commands for word in command if word.startswith(_BESIDE)}
    files = {word: _digest(CATALOGUE / word.removeprefix(_BESIDE)) for word in sorted(words)}
    return {**build.model_dump(mode="json"), "files": files}


def _digest(file: Path) -> str | None:
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else None


def _download(requirement: str, folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
    wanted = ["--no-deps", "--only-binary", ":all:", "--dest", str(folder), requirement]
    result = run_quietly([*pip, "download", "--quiet", *wanted])
    if "No module named pip" in result.stderr:
        raise HeapfitError(f"pip is missing; run: {shell_word(sys.executable)} -m ensurepip")
    wheels = list(folder.glob("*.whl"))
    if _NOT_EVEN_ONE_VERSION in result.stderr:
        raise HeapfitError(
            f"cannot download {requirement}: no package index that has it can be reached"
        )
    if result.returncode != 0 or not wheels:
        raise HeapfitError(f"cannot download {requirement}: {last_line(result)}")
    return wheels[0]


def _extract(allocator: Allocator, wheel: Path, folder: Path) -> str:
    pattern = allocator.source.library or "*.so*"
    with zipfile.ZipFile(wheel) as archive:
        members = [name for name in archive.namelist() if fnmatch(name, pattern)]
        if not members:
            raise HeapfitError(f"{wheel.name} holds no library {pattern!r}")
        library = Path(members[0]).name
        (folder / library).write_bytes(archive.read(members[0]))
    return library


def _expanded(words: Sequence[str], build: AllocatorBuild, places: dict[str, Path]) -> list[str]:
    """Return a command with its placeholders filled in, for this machine."""
    expanded: list[str] = []
    for word in words:
        if word == _MACHINE:
            expanded += build.machine_arguments.get(platform.machine(), [])
        else:
            expanded.append(filled(word, places))
    return expanded


def _recipe(allocator: Allocator) -> tuple[str, AllocatorBuild]:
    source = allocator.source
    if source.version is None or source.build is None:
        raise UsageError(f"{allocator.name}: a crate as a source needs a version and a build table")
    return source.version, source.build


def _compile(allocator: Allocator, command: list[str], folder: Path) -> None:
    result = run_quietly(command, folder=folder)
    if result.returncode == 0:
        return
    errors = [line for line in result.stderr.splitlines() if "error" in line.lower()]
    said = errors[0].strip() if errors else last_line(result)
    raise HeapfitError(f"compiling {allocator.name} failed: {said}")
