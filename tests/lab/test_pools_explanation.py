"""What libheapfit-pools.so explains, as `heapfit pools explain` shows it.

`pools_explanation.json` is an example of the format, made by hand; its program is not there, so
that its addresses have no names. What names them is tried on a program that prints its own.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import Heapfit, assert_one_line
from heapfit.errors import UsageError
from heapfit.pools import VARIABLE, Explanation, read
from heapfit.pools.explanation import Module
from heapfit.pools.graph import dot, write_graph
from heapfit.pools.run import explain
from heapfit.symbols import Frame, Symbols
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
            ([str(RECORDED), "--set", "pools=all"], 2, ["is to be run"]),
            ([str(PROGRAM)], 2, ["no explanation", "heapfit-pools/1"]),
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


@pytest.mark.full
def test_the_graph_is_drawn_by_graphviz(recorded: Explanation, tmp_path: Path) -> None:
    path = tmp_path / "shapes.svg"
    write_graph(path, dot(recorded, frames_of(recorded)))
    drawn = path.read_text()
    assert drawn.count('class="node"') == 4
    assert drawn.count('class="edge"') == len(recorded.edges) + 2


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
    [["-gdwarf-4", "-no-pie"], ["-g", "-gz"]],
    ids=" ".join,
)
def test_a_call_is_named_by_function_file_and_line(tmp_path: Path, flags: list[str]) -> None:
    symbols, inner = compiled(tmp_path, *flags)
    frame = symbols.frame(inner)
    assert frame.where == "outer (pools_program.c:13)"
    assert frame.file == str(PROGRAM)


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


# ----------------------------------------------------------------------- running programs


def test_what_each_process_explains_is_read(capfd: pytest.CaptureFixture[str]) -> None:
    found = explain(["sh", "-c", f"sh -c '{EXPLAINS}'; {EXPLAINS}"], {"PATH": "/usr/bin:/bin"})
    assert found == [read(RECORDED)] * 2
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "printed\nprinted\n")


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


def test_an_explanation_of_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "explanation.json"
    path.write_text(RECORDED.read_text().replace("heapfit-pools/1", "heapfit-pools/2"))
    with pytest.raises(UsageError, match=r"no explanation of this version's \(heapfit-pools/1\)"):
        read(path)
