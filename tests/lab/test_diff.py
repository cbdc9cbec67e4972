"""`heapfit diff`: what of two runs may be set side by side, and what may not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import profile_tables
import pytest
import report_data
from conftest import Heapfit, assert_one_line
from heapfit.diff import Change, Diff, of_recordings, of_studies, tables
from heapfit.records import Study, Trial
from heapfit.trace.convert import convert
from profile_tables import Block, SiteRow, Tables, complete
from report_data import make_study, make_trials
from trace_data import Program, sampled, service

Turn = Callable[[Trial], dict[str, float]]


def keep(folder: Path, study: Study, figures: Turn = lambda trial: trial.metrics) -> Path:
    """Put a study on disk whose trials have those `figures`."""
    changed = [each.model_copy(update={"metrics": figures(each)}) for each in make_trials(study)]
    return report_data.keep(folder, study, changed)


def slower_and_leaner(trial: Trial) -> dict[str, float]:
    """A machine that takes twice as long, and a heapfit that takes half the memory and is no longer
    the quicker one."""
    figures = {**trial.metrics, "wall_s": 2 * trial.metrics["wall_s"]}
    if trial.planned.allocator == "heapfit":
        figures["peak_rss_bytes"] /= 2
        figures["wall_s"] *= 1.3
    return figures


@pytest.fixture
def studies(tmp_path: Path) -> tuple[Path, Path]:
    old = make_study(("glibc", "heapfit", "jemalloc"), cores=[1], replicates=10)
    machine = old.machine.model_copy(update={"kernel": "6.6.9"})
    new = make_study(("glibc", "heapfit", "mimalloc"), cores=[1], replicates=10)
    new = new.model_copy(update={"machine": machine, "heapfit_version": "9.9"})
    return keep(tmp_path / "old", old), keep(tmp_path / "new", new, slower_and_leaner)


def by_name(diff: Diff, of: str) -> dict[str, Change]:
    return {each.name: each.change for each in diff.figures if each.of.startswith(of)}


def test_memory_and_counts_are_compared_and_times_are_not(studies: tuple[Path, Path]) -> None:
    diff = of_studies(*studies)
    heapfit, glibc = by_name(diff, "heapfit"), by_name(diff, "glibc")
    assert heapfit["Peak RSS"] is Change.LESS
    assert glibc["Peak RSS"] is not Change.LESS
    for name in ("Wall time", "User time", "Major faults", "Voluntary switches"):
        assert {heapfit[name], glibc[name]} == {Change.NOT_COMPARABLE}
    assert {each.of.partition(",")[0] for each in diff.figures} == {"glibc", "heapfit"}


def test_ratios_within_each_run_show_what_the_machine_hides(studies: tuple[Path, Path]) -> None:
    diff = of_studies(*studies)
    moved = {each.name: each.change for each in diff.ratios}
    assert moved["Wall time"] is Change.MORE  # though glibc takes twice as long, too
    assert moved["User time"] is Change.UNCLEAR
    assert any("within each run" in each and "1 of" in each for each in diff.conclusions)


def test_a_single_trial_of_each_shows_nothing(tmp_path: Path) -> None:
    study = make_study(("glibc", "heapfit"), cores=[1], replicates=1)
    old = keep(tmp_path / "old", study, lambda t: {**t.metrics, "minor_faults": 1000.0})
    for faults in (1000.0, 2000.0):
        new = tmp_path / f"new-{faults}"
        diff = of_studies(
            old, keep(new, study, lambda t, n=faults: {**t.metrics, "minor_faults": n})
        )
        assert set(by_name(diff, "").values()) == {Change.UNCLEAR, Change.NOT_COMPARABLE}


def tables_of(program: Program, folder: Path) -> Path:
    convert(program.write(folder.with_suffix(".hft")), folder)
    return folder


@pytest.fixture
def recordings(tmp_path: Path) -> tuple[Path, Path]:
    """A service that serves 60 requests, and one that serves 120."""
    return (
        tables_of(service(60), tmp_path / "old.tables"),
        tables_of(service(120), tmp_path / "new.tables"),
    )


def test_calls_and_bytes_of_recordings_are_compared_by_call_site(
    recordings: tuple[Path, Path],
) -> None:
    diff = of_recordings(*recordings)
    figures = {each.name: each for each in diff.figures}
    assert figures["Allocations"].change is Change.MORE
    assert figures["Allocations: bytes"].change is Change.MORE
    assert figures["Failed allocations"].change is Change.SAME
    assert figures["Duration"].change is Change.NOT_COMPARABLE
    apart = sum(s.new.value - s.old.value for s in diff.sites if s.name == "allocated: bytes")
    whole = figures["Allocations: bytes"]
    assert apart == whole.new.value - whole.old.value
    # What both do at their start, both do alike.
    assert diff.sites[0].name == "allocated: bytes"
    assert all("0x300" not in each.of.partition(" < ")[0] for each in diff.sites)
    assert any("With several threads" in each for each in diff.conclusions)


def test_resident_memory_of_recordings_is_compared_where_both_were_looked_at(
    tmp_path: Path,
) -> None:
    def recording(name: str, resident: list[int]) -> Path:
        looks = {ns * 5000: size for ns, size in enumerate(resident)}
        tables = Tables(complete([Block(64, 10, 9000)]), resident=looks)
        return profile_tables.write(tmp_path / name, tables)

    old, new = recording("old", [50 << 20, 2 << 20]), recording("new", [51 << 20, 40 << 20])
    found = by_name(of_recordings(old, new), "")
    assert found["Most resident"] is Change.UNCLEAR
    assert found["Resident at the end"] is Change.MORE
    assert "Most resident" not in by_name(of_recordings(old, recording("none", [])), "")
    # Of little memory a few pages are a large share.
    few, more = recording("few", [3 << 20, 2 << 20]), recording("more", [3 << 20, 23 << 17])
    assert by_name(of_recordings(few, more), "")["Resident at the end"] is Change.UNCLEAR


def _built(
    folder: Path,
    build_id: str,
    line: int,
    *,
    source: str = "",
    changed: str = "",
    file: str = "/src/a.c",
) -> Path:
    """A recording of /usr/bin/program in that build, whose one site is in that line."""
    modules = ["1000 2000 0 /usr/bin/program", f"build-id 1000 {build_id}"]
    if source:
        modules.append(f"{1 << 56:x} {(1 << 56) + 1:x} {line} {source}\tf")
    tables = Tables(
        complete([Block(64 * line, 10, site=1)]),
        sites=[SiteRow(1, "f", file=file, line=line)],
        info={"sites": 8},
        modules=modules,
        changed=[changed] if changed else [],
    )
    return profile_tables.write(folder, tables)


def test_sites_of_one_build_are_told_apart_by_line(tmp_path: Path) -> None:
    old, new = (_built(tmp_path / str(line), "c0ffee", line) for line in (3, 5))
    assert {each.of for each in of_recordings(old, new).sites} == {"f (a.c:3)", "f (a.c:5)"}
    assert not of_recordings(old, new).changed
    rebuilt = _built(tmp_path / "rebuilt", "decade", 5)
    [build] = of_recordings(old, rebuilt).changed
    assert (build.name, build.old, build.new) == ("build", "c0ffee", "decade")
    assert {each.of for each in of_recordings(old, rebuilt).sites} == {"f (a.c)"}
    # A line of an interpreted program may move though the interpreter is the same.
    old, new = (_built(tmp_path / f"i{n}", "c0ffee", n, source="/srv/a.c") for n in (3, 5))
    assert {each.of for each in of_recordings(old, new).sites} == {"f (a.c)"}


def test_a_site_in_a_file_of_another_name_is_the_same(tmp_path: Path) -> None:
    old = _built(tmp_path / "old", "c0ffee", 3)
    new = _built(tmp_path / "new", "decade", 5, file="/src/b.c")
    assert {(each.of, each.change) for each in of_recordings(old, new).sites} == {
        ("f (a.c)", Change.MORE)
    }


def test_what_was_rebuilt_has_addresses_and_is_told_how_to_keep_names(
    run_heapfit: Heapfit, tmp_path: Path
) -> None:
    old = _built(tmp_path / "old", "c0ffee", 3, changed="/usr/bin/program")
    new = _built(tmp_path / "new", "decade", 5)
    found = of_recordings(old, new)
    assert {each.of for each in found.sites} == {"program+0x10", "f (a.c)"}
    kept = f"keep the names: heapfit profile {old} --keep FOLDER; then: heapfit diff FOLDER {new}"
    assert [kept in each for each in found.notes] == [True]
    shown = run_heapfit("diff", old, new).stdout
    assert shown.index(kept) < shown.index("Call sites: bytes live at the peak")
    assert "keep the names: heapfit profile" in run_heapfit("diff", old, new, "--markdown").stdout


@pytest.mark.parametrize(("new_bytes", "word"), [(64, ""), (80, "more"), (48, "less")])
def test_sites_that_share_a_name_are_told_together(
    tmp_path: Path, new_bytes: int, word: str
) -> None:
    """Another caller, further out than is shown, makes no more of what is the same."""

    def recording(outermost: str, size: int) -> Path:
        calls = ["f", "g", "h", outermost]
        chain = [SiteRow(4 - n, name, caller=3 - n) for n, name in enumerate(calls)]
        tables = Tables(complete([Block(size, 10, site=4)]), sites=chain, info={"sites": 8})
        return profile_tables.write(tmp_path / outermost, tables)

    diff = of_recordings(recording("one", 64), recording("other", new_bytes))
    assert {each.change for each in diff.sites} == {Change.NEW, Change.GONE}
    found = {title: rows for title, _, rows in tables(diff)}
    rows = [(name, told) for name, *_, told in found.get("Call sites: bytes allocated", [])]
    assert rows == ([("f < g < h", word)] if word else [])


@pytest.mark.parametrize(
    ("old_bytes", "row"),
    [
        (100, ["f < g < h", "100 B", "120 B", "+20 B", "more"]),
        (0, ["f < g < h", "0 B", "120 B", "+120 B", "new"]),
    ],
)
def test_a_row_tells_all_that_the_sites_of_its_name_have(
    tmp_path: Path, old_bytes: int, row: list[str]
) -> None:
    """One caller's bytes are the same in both, another's are not."""
    sites = [
        *(SiteRow(4 - n, name, caller=3 - n) for n, name in enumerate(["f", "g", "h", "one"])),
        *(SiteRow(8 - n, name, caller=7 - n) for n, name in enumerate(["f", "g", "h"])),
        SiteRow(5, "other"),
        SiteRow(9, "main"),
    ]

    def recording(name: str, *sizes: tuple[int, int]) -> Path:
        blocks = [Block(64, 5, site=9), *(Block(size, 10, site=site) for size, site in sizes)]
        tables = Tables(complete(blocks), sites=sites, info={"sites": 8})
        return profile_tables.write(tmp_path / name, tables)

    before = [(old_bytes, 4)] if old_bytes else []
    diff = of_recordings(
        recording("old", *before), recording("new", (old_bytes or 100, 4), (20, 8))
    )
    found = {title: rows for title, _, rows in tables(diff)}
    assert found["Call sites: bytes allocated"] == [row]


def _concluded(tmp_path: Path, **of_new: Any) -> str:
    blocks = complete([Block(64, 10, 20)])
    old = profile_tables.write(tmp_path / "old", Tables(blocks, totals={"unmatched_frees": 2}))
    new = profile_tables.write(tmp_path / "new", Tables(blocks, **of_new))
    return " ".join(of_recordings(old, new).conclusions)


def test_a_recording_is_whole_that_lacks_what_the_linker_allocated_before_it(
    tmp_path: Path,
) -> None:
    said = _concluded(tmp_path, totals={"unmatched_frees": 2})
    assert "incomplete" not in said
    assert "a part of its process" not in said


def test_a_recording_that_lost_something_or_is_of_a_part_is_told_of(tmp_path: Path) -> None:
    assert "A recording is incomplete" in _concluded(tmp_path / "lost", problems={"lost_events": 1})
    assert "is of a part of its process" in _concluded(tmp_path / "part", end={"reason": "stop"})


def test_what_is_wrong_with_a_recording_is_told_in_whole_sentences(tmp_path: Path) -> None:
    problems = {"lost_events": 1, "late_events": 1}
    blocks = complete([Block(64, 10, 20)])
    old = profile_tables.write(tmp_path / "old", Tables(blocks))
    new = profile_tables.write(tmp_path / "new", Tables(blocks, problems=problems))
    [said] = [each.new for each in of_recordings(old, new).changed if each.name == "problems"]
    assert said
    assert ". and" not in said


def test_estimates_differ_only_where_their_intervals_do(tmp_path: Path) -> None:
    both = [
        tables_of(sampled(service(200), 4096, seed), tmp_path / f"{seed}.tables") for seed in (1, 2)
    ]
    diff = of_recordings(*both)
    figures = {each.name: each.change for each in diff.figures}
    assert figures["Allocations: bytes"] is Change.UNCLEAR
    assert any("estimates" in each for each in diff.conclusions)


@pytest.mark.parametrize(
    ("old_sample", "new_sample", "block", "told"),
    [
        (512 << 10, 512 << 10, Block(64, 10, site=2, weight=8192.5), None),
        (0, 512 << 10, Block(64, 10, site=2, weight=8192.5), Change.NEW),
        (512 << 10, 0, Block(64, 10, site=2), None),
        (512 << 10, 512 << 10, Block(100 << 20, 10, site=2), Change.MORE),
        (0, 0, Block(64, 10, site=2), Change.NEW),
    ],
)
def test_what_no_sample_fell_on_may_have_been_there(
    tmp_path: Path, old_sample: int, new_sample: int, block: Block, told: Change | None
) -> None:
    def recording(name: str, sample: int, *more: Block) -> Path:
        tables = Tables(
            complete([Block(100 << 20, 5, site=1), *more]),
            sites=[SiteRow(1, "f"), SiteRow(2, "g")],
            info={"sites": 8, "sample": sample},
        )
        return profile_tables.write(tmp_path / name, tables)

    diff = of_recordings(recording("old", old_sample), recording("new", new_sample, block))
    assert {each.change for each in diff.sites} == ({told} if told else set())
    is_counted = "Reallocations of known blocks" in by_name(diff, "")
    assert is_counted == (old_sample == new_sample == 0)


def test_each_kind_is_shown_in_every_form(
    run_heapfit: Heapfit, studies: tuple[Path, Path], recordings: tuple[Path, Path]
) -> None:
    for pair in (studies, recordings):
        for width in ("60", "80"):
            shown = run_heapfit("diff", *pair, environment={"COLUMNS": width, "NO_COLOR": "1"})
            assert (shown.returncode, shown.stderr) == (0, "")
            assert max(map(len, shown.stdout.splitlines())) <= int(width)
            assert "What may be concluded" in shown.stdout
            assert "not comparable" in shown.stdout
            assert "~ the intervals overlap" in shown.stdout  # of a recording: resident memory
            assert "\x1b" not in shown.stdout
        plain: dict[str, Any] = json.loads(run_heapfit("diff", *pair, "--json").stdout)
        assert [plain["old"], plain["new"]] == list(map(str, pair))
        assert {each["change"] for each in plain["figures"]} <= set(Change)
        text = run_heapfit("diff", *pair, "--markdown").stdout
        tables = [line for line in text.splitlines() if line.startswith("|")]
        assert len(tables) > len(plain["figures"])


def test_names_from_outside_cannot_act_on_the_terminal(
    run_heapfit: Heapfit, studies: tuple[Path, Path], tmp_path: Path
) -> None:
    path = studies[1] / "study.json"
    path.write_text(path.read_text().replace("6.6.9", "6.6\\u001b[31m"))
    shown = run_heapfit("diff", *studies)
    assert shown.returncode == 0, shown.stderr
    assert "\x1b[31m" not in shown.stdout


@pytest.mark.parametrize(
    ("pick", "code", "said"),
    [
        (lambda s, r: (s[0], r[0]), 2, "must be of the same kind"),
        (lambda s, r: (s[0], s[0] / "none"), 2, "there is no"),
        (lambda s, r: (s[0], s[0]), 2, "are the same; name two"),
    ],
)
def test_what_cannot_be_compared_is_explained(
    run_heapfit: Heapfit,
    studies: tuple[Path, Path],
    recordings: tuple[Path, Path],
    pick: Callable[[Any, Any], tuple[Any, ...]],
    code: int,
    said: str,
) -> None:
    assert_one_line(run_heapfit("diff", *pick(studies, recordings)), code, [said])
