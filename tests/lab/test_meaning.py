"""What is time and what is memory is said once."""

from __future__ import annotations

import ast
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from engine_helpers import study_of, workload
from heapfit import meaning
from heapfit.files import replacing, replacing_folder
from heapfit.meaning import deciding_metrics
from heapfit.trial import find_metrics

LAB = Path(meaning.__file__).parent
# Those that measure them, the default of a record, and the facts of one run that `fit` has.
MEASURING = ("trial", "replay/workload.py", "records.py", "fit")


def test_the_names_of_times_and_of_memory_stand_in_one_list() -> None:
    names = {*meaning.MEMORY, meaning.WALL, *meaning.PROCESSOR_TIME, meaning.REPLAYED_TIME}
    elsewhere = [
        f"{path.relative_to(LAB)}:{node.lineno}: {node.value}"
        for path in sorted(LAB.rglob("*.py"))
        if path != Path(meaning.__file__) and not f"{path.relative_to(LAB)}".startswith(MEASURING)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in names
    ]
    assert elsewhere == []


def test_proportional_memory_decides_where_a_study_asks_for_it() -> None:
    study = study_of(workload("true"), measured=["peak_pss_bytes"])
    assert [metric.name for metric in deciding_metrics(study)] == [
        "wall_s", "peak_rss_bytes", "peak_pss_bytes",
    ]  # fmt: skip


def test_what_is_too_small_to_matter_is_said_of_whole_runs_alone() -> None:
    [pss] = find_metrics(["peak_pss_bytes"])
    of_its_own = pss.model_copy(update={"name": "cache_bytes"})
    assert (meaning.too_small(pss), meaning.too_small(of_its_own)) == (2**20, 0.0)


def test_words_and_figures_lie_below_whoever_writes_and_draws() -> None:
    imported = {
        node.module
        for path in (LAB / "profile").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module is not None
    }
    of_others = {each for each in imported if each.startswith(("heapfit.report", "heapfit.live"))}
    assert of_others <= {"heapfit.report.page", "heapfit.report.terminal_text"}


def half_done(making: AbstractContextManager[Path]) -> None:
    with making as unfinished:
        (unfinished / "half" if unfinished.is_dir() else unfinished).write_text("half")
        raise KeyboardInterrupt


def test_what_is_not_finished_leaves_what_was_there(tmp_path: Path) -> None:
    file, folder = tmp_path / "file", tmp_path / "folder"
    file.write_text("old")
    (folder / "old").mkdir(parents=True)
    for making in (replacing(file), replacing_folder(folder)):
        with pytest.raises(KeyboardInterrupt):
            half_done(making)
    assert sorted(tmp_path.rglob("*")) == [file, folder, folder / "old"]
    assert file.read_text() == "old"
    with replacing_folder(folder) as new_folder:
        (new_folder / "new").touch()
    assert sorted(tmp_path.rglob("*")) == [file, folder, folder / "new"]
