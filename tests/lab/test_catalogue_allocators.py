"""Allocators are found, tried out, and refused when malloc would not come from them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import shared_home
from heapfit import catalogue
from heapfit.catalogue import debian, sources
from heapfit.catalogue.allocators import find_allocators
from heapfit.cli.provide import named_allocators
from heapfit.errors import HeapfitError, UsageError
from sampling import sampled

pytestmark = pytest.mark.full

NOBODY = 65534
# TCMalloc is two hundred C++ files, compiled while other tests run.
LONGEST_BUILD_S = 2400


INSTALLABLE = [
    "dlmalloc",
    "google-tcmalloc",
    "hardened-malloc",
    "hardened-malloc-light",
    "hoard",
    "jemalloc",
    "mimalloc",
    "mimalloc-secure",
    "mimalloc2",
    "rpmalloc",
    "scudo",
    "snmalloc",
    "tbbmalloc",
    "tcmalloc",
    "tlsf",
]
BY_HAND = ["miser", "ptmalloc3"]


def say_nothing(line: str) -> None:
    """Take a message and keep it to oneself."""


@pytest.fixture(scope="session")
def jemalloc() -> Path:
    """A real allocator's library."""
    library = shared_home.allocator("jemalloc").library
    assert library is not None
    return library


def test_the_catalogue_begins_with_the_baseline_and_ourselves() -> None:
    names = list(catalogue.load_allocators())
    assert names[:2] == ["glibc", "heapfit"]
    assert {"jemalloc", "mimalloc", "rpmalloc", "snmalloc", "tcmalloc"} <= set(names)


def test_the_installation_tests_leave_nothing_of_the_catalogue_out() -> None:
    installable = [
        entry.name
        for entry in catalogue.load_allocators().values()
        if entry.source.kind in ("debian", "pypi", "crate")
    ]
    assert installable == INSTALLABLE


def test_glibc_preloads_nothing() -> None:
    [glibc] = catalogue.resolve_allocators(["glibc"])
    assert glibc.library is None


@pytest.mark.timeout(LONGEST_BUILD_S)
@pytest.mark.parametrize("name", sampled(INSTALLABLE, "dlmalloc", "jemalloc", "mimalloc"))
def test_every_allocator_installs_and_survives_real_programs(name: str) -> None:
    installed = shared_home.allocator(name)
    assert installed.library is not None
    assert installed.library.is_file()
    assert installed.sha256 is not None
    assert catalogue.resolve_allocators([name]) == [installed]


def test_an_allocator_is_downloaded_compiled_and_kept(empty_home: Path) -> None:
    """From nothing; what the tests above use may be there since an earlier run."""
    said: list[str] = []
    entry = catalogue.load_allocators()["dlmalloc"]
    installed = catalogue.install_allocator(entry, said.append)
    assert installed.library is not None
    assert installed.library.is_relative_to(empty_home)
    assert said[-1] == "compiling dlmalloc"
    said.clear()
    assert catalogue.install_allocator(entry, said.append) == installed
    assert said == []


@pytest.fixture(scope="session")
def malloc_family_check(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that checks what programs rely on of malloc and its relatives."""
    program = tmp_path_factory.mktemp("check") / "malloc_family_check"
    source = Path(__file__).with_name("malloc_family_check.c")
    flags = ["-std=gnu17", "-O1", "-fno-builtin", "-Wall", "-Wextra", "-Werror", "-pthread"]
    subprocess.run(["gcc", *flags, "-o", program, source], check=True)
    return program


@pytest.mark.parametrize("name", sampled(["glibc", "dlmalloc", "tlsf"], "glibc", "dlmalloc"))
def test_what_we_put_around_an_allocator_is_a_whole_malloc_family(
    name: str, malloc_family_check: Path
) -> None:
    # glibc shows that the check itself asks for nothing but what programs rely on.
    library = shared_home.allocator(name).library if name != "glibc" else None
    preload = {"LD_PRELOAD": str(library)} if library else {}
    result = subprocess.run(
        [malloc_family_check], env={**os.environ, **preload}, capture_output=True, text=True
    )
    assert (result.stdout, result.stderr) == ("good\n", "")


@pytest.mark.parametrize("name", BY_HAND)
def test_what_no_registry_has_says_how_to_add_it(name: str, jemalloc: Path) -> None:
    entry = catalogue.load_allocators()[name]
    assert catalogue.find_installed(entry) is None
    for attempt in (
        lambda: catalogue.install_allocator(entry, say_nothing),
        lambda: catalogue.resolve_allocators([name]),
    ):
        with pytest.raises(HeapfitError, match=rf"no package registry.*{name}=path/to/lib\.so"):
            attempt()
    [own] = catalogue.resolve_allocators([f"{name}={jemalloc}"])
    assert own.library == jemalloc


@pytest.mark.usefixtures("library")
def test_heapfit_itself_survives_real_programs() -> None:
    catalogue.smoke_test(catalogue.resolve_allocators(["heapfit"])[0])


def test_the_check_works_from_a_python_that_is_not_position_independent(
    jemalloc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Debian's is none: in it the address of malloc is that of a stub in the interpreter itself.
    monkeypatch.setattr(sys, "executable", "/usr/bin/python3")
    [mine] = catalogue.resolve_allocators([f"mine={jemalloc}"])
    assert mine.library == jemalloc


def test_a_library_of_ones_own_stands_wherever_a_name_does(jemalloc: Path) -> None:
    glibc, mine = catalogue.resolve_allocators(["glibc", f"mine={jemalloc}"])
    assert glibc.name == "glibc"
    assert mine.name == "mine"
    assert mine.library == jemalloc


def test_a_toml_file_of_ones_own_stands_wherever_a_name_does(
    jemalloc: Path, tmp_path: Path
) -> None:
    shutil.copy(jemalloc, tmp_path / "mine.so")
    described = tmp_path / "mine.toml"
    described.write_text(
        'name = "mine"\ntitle = "Mine"\nenvironment = { MALLOC_CONF = "narenas:1" }\n'
        '[source]\nkind = "file"\nlibrary = "mine.so"\n'
    )
    [mine] = catalogue.resolve_allocators([str(described)])
    assert mine.library == tmp_path / "mine.so"
    assert mine.environment == {"MALLOC_CONF": "narenas:1"}


def test_a_file_that_is_no_library_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "lib.so"
    text.write_text("not a library")
    with pytest.raises(HeapfitError, match=r"bad: .*lib\.so does not load \(.+\)"):
        catalogue.resolve_allocators([f"bad={text}"])


@pytest.mark.parametrize("python", [sys.executable, "/usr/bin/python3"])
def test_a_library_without_malloc_is_refused(python: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", python)
    zlib = next(Path("/usr/lib").glob("*-linux-gnu/libz.so.1"))
    with pytest.raises(HeapfitError, match=r"malloc comes from .*libc"):
        catalogue.resolve_allocators([f"bad={zlib}"])


def test_a_missing_library_is_refused() -> None:
    with pytest.raises(HeapfitError, match="there is no library at /no/such"):
        catalogue.resolve_allocators(["bad=/no/such.so"])


def test_a_path_that_ld_preload_cannot_hold_is_refused(jemalloc: Path, tmp_path: Path) -> None:
    spaced = tmp_path / "my lib.so"
    shutil.copy(jemalloc, spaced)
    with pytest.raises(HeapfitError, match="space or colon"):
        catalogue.resolve_allocators([f"bad={spaced}"])


def test_a_library_without_a_name_is_told_how_to_get_one() -> None:
    with pytest.raises(UsageError, match=r"write mine=\./lib\.so"):
        catalogue.resolve_allocators(["./lib.so"])


def test_an_unknown_allocator_is_told_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'tcmalloc'"):
        catalogue.resolve_allocators(["tcmaloc"])


def test_an_allocator_named_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="named twice"):
        catalogue.resolve_allocators(["glibc", "glibc"])


def test_an_allocator_that_is_not_installed_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEAPFIT_HOME", str(tmp_path))
    with pytest.raises(HeapfitError, match="run: heapfit allocators install mimalloc"):
        catalogue.resolve_allocators(["mimalloc"])


def test_a_folder_that_may_not_be_written_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("HEAPFIT_HOME", str(blocked / "home"))
    with pytest.raises(HeapfitError, match="set HEAPFIT_HOME"):
        catalogue.install_allocator(catalogue.load_allocators()["mimalloc"], say_nothing)


@pytest.mark.usefixtures("empty_home")
def test_a_library_is_compiled_by_its_recipe_and_again_when_that_changes(tmp_path: Path) -> None:
    described = tmp_path / "own.toml"
    recipe = """name = "own"
title = "Own"
[source]
kind = "crate"
package = "rpmalloc-sys"
version = "0.2.3"
[source.build]
commands = [["cp", "{source}/Cargo.toml", "copied"], ["cp", "copied", "{library}"]]
"""
    described.write_text(recipe)
    [entry] = find_allocators([str(described)])
    with pytest.raises(HeapfitError, match=r"own\.so does not load"):  # It is no library at all.
        catalogue.install_allocator(entry, say_nothing)
    found = catalogue.find_installed(entry)
    assert found is not None
    assert found.library is not None
    assert 'name = "rpmalloc-sys"' in found.library.read_text()
    described.write_text(recipe.replace('"copied"', '"copy"'))
    [changed] = find_allocators([str(described)])
    assert catalogue.find_installed(changed) is None


@pytest.mark.usefixtures("empty_home")
def test_a_library_is_compiled_again_when_a_source_beside_the_recipe_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "CATALOGUE", tmp_path)
    (tmp_path / "ours.c").write_text("void *malloc(unsigned long size);\n")
    described = tmp_path / "own.toml"
    described.write_text(
        'name = "ours"\ntitle = "Ours"\n[source]\nkind = "crate"\n'
        'package = "rpmalloc-sys"\nversion = "0.2.3"\n[source.build]\n'
        'commands = [["gcc", "-shared", "-o", "{library}", "{here}/ours.c"]]\n'
    )
    [entry] = find_allocators([str(described)])
    with pytest.raises(HeapfitError, match="is unusable here"):  # No malloc in it.
        catalogue.install_allocator(entry, say_nothing)
    assert catalogue.find_installed(entry) is not None
    (tmp_path / "ours.c").write_text("/* changed */\n")
    assert catalogue.find_installed(entry) is None


@pytest.mark.parametrize(
    ("name", "environment", "said"),
    [
        (
            "mimalloc",
            {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0"},
            "cannot download cmeel-mimalloc==3.4.3: no package index that has it can be reached",
        ),
        (
            "rpmalloc",
            {"CARGO_HTTP_PROXY": "127.0.0.1:9", "CARGO_NET_RETRY": "0"},
            "cannot download rpmalloc-sys 0.2.3: .*connect",
        ),
    ],
)
def test_without_a_network_an_installation_says_so_and_leaves_nothing(
    name: str,
    environment: dict[str, str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for variable, value in {"CARGO_HOME": str(tmp_path / "cargo"), **environment}.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("HEAPFIT_HOME", str(tmp_path / "home"))
    entry = catalogue.load_allocators()[name]
    with pytest.raises(HeapfitError, match=said):
        catalogue.install_allocator(entry, say_nothing)
    assert catalogue.find_installed(entry) is None
    assert not list(tmp_path.glob("home/allocators/*"))


@pytest.mark.usefixtures("empty_home")
def test_a_recipe_that_fails_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    described = tmp_path / "broken.toml"
    described.write_text(
        'name = "broken"\ntitle = "Broken"\n[source]\nkind = "crate"\n'
        'package = "rpmalloc-sys"\nversion = "0.2.3"\n[source.build]\n'
        'commands = [["gcc", "-shared", "-o", "{library}", "{source}/none.c"]]\n'
    )
    [entry] = find_allocators([str(described)])
    with pytest.raises(HeapfitError, match=r"compiling broken failed: .*none\.c"):
        catalogue.install_allocator(entry, say_nothing)
    assert catalogue.find_installed(entry) is None


@pytest.mark.usefixtures("empty_home")
def test_a_crate_version_that_does_not_exist_is_explained(tmp_path: Path) -> None:
    described = tmp_path / "old.toml"
    described.write_text(
        'name = "old"\ntitle = "Old"\n[source]\nkind = "crate"\n'
        'package = "rpmalloc-sys"\nversion = "99.0.0"\n[source.build]\ncommands = [["true"]]\n'
    )
    [entry] = find_allocators([str(described)])
    with pytest.raises(HeapfitError, match=r"cannot download rpmalloc-sys 99\.0\.0: .*99"):
        catalogue.install_allocator(entry, say_nothing)


def test_the_first_package_that_a_release_has_is_taken() -> None:
    assert debian.first_available(["libheapfit-nowhere", "gcc"]) == "gcc"
    assert debian.first_available(["gcc", "libheapfit-nowhere"]) == "gcc"


def test_a_user_without_the_right_to_install_is_told_the_command() -> None:
    def told_the_command() -> bool:
        try:
            debian.install(["libheapfit-nowhere"], say_nothing)
        except HeapfitError as error:
            return "run: sudo apt-get install -y libheapfit-nowhere" in str(error)
        return False

    assert as_nobody(told_the_command)


def as_nobody(work: Callable[[], bool]) -> bool:
    """Do `work` in a child process without root's rights and return what it returned."""
    child = os.fork()
    if child != 0:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    done = False
    try:
        if os.geteuid() == 0:
            os.setuid(NOBODY)
        done = work()
    finally:
        os._exit(0 if done else 1)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ('kind = "debian"', "must name a package"),
        ('kind = "crate"\npackage = "rpmalloc-sys"', "needs a version and a build table"),
        ('kind = "debain"', "'source.kind'"),
    ],
)
def test_a_source_that_says_too_little_is_explained(tmp_path: Path, source: str, said: str) -> None:
    described = tmp_path / "mine.toml"
    described.write_text(f'name = "mine"\ntitle = "Mine"\n[source]\n{source}\n')
    with pytest.raises(UsageError, match=said):
        catalogue.resolve_allocators([str(described)])


def test_a_package_is_asked_for_once_until_a_package_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asking takes as long as starting a program, and a comparison asks some forty times."""
    asked: list[list[str]] = []

    def answer(command: list[str]) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        return subprocess.CompletedProcess(command, 0, f"installed {len(asked)}.0\n", "")

    database = tmp_path / "status"
    database.touch()
    monkeypatch.setattr(debian, "run_quietly", answer)
    monkeypatch.setattr(debian, "is_used", lambda: True)
    monkeypatch.setattr(debian, "_DATABASE", database)
    assert [debian.version("libx"), debian.version("libx"), debian.version("liby")] == [
        "1.0",
        "1.0",
        "2.0",
    ]
    os.utime(database, ns=(1, 1))
    assert debian.version("libx") == "3.0"
    assert len(asked) == 3


def test_what_has_another_purpose_is_compared_only_where_it_is_named(library: Path) -> None:
    usual = {name: name for name in catalogue.load_allocators()}
    assert "heapfit-hardened" in usual
    found = named_allocators(None, usual, installed=True)
    assert {"glibc", "heapfit"} <= set(found)
    assert "heapfit-hardened" not in found
    assert named_allocators("installed", usual, installed=False) == found
    assert named_allocators("heapfit-hardened", usual, installed=True) == ["heapfit-hardened"]
