"""`heapfit compare` and `heapfit report`: the whole way, on small real programs."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import Heapfit, assert_one_line, heapfit_command
from engine_helpers import compiled
from heapfit.study.execute import WORKSPACE
from study_files import trials_in

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("library")]

PROGRAM = ["perl", "-e", "print length join q(), 1 .. 20000"]
QUICK = ["--allocators", "glibc,heapfit", "--replicates", "2", "--cores", "1"]


@pytest.mark.gate
def test_a_command_is_compared_and_the_page_written(run_heapfit: Heapfit, tmp_path: Path) -> None:
    result = run_heapfit("compare", *QUICK, "--", *PROGRAM, folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "glibc" in result.stdout
    assert "heapfit" in result.stdout
    [folder] = (tmp_path / "heapfit-results").iterdir()
    page = result.stdout.splitlines()[-1].removeprefix("The page: ")
    assert (tmp_path / page).read_text().lstrip().lower().startswith("<!doctype html>")
    # A warm-up and two replicates of two allocators.
    assert [trial["status"] for trial in trials_in(folder)] == ["ok"] * 6


@pytest.mark.gate
def test_an_allocator_is_compared_with_itself(run_heapfit: Heapfit, tmp_path: Path) -> None:
    command = ["compare", "--allocators", "heapfit", "--aa", "--replicates", "2", "--cores", "1",
               "--out", tmp_path]  # fmt: skip
    result = run_heapfit(*command, "--json", "--", *PROGRAM)
    assert result.returncode == 0, result.stderr
    study = json.loads(result.stdout)["study"]
    assert [each["name"] for each in study["allocators"]] == ["heapfit", "heapfit-again"]
    assert len({each["library"] for each in study["allocators"]}) == 1
    assert study["baseline"] == "heapfit"
    assert [trial["status"] for trial in trials_in(tmp_path)] == ["ok"] * 6
    repeated = run_heapfit(*shlex.split(study["reproduce"])[1:])
    assert "all 6 trials are already done" in repeated.stderr
    assert "heapfit and heapfit-again are the same allocator" in " ".join(repeated.stdout.split())


@pytest.mark.gate
def test_weights_are_given_to_the_comparison_or_to_its_report(
    run_heapfit: Heapfit, tmp_path: Path
) -> None:
    command = ["compare", *QUICK, "--weights", "time=1,memory=3", "--out", tmp_path]
    result = run_heapfit(*command, "--json", "--", *PROGRAM)
    assert result.returncode == 0, result.stderr
    assert "at most 300 s for a trial (--timeout)" in result.stderr
    study = json.loads(result.stdout)["study"]
    assert study["weights"] == {"time": 1, "memory": 3}
    assert "--weights time=1,memory=3" in study["reproduce"]
    other = run_heapfit("report", tmp_path, "--weights", "memory=1", "--json")
    assert json.loads(other.stdout)["study"]["weights"] == {"memory": 1}
    wrong = run_heapfit("report", tmp_path, "--weights", "memroy=1")
    assert "did you mean 'memory'?" in wrong.stderr
    assert run_heapfit("report", tmp_path, "--weights", "memory=0").returncode == 2
    twice = run_heapfit("report", tmp_path, "--weights", "time=1,time=3")
    assert_one_line(twice, 2, ["--weights names time twice"])


def test_a_metric_that_is_asked_for_decides_alone(run_heapfit: Heapfit, tmp_path: Path) -> None:
    words = ("compare", *QUICK, "--metric", "mean_rss_bytes", "--out", tmp_path, "--json")
    result = json.loads(run_heapfit(*words, "--", *PROGRAM).stdout)
    advice = result["advice"]
    assert advice["metrics"] == {"mean-memory": "mean_rss_bytes"}
    assert list(advice["weights"]) == ["mean-memory"]
    assert "--metric mean_rss_bytes" in result["study"]["reproduce"]


@pytest.mark.gate
def test_what_repeats_a_study_weighs_what_it_weighed(run_heapfit: Heapfit, tmp_path: Path) -> None:
    words = ("compare", *QUICK, "--out", tmp_path, "--json")
    study = json.loads(run_heapfit(*words, "--", *PROGRAM).stdout)["study"]
    assert (study["primary_metric"], study["weights"]) == ("wall_s", {})
    run_heapfit(*shlex.split(study["reproduce"])[1:])
    assert json.loads((tmp_path / "study.json").read_text())["weights"] == {}


@pytest.mark.gate
def test_settings_of_an_allocator_are_compared(run_heapfit: Heapfit, tmp_path: Path) -> None:
    words = ["heapfit", "heapfit:decay_ms=5,huge_pages=never", "glibc:env.MALLOC_ARENA_MAX=1"]
    command = ["compare", "--allocators", ",".join(words), "--baseline", "heapfit"]
    few = ["--replicates", "1", "--cores", "1", "--out", tmp_path, "--json"]
    result = run_heapfit(*command, *few, "--", *PROGRAM)
    assert result.returncode == 0, result.stderr
    study = json.loads(result.stdout)["study"]
    assert [each["name"] for each in study["allocators"]] == words
    _, options, environment = study["allocators"]
    assert options["options"] == {"decay_ms": "5", "huge_pages": "never"}
    assert environment["environment"] == {"MALLOC_ARENA_MAX": "1"}
    assert {trial["status"] for trial in trials_in(tmp_path)} == {"ok"}
    repeated = run_heapfit(*shlex.split(study["reproduce"])[1:])
    assert "all 6 trials are already done" in repeated.stderr


@pytest.mark.gate
def test_the_same_command_adds_nothing_and_more_replicates_add_to_it(
    run_heapfit: Heapfit, tmp_path: Path
) -> None:
    out = tmp_path / "results"
    command = ["compare", *QUICK, "--out", out]
    assert run_heapfit(*command, "--", *PROGRAM).returncode == 0
    first = trials_in(out)
    (out / "report.md").write_text("as it was")
    again = run_heapfit(*command, "--", *PROGRAM)
    assert again.returncode == 0
    assert "as it was" not in (out / "report.md").read_text()
    assert "all 6 trials are already done" in again.stderr
    assert trials_in(out) == first
    more = run_heapfit(*command, "--replicates", "3", "--", *PROGRAM)
    assert more.returncode == 0
    assert trials_in(out)[:6] == first
    assert len(trials_in(out)) == 8
    (out / "report.md").write_text("as it was")
    assert run_heapfit("report", out).returncode == 0
    assert "as it was" not in (out / "report.md").read_text()


def test_a_comparison_runs_until_it_is_precise_or_time_is_up(
    run_heapfit: Heapfit, tmp_path: Path
) -> None:
    options = ["--allocators", "glibc,heapfit", "--cores", "1", "--out", tmp_path]
    options += ["--precision", "0.01%", "--max-time", "10s"]
    result = run_heapfit("compare", *options, "--json", "--", "sh", "-c", "sleep 0.1; echo done")
    assert result.returncode == 0, result.stderr
    summary = json.loads(result.stdout)
    assert summary["study"]["rule"] == {"precision": 0.0001, "max_time_s": 10.0}
    trials = trials_in(tmp_path)
    assert len(trials) == summary["trials_planned"] == summary["trials_done"]
    assert sum(trial["took_s"] for trial in trials[:-1]) < 10
    assert float(summary["precision"]["reached"]) > 0.0001
    assert "--precision 0.01% --max-time 10s" in summary["study"]["reproduce"]


@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupt_keeps_what_is_measured_and_the_same_command_goes_on(
    clean_environment: dict[str, str], run_heapfit: Heapfit, tmp_path: Path, blow: signal.Signals
) -> None:
    runs, gate, told = tmp_path / "runs", tmp_path / "gate", tmp_path / "told"
    os.mkfifo(told)
    # The third run of the program says so and hangs, once.
    hang = f"touch {gate}; echo hangs > {told}; exec sleep 600"
    hang = f"if [ $(wc -l < {runs}) = 3 ] && [ ! -e {gate} ]; then {hang}; fi"
    program = ["sh", "-c", f"echo >> {runs}; {hang}; echo done"]
    command = ["compare", *QUICK, "--out", str(tmp_path), "--", *program]
    with subprocess.Popen(
        heapfit_command(*command), env=clean_environment, stderr=subprocess.PIPE, text=True
    ) as process:
        assert told.read_text() == "hangs\n"
        process.send_signal(blow)
        _, said = process.communicate()
    assert process.returncode == (130 if blow is signal.SIGINT else -signal.SIGKILL)
    assert ("the same command continues from there" in said) == (blow is signal.SIGINT)
    kept = trials_in(tmp_path)
    assert len(kept) == 2
    result = run_heapfit(*command)
    assert result.returncode == 0, result.stderr
    assert f"continuing: {len(kept)} of 6" in result.stderr
    assert trials_in(tmp_path)[: len(kept)] == kept
    assert len(trials_in(tmp_path)) == 6
    assert not (tmp_path / WORKSPACE).exists()


@pytest.mark.parametrize(
    ("program", "options", "said"),
    [(["false"], [], "exit code 1"), (["date", "+%N"], [], "--output ignore")],
)
def test_a_program_that_fails_under_the_baseline_is_explained(
    run_heapfit: Heapfit, tmp_path: Path, program: list[str], options: list[str], said: str
) -> None:
    result = run_heapfit("compare", *QUICK, *options, "--out", tmp_path, "--", *program)
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith("heapfit: ")
    assert said in result.stderr.splitlines()[-1]


@pytest.mark.parametrize("words", [("compare", *QUICK), ("fit", "--explain")])
def test_standard_input_is_not_dropped_in_silence(
    run_heapfit: Heapfit,
    clean_environment: dict[str, str],
    tmp_path: Path,
    words: Sequence[str],
) -> None:
    command = heapfit_command(*words, "--", "cat")
    run = {"env": clean_environment, "cwd": tmp_path, "capture_output": True, "text": True}
    piped = subprocess.run(command, input="something", **run)  # type: ignore[call-overload]
    assert "standard input is not given to the program" in piped.stderr
    file = tmp_path / "file"
    file.write_text("something")
    with file.open() as given:
        read = subprocess.run(command, stdin=given, **run)  # type: ignore[call-overload]
    assert "standard input is not given to the program" in read.stderr
    empty = subprocess.run(command, stdin=subprocess.DEVNULL, **run)  # type: ignore[call-overload]
    assert "standard input" not in empty.stderr
    command = ["sh", "-c", '"$@" <&-', "sh", *command]
    closed = subprocess.run(command, **run)  # type: ignore[call-overload]
    assert (closed.returncode, "standard input" in closed.stderr) == (empty.returncode, False)


def test_a_program_that_takes_no_allocator_ends_the_comparison_with_the_first_block(
    run_heapfit: Heapfit, tmp_path: Path, library: Path
) -> None:
    compiled(tmp_path / "static", "int main(void) { return 0; }", "-static")
    three = ["--allocators", f"glibc,heapfit,again={library}", "--cores", "1"]
    result = run_heapfit("compare", *three, "--out", "out", "--", "./static", folder=tmp_path)
    assert result.returncode == 1
    said = result.stderr.splitlines()[-1]
    assert said.startswith("heapfit: there is nothing to compare with glibc: under every other")
    assert said.endswith("nothing can be preloaded into it: link it dynamically")
    trials = trials_in(tmp_path / "out")
    assert len(trials) <= 2
    assert all(each["planned"]["warmup"] for each in trials)


def test_report_says_first_that_a_study_is_still_running(
    run_heapfit: Heapfit, tmp_path: Path
) -> None:
    run_heapfit("compare", *QUICK, "--out", tmp_path, "--", *PROGRAM)
    assert run_heapfit("report", tmp_path).stderr == ""
    journal = tmp_path / "trials.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(lines[:-2]))
    said = f"note: the study in {tmp_path} is not finished: 4 of 6 trials are done so far; "
    assert run_heapfit("report", tmp_path).stderr.startswith(said)
    with journal.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        running = run_heapfit("report", tmp_path)
    for folder in ("earlier", "earlier/then"):
        (tmp_path / folder).mkdir()
    for name in ("study.json", "trials.jsonl"):
        shutil.copy(tmp_path / name, tmp_path / "earlier" / "then")
    aside = run_heapfit("report", tmp_path / "earlier" / "then")
    assert aside.stderr.endswith("; it was put aside and will not be continued\n")
    assert "goes on" not in aside.stdout
    said = f"note: the study in {tmp_path} is still running: 4 of 6 trials are done so far\n"
    assert running.stderr == said


# Bytes on the stack: each variable's text, its end and the pointer to it.
SIZE = "import os; print(sum(len(k) + len(v) + 10 for k, v in os.environb.items()))"


@pytest.mark.gate
def test_every_allocators_program_has_an_environment_of_one_size(
    run_heapfit: Heapfit, tmp_path: Path
) -> None:
    words = ["compare", "--allocators", "glibc,heapfit", "--replicates", "1", "--cores", "1"]
    words += ["--out", str(tmp_path), "--", "/usr/bin/python3", "-c", SIZE]
    result = run_heapfit(*words)
    assert result.returncode == 0, result.stderr
    # What a program prints must be the same under every allocator.
    assert [trial["status"] for trial in trials_in(tmp_path)] == ["ok"] * 4
