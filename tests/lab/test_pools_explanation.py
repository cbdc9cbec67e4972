"""What libheapfit-pools.so explains, as `heapfit pools explain` shows it.

It explains the program of the documentation, docs/examples/pools/journal.c.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import Heapfit
from heapfit.errors import UsageError
from heapfit.pools import VARIABLE, Explanation, read
from heapfit.pools.explanation import Module
from heapfit.pools.graph import dot, write_graph
from heapfit.pools.run import explain
from heapfit.symbols import Frame, Symbols
from heapfit.trial.launcher import Ended
from heapfit.trial.own_libraries import PoolExplanations

HERE = Path(__file__).parent
PROGRAM = HERE / "pools_program.c"
JOURNAL = HERE.parents[1] / "docs" / "examples" / "pools" / "journal.c"


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("journal") / "journal"
    flags = ["-std=c17", "-g", "-O1", "-fno-inline"]
    subprocess.run(["cc", *flags, "-o", program, JOURNAL], check=True)
    return program


@pytest.fixture(scope="module")
def recorded(run_heapfit: Heapfit, journal: Path) -> Path:
    """What the library has written of the program."""
    path = journal.with_name("explanation.json")
    ran = run_heapfit("run", "--variant", "pools", "--", journal, environment={VARIABLE: str(path)})
    assert ran.returncode == 0, ran.stderr
    return path


def explains(recorded: Path) -> str:
    """A program that explains itself as the library would, one file for each process."""
    return f"""cp {recorded} "$(echo "${VARIABLE}" | sed "s/%p/$$/")"; echo printed"""


def frames_of(explanation: Explanation) -> dict[int, list[Frame]]:
    symbols = Symbols(explanation.modules)
    return {group.id: symbols.frames(group.chain) for group in explanation.groups}


def test_each_group_is_shown_with_its_place_the_reason_and_what_was_seen(
    run_heapfit: Heapfit, recorded: Path
) -> None:
    result = run_heapfit("pools", "explain", recorded, environment={"COLUMNS": "160"})
    assert result.returncode == 0, result.stderr
    said = " ".join(result.stdout.split())
    for words in ("journal (", "merged (type-I)", "pool 0", "one-size", "checked_malloc", "buy"):
        assert words in said, words


def test_json_has_all_that_was_written_and_the_frames(run_heapfit: Heapfit, recorded: Path) -> None:
    found = json.loads(run_heapfit("pools", "explain", recorded, "--json").stdout)
    written = json.loads(recorded.read_text())
    assert found["edges"] == written["edges"]
    for group, original in zip(found["groups"], written["groups"], strict=True):
        frames = group.pop("frames")
        assert group == original
        assert [frame["address"] for frame in frames] == group["chain"]


def test_the_graph_has_pools_groups_and_mergers(recorded: Path) -> None:
    explanation = read(recorded)
    text = dot(explanation, frames_of(explanation))
    assert 'subgraph cluster_0 {\n  label="pool 0, ' in text
    assert '[label="type-I", style=dashed];' in text


@pytest.mark.full
def test_the_graph_is_drawn_by_graphviz(recorded: Path, tmp_path: Path) -> None:
    path, explanation = tmp_path / "shapes.svg", read(recorded)
    text = dot(explanation, frames_of(explanation))
    write_graph(path, text)
    assert path.read_text().count('class="edge"') == text.count(" -> ")


def compiled(folder: Path, *flags: str) -> tuple[Symbols, int]:
    """Compile and run the program; return its symbols and where `inner` returned to."""
    program = folder / "program"
    subprocess.run(["cc", "-O1", *flags, "-o", program, PROGRAM], check=True)
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    inner, base = (int(word, 16) for word in re.findall("0x[0-9a-f]+", printed))
    return Symbols([Module(path=str(program), base=base, end=base + (1 << 24))]), inner


@pytest.mark.parametrize("flags", [["-gdwarf-4", "-no-pie"], ["-g", "-gz"]], ids=" ".join)
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


def test_what_each_process_explains_is_read(
    recorded: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = explains(recorded)
    found = explain(["sh", "-c", f"sh -c '{script}'; {script}"], {"PATH": "/usr/bin:/bin"})
    assert found == [read(recorded)] * 2
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "printed\nprinted\n")


def test_a_study_has_figures_of_a_run_of_its_own(recorded: Path, tmp_path: Path) -> None:
    source = PoolExplanations()
    subprocess.run(source.wrap(["sh", "-c", explains(recorded)], tmp_path), check=True)
    try:
        figures = source.figures(Ended.__new__(Ended))
    finally:
        source.close()
    assert set(figures) == {metric.name for metric in PoolExplanations.metrics}
    explanation = read(recorded)
    assert figures["pool_groups"] == len(explanation.groups)
    assert figures["pool_count"] == len(explanation.pools)


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


def test_an_explanation_of_another_format_is_refused(recorded: Path, tmp_path: Path) -> None:
    path = tmp_path / "explanation.json"
    path.write_text(recorded.read_text().replace("heapfit-pools/1", "heapfit-pools/2"))
    with pytest.raises(UsageError, match=r"no explanation of this version's \(heapfit-pools/1\)"):
        read(path)
