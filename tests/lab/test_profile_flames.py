"""Flame graphs in a profile's page: what the tree has, and what has changed between two."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import profile_tables
import pytest
from conftest import Heapfit, assert_one_line
from heapfit.names import shortened
from heapfit.profile.analyse import count, profile
from heapfit.profile.flames.tree import Tree
from heapfit.profile.page import page
from heapfit.profile.sections import flames
from heapfit.profile.tally import merged
from profile_tables import Block, SiteRow, Tables


@pytest.mark.parametrize(
    ("function", "short"),
    [
        ("main", "main"),
        ("operator new[](unsigned long)", "operator new[]"),
        ("bool operator< <char>(a<char> const&, b)", "operator< <…>"),
        ("std::ostream& operator<< <std::x>(std::ostream&, int)", "operator<< <…>"),
        ("void (anonymous namespace)::f<int>(int)", "(anonymous namespace)::f<…>"),
        ("std::function<void (int)>::operator()(int) const", "std::function<…>::operator()"),
        ("std::__cxx11::basic_string<char>::append(char const*)", "std::basic_string<…>::append"),
        ("<vec::Vec<T> as clone::Clone>::clone", "<vec::Vec<…> as clone::Clone>::clone"),
        ("qsort_r@@GLIBC_2.8", "qsort_r"),
        ("alloc::vec::Vec<T>::push::h0123456789abcdef", "alloc::vec::Vec<…>::push"),
        ("fill(int) [clone .constprop.0] [clone .cold]", "fill"),
        ("<app::List<fn(u8) -> u8>>::add::<u8>", "app::List<…>::add::<…>"),
    ],
)
def test_names_are_shortened_to_what_tells_functions_apart(function: str, short: str) -> None:
    assert shortened(function) == short


def sums(tree: Tree, measure: int, unit: str) -> Counter[tuple[str, ...]]:
    """What each stack and all that it leads to has, in plain Python."""
    total: Counter[tuple[str, ...]] = Counter()
    for node, own in enumerate(getattr(tree.measures[measure], unit)):
        path = []
        while node:
            path.insert(0, tree.names[tree.labels[node]])
            node = tree.parents[node]
        for length in range(len(path) + 1):
            total[tuple(path[:length])] += own
    return total


def site_tables(names: Sequence[str], seed: int) -> Tables:
    blocks = profile_tables.random_blocks(seed, 300, threads=1, sites=len(names))
    sites = [SiteRow(i, name, caller=i - 1) for i, name in enumerate(names, start=1)]
    return Tables(blocks, sites=sites, info={"sites": 8})


def test_traces_are_added_up_by_functions(tmp_path: Path) -> None:
    names = ["_start", "main", "work(int)", "std::vector<int>::_M_grow()"]
    folders = [
        profile_tables.write(tmp_path / f"{seed}", site_tables(names, seed)) for seed in (1, 2)
    ]
    both = profile(merged(map(count, folders)))
    blocks = [block for seed in (1, 2) for block in site_tables(names, seed).blocks]
    of_all = flames.TITLES.index("allocated in all")
    found = sums(both.flames, of_all, "bytes")
    assert found[("main", "work")] == sum(b.size for b in blocks if b.site in (3, 4))
    assert found[("_start",)] == sum(b.size for b in blocks if b.site == 1)
    assert set(found) == {(), ("_start",), ("main",), ("main", "work")}
    at_end = sums(both.flames, flames.TITLES.index("live at the end"), "blocks")
    assert at_end[()] == both.leaks.amount.objects
    at_peak = sums(both.flames, flames.TITLES.index("live at the peak"), "bytes")
    assert at_peak[()] == both.peak.amount.bytes
    assert "flames" not in both.model_dump()


def test_what_starts_a_program_is_not_in_the_graph(tmp_path: Path) -> None:
    names = ["_start", "main", "std::rt::lang_start_internal", "app::main", "_start_all",
             "alloc::raw_vec::RawVec<T,A>::grow_one"]  # fmt: skip
    tables = site_tables(names, 1)
    found = profile(count(profile_tables.write(tmp_path / "rust", tables)))
    of_all = sums(found.flames, flames.TITLES.index("allocated in all"), "bytes")
    assert of_all[("app::main", "_start_all")] == sum(b.size for b in tables.blocks if b.site > 4)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """An old and a new recording: of the same, but that the new one has a site of another name."""
    old, new = (
        profile_tables.write(tmp_path / name, site_tables(["main", name, "same"], 1))
        for name in ("old", "new")
    )
    return old, new


def test_what_has_changed_is_that_of_diff(
    run_heapfit: Heapfit, tmp_path: Path, pair: tuple[Path, Path]
) -> None:
    old, new = pair
    words = ("profile", new, "--against", old, "--allocators", "glibc")
    of_diff = run_heapfit("diff", old, new)
    printed = run_heapfit(*words, folder=tmp_path)
    assert printed.returncode == 0, printed.stderr
    assert printed.stdout == f"{of_diff.stdout}\nThe page: new.html\n"
    assert 'id="against"' in (tmp_path / "new.html").read_text()
    markdown = run_heapfit(*words, "--markdown", folder=tmp_path)
    assert markdown.stdout == run_heapfit("diff", old, new, "--markdown").stdout
    as_json = json.loads(run_heapfit(*words, "--json", folder=tmp_path).stdout)
    assert as_json["against"] == json.loads(run_heapfit("diff", old, new, "--json").stdout)
    assert as_json["profile"]["totals"]["allocations"]["objects"] == 300


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["old", "new", "--against", "old"], "one recording with another"),
        (["new", "--against", "new"], "are the same"),
        (["new", "--against", "none"], "there is no none"),
        (["new", "--markdown"], "--markdown is for what --against shows"),
        (["new", "--against", "old", "--json", "--markdown"], "--json or --markdown?"),
        (["new", "--against", "old", "--sql", "SELECT 1"], "--against or --sql?"),
    ],
)
def test_what_cannot_be_set_against_is_told(
    run_heapfit: Heapfit, tmp_path: Path, pair: tuple[Path, Path], words: list[str], said: str
) -> None:
    assert_one_line(run_heapfit("profile", *words, folder=pair[0].parent), 2, [said])


def test_without_sites_there_is_no_graph(tmp_path: Path) -> None:
    blocks = profile_tables.complete([Block(size=10, born_ns=5), Block(size=20, born_ns=6)])
    found = profile(count(profile_tables.write(tmp_path / "none", Tables(blocks))))
    assert not found.flames
    assert 'class="flames"' not in page(found)
