"""Live heap profiles of programs of which it is known what they hold, and who pins free memory."""

from __future__ import annotations

import io
import json
import re
import subprocess
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import viewers
from conftest import Heapfit, heapfit_command
from heapfit.cli import output, profile_tables
from heapfit.export import openmetrics
from heapfit.host.proc import present
from heapfit.live import Client, Ledger
from heapfit.live.profile import OLD_S, estimate, profile
from heapfit.live.records import LedgerRow, ProfileAnswer, ProfileSample, ProfileSite
from rich.console import Console

pytestmark = pytest.mark.full

HERE = Path(__file__).resolve().parent
KIB = 1 << 10
ROUNDS = 100
# As in profile_program.c: bytes of a block, and how many.
OBJECTS = {
    "site_0": (32, 60000),
    "site_1": (112, 15000),
    "site_2": (512, 6000),
    "site_3": (3072, 700),
    "site_4": (20480, 100),
    "site_5": (262144, 12),
}


Start = Callable[..., subprocess.Popen[str]]


def hear(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    return program.stdout.readline().strip()


@pytest.fixture
def start(clean_environment: dict[str, str], tmp_path: Path) -> Iterator[Start]:
    """Starts a program under heapfit so that it can be asked; all are ended after the test."""
    running: list[subprocess.Popen[str]] = []

    def started(source: str, *arguments: str, options: str) -> subprocess.Popen[str]:
        program = tmp_path / Path(source).stem
        command = ["gcc", "-O2", "-g", "-pthread", "-o", program, HERE / source]
        subprocess.run(command, check=True)
        process = subprocess.Popen(
            heapfit_command("run", "--control", "--", program, *arguments),
            env={**clean_environment, "HEAPFIT_OPTIONS": options},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process

    yield started
    for process in running:
        process.kill()
        process.communicate()


def test_the_ledger_says_who_pins_how_much_and_for_how_long(
    run_heapfit: Heapfit, start: Start
) -> None:
    program = start("pinning_program.c", "1", options="sample:1k")
    culprit = hear(program)
    pid = str(program.pid)
    found = json.loads(run_heapfit("ctl", pid, "ledger", "--json").stdout)
    first = found["pinners"][0]
    assert first["calls"][0].startswith(f"{culprit} (pinning_program.c:")
    assert first["older_than_ten_minutes"] == 0
    assert 0 <= first["median_age_s"] < OLD_S
    in_causes = {each["cause"]: each["resident"] for each in found["causes"]}
    told = sum(each["pinned"]["estimate"] for each in found["pinners"])
    assert told == pytest.approx(in_causes["pinned"], rel=0.35)
    shown = " ".join(run_heapfit("ctl", pid, "ledger").stdout.split())
    sentence = (
        r"About [\d.]+ MiB of free memory \([\d.]+ MiB to [\d.]+ MiB, from \d+ samples\) "
        r"is pinned by "
        r"[\d.]+ [KM]iB of objects "
        rf"that {culprit} \(pinning_program.c:\d+\) allocates\."
    )
    assert re.search(sentence, shown)


def test_what_is_no_threads_has_a_row_behind_those_of_threads() -> None:
    rows = [
        LedgerRow(cause="live", in_heap=True, resident=8192),
        LedgerRow(cause="live", in_heap=True, heap=3, thread=7, resident=4096),
        LedgerRow(cause="file", in_heap=False, resident=4096),
    ]
    found = Ledger(rows, complete=True).threads()
    assert [(each.heap, each.resident) for each in found] == [
        (3, {"live": 4096}),
        (-1, {"live": 8192}),
    ]


def test_the_intervals_hold_what_there_is(start: Start) -> None:
    program = start("profile_program.c", options="sample:64k")
    assert hear(program) == "ready"
    total = sum(size * count for size, count in OBJECTS.values())
    held: Counter[bool] = Counter()
    sums: Counter[int] = Counter()
    rounds = ROUNDS
    for _ in range(rounds):
        samples = Client(program.pid).samples().samples
        for size, count in OBJECTS.values():
            assert size * count > total / 100
            of_site = [each for each in samples if each.bytes == size]  # no other has this size
            told = estimate(of_site, lambda each: each.bytes)
            held[told.low <= size * count * (1 + 1e-9) and told.high >= size * count] += 1
            sums[size] += round(told.value)
        assert program.stdin is not None
        program.stdin.write("again\n")
        program.stdin.flush()
        assert hear(program) == "ready"
    assert held[True] / held.total() >= 0.925, held  # 0.95, and some standard errors of 600
    for size, count in OBJECTS.values():
        # Five standard errors of the mean of so many rounds.
        error = (64 * KIB / (size * count * rounds)) ** 0.5
        assert sums[size] / rounds == pytest.approx(size * count, rel=5 * error + 1e-6), size


@pytest.mark.parametrize("width", [60, 160])
def test_a_call_site_has_room_in_a_terminal_of_any_width(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = [ProfileSample(site=1, bytes=64, mean=6400, age_ms=1000)]
    calls = [ProfileSite(site=1, calls=["/usr/lib/libapplication-framework.so.6+0x12345"])]
    found = profile(ProfileAnswer(mean=6400, samples=samples, sites=calls))
    printed = io.StringIO()
    for module in (output, profile_tables):
        monkeypatch.setattr(module, "results", Console(file=printed, width=width))
    profile_tables.show_profile(found)
    lines = printed.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert "live, of objects allocated since the option sample was set" in lines[0] + lines[1]
    name = found.sites[0].name
    assert len(name) > 30
    assert any(name in line for line in lines)
    assert any(line.strip() == name for line in lines) == (width < 100)


def test_pprof_reads_the_profile_from_a_file_and_over_http(
    run_heapfit: Heapfit, start: Start, tmp_path: Path
) -> None:
    program = start("profile_program.c", options="sample:16k")
    hear(program)
    path, folded = tmp_path / "heap.pb.gz", tmp_path / "heap.folded"
    words = ["--pprof", path, "--folded", folded, "--json"]
    told = json.loads(run_heapfit("ctl", str(program.pid), "profile", *words).stdout)
    assert_same(told, viewers.pprof_top(path, "inuse_space"), "bytes")
    assert_same(told, viewers.pprof_top(path, "inuse_objects"), "blocks")
    lines = [line.rpartition(" ") for line in folded.read_text().splitlines()]
    in_lines = {stack.split(";")[-1]: int(size) for stack, _, size in lines}
    assert in_lines == {stack: flat for stack, (flat, _) in top_flat(path).items()}
    printed = run_heapfit("ctl", str(program.pid), "profile", "--folded", "-", folder=tmp_path)
    assert [line.rpartition(" ")[0] for line in printed.stdout.splitlines()] == [
        stack for stack, _, _ in lines
    ]

    with served([program.pid]) as address:
        at = f"{address}/debug/pprof/heap"
        over = viewers.pprof(f"{at}?pid={program.pid}", "-top", "-sample_index=inuse_space")
        assert re.search(r"MB .* site_4", over)
        assert "heapfit_live_bytes" in read(f"{address}/metrics")
        assert "site" not in read(f"{address}/metrics")


def top_flat(path: Path) -> dict[str, tuple[int, int]]:
    """Without what the compiler has inlined being marked so."""
    top = viewers.pprof_top(path, "inuse_space")
    return {name.removesuffix(" (inline)"): each for name, each in top.items() if each[0]}


def assert_same(told: dict[str, object], top: dict[str, tuple[int, int]], what: str) -> None:
    sites = told["sites"]
    assert isinstance(sites, list)
    sums: Counter[str] = Counter()
    for each in sites:
        sums[re.split(r"\W", each["calls"][0])[0]] += each[what]["estimate"]
    for name in OBJECTS:
        assert top[name][0] == pytest.approx(sums[name], rel=0.001)
        assert top["main"][1] >= top[name][0]


@contextmanager
def served(pids: list[int]) -> Iterator[str]:
    server, thread = openmetrics.serve(lambda: map(present, pids), "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def read(address: str) -> str:
    with urllib.request.urlopen(address) as answer:
        return answer.read().decode()
