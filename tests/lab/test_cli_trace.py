"""`heapfit trace` as a person or a script uses it."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from conftest import Heapfit, assert_one_line
from trace_data import INFO, Answers, Program, service


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return service().write(tmp_path_factory.mktemp("trace") / "service.hft")


def test_info_warns_of_what_is_wrong_with_a_file(
    run_heapfit: Heapfit, trace: Path, tmp_path: Path
) -> None:
    cut = tmp_path / "cut.hft"
    cut.write_bytes(trace.read_bytes()[:-100])
    result = run_heapfit("trace", "info", cut)
    assert result.returncode == 0
    assert "The recording has no end" in result.stderr
    assert "worker-2" in result.stdout


def test_names_from_a_file_cannot_act_on_the_terminal(run_heapfit: Heapfit, tmp_path: Path) -> None:
    program = Program(info={**INFO, "arguments": ["\x1b[31mred", "a\nb"], "allocator": "\x1b[2J"})
    program.free(program.thread("\x1b[1mbold"), 16)
    result = run_heapfit("trace", "info", program.write(tmp_path / "a.hft"))
    assert result.returncode == 0, result.stderr
    assert "\x1b" not in result.stdout
    assert "\\x1b[31mred a\\nb" in result.stdout


def test_convert_makes_a_folder_named_after_the_trace(
    run_heapfit: Heapfit, trace: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine.hft").write_bytes(trace.read_bytes())
    result = run_heapfit("trace", "convert", "mine.hft", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    totals = Answers(service().calls).totals
    assert result.stdout.split(":")[0] == "mine.tables"
    assert pq.read_metadata(tmp_path / "mine.tables/objects.parquet").num_rows == totals.allocations


def test_anonymise(run_heapfit: Heapfit, trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "to-send.hft"
    assert run_heapfit("trace", "anonymise", trace, "--out", out).returncode == 0
    info = run_heapfit("trace", "info", out)
    assert info.returncode == 0, info.stderr
    assert "worker" not in info.stdout
    assert "secret" not in info.stdout


def test_a_part_of_a_damaged_trace_is_written_with_a_warning(
    run_heapfit: Heapfit, trace: Path, tmp_path: Path
) -> None:
    (tmp_path / "a.hft").write_bytes(trace.read_bytes()[:-100])
    for what, *options in (("cut", "--from", "1us"), ("anonymise",)):
        for name in (f"a.{what}.hft", f"a.{what}-2.hft"):
            name = name.replace("anonymise", "anonymous")
            result = run_heapfit("trace", what, "a.hft", *options, folder=tmp_path)
            assert result.returncode == 0
            assert result.stdout.startswith(f"{name}: ")
            assert "The recording has no end" in result.stderr


def test_an_export_does_not_replace_a_recording(
    run_heapfit: Heapfit, trace: Path, tmp_path: Path
) -> None:
    (tmp_path / "b.hft").write_bytes(trace.read_bytes())
    result = run_heapfit("trace", "export", trace, "--to", "folded", "-o", "b.hft", folder=tmp_path)
    assert_one_line(result, 2, ["b.hft is there already"])
    assert (tmp_path / "b.hft").read_bytes() == trace.read_bytes()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("cut", "TRACE"), "give --from, --to, --events or --threads"),
        (("cut", "TRACE", "--events", "1:2:3"), "takes a number, or two with a colon"),
        (("convert", "TRACE", "--out", "."), "is not a folder of tables alone"),
    ],
)
def test_a_mistake_is_told_in_a_line(
    run_heapfit: Heapfit, trace: Path, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    given = [str(trace) if word == "TRACE" else word for word in words]
    out = ["--out", str(tmp_path / "x.hft")] if words[0] == "cut" else []
    result = run_heapfit("trace", *given, *out, folder=tmp_path)
    lines = [line for line in result.stderr.splitlines() if not line.startswith("writing ")]
    result.stderr = "\n".join(lines)
    assert_one_line(result, 2, [said])
    assert list(tmp_path.iterdir()) == []
