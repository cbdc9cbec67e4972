"""`heapfit profile`: files here or on a cluster, queries, and what goes wrong."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import profile_tables
import pytest
from conftest import Heapfit, assert_one_line
from engine_helpers import compiled
from heapfit.cli.profile import _default_page
from heapfit.errors import UsageError
from heapfit.profile import cluster, files
from heapfit.profile.sql import asked
from heapfit.profile.tally import merged
from heapfit.trace.schema import FILES, MEANINGS
from profile_tables import SiteRow, Tables, write
from test_cluster import Fleet, fleet
from trace_data import Answers, sampled, service

pytestmark = pytest.mark.full

__all__ = ["fleet"]


def trace(folder: Path, seed: int = 1) -> Path:
    blocks = profile_tables.random_blocks(seed, 500, threads=2, sites=1)
    sites = [SiteRow(1, "make", switches=9)]
    return write(folder, Tables(blocks, threads=("main", "io"), sites=sites, info={"sites": 1}))


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    return [trace(tmp_path / f"trace{seed}", seed) for seed in range(5)]


@pytest.mark.gate
def test_a_profile_is_printed_and_its_page_written(run_heapfit: Heapfit, tmp_path: Path) -> None:
    folder = trace(tmp_path / "service")
    done = run_heapfit("profile", folder, "--allocators", "glibc", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "program held at most 12.6 MiB" in done.stdout
    assert "service.html" in done.stdout
    assert (tmp_path / "service.html").read_text().startswith("<!")


def test_a_page_takes_the_place_of_an_earlier_one_but_of_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "index.html").write_text("<h1>my site</h1>")
    assert _default_page("index") == Path("index-2.html")
    (tmp_path / "index.html").write_text('<meta name="generator" content="heapfit 0.1.0">')
    assert _default_page("index") == _default_page("index") == Path("index.html")
    os.mkfifo("pipe.html")
    Path("folder.html").mkdir()
    Path("another.html").touch(mode=0o200)
    for name in ("pipe", "folder", "another"):
        assert _default_page(name) == Path(f"{name}-2.html")
    assert _default_page("new") == Path("new.html")


@pytest.mark.usefixtures("library")
def test_a_recording_is_converted_first(run_heapfit: Heapfit, tmp_path: Path) -> None:
    program = service(requests=20)
    path = program.write(tmp_path / "service.hft")
    totals = Answers(program.calls).totals
    words = ("--json", "--keep", tmp_path / "tables", "--allocators", "glibc")
    done = run_heapfit("profile", path, *words, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    profile = json.loads(done.stdout)["profile"]
    assert profile["totals"]["allocations"]["objects"] == totals.allocations
    assert profile["peak"]["amount"]["bytes"] == totals.peak_bytes
    assert profile["leaks"]["amount"]["bytes"] == totals.end_bytes
    again = run_heapfit("profile", "tables", "--json", "--allocators", "glibc", folder=tmp_path)
    assert json.loads(again.stdout)["profile"] == profile


@pytest.mark.usefixtures("library")
@pytest.mark.gate
def test_a_program_is_recorded_first(run_heapfit: Heapfit, tmp_path: Path) -> None:
    code = (
        "#include <stdlib.h>\n#include <stdio.h>\n"
        'int main(void) { for (int i = 0; i < 1000; i++) free(malloc(777)); puts("done"); }'
    )
    program = compiled(tmp_path / "program", code, "-O0")
    words = ("--json", "--keep", tmp_path / "kept", "--page", tmp_path / "page.html")
    done = run_heapfit("profile", *words, "--allocators", "glibc", "--", program)
    assert done.returncode == 0, done.stderr
    assert "done" in done.stderr
    [distribution] = json.loads(done.stdout)["profile"]["sizes"]["programs"]
    counts = {each["size"]: each["amount"]["objects"] for each in distribution["frequent"]}
    assert (distribution["name"], counts[777]) == ("program", 1000)
    [recording] = (tmp_path / "kept").glob("*.hft")
    assert (tmp_path / "kept" / recording.stem / "objects.parquet").is_file()
    # What starts it has a recording of its own.
    options = ("--against", recording, "--page", tmp_path / "page.html", "--keep", tmp_path / "new")
    done = run_heapfit("profile", *options, "--", "env", "A=1", program)
    assert done.returncode == 0, done.stderr
    [main], [other] = ((tmp_path / "new").glob(f"*.hft{end}") for end in ("", ".1"))
    assert f"only the program itself is compared, without {other.name}" in done.stderr
    assert f"new: {main}" in done.stdout


@pytest.mark.usefixtures("library")
def test_a_program_that_was_rebuilt_since_is_told_of(run_heapfit: Heapfit, tmp_path: Path) -> None:
    program, source = tmp_path / "program", tmp_path / "program.c"
    source.write_text("#include <stdlib.h>\nint main(void) { return malloc(99) == NULL; }\n")
    build = ["cc", "-g", "-O0", source, "-o", program]
    subprocess.run(build, check=True)
    recorded = run_heapfit("record", "--out", tmp_path / "p.hft", "--", program)
    assert recorded.returncode == 0, recorded.stderr
    words = ("profile", tmp_path / "p.hft", "--page", tmp_path / "p.html", "--allocators", "glibc")
    assert "changed after" not in run_heapfit(*words).stdout
    subprocess.run(build, check=True)
    assert "changed after" not in run_heapfit(*words).stdout  # It is the same, only written later.
    source.write_text(source.read_text().replace("main(void) {", "main(void) {\n"))
    before = program.stat()
    subprocess.run(build, check=True)
    os.utime(program, ns=(before.st_atime_ns, 0))  # as a package that is unpacked has it
    said = " ".join(run_heapfit(*words).stdout.split())
    assert "program changed after the recording began" in said


def test_a_recording_that_ended_before_its_program_is_told_of(
    run_heapfit: Heapfit, tmp_path: Path
) -> None:
    folder = trace(tmp_path / "service")
    words = ("profile", folder, "--page", tmp_path / "p.html", "--allocators", "glibc")
    assert "ended before" not in run_heapfit(*words).stdout
    summary = json.loads((folder / "summary.json").read_text())
    summary["end"] = {"reason": "the disk is full"}
    (folder / "summary.json").write_text(json.dumps(summary))
    said = " ".join(run_heapfit(*words).stdout.split())
    assert "The recording ended before the program did (the disk is full)" in said


def test_an_answer_of_any_length_is_read_as_it_comes(tmp_path: Path) -> None:
    """The first row of what would be far more than this machine's memory."""
    folder = trace(tmp_path / "service")
    with asked([folder], "SELECT a.range FROM range(1000000000) a, range(1000) b") as found:
        columns, rows = found
        assert (columns, next(rows)) == (["range"], (0,))


@pytest.mark.gate
def test_a_statement_without_rows_is_run_and_no_statement_refused(tmp_path: Path) -> None:
    folder = trace(tmp_path / "service")
    with asked([folder], "SET threads=1; -- and no more") as (columns, rows):
        assert (len(columns), [*rows]) == (1, [])
    with pytest.raises(UsageError, match="there is no query"), asked([folder], " ; -- none"):
        pass


@pytest.mark.gate
def test_an_unknown_table_is_told_from_those_that_there_are(tmp_path: Path) -> None:
    folder = trace(tmp_path / "service")
    with (
        pytest.raises(
            UsageError, match="nosuch does not exist; there are objects, memory, threads, flow and"
        ),
        asked([folder], "SELECT * FROM nosuch"),
    ):
        pass


@pytest.mark.gate
def test_the_reference_says_what_each_column_is(tmp_path: Path) -> None:
    assert {name: [*columns] for name, columns in MEANINGS.items()} == {
        name: table.names for name, table in FILES.items()
    }
    with asked([trace(tmp_path / "service")], "DESCRIBE objects") as (_, rows):
        assert [row[0] for row in rows] == ["recording", *MEANINGS["objects"]]


@pytest.mark.gate
def test_an_answer_of_a_sample_says_so(run_heapfit: Heapfit, tmp_path: Path) -> None:
    made = service(20).write(tmp_path / "all.hft")
    noted = sampled(service(20), 4096).write(tmp_path / "sample.hft")
    query = ["--sql", "SELECT sum(size) FROM objects"]
    assert "sum(weight * size)" not in run_heapfit("profile", made, *query).stderr
    assert "sum(weight * size)" in run_heapfit("profile", noted, *query).stderr
    scaled = ["--sql", "SELECT sum(weight * size) FROM objects"]
    assert "sample" not in run_heapfit("profile", noted, *scaled).stderr


def test_a_table_has_the_first_rows_and_json_and_csv_have_all(
    run_heapfit: Heapfit, tmp_path: Path
) -> None:
    folder = trace(tmp_path / "service")
    query = ["profile", folder, "--sql", "SELECT range AS n FROM range(1200)"]
    shown = run_heapfit(*query)
    assert "1,200 rows; these are the first 1,000" in shown.stderr
    assert "1199" not in shown.stdout
    assert run_heapfit(*query, "--csv").stdout.split() == ["n", *map(str, range(1200))]
    assert json.loads(run_heapfit(*query, "--json").stdout)[-1] == {"n": 1199}
    nothing = [*query[:-1], "SELECT 1 AS n WHERE false", "--json"]
    assert json.loads(run_heapfit(*nothing).stdout) == []


def test_a_name_from_outside_is_spelled_out_in_a_table_and_whole_elsewhere(
    run_heapfit: Heapfit, tmp_path: Path
) -> None:
    """Beside a name that is no danger, which stays as it is."""
    query = ["profile", trace(tmp_path / "service"), "--sql"]
    query += ["SELECT 'a' || chr(27) || '[31m' || chr(10) || 'b' AS n, 'häp' AS m"]
    shown = run_heapfit(*query)
    assert shown.stdout.splitlines()[1].split() == [r"a\x1b[31m\nb", "häp"]
    assert run_heapfit(*query, "--csv").stdout == 'n,m\n"a\x1b[31m\nb",häp\n'
    assert json.loads(run_heapfit(*query, "--json").stdout) == [{"n": "a\x1b[31m\nb", "m": "häp"}]


def test_an_answer_with_two_columns_of_one_name_is_not_printed_as_json_with_one(
    run_heapfit: Heapfit, tmp_path: Path
) -> None:
    endless = "SELECT 'nan'::DOUBLE AS n, 'inf'::DOUBLE AS i, 0.5::DOUBLE AS h"
    shown = run_heapfit("profile", trace(tmp_path / "of"), "--sql", endless, "--json").stdout
    assert json.loads(shown, parse_constant=pytest.fail) == [{"n": None, "i": None, "h": 0.5}]
    query = ["profile", trace(tmp_path / "service"), "--sql", "SELECT 1 AS a, 2 AS a"]
    assert run_heapfit(*query, "--csv").stdout == "a,a\n1,2\n"
    assert_one_line(run_heapfit(*query, "--json"), 2, ["two columns are called a", "AS"])
    query[-1] = "SELECT 1 AS a, 2 AS b"
    assert json.loads(run_heapfit(*query, "--json").stdout) == [{"a": 1, "b": 2}]


@pytest.fixture
def two_workers(fleet: Fleet) -> Fleet:
    fleet.add("one")
    fleet.add("two")
    return fleet


@pytest.mark.full
def test_on_two_workers_the_profile_is_the_same_to_the_last_digit(
    run_heapfit: Heapfit, two_workers: Fleet, tmp_path: Path, folders: list[Path]
) -> None:
    words = ["--json", "--page", tmp_path / "page.html", "--allocators", "glibc"]
    recording = service(requests=20).write(tmp_path / "service.hft")
    here = run_heapfit("profile", *folders, recording, *words)
    there = run_heapfit("profile", *folders, recording, *words, "--on", two_workers.address)
    assert there.returncode == 0, there.stderr
    assert there.stdout == here.stdout


@pytest.mark.full
def test_a_lost_worker_loses_nothing(
    two_workers: Fleet, folders: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[str] = []

    def lose_one(done: int, total: int, name: str) -> None:
        if not lost:
            lost.append(name)
            two_workers.kill("one")

    there = cluster.count_on(two_workers.address, folders * 3, lose_one)
    here = merged(files.count_file(folder) for folder in folders * 3)
    assert lost
    assert there.sums == here.sums
    assert there.most == here.most
    assert there.recordings == here.recordings
