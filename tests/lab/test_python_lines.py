"""Recordings of Python programs: call sites are the program's lines, not the interpreter's loop.

Of each version that the recorder knows, as far as one is installed: Debian's, and those of pyenv.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from conftest import Heapfit
from engine_helpers import compiled
from heapfit.trace.convert import convert
from heapfit.trace.native import Reader
from heapfit.trace.sites import parse_mappings

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("library")]

DEBIANS = Path("/usr/bin/python3.11")


def pythons(*minors: int) -> list[Any]:
    """The interpreters of these versions, Debian's first."""
    found = [DEBIANS] if 11 in minors else []
    for minor in minors:
        found += sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python3.{minor}"))
    return [pytest.param(each, id="-".join(each.parts[-3::2])) for each in found if each.exists()]


PROGRAM = """\
class Shop:
    def __init__(self):
        self.kept = []

    def open_session(self, number):
        self.kept.append(
            bytearray(10_001)
        )

    def index(self):
        for number in range(200):
            self.open_session(number)


def through_c():
    return sorted(range(50), key=lambda number: bytes(3_001))


def generate():
    for number in range(100):
        yield bytearray(7_001)


def deep(levels):
    return deep(levels - 1) if levels else bytearray(90_001)


def without_its_lock():
    import zlib

    return zlib.compress(b"x" * 100_000)


def in_threads():
    import threading

    threads = [threading.Thread(target=generate_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def generate_all():
    return list(generate())


def gone(number):
    made = {}
    text = chr(10) * (number % 7) + f"def made_{number}(): return bytearray(5_001)"
    exec(compile(text, f"made_{number}.py", "exec"), made)
    return made[f"made_{number}"]()


shop = Shop()
shop.index()
through_c()
in_threads()
kept = [deep(500), without_its_lock()]
kept += [gone(number) for number in range(300)]
del kept
"""


def line_of(text: str) -> int:
    return next(at for at, line in enumerate(PROGRAM.splitlines(), 1) if text in line)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(PROGRAM)
    return tmp_path / "shop.py"


def record(run_heapfit: Heapfit, folder: Path, *words: str | Path) -> Path:
    result = run_heapfit("record", "-o", folder / "t.hft", *words)
    assert result.returncode == 0, result.stderr
    return folder / "t.hft"


def tables(trace: Path) -> tuple[dict[int, dict[str, Any]], list[dict[str, Any]]]:
    import pyarrow.parquet as pq

    folder = trace.with_suffix("")
    convert(trace, folder)
    sites = {each["site"]: each for each in pq.read_table(folder / "sites.parquet").to_pylist()}
    objects = pq.read_table(folder / "objects.parquet", columns=["size", "site"]).to_pylist()
    shutil.rmtree(folder)
    return sites, objects


def lines(sites: dict[int, dict[str, Any]], site: int) -> list[str]:
    """The Python lines of a chain, the innermost first: FILE:LINE FUNCTION."""
    found = []
    while site:
        row = sites[site]
        if row["module"] is not None and row["module"] == row["file"]:
            found.append(f"{Path(row['file']).name}:{row['line']} {row['function']}")
        site = row["caller"]
    return found


def shop_chains(trace: Path) -> Counter[tuple[str, ...]]:
    sites, objects = tables(trace)
    return Counter(tuple(lines(sites, each["site"])) for each in objects if each["size"] > 3_000)


SESSION = (
    f"shop.py:{line_of('bytearray(10_001)')} Shop.open_session",
    f"shop.py:{line_of('self.open_session(number)')} Shop.index",
    f"shop.py:{line_of('shop.index()')} <module>",
)


@pytest.mark.parametrize("python", pythons(11, 12, 13))
def test_each_object_has_the_lines_that_led_to_it(
    run_heapfit: Heapfit, tmp_path: Path, shop: Path, python: Path
) -> None:
    found = shop_chains(record(run_heapfit, tmp_path, "--", python, shop))
    assert found[SESSION] == 200
    key, call = line_of("lambda number"), PROGRAM.splitlines().index("through_c()") + 1
    through_c = (f"shop.py:{key} through_c.<locals>.<lambda>", f"shop.py:{key} through_c")
    assert found[*through_c, f"shop.py:{call} <module>"] == 50
    del found[()]  # what reads the program's file, before any line runs
    generated = [each for each in found if each[0].endswith(" generate")]
    assert sum(found[each] for each in generated) == 400
    for chain in generated:
        assert chain[0] == f"shop.py:{line_of('yield bytearray')} generate"
        assert chain[1] == f"shop.py:{line_of('return list(generate())')} generate_all"
        assert chain[2].endswith("Thread.run")
    assert found[(f"shop.py:{line_of('def deep') + 1} deep",) * 8] >= 1
    unlocked = f"shop.py:{line_of('zlib.compress')} without_its_lock"
    assert any(each[0] == unlocked for each in found)


def test_lines_go_along_with_a_part_of_a_trace_and_with_others_but_not_without_names(
    run_heapfit: Heapfit, tmp_path: Path, shop: Path
) -> None:
    trace = record(run_heapfit, tmp_path, "--", DEBIANS, shop)
    whole, merged, bare = (tmp_path / name for name in ("cut.hft", "merged.hft", "bare.hft"))
    run_heapfit("trace", "cut", trace, "--from", "1us", "-o", whole)
    (tmp_path / "other").mkdir()
    other = record(run_heapfit, tmp_path / "other", "--", DEBIANS, shop)
    run_heapfit("trace", "merge", other, whole, "-o", merged)
    run_heapfit("trace", "anonymise", trace, "-o", bare)
    assert shop_chains(whole)[SESSION] == 200
    assert shop_chains(merged)[SESSION] == 400
    with Reader(bare) as reader:
        for _ in reader.events(1 << 16):
            pass
        assert not parse_mappings(reader.modules)


LATE_LEAK = """
#include <stdlib.h>
#include <unistd.h>
static void *kept[60000];
__attribute__((noinline)) static void leak(int i) { kept[i] = malloc(100); }
int main(void)
{
    for (int i = 0; i < 200000; i++) free(malloc(40));
    for (int i = 0; i < 60000; i++) leak(i);
    usleep(2000000);
    return kept[59999] == NULL;
}
"""


def test_a_leak_that_begins_late_and_is_followed_by_idle_time_is_named(
    run_heapfit: Heapfit, tmp_path: Path
) -> None:
    """It was told that nothing had grown: all of it was young, as what turns over is."""
    program = compiled(tmp_path / "p", LATE_LEAK, "-g")
    trace = record(run_heapfit, tmp_path, "--", program)
    result = run_heapfit("profile", "--json", trace, folder=tmp_path)
    found = json.loads(result.stdout)["advice"]["end"]
    assert found["act"]
    assert found["sentence"].startswith("leak (<stdin>:5)")
