"""Allocators are found, tried out, and refused when malloc would not come from them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import shared_home
import study_files
from heapfit import catalogue
from heapfit.cli.provide import named_allocators
from heapfit.errors import HeapfitError

pytestmark = pytest.mark.full

# TCMalloc is two hundred C++ files, compiled while other tests run.
LONGEST_BUILD_S = 2400


INSTALLABLE = [
    entry.name
    for entry in catalogue.load_allocators().values()
    if entry.source.kind in ("debian", "pypi", "crate")
]


@pytest.fixture(scope="session")
def jemalloc() -> Path:
    """A real allocator's library."""
    library = shared_home.allocator("jemalloc").library
    assert library is not None
    return library


@pytest.mark.timeout(LONGEST_BUILD_S)
@pytest.mark.parametrize("name", INSTALLABLE)
def test_every_allocator_installs_and_survives_real_programs(name: str) -> None:
    installed = shared_home.allocator(name)
    assert installed.library is not None
    assert installed.library.is_file()
    assert installed.sha256 is not None
    assert catalogue.resolve_allocators([name]) == [installed]


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


@pytest.mark.gate
def test_what_a_study_sets_beside_an_allocator_is_no_path(tmp_path: Path) -> None:
    words = ["glibc", "jemalloc:env.MALLOC_CONF=narenas:2", "mine=lib.so", "own=a.so:sample=1m"]
    text = study_files.STUDY.replace('["glibc", "heapfit"]', json.dumps(words))
    file = tmp_path / "study.toml"
    file.write_text(text.replace('subject = "heapfit"', f'subject = "{words[1]}"'))
    assert catalogue.allocators_of(catalogue.resolve_study(str(file))) == [
        *words[:2],
        f"mine={tmp_path}/lib.so",
        f"own={tmp_path}/a.so:sample=1m",
    ]


def test_a_library_without_malloc_is_refused() -> None:
    zlib = next(Path("/usr/lib").glob("*-linux-gnu/libz.so.1"))
    with pytest.raises(HeapfitError, match=r"malloc comes from .*libc"):
        catalogue.resolve_allocators([f"bad={zlib}"])


def test_without_a_network_an_installation_says_so_and_leaves_nothing(
    empty_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    entry = catalogue.load_allocators()["mimalloc"]
    said = "cannot download cmeel-mimalloc==3.4.3: no package index that has it can be reached"
    with pytest.raises(HeapfitError, match=said):
        catalogue.install_allocator(entry, lambda line: None)
    assert catalogue.find_installed(entry) is None
    assert not list(empty_home.glob("allocators/*"))


def test_what_has_another_purpose_is_compared_only_where_it_is_named(library: Path) -> None:
    usual = {name: name for name in catalogue.load_allocators()}
    assert "heapfit-hardened" in usual
    found = named_allocators(None, usual, installed=True)
    assert {"glibc", "heapfit"} <= set(found)
    assert "heapfit-hardened" not in found
    assert named_allocators("installed", usual, installed=False) == found
    assert named_allocators("heapfit-hardened", usual, installed=True) == ["heapfit-hardened"]
