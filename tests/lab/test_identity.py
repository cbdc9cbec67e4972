"""What was measured: a change of it is told, never mixed in silence, and never blamed on others."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from conftest import Heapfit
from engine_helpers import study_of, system_allocator, workload
from heapfit.catalogue import with_programs
from heapfit.diff.studies import of_studies
from heapfit.errors import FolderBusy, HeapfitError
from heapfit.host import machine
from heapfit.host.machine import describe
from heapfit.records import PlannedTrial, Study, Trial, TrialStatus
from heapfit.study import Journal, Progress, execute, load
from heapfit.study.identity import differences, identify
from heapfit.trial.preload import VARIABLE

TWO = [system_allocator("glibc"), system_allocator("a", F="a")]
PROGRAM = "#!/bin/sh\necho done # {}\n"


class Notices(Progress):
    """Keeps what the person is told, and how each trial ended."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.statuses: list[TrialStatus] = []

    def noticed(self, sentence: str) -> None:
        self.said.append(sentence)

    def finished(self, trial: Trial, remaining_s: float | None) -> None:
        self.statuses.append(trial.status)


def build(path: Path, version: str, text: str = PROGRAM) -> Path:
    """Put a program into place as a linker does: under another name first."""
    made = path.with_suffix(".new")
    made.write_text(text.format(version))
    made.chmod(0o755)
    made.rename(path)
    return path


def run(study: Study, folder: Path) -> list[str]:
    progress = Notices()
    execute(study, folder, progress)
    return progress.said


def kept_in(folder: Path) -> list[Path]:
    return sorted((folder / "earlier").iterdir()) if (folder / "earlier").exists() else []


def test_an_inherited_variable_that_steers_an_allocator_is_part_of_what_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_of(workload("true"), TWO)
    run(study, tmp_path)
    monkeypatch.setenv("UNRELATED", "1")
    monkeypatch.setenv(VARIABLE, "")  # of which no trial hears
    assert run(study, tmp_path) == []
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    assert run(study, tmp_path)[0].startswith("MALLOC_ARENA_MAX has been set to '2' since the 4 ")
    monkeypatch.setenv("MALLOC_ARENA_MAX", "3")
    assert run(study, tmp_path)[0].startswith("MALLOC_ARENA_MAX has changed from '2' to '3' since ")
    monkeypatch.delenv("MALLOC_ARENA_MAX")
    assert run(study, tmp_path)[0].startswith("MALLOC_ARENA_MAX, which was '3', has been unset ")
    assert len(kept_in(tmp_path)) == 3


def test_huge_pages_and_the_kernel_are_part_of_what_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes = tmp_path / "modes"
    (modes / "hugepages-64kB").mkdir(parents=True)
    (modes / "enabled").write_text("always [madvise] never\n")
    (modes / "hugepages-64kB" / "enabled").write_text("always inherit madvise [never]\n")
    monkeypatch.setattr(machine, "_HUGE_PAGES", modes)
    study = study_of(workload("true"), TWO)
    before = identify(study, None)
    (modes / "hugepages-64kB" / "enabled").write_text("[always] inherit madvise never\n")
    monkeypatch.setattr("platform.release", lambda: "9.9")
    kernel, mode = differences(before, identify(study, None))
    assert kernel.startswith("the kernel has changed from '")
    assert kernel.endswith("' to '9.9'")
    assert mode == "the mode of hugepages-64kB has changed from 'never' to 'always'"


@pytest.mark.parametrize("word", ["{}", "if={}", "--input={}"])
def test_a_file_is_named_by_a_word_or_behind_its_sign_of_equality(
    tmp_path: Path, word: str
) -> None:
    """Of `dd if=FILE` trials of two inputs were mixed in silence."""
    named = tmp_path / "orders.txt"
    named.write_text("1\n")
    study = study_of(workload("dd", word.format(named)), TWO)
    before = identify(study, None)
    named.write_text("2\n")
    assert differences(before, identify(study, None)) == [f"the file {named} has changed"]


def test_what_a_program_writes_is_no_script_of_its_own_whatever_it_is_called(
    tmp_path: Path,
) -> None:
    """More replicates were asked for, and all that there were had been put aside."""
    made, words = tmp_path / "made.sql", ("sh", "-c", 'echo 1 > "$0"')
    assert run(study_of(workload(*words, str(made)), TWO, replicates=2), tmp_path / "out") == []
    assert made.exists()
    assert run(study_of(workload(*words, str(made)), TWO, replicates=3), tmp_path / "out") == []
    assert kept_in(tmp_path / "out") == []


def test_the_libraries_of_a_program_and_of_an_allocator_are_measured(
    tmp_path: Path, library: Path
) -> None:
    mine = Path(shutil.copy(library, tmp_path / "libmine.so"))
    study = study_of(workload("true"), [*TWO, system_allocator("mine", library=mine)])
    before = identify(study, None)
    assert any(each.path.name.startswith("libc.so") for each in before.files)
    with mine.open("ab") as file:
        file.write(b"\0")
    assert differences(before, identify(study, None)) == [f"the library {mine} of mine has changed"]


def test_two_files_of_one_name_are_both_compared(tmp_path: Path) -> None:
    """Of builds old/app and new/app the former was rebuilt, and "nothing has changed" was said."""
    for folder in ("old", "new"):
        (tmp_path / folder).mkdir()
        build(tmp_path / folder / "app", "1")
    paths = {name: str(tmp_path / name / "app") for name in ("old", "new")}
    work = workload("{program}", parameters={"program": paths["old"]})
    study = study_of(work, with_programs(paths, TWO[:1]), replicates=1)
    run(study, tmp_path / "out")
    build(tmp_path / "old" / "app", "2")
    run(study, tmp_path / "out")
    [kept] = kept_in(tmp_path / "out")
    [changed] = of_studies(kept, tmp_path / "out").changed
    assert changed.name == "content of app"
    assert changed.old != changed.new


def test_a_folder_is_not_put_aside_under_a_command_that_runs_in_it(tmp_path: Path) -> None:
    program = build(tmp_path / "program", "1")
    study = study_of(workload(str(program)), TWO)
    out = tmp_path / "out"
    run(study, out)
    with Journal(out, study):
        build(program, "2")
        with pytest.raises(FolderBusy):
            run(study, out)
    assert kept_in(out) == []


@pytest.mark.parametrize("mix", [None, False])
def test_mix_is_named_only_where_the_command_has_it(tmp_path: Path, mix: bool | None) -> None:
    program = build(tmp_path / "program", "1")
    study = study_of(workload(str(program)), TWO, replicates=1)
    execute(study, tmp_path / "out", mix=mix)
    build(program, "2")
    progress = Notices()
    progress.started = lambda *_: build(program, "3")  # type: ignore[method-assign]
    with pytest.raises(HeapfitError, match="it starts over with the new files") as raised:
        execute(study, tmp_path / "out", progress, mix=mix)
    assert ("or continues with --mix" in str(raised.value)) is (mix is not None)
    assert ("With --mix the study would" in " ".join(progress.said)) is (mix is not None)


def test_a_program_rebuilt_meanwhile_is_noticed_and_called_so(tmp_path: Path) -> None:
    program = build(tmp_path / "program", "1")

    class Rebuilding(Notices):
        def started(self, planned: PlannedTrial, remaining_s: float | None) -> None:
            if planned.index == 3:
                build(program, "2")

    progress = Rebuilding()
    study = study_of(workload(str(program)), TWO, replicates=3)
    with pytest.raises(HeapfitError) as raised:
        execute(study, tmp_path / "out", progress)
    assert str(raised.value).startswith(
        f"the program {program} has changed while it was being measured. The trial that ran then "
        "does not count; 3 earlier trials are kept. Once"
    )
    assert progress.statuses == [TrialStatus.OK] * 3
    said = run(study, tmp_path / "out")
    assert said[0].startswith(f"The program {program} has changed since the 3 trials of ")
    assert len(load(tmp_path / "out")[1]) == 8


def test_trials_of_a_cluster_are_not_mixed_with_this_machines(tmp_path: Path) -> None:
    study, out = study_of(workload("true"), TWO, replicates=1), tmp_path / "out"
    run(study, out)
    kept = load(out)[0]
    assert run(study, out) == []
    sessions = [kept.sessions[0].model_copy(update={"machine": "lab-0"})]
    of_cluster = kept.model_copy(update={"sessions": sessions})
    (out / "study.json").write_text(of_cluster.model_dump_json())
    assert run(study, out)[0].startswith("The machine has changed since the 4 trials of ")
    assert len(kept_in(out)) == 1


def test_the_commands_say_what_has_changed_and_report_opens_what_is_kept(
    run_heapfit: Heapfit, tmp_path: Path, library: Path
) -> None:
    assert library
    program = build(tmp_path / "program", "1")
    command = ["compare", "--allocators", "glibc,heapfit", "--replicates", "1", "--cores", "1"]
    assert run_heapfit(*command, "--", "./program", folder=tmp_path).returncode == 0
    build(program, "2")
    again = run_heapfit(*command, "--", "./program", folder=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "program has changed since the 4 trials of" in again.stderr
    [folder] = (tmp_path / "heapfit-results").iterdir()
    [kept] = kept_in(folder)
    assert f"heapfit report {os.path.relpath(kept, tmp_path)}" in again.stderr
    shown = run_heapfit("report", kept, folder=tmp_path)
    assert shown.returncode == 0, shown.stderr
    build(program, "3")
    mixed = run_heapfit(*command, "--mix", "--replicates", "2", "--", "./program", folder=tmp_path)
    assert "Not all trials measured the same thing (--mix)" in " ".join(mixed.stdout.split())


def test_variables_that_steer_an_allocator_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    notes = describe().notes
    assert "MALLOC_ARENA_MAX=1 is set in the environment of every trial" in notes
