"""`heapfit why`: programs whose memory is mostly of one kind, seen from outside."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import Heapfit
from heapfit.live import pinners
from heapfit.live.profile import profile
from heapfit.live.records import ProfileAnswer, ProfileSample, ProfileSite
from heapfit.why import grown, read
from heapfit.why.findings import findings
from heapfit.why.limits import group_of
from heapfit.why.maps import parse

SOURCE = Path(__file__).parent / "why_program.c"
PYTHON = "kept = [str(i) for i in range(400_000)]; print('there', flush=True); input()"
KINDS = ("malloc", "mapped", "arenas", "stacks", "variables", "shared", "shared_anonymous",
         "files", "jit")  # fmt: skip


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("why") / "why_program"
    subprocess.run(["gcc", "-O1", "-pthread", SOURCE, "-o", made], check=True)
    return made


@contextmanager
def running(*words: object, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """The program, as soon as its memory is there."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    command = [str(each) for each in words]
    with subprocess.Popen(command, env=os.environ | environment, **pipes) as started:  # type: ignore[call-overload]
        try:
            assert started.stdout.readline() == b"there\n"
            yield started
        finally:
            started.kill()


@pytest.mark.parametrize("kind", KINDS)
def test_what_holds_the_memory_comes_first(program: Path, kind: str, tmp_path: Path) -> None:
    with running(program, kind, tmp_path / "file") as started:
        reading = read(started.pid)
    first, *others = findings(reading)
    assert first.cause == kind.partition("_")[0]
    assert first.size > 0.8 * reading.resident
    assert sum(each.size for each in (first, *others) if not each.of_all) == reading.resident


def test_what_is_named_is_what_runs(program: Path, library: Path) -> None:
    with running(program, "arenas", MALLOC_ARENA_MAX="16") as started:
        reading = read(started.pid)
    [arenas, *_] = findings(reading)
    assert reading.allocator is not None
    assert reading.allocator.name == "glibc"
    assert reading.allocator.version.startswith("2.")
    assert "9 threads" in arenas.sentence
    assert "MALLOC_ARENA_MAX is 16" in arenas.sentence
    with running(program, "malloc", LD_PRELOAD=str(library)) as started:
        [heap, *_] = findings(read(started.pid))
    assert (heap.cause, heap.title) == ("heapfit", "heapfit's heap")


def test_the_call_site_that_pins_most_is_named_first(
    program: Path, library: Path, run_heapfit: Heapfit
) -> None:
    preload = {"LD_PRELOAD": str(library)}
    with running(program, "pinned", **preload, HEAPFIT_OPTIONS="control:on,sample:64k") as started:
        said = run_heapfit("why", str(started.pid))
        told = json.loads(run_heapfit("why", str(started.pid), "--json").stdout)
    assert told["pinners"][0]["calls"][0].startswith("site_sparse")
    [pinned] = [each for each in told["findings"] if each["cause"] == "pinned"]
    assert re.search(
        r"samples\) is pinned by [\d.]+ MiB of objects that site_sparse", pinned["sentence"]
    )
    assert "site_dense" not in pinned["sentence"]
    assert not pinned["commands"]
    assert "site_sparse" in said.stdout
    with running(program, "pinned", **preload, HEAPFIT_OPTIONS="control:on") as started:
        said = run_heapfit("why", str(started.pid))
    assert f"→ heapfit ctl {started.pid} set sample=512k" in said.stdout


def test_sites_with_too_few_samples_are_not_named() -> None:
    site = "/usr/bin/program+0x10"

    def sentences(*pinned: tuple[int, int]) -> list[str]:
        """Of sites with so many samples, each of which pins so much."""
        numbers = range(len(pinned))
        samples = [
            ProfileSample(site=number, bytes=64, mean=64, pinned=pinned[number][1])
            for number in numbers
            for _ in range(pinned[number][0])
        ]
        sites = [ProfileSite(site=number, calls=[f"{site}{number}"]) for number in numbers]
        return pinners.told(profile(ProfileAnswer(mean=64, samples=samples, sites=sites)))

    [first, second] = sentences((2, 500), (3, 1000))
    assert "from 3 samples" in first
    assert "from 2 samples" in second
    assert not sentences((1, 5000), (3, 1000))


def test_a_runtimes_objects_are_not_mallocs() -> None:
    with running(sys.executable, "-c", PYTHON) as started:
        reading = read(started.pid)
    assert reading.runtime == "python"
    [first, *_] = findings(reading)
    assert first.cause == "python"
    assert "PYTHONMALLOC=malloc" in first.sentence


@pytest.mark.full
def test_zeros_in_huge_pages_are_told(program: Path) -> None:
    with running(program, "huge_pages") as started:
        reading = read(started.pid)
    if not reading.huge:
        pytest.skip("the kernel gives no huge pages here")
    [first, *_] = findings(reading)
    assert first.cause == "huge_pages"


def test_what_grows_between_two_looks_comes_first(program: Path) -> None:
    with running(program, "stacks") as started:
        before = read(started.pid)
        assert started.stdin is not None
        started.stdin.write(b"x")
        started.stdin.flush()
        while grown(before, after := read(started.pid))[0].gained < 60 << 20:
            pass
    [first, *_] = grown(before, after)
    assert first.key == "malloc"


def test_the_command_says_it_in_words_and_in_json(program: Path, run_heapfit: Heapfit) -> None:
    with running(program, "arenas") as started:
        said = run_heapfit("why", str(started.pid))
        told = run_heapfit("why", str(started.pid), "--json")
    assert said.returncode == told.returncode == 0, said.stderr
    assert "glibc's arenas of threads" in said.stdout
    assert "→ MALLOC_ARENA_MAX=2" in said.stdout
    found = json.loads(told.stdout)
    assert found["findings"][0]["cause"] == "arenas"
    assert found["findings"][0]["evidence"]


def test_without_a_process_the_largest_are_listed(run_heapfit: Heapfit) -> None:
    listed = json.loads(run_heapfit("why", "--json").stdout)
    sizes = [each["resident"] for each in listed]
    assert sizes
    assert sizes == sorted(sizes, reverse=True)


def test_what_cannot_be_read_is_said(run_heapfit: Heapfit) -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
        assert f"there is no process {ended.pid}" in run_heapfit("why", str(ended.pid)).stderr
    assert "is not a process ID" in run_heapfit("why", "nginx").stderr


def test_hostile_names_are_names() -> None:
    lines = [b"1000-2000 rw-p 00000000 00:00 7 /a b\\n: Rss: 9 kB (deleted)\n", b"Rss: 4 kB\n"]
    [mapping] = parse(lines)
    assert mapping.path == "/a b\\n: Rss: 9 kB (deleted)"
    assert mapping.resident == 4096


@pytest.mark.parametrize("version", [1, 2])
def test_the_nearest_limit_of_a_group_counts(tmp_path: Path, version: int) -> None:
    top = tmp_path / "sys/fs/cgroup" / ("memory" if version == 1 else "")
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache")
    limit, used, cache = names if version == 1 else ("memory.max", "memory.current", "file")
    for folder, most in ((top / "a", "1000"), (top / "a/b", "max" if version == 2 else "4000")):
        folder.mkdir(parents=True)
        (folder / limit).write_text(most)
        (folder / used).write_text("900")
        (folder / "memory.stat").write_text(f"{cache} 300\nother 1\n")
    line = "5:memory:/a/b" if version == 1 else "0::/a/b"
    found = group_of(["3:cpu:/x", line], tmp_path)
    assert found is not None
    assert (found.limit, found.used, found.file) == (1000, 900, 300)
