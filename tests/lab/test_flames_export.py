"""`heapfit trace export`: what is counted, and that pprof, of Debian's `golang-go`, reads it."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import profile_tables
import pytest
from conftest import Heapfit
from heapfit.profile.flames.export import export
from heapfit.profile.flames.formats import Format, Unit, What
from heapfit.profile.model import YOUNG_BYTES
from profile_tables import SiteRow, Tables
from viewers import pprof, pprof_top

pytestmark = pytest.mark.full

HOSTILE = ["a;b 7\nc 8", "</script><script>alert(1)</script>", "\x1b[31m\u202e", "ü 語"]
FUNCTIONS = ["main", "serve", "parse", "leak"]


def tables(names: Sequence[str] = FUNCTIONS) -> Tables:
    """A program of which each function calls the next; all but the first allocate."""
    blocks = profile_tables.random_blocks(3, 400, threads=1, sites=len(names))
    for block in blocks:
        block.site = max(block.site, 2)
    sites = [
        SiteRow(i, name, caller=i - 1, address=0x1000 * i, file="/src/x.c", line=10 * i)
        for i, name in enumerate(names, start=1)
    ]
    return Tables(blocks, sites=sites, info={"sites": 8})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return profile_tables.write(tmp_path / "program", tables())


def expected(of: Tables, what: What) -> dict[int, tuple[float, float]]:
    """Blocks and bytes by site, from the list of blocks."""
    peak, _ = profile_tables.peak_of(of.blocks)
    chosen = {
        What.LIVE_AT_PEAK: lambda b: b.born_ns <= peak and (b.died_ns is None or b.died_ns > peak),
        What.LIVE_AT_END: lambda b: b.died_ns is None,
        What.ALLOCATED: lambda b: True,
        What.SHORT_LIVED: lambda b: (
            b.died_bytes is not None and b.died_bytes - b.born_bytes < YOUNG_BYTES
        ),
    }[what]
    blocks: Counter[int] = Counter()
    size: Counter[int] = Counter()
    for block in filter(chosen, of.blocks):
        blocks[block.site] += block.weight
        size[block.site] += block.weight * block.size
    return {site: (blocks[site], size[site]) for site in blocks}


def own(of: Tables, what: What) -> dict[str, tuple[int, int]]:
    """The same by function, rounded."""
    found = expected(of, what)
    return {FUNCTIONS[site - 1]: (round(n), round(b)) for site, (n, b) in found.items()}


def written(folder: Path, made: Format, what: What, unit: Unit = Unit.BYTES) -> Path:
    path = folder.with_name(f"{what}.{unit}.{made}.json")
    path.write_bytes(export(folder, made, what, unit))
    return path


def test_sites_that_lead_in_a_circle_end(tmp_path: Path) -> None:
    of = tables()
    for site in of.sites:
        site.caller = len(of.sites)
    folder = profile_tables.write(tmp_path / "circle", of)
    assert export(folder, Format.FOLDED)


@pytest.mark.parametrize("unit", Unit)
@pytest.mark.parametrize("what", What)
def test_folded_stacks_are_a_line_each(folder: Path, what: What, unit: Unit) -> None:
    lines = written(folder, Format.FOLDED, what, unit).read_text().splitlines()
    found = {tuple(stack.split(";")): int(n) for stack, n in (x.rsplit(" ", 1) for x in lines)}
    at = list(Unit)[::-1].index(unit)
    assert found == {
        tuple(FUNCTIONS[: FUNCTIONS.index(name) + 1]): amount[at]
        for name, amount in own(tables(), what).items()
    }


def test_a_name_cannot_make_another_stack(tmp_path: Path) -> None:
    folder = profile_tables.write(tmp_path / "hostile", tables(HOSTILE))
    for line in export(folder, Format.FOLDED).decode().splitlines():
        stack, _, size = line.rpartition(" ")
        assert int(size) > 0
        assert 2 <= len(stack.split(";")) <= len(HOSTILE)
        assert stack.startswith("a:b 7\\nc 8;</script>")
        assert "\x1b" not in stack


def test_pprof_reads_all_four_types(folder: Path) -> None:
    path = written(folder, Format.PPROF, What.LIVE_AT_PEAK)
    of = tables()
    for sample, what, at in (
        ("alloc_objects", What.ALLOCATED, 0),
        ("alloc_space", What.ALLOCATED, 1),
        ("inuse_objects", What.LIVE_AT_PEAK, 0),
        ("inuse_space", What.LIVE_AT_PEAK, 1),
    ):
        found = pprof_top(path, sample)
        wanted = {name: amount[at] for name, amount in own(of, what).items()}
        assert {name: flat for name, (flat, _) in found.items() if flat} == wanted
        assert found["main"] == (0, sum(wanted.values()))


PROGRAM = """
#include <stdlib.h>
__attribute__((noinline)) void *keep(int n) { void *volatile p = malloc(1000 * n); return p; }
__attribute__((noinline)) void waste(void) { void *volatile p = malloc(50); free(p); }
int main(void)
{
    for (int i = 0; i < 100; i++) waste();
    return keep(7) == NULL;
}
"""


@pytest.mark.usefixtures("library")
def test_pprof_knows_files_lines_and_build_ids_of_a_recording(
    run_heapfit: Heapfit, tmp_path: Path
) -> None:
    program, trace, path = tmp_path / "program", tmp_path / "x.hft", tmp_path / "x.pb.gz"
    (tmp_path / "source.c").write_text(PROGRAM)
    compiler = ["cc", "-g", "-O1", "-Wl,--build-id=0x1234abcd", "-o", program, "source.c"]
    subprocess.run(compiler, cwd=tmp_path, check=True)
    recorded = run_heapfit("record", "--sites", "8", "-o", trace, "--", program)
    assert recorded.returncode == 0, recorded.stderr
    done = run_heapfit("trace", "export", trace, "--to", "pprof", "-o", path)
    assert done.returncode == 0, done.stderr
    assert (done.stdout, str(path) in done.stderr) == ("", True)
    rebuilt = [each.replace("1234abcd", "4321") for each in map(str, compiler)]
    subprocess.run(rebuilt, cwd=tmp_path, check=True)
    later = tmp_path / "later.pb.gz"
    assert run_heapfit("trace", "export", trace, "--to", "pprof", "-o", later).returncode == 0
    program.rename(tmp_path / "elsewhere")  # all that is told stands in the file
    assert "Build ID: 1234abcd" in pprof(later, "-top")
    assert "waste" not in pprof_top(later, "alloc_objects")  # what is there now is another program
    assert "Build ID: 1234abcd" in pprof(path, "-top")
    found = pprof_top(path, "alloc_objects")
    assert (found["waste"][0], found["keep"][0], found["main"][1]) == (100, 1, 101)
    assert pprof_top(path, "inuse_space")["keep"] == (7000, 7000)
    raw = pprof(path, "-raw")
    assert f"keep {tmp_path}/source.c:3:" in raw
    assert f"{program} 1234abcd [FN][FL][LN][IN]" in raw


def test_speedscopes_file_has_the_blocks_of_each_function(folder: Path) -> None:
    made = json.loads(export(folder, Format.SPEEDSCOPE, What.ALLOCATED, Unit.BLOCKS))
    names = [each["name"] for each in made["shared"]["frames"]]
    profile = made["profiles"][made["activeProfileIndex"]]
    found: Counter[str] = Counter()
    for stack, weight in zip(profile["samples"], profile["weights"], strict=True):
        found[names[stack[-1]]] += weight
    assert found == {name: n for name, (n, _) in own(tables(), What.ALLOCATED).items()}


def test_perfettos_file_names_the_functions(folder: Path) -> None:
    made = export(folder, Format.PERFETTO)
    assert all(name.encode() in made for name in FUNCTIONS)
