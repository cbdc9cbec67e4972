"""`heapfit allocators`: what the catalogue knows and what this machine has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Heapfit

pytestmark = pytest.mark.full


def test_the_list_as_json_says_what_is_installed(run_heapfit: Heapfit) -> None:
    entries = {
        each["name"]: each for each in json.loads(run_heapfit("allocators", "--json").stdout)
    }
    assert entries["glibc"]["installed"]["library"] is None
    assert entries["glibc"]["installed"]["version"].startswith("2.")


def test_installing_from_a_package_index_makes_it_usable(
    run_heapfit: Heapfit, empty_home: Path
) -> None:
    empty = {"HEAPFIT_HOME": str(empty_home)}
    result = run_heapfit("allocators", "install", "mimalloc", "--json", environment=empty)
    assert result.returncode == 0, result.stderr
    [installed] = json.loads(result.stdout)
    assert installed["library"].endswith("/allocators/mimalloc/libmimalloc.so")
    again = run_heapfit("allocators", "install", "mimalloc", environment=empty)
    assert again.returncode == 0
    assert "downloading" not in again.stderr


def test_without_names_everything_that_a_registry_has_is_wanted(
    run_heapfit: Heapfit, tmp_path: Path
) -> None:
    """Where nothing can be written, each that would have to be fetched is told, and no other."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    result = run_heapfit(
        "allocators",
        "install",
        environment={
            "HEAPFIT_HOME": str(blocked),
            "CARGO_HTTP_PROXY": "127.0.0.1:9",
            "CARGO_HOME": str(tmp_path),
            "CARGO_NET_RETRY": "0",
        },
    )
    assert result.returncode == 1
    wanted = {
        *("dlmalloc", "google-tcmalloc", "hardened-malloc", "hardened-malloc-light", "hoard"),
        *("mimalloc", "mimalloc-secure", "rpmalloc", "snmalloc", "tlsf"),
    }
    summary = result.stderr.splitlines()[-1]
    assert "could not be installed" in summary
    told = {name.strip() for name in summary.rpartition(":")[2].split(",")}
    assert {name for name in told if not name.startswith("heapfit")} == wanted
    for name in ("glibc", "jemalloc", "tcmalloc"):  # These are there, and the others do not hinder.
        assert f"\n{name} " in f"\n{result.stdout}"
