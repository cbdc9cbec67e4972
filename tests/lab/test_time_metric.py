"""Which metric of time decides, and what a recommendation says where none can tell."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from conftest import load_benchmark
from design_data import MEMORY, WALL, study_of, trial_of
from heapfit.advice import recommend
from heapfit.advice.noise import WORTH
from heapfit.errors import UsageError
from heapfit.findings import Advice
from heapfit.fit import search
from heapfit.gate import verdicts
from heapfit.meaning import PROCESSOR, deciding_metrics
from heapfit.records import Metric, Study, Trial, WorkloadRun, WorkloadServer
from heapfit.report import Reading, html_report, json_report, markdown_report
from heapfit.report.recommendation import deciding, headline, one_line
from heapfit.statistics import read
from heapfit.statistics.time_metric import MOST_PROCESSORS
from heapfit.trial import tree
from heapfit.trial.tree import ProcessTree

USER = Metric(name="user_s", label="User time", unit="s", better="lower", source="wait4")
SYSTEM = Metric(name="system_s", label="System time", unit="s", better="lower", source="wait4")
GIB = float(2**30)


def measured(
    times: Mapping[str, float],
    memory: Mapping[str, float],
    scatter: float = 0.01,
    waits: float = 0.4,
    processors: float = 1.0,
    blocks: int = 10,
) -> tuple[Study, list[Trial]]:
    """Runs of so much processor time, of which each waits for up to some times as long."""
    generator = np.random.default_rng(2)
    study = study_of(list(times), {}, [WALL, USER, SYSTEM, MEMORY])
    trials = []
    for block in range(blocks):
        for name, time in times.items():
            processor_s = time * np.exp(generator.normal(0, scatter))
            figures = {
                "wall_s": processor_s / processors * (1.01 + generator.exponential(waits)),
                "user_s": 0.9 * processor_s,
                "system_s": 0.1 * processor_s,
                "peak_rss_bytes": GIB * memory[name] * np.exp(generator.normal(0, 0.003)),
            }
            trials.append(trial_of(study, (name,), figures, block))
    return study, trials


def advised(made: tuple[Study, list[Trial]]) -> Advice:
    advice = Reading(*made).advice
    assert advice is not None
    return advice


def test_on_a_busy_machine_the_processor_time_of_a_program_of_one_thread_decides() -> None:
    """It kept glibc for its memory, beside 15 % less user time that the table showed."""
    made = measured({"glibc": 1.15, "quick": 1.0}, {"glibc": 1.0, "quick": 1.02})
    advice = advised(made)
    assert headline(advice) == "Recommended: quick, by processor time"
    assert advice.metrics["time"] == PROCESSOR
    assert "uses one processor at a time" in one_line(advice)
    reading = Reading(*made)
    assert [each.name for each in deciding_metrics(reading.summary.study)] == [
        "wall_s",
        PROCESSOR,
        "peak_rss_bytes",
    ]
    [shown] = [each for each in reading.summary.verdicts if each.metric == PROCESSOR]
    assert shown.turned().estimate == pytest.approx(1 / 1.15, rel=0.02)
    for written in (
        html_report.page(reading),
        markdown_report.text(reading),
        json_report.text(reading),
    ):
        assert "Processor time" in written


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"waits": 0.001}, "waits hardly vary"),
        ({"processors": 2 * MOST_PROCESSORS}, "threads run at once"),
        ({"blocks": 2}, "too few blocks"),
    ],
)
def test_wall_time_decides_elsewhere(changed: dict[str, float], why: str) -> None:
    made = measured({"a": 1.0, "b": 1.0}, {"a": 1.0, "b": 1.0}, **changed)  # type: ignore[arg-type]
    assert PROCESSOR not in {each.name for each in read(*made).study.metrics}, why


@pytest.mark.parametrize(("waits", "decides"), [(0.001, False), (0.4, True)])
def test_that_one_machine_waits_longer_than_another_makes_no_run_vary(
    waits: float, decides: bool
) -> None:
    alike = {"glibc": 1.0, "other": 1.0}
    study, trials = measured(alike, alike, waits=waits)
    for at, trial in enumerate(trials):
        second = trial.planned.block % 2
        got = {**trial.metrics, "wall_s": trial.metrics["wall_s"] * (1 + 0.3 * second)}
        trials[at] = trial.model_copy(update={"machine": f"m{second}", "metrics": got})
    assert (PROCESSOR in read(study, trials).figures) == decides


def test_wall_time_decides_where_the_program_has_threads() -> None:
    """On a busy machine four threads used no more than one processor, and the screen said so."""
    study, trials = measured({"a": 1.0, "b": 1.0}, {"a": 1.0, "b": 1.0})
    for threads, decides in (({"a": 5, "b": 5}, False), ({"a": 1, "b": 2}, True)):
        seen = [
            each.model_copy(update={"threads": threads[each.planned.allocator]}) for each in trials
        ]
        chosen = {each.name for each in read(study, seen).study.metrics}
        assert (PROCESSOR in chosen) == decides, threads


def resting(study: Study, *client: str) -> Study:
    """The study, of a server that a client drives, or that runs for as long as a sleep."""
    update = {
        "server": WorkloadServer(command=["./worker"], ready="started"),
        "run": WorkloadRun(command=list(client)),
    }
    return study.model_copy(update={"workload": study.workload.model_copy(update=update)})


def asleep(trials: Sequence[Trial]) -> list[Trial]:
    """The trials, of several threads, each of which takes as long as the others."""
    generator = np.random.default_rng(3)
    return [
        each.model_copy(
            update={
                "threads": 5,
                "metrics": {**each.metrics, "wall_s": 7 + 0.001 * generator.random()},
            }
        )
        for each in trials
    ]


def test_processor_time_decides_where_the_workload_fixes_how_long_a_trial_runs() -> None:
    """Wall time was that of `sleep 7`: "1.000x, no difference is shown", beside 45 % less processor
    time that nothing told."""
    study, trials = measured({"glibc": 2.0, "quick": 1.1}, {"glibc": 1.0, "quick": 1.0}, blocks=4)
    slept = asleep(trials)
    assert PROCESSOR not in {e.name for e in read(resting(study, "redis-cli"), slept).study.metrics}
    reading = Reading(resting(study, "/bin/sleep", "7"), slept)
    summary, advice = reading.summary, reading.advice
    assert "wall_s" not in {each.metric for each in summary.estimates}
    assert summary.study.primary_metric == PROCESSOR
    [shown] = [each for each in summary.verdicts if each.metric == PROCESSOR]
    assert shown.turned().estimate == pytest.approx(0.55, rel=0.03)
    assert advice is not None
    assert headline(advice) == "Recommended: quick, by processor time"
    assert advice.basis.endswith("because the workload fixes how long a trial runs.")
    assert deciding(reading.results, advice) == [PROCESSOR, "peak_rss_bytes"]
    for written in (
        html_report.page(reading),
        markdown_report.text(reading),
        json_report.text(reading),
    ):
        assert "Processor time" in written
        assert "Wall time" not in written


def test_a_bound_on_wall_time_is_refused_where_the_workload_fixes_it() -> None:
    """`--keep 'wall_s<=1.02'` passed whatever the program took."""
    study, trials = measured({"glibc": 1.0, "slow": 1.5}, {"glibc": 1.0, "slow": 1.0})
    study = resting(study, "sleep", "7")
    with pytest.raises(UsageError, match=r"bound processor time: 'processor_s<=1\.02'"):
        verdicts.check(search.conditions(["wall_s<=1.02"]), study)
    bound = search.conditions(["processor_s<=1.02"])
    verdicts.check(bound, study)
    reading = Reading(study, asleep(trials))
    must_not = [each.forbidden() for each in bound]
    [decision] = verdicts.judge(must_not, reading.readings, reading.summary)
    assert decision.outcome == "failed"


def test_a_trial_counts_the_threads_of_the_process_that_has_most() -> None:
    script = (
        "import sys, threading\n"
        "for _ in range(3): threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "print(flush=True); sys.stdin.read()"
    )
    command = ["sh", "-c", '"$0" -c "$1"; :', sys.executable, script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as shell:
        assert shell.stdout is not None
        assert shell.stdout.readline() == b"\n"
        looked_at = ProcessTree(shell.pid)
        with closing(looked_at):
            looked_at.resident()
        shell.communicate()
    assert looked_at.most_threads == 4


@pytest.mark.parametrize("has_pool", [True, False])
def test_memory_is_read_of_each_process_with_its_part_of_the_huge_page_pool(
    monkeypatch: pytest.MonkeyPatch, *, has_pool: bool
) -> None:
    """Of most processes without a file that stays open, and of the pool only where there is one."""
    monkeypatch.setattr(tree, "_MOST_KEPT", 1)
    monkeypatch.setattr(tree, "_has_pool", lambda: has_pool)
    monkeypatch.setattr(tree, "pooled", lambda _: 1 << 40)
    command = ["sh", "-c", "sleep 600 & a=$!; sleep 600 & echo; read line; kill $a $!"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as shell:
        assert shell.stdout is not None
        assert shell.stdout.readline() == b"\n"
        with closing(ProcessTree(shell.pid)) as looked_at:
            for _ in range(2):
                sizes = looked_at.resident().values()
                assert [each >= 1 << 40 for each in sizes] == [has_pool] * 2
                assert len(looked_at._statm) == 1
        shell.communicate(b"\n")


def test_pages_of_the_pool_are_read_from_the_status(monkeypatch: pytest.MonkeyPatch) -> None:
    for status, size in ((b"Threads:\t1\nHugetlbPages:\t    4096 kB\nx", 4 << 20), (b"x", 0)):
        monkeypatch.setattr("pathlib.Path.read_bytes", lambda _, status=status: status)
        assert tree.pooled(1) == size


def test_the_choice_is_the_same_whichever_allocator_is_quicker() -> None:
    """It is made from the means of blocks, of which no allocator's advantage is a part."""
    sources = set()
    for ratio in (0.5, 1.0, 2.0):
        made = measured({"a": 1.0, "b": ratio}, {"a": 1.0, "b": 1.0}, waits=0.05)
        [metric] = [each for each in read(*made).study.metrics if each.name == PROCESSOR]
        sources.add(metric.source)
    assert len(sources) == 1


def test_nothing_is_kept_that_a_figure_of_time_in_the_table_speaks_against() -> None:
    made = measured(
        {"glibc": 1.15, "quick": 1.0}, {"glibc": 1.0, "quick": 1.02}, waits=0.9, processors=2.5
    )
    advice = advised(made)
    assert headline(advice) == "No recommendation"
    assert advice.recommended is None
    assert "Wall time cannot tell quick from glibc, but quick takes" in advice.reasons
    assert "less user time, and glibc is better in memory" in advice.reasons


def waiting(trials: Sequence[Trial], name: str, more_s: float) -> list[Trial]:
    """The trials, those of one allocator with so much more wall time, of which nothing computes."""
    return [
        each.model_copy(
            update={"metrics": {**each.metrics, "wall_s": each.metrics["wall_s"] + add}}
        )
        for each in trials
        for add in [more_s * (each.planned.allocator == name)]
    ]


@pytest.mark.parametrize(("memory", "gains"), [(1.0, ""), (0.8, " and 20 % less RSS")])
def test_what_loses_wall_time_is_not_recommended_by_its_processor_time(
    memory: float, gains: str
) -> None:
    """One that waited half a second was, with 31 % less processor time and twice the wall time."""
    times, sizes = {"glibc": 1.4, "waits": 1.0}, {"glibc": 1.0, "waits": memory}
    study, trials = measured(times, sizes, waits=0.2)
    assert headline(advised((study, trials))) == "Recommended: waits, by processor time"
    reading = Reading(study, waiting(trials, "waits", 2.0))
    advice = reading.advice
    assert advice is not None
    assert headline(advice) == "No recommendation, by processor time"
    assert advice.slow == ["waits"]
    assert advice.reasons.startswith(f"waits needs 29 % less processor time{gains}, but 1")
    assert " % more wall time than glibc. Choose by what matters" in advice.reasons
    assert deciding(reading.results, advice)[:2] == [PROCESSOR, "wall_s"]


def test_memory_outweighs_a_loss_of_wall_time_that_is_small_beside_it() -> None:
    """80 % less memory was no reason against some more wall time, whatever the weights."""
    truth = {"glibc": 1.0, "waits": 0.98}
    made = measured(truth, {"glibc": 1.0, "waits": 0.2}, waits=0.2, blocks=12)
    study, trials = made[0], waiting(made[1], "waits", 0.8)
    advice = advised((study, trials))
    assert advice.recommended == "waits"
    assert not advice.slow
    said = "more wall time than glibc, but still costs 4"
    assert said in advice.reasons
    by_time = recommend(read(study, trials), {"time": 1.0})
    assert by_time.recommended is None


@pytest.mark.parametrize("processor", [0.99, 1.0])
def test_what_the_weights_outweigh_is_recommended_whoever_is_ahead_in_processor_time(
    processor: float,
) -> None:
    """Without a gain of processor time the loss of wall time was a reason for no answer."""
    truth = {"glibc": 1.0, "waits": processor}
    study, trials = measured(truth, {"glibc": 1.0, "waits": 0.1}, waits=0.2, blocks=12)
    assert advised((study, waiting(trials, "waits", 0.2))).recommended == "waits"


def test_a_loss_of_wall_time_is_judged_in_its_own_setting() -> None:
    """In a setting in which one needs more memory, and waits, it was the best."""
    generator = np.random.default_rng(3)
    study = study_of(["glibc", "other"], {"size": ["small", "big"]}, [WALL, USER, SYSTEM, MEMORY])
    trials = []
    memory = {("glibc", "small"): 1.0, ("glibc", "big"): 1.0,
              ("other", "small"): 0.05, ("other", "big"): 2.0}  # fmt: skip
    for block in range(12):
        for (name, level), size in memory.items():
            time_s = (0.9 if name == "other" else 1.0) * np.exp(generator.normal(0, 0.01))
            wall_s = time_s * (1.01 + generator.exponential(0.2)) + 0.8 * (name == "other")
            got = {"wall_s": wall_s, "user_s": 0.9 * time_s, "system_s": 0.1 * time_s,
                   "peak_rss_bytes": GIB * size * np.exp(generator.normal(0, 0.003))}  # fmt: skip
            trials.append(trial_of(study, (name, level), got, block))
    reading = Reading(study, trials)
    assert reading.advice is not None
    best = {each.at["size"]: each.best for each in reading.advice.by_setting}
    assert best == {"small": "other", "big": "glibc"}
    assert "At size big, glibc is shown to be better than other." in reading.advice.notes


def test_another_that_loses_no_wall_time_is_recommended_all_the_same() -> None:
    times = {"glibc": 1.4, "waits": 1.0, "sound": 1.1}
    study, trials = measured(times, dict.fromkeys(times, 1.0), waits=0.2)
    advice = advised((study, waiting(trials, "waits", 2.0)))
    assert advice.recommended == "sound"
    assert "waits" in {each.allocator for each in advice.standings if each.unbeaten}


def test_a_loss_of_wall_time_that_is_one_of_processor_time_is_weighed_as_that() -> None:
    study, trials = measured({"glibc": 1.0, "lean": 1.2}, {"glibc": 1.0, "lean": 0.5}, waits=0.2)
    assert advised((study, trials)).recommended == "lean"
    assert advised((study, waiting(trials, "lean", 2.0))).recommended is None


def test_where_nothing_can_be_told_the_headline_says_so_and_what_would_tell() -> None:
    noisy = measured({"a": 1.0, "b": 1.0}, {"a": 1.0, "b": 1.0}, scatter=0.1)
    advice = advised(noisy)
    assert headline(advice) == "Inconclusive"
    [said] = advice.untold
    assert not advice.reasons  # That there is no difference would be a second answer.
    assert said.startswith("Whether b differs from a in processor time is not known")
    assert ": the true change may be anywhere from -" in said
    count = int(said.partition("--replicates ")[2].partition(" ")[0])
    assert 20 < count < 300
    assert f"would show {100 * WORTH:.0f} %" in said
    quiet = measured({"a": 1.0, "b": 1.0}, {"a": 1.0, "b": 1.0}, waits=0.001)
    assert headline(advised(quiet)) == "No difference shown that matters"
    assert not advised(quiet).untold


def test_neither_the_choice_nor_notes_on_settings_are_false_more_often_than_promised() -> None:
    """A small version of what `benchmarks/verdict_errors.py` simulates."""
    benchmark = load_benchmark(Path(__file__).parents[2] / "benchmarks" / "verdict_errors.py")
    choice = benchmark.count_choices("normal", "as the program itself", 2, 6, 20_000, seed=1)
    assert 0.2 < choice.chosen < 0.9
    assert benchmark.keeps_promises(choice)
    notes = benchmark.count_notes("normal", 4, 5, 2, 50, seed=1)
    assert benchmark.keeps_promises(notes)


def test_time_that_does_not_count_is_named_and_no_figure_beside_it_contradicts() -> None:
    """All were "within 5 ms of each other" above a table with 11 ms less wall time."""
    alike = {"glibc": 0.05, "other": 0.05}
    study, trials = measured(alike, {"glibc": 1.0, "other": 1.1}, waits=0.05, blocks=40)
    [note] = [each for each in advised((study, trials)).notes if "within" in each]
    assert note.startswith("Time does not count: in processor time all allocators are shown to be ")
    advice = advised((study, waiting(trials, "other", 0.02)))
    assert advice.metrics["time"] == PROCESSOR
    assert not [each for each in advice.notes if "within" in each]
