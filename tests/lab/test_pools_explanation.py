"""What libheapfit-pools.so explains, as `heapfit pools explain` shows it.

`pools_explanation.json` is an example of the format, made by hand; its program is not there, so
that its addresses have no names. What names them is tried on a program that prints its own.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Heapfit, assert_one_line
from heapfit.errors import HeapfitError, UsageError
from heapfit.pools import VARIABLE, Explanation, main_process, read
from heapfit.pools.explanation import Module
from heapfit.pools.graph import dot, write_graph
from heapfit.pools.run import explain
from heapfit.symbols import Frame, Symbols, demangled
from heapfit.trial.launcher import Ended
from heapfit.trial.own_libraries import PoolExplanations
from sampling import first

HERE = Path(__file__).parent
RECORDED = HERE / "pools_explanation.json"
PROGRAM = HERE / "pools_program.c"
JOURNAL = HERE.parents[1] / "docs" / "examples" / "pools" / "journal.c"

# A program that explains itself as the library would, one file for each process.
EXPLAINS = f"""cp {RECORDED} "$(echo "${VARIABLE}" | sed "s/%p/$$/")"; echo printed"""


@pytest.fixture
def recorded() -> Explanation:
    return read(RECORDED)


def frames_of(explanation: Explanation) -> dict[int, list[Frame]]:
    symbols = Symbols(explanation.modules)
    return {group.id: symbols.frames(group.chain) for group in explanation.groups}


# ---------------------------------------------------------------------- the format


def test_a_merged_group_is_followed_to_the_one_that_it_is_in(recorded: Explanation) -> None:
    roots = {group.id: recorded.root(group).id for group in recorded.groups}
    assert roots == {0: 0, 1: 0, 2: 0, 3: 3, 4: 4, 5: 5, 6: 6}


def test_groups_that_are_merged_in_a_ring_do_not_hang(recorded: Explanation) -> None:
    ring = [g.model_copy(update={"merged_into": 1 - g.id}) for g in recorded.groups[:2]]
    made = recorded.model_copy(update={"groups": ring})
    assert made.root(ring[0]) in ring


def test_the_share_of_merged_groups_is_that_of_their_pools(recorded: Explanation) -> None:
    assert recorded.merged_share() == pytest.approx(1576960 / (1576960 + 921600))
    assert recorded.model_copy(update={"pools": []}).merged_share() == 0.0


def test_addresses_may_be_written_as_text(tmp_path: Path) -> None:
    text = RECORDED.read_text().replace(str(0x7FFFF7C7A1F0), '"0x7ffff7c7a1f0"')
    path = tmp_path / "explanation.json"
    path.write_text(text)
    assert read(path) == read(RECORDED)


def test_what_a_newer_library_says_beyond_is_left_alone(tmp_path: Path) -> None:
    plain = json.loads(RECORDED.read_text())
    plain["groups"][0]["colour"] = "red"
    plain["counters"]["signals"] = 3
    path = tmp_path / "explanation.json"
    path.write_text(json.dumps(plain))
    assert read(path).counter("signals") == 3


def test_the_process_with_the_most_objects_is_the_one_that_is_meant(recorded: Explanation) -> None:
    small = recorded.model_copy(update={"groups": recorded.groups[5:], "pid": 1})
    assert main_process([small, recorded]) is recorded


# ------------------------------------------------------------------------ the command


def test_each_group_is_shown_with_its_place_the_reason_and_what_was_seen(
    run_heapfit: Heapfit,
) -> None:
    result = run_heapfit("pools", "explain", RECORDED, environment={"COLUMNS": "160"})
    assert result.returncode == 0, result.stderr
    said = " ".join(result.stdout.split())
    assert "journal (4711), heapfit 0.1.0" in said
    for words in (
        "mixed pool 0",
        "with group 0",
        "merged (together): allocated and linked one to one with a group of another size",
        "merged (type-I): belongs to a group that has a pool",
        "pool 1",
        "0 % linked to one group, 2 % of the neighbours its own, 0 % freed",
        "its objects die young",
        "left out by max_size (128): 1 group, 1 object",
        "left out by min_objects (100): 1 group, 3 objects",
        "merge on, headers off",
        "(its callers could not be determined)",
        "3 more",
        "16\N{EN DASH}48",
        "1.86 calls on average",
        "41 instructions decoded, 8.4 µs (median)",
        "left to the ordinary heap: no_code 2, too_large 1",
        "one-size 48 19.2k 900 KiB 960 KiB 3",
        "1 as siblings 2 9 0 %",
    ):
        assert words in said, words


def test_merged_groups_stand_behind_the_one_that_they_are_in(run_heapfit: Heapfit) -> None:
    result = run_heapfit("pools", "explain", RECORDED, environment={"COLUMNS": "160"})
    table = result.stdout.partition("allocated by")[2].partition("\npool ")[0]
    shown = [int(number) for number in re.findall(r"^ {4}(\d) ", table, re.MULTILINE)]
    assert shown == [4, 0, 1, 2, 3, 6, 5]


def test_the_tables_fit_a_narrow_terminal(run_heapfit: Heapfit) -> None:
    result = run_heapfit("pools", "explain", RECORDED, environment={"COLUMNS": "80"})
    tables = result.stdout.partition("group ")[2].rpartition("chains of")[0]
    assert max(map(len, tables.splitlines()[1:-1])) <= 80


def test_json_has_all_that_was_written_and_the_frames(run_heapfit: Heapfit) -> None:
    result = run_heapfit("pools", "explain", RECORDED, "--json")
    found = json.loads(result.stdout)
    written = json.loads(RECORDED.read_text())
    assert found["edges"] == written["edges"]
    for group, original in zip(found["groups"], written["groups"], strict=True):
        frames = group.pop("frames")
        assert group == original
        assert [frame["address"] for frame in frames] == group["chain"]
        assert Path(frames[0]["module"]).name in ("journal", "libc.so.6")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    first(
        3,
        [
            ([], 2, ["which program?", "heapfit pools explain -- CMD"]),
            ([str(RECORDED), "--", "true"], 2, ["which program?"]),
            ([str(RECORDED), "--set", "pools=all"], 2, ["is to be run"]),
            ([str(PROGRAM)], 2, ["no explanation", "heapfit-pools/1"]),
            (["no-such-file.json"], 2, ["no-such-file.json"]),
            ([str(RECORDED), "--graph", "shapes.gif"], 2, [".svg", "'shapes.gif'"]),
        ],
    ),
)
def test_a_senseless_request_is_explained(
    run_heapfit: Heapfit, arguments: list[str], code: int, said: list[str]
) -> None:
    assert_one_line(run_heapfit("pools", "explain", *arguments), code, said)


# --------------------------------------------------------------------------- the graph


def test_the_graph_has_pools_groups_links_and_mergers(recorded: Explanation) -> None:
    text = dot(recorded, frames_of(recorded))
    assert 'subgraph cluster_0 {\n  label="pool 0, mixed"' in text
    assert 'subgraph cluster_1 {\n  label="pool 1, one-size: 48 bytes"' in text
    assert 'g0 -> g1 [label="+8: 95"];' in text
    assert 'g2 -> g0 [label="type-I", style=dashed];' in text
    assert "g4" not in text  # it points to nothing and has no pool


def test_names_with_quotes_and_backslashes_stay_text(recorded: Explanation) -> None:
    frames = {0: [Frame(1, None, 'operator"" \\ km')]}
    assert r"operator\"\" \\ km" in dot(recorded, frames)


@pytest.mark.full
def test_the_graph_is_drawn_by_graphviz(recorded: Explanation, tmp_path: Path) -> None:
    path = tmp_path / "shapes.svg"
    write_graph(path, dot(recorded, frames_of(recorded)))
    drawn = path.read_text()
    assert drawn.count('class="node"') == 4
    assert drawn.count('class="edge"') == len(recorded.edges) + 2


def test_without_graphviz_it_is_told_what_to_do(
    recorded: Explanation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HeapfitError, match="apt-get install graphviz"):
        write_graph(tmp_path / "shapes.svg", dot(recorded, {}))
    write_graph(tmp_path / "shapes.dot", dot(recorded, {}))


# ----------------------------------------------------------------------------- symbols


def compiled(folder: Path, *flags: str) -> tuple[Symbols, int]:
    """Compile and run the program; return its symbols and where `inner` returned to."""
    program = folder / "program"
    subprocess.run(["cc", "-O1", *flags, "-o", program, PROGRAM], check=True)
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    inner, base = (int(word, 16) for word in re.findall("0x[0-9a-f]+", printed))
    return Symbols([Module(path=str(program), base=base, end=base + (1 << 24))]), inner


@pytest.mark.parametrize(
    "flags",
    [["-g"], ["-gdwarf-4"], ["-g", "-no-pie"], ["-g", "-gz"], ["-g", "-flto"]],
    ids=" ".join,
)
def test_a_call_is_named_by_function_file_and_line(tmp_path: Path, flags: list[str]) -> None:
    symbols, inner = compiled(tmp_path, *flags)
    frame = symbols.frame(inner)
    assert frame.where == "outer (pools_program.c:13)"
    assert frame.file == str(PROGRAM)


def test_without_debug_information_there_is_the_function_and_the_file(tmp_path: Path) -> None:
    symbols, inner = compiled(tmp_path)
    assert symbols.frame(inner).where == "outer (program)"


def test_of_a_stripped_program_there_is_the_address(tmp_path: Path) -> None:
    symbols, inner = compiled(tmp_path, "-g", "-s")
    assert symbols.frame(inner).where == f"{inner:#x} (program)"


def test_debug_information_beside_the_program_is_found_by_build_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    symbols, inner = compiled(tmp_path, "-g", "-Wl,--build-id=0xabcdef0123")
    kept = tmp_path / "debug" / "ab" / "cdef0123.debug"
    kept.parent.mkdir(parents=True)
    shutil.copy(tmp_path / "program", kept)
    subprocess.run(["strip", tmp_path / "program"], check=True)
    monkeypatch.setattr("heapfit.symbols._DEBUG_FOLDER", tmp_path / "debug")
    assert symbols.frame(inner).where == "outer (pools_program.c:13)"


def test_a_file_that_is_damaged_or_gone_has_no_names(tmp_path: Path) -> None:
    symbols, inner = compiled(tmp_path, "-g")
    whole = (tmp_path / "program").read_bytes()
    for size in (0, 100, len(whole) // 2, len(whole) - 100):
        (tmp_path / "program").write_bytes(whole[:size])
        assert compiled_symbols(symbols).frame(inner).address == inner
    (tmp_path / "program").unlink()
    assert compiled_symbols(symbols).frame(inner).where == f"{inner:#x} (program)"


def compiled_symbols(symbols: Symbols) -> Symbols:
    """The same modules, not yet read."""
    return Symbols([module for *_, module in symbols._modules])


def test_an_address_outside_of_all_files_stays_an_address() -> None:
    symbols = Symbols([Module(path="/opt/x", base=0x1000, end=0x2000)])
    assert symbols.frame(0x800).where == "0x800"
    assert symbols.frame(0x2000).where == "0x2000"


def test_names_of_cpp_are_as_they_were_written() -> None:
    assert demangled("_ZN4book5orderC1Ei") == "book::order::order(int)"
    assert demangled("_Znot-a-name") == "_Znot-a-name"


# ----------------------------------------------------------------------- running programs


def test_what_each_process_explains_is_read(capfd: pytest.CaptureFixture[str]) -> None:
    found = explain(["sh", "-c", f"sh -c '{EXPLAINS}'; {EXPLAINS}"], {"PATH": "/usr/bin:/bin"})
    assert found == [read(RECORDED)] * 2
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "printed\nprinted\n")


@pytest.mark.parametrize(
    ("command", "said"),
    [("exit 3", r"exit code 3"), ("kill -SEGV $$", "signal 11 ended it")],
)
def test_a_program_that_explains_nothing_is_told(command: str, said: str) -> None:
    with pytest.raises(HeapfitError, match=said):
        explain(["sh", "-c", command], {"PATH": "/usr/bin:/bin"})


def ran(tmp_path: Path, script: str) -> dict[str, float]:
    """The figures of a run of its own."""
    source = PoolExplanations()
    command = source.wrap(["sh", "-c", script], tmp_path)
    subprocess.run(command, check=True)
    try:
        return source.figures(Ended.__new__(Ended))
    finally:
        source.close()


def test_a_study_has_figures_of_a_run_of_its_own(tmp_path: Path) -> None:
    figures = ran(tmp_path, EXPLAINS)
    assert set(figures) == {metric.name for metric in PoolExplanations.metrics}
    assert figures["pool_chain_length"] == 1.86
    assert figures["pool_instructions"] == 41
    assert figures["pool_analysis_s"] == pytest.approx(8.4e-6)
    assert (figures["pool_groups"], figures["pool_count"]) == (7, 2)


def test_under_another_library_those_figures_are_missing(tmp_path: Path) -> None:
    assert ran(tmp_path, "true") == {}


# -------------------------------------------------------------------- the library itself


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("journal") / "journal"
    flags = ["-std=c17", "-g", "-O1", "-fno-inline"]
    subprocess.run(["cc", *flags, "-o", program, JOURNAL], check=True)
    return program


def test_the_program_of_the_page_is_explained_as_the_page_says(
    run_heapfit: Heapfit, journal: Path
) -> None:
    result = run_heapfit("pools", "explain", "--json", "--", journal)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    by_caller = {
        group["frames"][1]["function"]: group
        for group in found["groups"]
        if len(group["frames"]) > 1 and group["frames"][0]["function"] == "checked_malloc"
    }
    assert set(by_caller) == {"buy", "sell", "fill", "record", "quote"}
    assert all(group["length"] == 2 for group in by_caller.values())
    assert by_caller["buy"]["frames"][1]["file"] == str(JOURNAL)
    assert by_caller["quote"]["state"] == "ordinary"
    assert by_caller["record"]["state"] == "pooled"
    assert by_caller["fill"]["state"] == "ordinary"
    assert by_caller["sell"]["merged_by"] == "type-I"
    orders = {by_caller[name]["pool"] for name in ("buy", "sell")}
    assert len(orders) == 1
    assert None not in orders
    assert by_caller["record"]["pool"] not in orders


def test_the_page_shows_the_program_and_what_explain_prints_of_it(
    run_heapfit: Heapfit, journal: Path
) -> None:
    page = (HERE.parents[1] / "docs" / "pools.md").read_text()
    assert f"```c\n{JOURNAL.read_text()}```" in page
    shown = page.partition("```text\n5 groups:")[2].partition("```")[0]
    result = run_heapfit("pools", "explain", "--", journal, environment={"COLUMNS": "110"})
    callers = r"← (\w+) \(journal.c:\d+\) *\n +(.*)"
    assert re.findall(callers, shown) == [
        (caller, reason.rstrip()) for caller, reason in re.findall(callers, result.stdout)
    ]


def test_the_page_and_the_reader_agree_on_the_variable(journal: Path, tmp_path: Path) -> None:
    written = tmp_path / "%p.json"
    environment = {VARIABLE: str(written)}
    command = [sys.executable, "-m", "heapfit", "run", "--variant", "pools", "--", str(journal)]
    subprocess.run(command, env=environment | _python_path(), check=True, capture_output=True)
    [path] = tmp_path.iterdir()
    assert path.stem.isdecimal()
    assert read(path).program == str(journal)


def _python_path() -> dict[str, str]:
    return {"PYTHONPATH": str(HERE.parents[1] / "lab"), "PATH": "/usr/bin:/bin"}


def test_an_option_of_the_pools_is_one_of_their_library_alone(run_heapfit: Heapfit) -> None:
    result = run_heapfit("run", "--set", "pools=all", "--", "true")
    assert_one_line(result, 2, ["only the variant pools has the option pools"])


def test_an_explanation_of_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "explanation.json"
    path.write_text(RECORDED.read_text().replace("heapfit-pools/1", "heapfit-pools/2"))
    with pytest.raises(UsageError, match=r"no explanation of this version's \(heapfit-pools/1\)"):
        read(path)
