"""A study from plan to finished journal: order, references, interruption, refusals, bad disks."""

from __future__ import annotations

import errno
import os
import resource
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from io import StringIO
from pathlib import Path

import pytest
import typer
from engine_helpers import allowed_cores, start_the_clock_late, study_of, system_allocator, workload
from heapfit.cli import output
from heapfit.cli.progress import ManyProgress, StudyProgress, WorkProgress, kept_on_interrupt
from heapfit.errors import HeapfitError, UsageError
from heapfit.files import replacing, replacing_folder, write_durably, write_text
from heapfit.records import PlannedTrial, Study, Trial, TrialStatus, WorkloadCheck
from heapfit.report.problems import remarks
from heapfit.statistics import read, summarise
from heapfit.study import Journal, Progress, execute, load, looks, note_look
from heapfit.study.execute import WORKSPACE
from heapfit.trial import cores
from rich.console import Console

THREE = [system_allocator("glibc"), system_allocator("a", F="a"), system_allocator("b", F="b")]


class Recorder(Progress):
    """Keeps what it was told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int]] = []

    def started(self, planned: PlannedTrial, remaining_s: float | None) -> None:
        self.events.append(("started", planned.index))

    def finished(self, trial: Trial, remaining_s: float | None) -> None:
        self.events.append(("finished", trial.planned.index))


def order_of(trials: list[Trial]) -> list[int]:
    return [trial.planned.index for trial in trials]


def test_every_block_has_every_allocator_at_every_number_of_cores_once() -> None:
    cores = list(range(1, allowed_cores() + 1))
    study = study_of(workload("true"), THREE, cores=cores, replicates=4, warmups=2)
    blocks: dict[int, list[PlannedTrial]] = {}
    for planned in study.plan:
        blocks.setdefault(planned.block, []).append(planned)
    assert [planned.index for planned in study.plan] == list(range(len(study.plan)))
    assert list(blocks) == list(range(6))
    for number, block in blocks.items():
        cells = Counter((planned.allocator, planned.cores) for planned in block)
        assert cells == Counter((each.name, count) for each in THREE for count in cores)
        assert {planned.warmup for planned in block} == {number < 2}


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"baseline": "gibc"}, "unknown baseline 'gibc'; did you mean 'glibc'?"),
        ({"primary_metric": "wal_s"}, "unknown metric 'wal_s'; did you mean 'wall_s'?"),
        ({"cores": [1000]}, "1000 cores"),
        ({"replicates": 0}, "at least 1 replicate, not 0"),
        ({"timeout_s": 0}, "more than 0 seconds, not 0"),
        ({"allocators": [THREE[0], THREE[0]]}, "named twice"),
    ],
)
def test_nonsense_is_refused_before_anything_runs(
    fields: dict[str, object], complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint.replace("?", r"\?")):
        study_of(workload("true"), **{"allocators": THREE, **fields})  # type: ignore[arg-type]


def test_a_study_runs_as_planned(tmp_path: Path) -> None:
    study = study_of(workload("echo", "x"), THREE, replicates=2)
    recorder = Recorder()
    own, left = tmp_path / "out" / "scratch" / "own", tmp_path / "out" / WORKSPACE / "left"
    own.mkdir(parents=True)
    left.mkdir(parents=True)
    left.chmod(0o500)
    execute(study, tmp_path / "out", recorder)
    kept, trials = load(tmp_path / "out")
    assert kept.model_copy(update={"sessions": []}) == study
    assert [trial.planned for trial in trials] == study.plan
    assert {trial.status for trial in trials} == {TrialStatus.OK}
    assert recorder.events[:2] == [("started", 0), ("finished", 0)]
    assert len(recorder.events) == 2 * len(study.plan)
    assert not (tmp_path / "out" / WORKSPACE).exists()
    assert own.is_dir()


def test_what_is_a_users_stays_where_a_study_would_replace_it(tmp_path: Path) -> None:
    study = study_of(workload("true"), THREE)
    linked, reported = tmp_path / "linked", tmp_path / "reported"
    (linked / "data" / "own").mkdir(parents=True)
    (linked / WORKSPACE).symlink_to("data")
    with pytest.raises(UsageError, match="is a link"):
        execute(study, linked)
    assert (linked / "data" / "own").is_dir()
    reported.mkdir()
    (reported / "report.html").write_text("mine")
    with pytest.raises(UsageError, match=r"report.html is of no study"):
        execute(study, reported)
    assert [each.name for each in reported.iterdir()] == ["report.html"]
    (reported / "report.html").rename(reported / "report.txt")
    execute(study, reported)
    (reported / "report.html").write_text("of the study")
    execute(study, reported)


@pytest.mark.full
def test_a_treatment_that_never_ends_is_left_out_after_two_time_outs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = tmp_path / "begun"
    start_the_clock_late(begun, monkeypatch)
    hangs = workload("sh", "-c", f'echo $$ >> {begun}; [ "$F" != b ] || exec sleep 60')
    study = study_of(hangs, THREE, replicates=4, timeout_s=0.5)
    notices: list[str] = []
    progress = Recorder()
    progress.noticed = notices.append  # type: ignore[method-assign]
    execute(study, tmp_path, progress)
    kept, trials = load(tmp_path)
    ran = Counter(trial.planned.allocator for trial in trials)
    assert ran == {"glibc": 5, "a": 5, "b": 2}
    assert len(kept.plan) == len(trials)  # so that the study is finished
    assert [notice.split(":")[0] for notice in notices] == ["b is left out from here on"]
    summary = summarise(read(kept, trials))
    assert any(said.startswith("b, 1 core, is left out: ") for said in remarks(summary))
    execute(study, tmp_path)
    assert load(tmp_path)[1] == trials  # Nothing is begun anew.
    execute(study_of(hangs, THREE, replicates=5, timeout_s=0.5), tmp_path)
    assert Counter(trial.planned.allocator for trial in load(tmp_path)[1])["b"] == 2


def test_only_one_process_runs_a_study(tmp_path: Path) -> None:
    study = study_of(workload("true"), THREE)
    with Journal(tmp_path, study), pytest.raises(HeapfitError, match="another heapfit"):
        execute(study, tmp_path)


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (study_of(workload("false"), THREE), r"workload \(run\.command\)"),
        (study_of(workload("true"), THREE, timeout_s=7.0), "time-out"),
        (
            study_of(workload("true", check=WorkloadCheck(stdout="ignore")), THREE, seed=7),
            r"workload \(check\.stdout\) and seed",
        ),
    ],
)
def test_another_studys_folder_is_refused_and_left_alone(
    tmp_path: Path, other: Study, named: str
) -> None:
    execute(study_of(workload("true"), THREE, reproduce="heapfit compare -- true"), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(
        UsageError, match=rf"another study: {named} differ.*heapfit compare -- true"
    ):
        execute(other, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_study_is_gone_on_with_where_its_paths_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, elsewhere = tmp_path / "out", tmp_path / "an other"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    command = "heapfit compare ./w.toml"
    execute(study_of(workload("true"), THREE, reproduce=command), folder)
    with pytest.raises(UsageError, match=rf"\(go on with it by: {command}\)"):
        execute(study_of(workload("true"), THREE, seed=7), folder)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=rf"by: cd '{elsewhere}' && {command}\)"):
        execute(study_of(workload("true"), THREE, seed=7), folder)


@pytest.mark.parametrize(("replicates", "repeats"), [(2, "now"), (3, "now"), (1, "before")])
def test_the_present_command_is_repeated_unless_the_study_keeps_more_replicates(
    tmp_path: Path, replicates: int, repeats: str
) -> None:
    before = study_of(workload("true"), THREE, replicates=2, reproduce="before")
    now = study_of(workload("true"), THREE, replicates=replicates, reproduce="now",
                   primary_metric="user_s", weights={"time": 1.0})  # fmt: skip
    Journal(tmp_path, before).close()
    with Journal(tmp_path, now) as journal:
        assert journal.study.reproduce == repeats
        assert (journal.study.primary_metric, journal.study.weights) == ("user_s", {"time": 1.0})


def test_an_interrupt_tells_of_all_trials_on_disk(tmp_path: Path) -> None:
    def told(progress: StudyProgress) -> str:
        console = progress.console
        with (
            console.capture() as said,
            pytest.raises(typer.Exit),
            kept_on_interrupt(progress, tmp_path),
        ):
            raise KeyboardInterrupt
        return said.get()

    console = Console(width=200)
    assert "interrupted: what was measured is kept in" in told(StudyProgress(console))
    study = study_of(workload("true"), THREE, replicates=2, name="one")
    done = [Trial(planned=each, status=TrialStatus.OK, started=study.created)
            for each in study.plan[:4]]  # fmt: skip
    progress = ManyProgress(console, 18, {"one": 4, "other": 2})
    progress.begin(study, done)
    assert "interrupted: 6 of 18 trials are kept in" in told(progress)
    put_aside = study.model_copy(update={"name": "other"})
    progress.begin(put_aside, [])
    assert "interrupted: 4 of 18 trials are kept in" in told(progress)
    one = StudyProgress(console)
    one.begin(study, done)
    assert f"interrupted: 4 of {len(study.plan)} trials are kept in" in told(one)


@pytest.mark.parametrize(
    ("is_terminal", "kind", "lines"), [(True, "dumb", 1), (True, "xterm", 0), (False, "xterm", 1)]
)
def test_lines_say_what_runs_where_no_bar_can_be_drawn(
    is_terminal: bool, kind: str, lines: int
) -> None:
    shown = StringIO()
    console = Console(file=shown, width=200, force_terminal=is_terminal, _environ={"TERM": kind})
    study = study_of(workload("true"), THREE)
    with StudyProgress(console) as progress:
        progress.begin(study, [])
        progress.started(study.plan[0], None)
    assert shown.getvalue().count("trials; now") == lines
    before = shown.tell()
    with WorkProgress(console) as work:
        work(1, 2, "work")
    assert (shown.tell() == before) is bool(lines)


def finished_study(folder: Path) -> tuple[Study, bytes]:
    study = study_of(workload("true"), THREE, replicates=1)
    execute(study, folder)
    return study, (folder / "trials.jsonl").read_bytes()


@pytest.mark.parametrize("cut", [1, 100])
def test_a_torn_last_line_is_measured_again(tmp_path: Path, cut: int) -> None:
    study, whole = finished_study(tmp_path)
    (tmp_path / "trials.jsonl").write_bytes(whole[:-cut])
    assert order_of(load(tmp_path)[1]) == [0, 1, 2, 3, 4]
    execute(study, tmp_path)
    lines = (tmp_path / "trials.jsonl").read_bytes().splitlines(keepends=True)
    assert lines[:5] == whole.splitlines(keepends=True)[:5]
    assert order_of(load(tmp_path)[1]) == list(range(6))


def test_a_damaged_line_amid_others_is_named_and_nothing_is_thrown_away(tmp_path: Path) -> None:
    study, whole = finished_study(tmp_path)
    damaged = whole.replace(b'"index":2', b'"index":x')
    (tmp_path / "trials.jsonl").write_bytes(damaged)
    with pytest.raises(HeapfitError, match="line 3 is damaged"):
        execute(study, tmp_path)
    assert (tmp_path / "trials.jsonl").read_bytes() == damaged


def test_a_full_disk_keeps_what_is_measured_and_says_what_to_do(tmp_path: Path) -> None:
    """The file size limit fails a write half-way through a line, as a full disk does."""
    study, whole = finished_study(tmp_path)
    trials = load(tmp_path)[1]
    second_end = len(b"".join(whole.splitlines(keepends=True)[:2]))
    (tmp_path / "trials.jsonl").write_bytes(b"")
    limit = second_end + 50
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Journal(tmp_path, study) as journal:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, unlimited[1]))
        try:
            journal.append(trials[0])
            journal.append(trials[1])
            with pytest.raises(HeapfitError, match=r"make room.*completed trials are kept"):
                journal.append(trials[2])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        assert (tmp_path / "trials.jsonl").stat().st_size == second_end
        journal.append(trials[2])
    assert order_of(load(tmp_path)[1]) == [0, 1, 2]


@pytest.mark.parametrize(
    ("code", "of_folders", "is_kept"),
    [
        (errno.EINVAL, True, True),
        (errno.ENOTSUP, True, True),
        (errno.EIO, True, False),
        (errno.EINVAL, False, False),
    ],
)
def test_only_a_file_system_that_cannot_sync_folders_may_leave_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, of_folders: bool, is_kept: bool
) -> None:
    def fsync(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode) is of_folders:
            raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fsync)
    with nullcontext() if is_kept else pytest.raises(OSError, match=os.strerror(code)):
        write_durably(tmp_path / "file", b"content")
    assert (tmp_path / "file").exists() is of_folders


@pytest.mark.full
def test_a_folder_that_may_not_be_written_to_is_not_short_of_room(small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(HeapfitError, match=r"read-only.*nothing can be kept there.*--out"):
        execute(study_of(workload("true"), THREE), small_disk / "out")


@pytest.mark.full
def test_a_finished_study_that_may_not_be_written_to_is_read_all_the_same(small_disk: Path) -> None:
    finished_study(small_disk)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    note_look(small_disk, 3)
    with pytest.raises(HeapfitError, match=r"copy the folder to a place .* run heapfit report"):
        write_text(small_disk / "report.md", "")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of four megabytes."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(tmp_path)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a small disk needs root; the file size limit above tests as much")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


def test_two_studies_at_a_time_take_different_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the second one says that it shares them. No other run of the tests is one of them."""
    monkeypatch.delenv(cores.SHARE_VARIABLE)
    monkeypatch.setattr(cores, "_ADDRESS", f"\0heapfit-test/{os.getpid()}/")
    allowed = cores.allowed_cpus()
    with cores.own_cores(1) as shared:
        own = cores.split_cores(1).program
        assert not shared
        with cores.own_cores(1) as also_shared:
            if len(allowed) > 1:
                assert (cores.split_cores(1).program != own) or also_shared == own
            else:
                assert also_shared == own
        with cores.own_cores(len(allowed)) as also_shared:
            assert set(own) <= set(also_shared)
            assert cores.split_cores(len(allowed)).program == allowed
    assert cores.allowed_cpus() == allowed
    with cores.own_cores(1):
        assert cores.split_cores(1).program == own


def test_of_two_studies_of_a_command_one_says_that_it_shares_processors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(cores.SHARE_VARIABLE)
    monkeypatch.setattr(cores, "_ADDRESS", f"\0heapfit-test/{os.getpid()}/")
    monkeypatch.setattr(output, "_warned", set())
    with cores.own_cores(len(cores.allowed_cpus())):
        for name in ("first", "second"):
            study = study_of(workload("true"), THREE)
            execute(study, tmp_path / name, StudyProgress(output.messages))
    assert capsys.readouterr().err.count("another study runs on") == 1


def test_processes_that_report_on_one_study_at_a_time_keep_every_look(tmp_path: Path) -> None:
    """In containers, whose processes have the same numbers, too."""
    reports = """
import os, sys
from pathlib import Path
from heapfit.files import write_text
from heapfit.study import note_look
os.getpid = lambda: 1
folder, first = Path(sys.argv[1]), int(sys.argv[2])
for blocks in range(first, first + 20):
    note_look(folder, blocks)
    write_text(folder / "report.html", "x" * 100_000)
"""
    command = [sys.executable, "-c", reports, str(tmp_path)]
    processes = [subprocess.Popen([*command, str(1 + 20 * k)]) for k in range(4)]
    assert [each.wait() for each in processes] == [0] * 4
    assert looks(tmp_path) == list(range(1, 81))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["looks.jsonl", "report.html"]


def test_of_two_that_make_the_same_folder_the_quicker_ones_stays(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    for quick, slow in (("a", "b"), ("c", "d")):  # where there was none, and where there was one
        with replacing_folder(folder) as late:
            (late / slow).touch()
            with replacing_folder(folder) as early:
                (early / quick).touch()
        assert [each.name for each in folder.iterdir()] == [quick]
    assert [each.name for each in tmp_path.iterdir()] == ["folder"]


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
