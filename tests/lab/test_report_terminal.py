"""The table in the terminal: what it holds at each width, and that it needs no colour."""

from __future__ import annotations

import io

import pytest
from heapfit.cli import output
from heapfit.records import Study, TrialStatus
from heapfit.report import Reading, html_report, terminal
from report_data import Faults, make_study, make_trials
from rich.cells import cell_len
from rich.console import Console
from test_report_words import reading_of

WIDTHS = [80, 200]


def shown(reading: Reading, width: int = 200, colour: bool = False) -> str:
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=colour,
        color_system="truecolor" if colour else None,
        legacy_windows=False,
    )
    terminal.render(reading, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def measured(study: Study, faults: Faults | None = None) -> Reading:
    return Reading(study, make_trials(study, faults))


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_is_wider_than_the_terminal_and_no_number_is_torn(width: int) -> None:
    lines = shown(measured(make_study()), width).splitlines()
    assert max(cell_len(line) for line in lines) <= width
    assert not any("…" in line for line in lines)
    assert sum(" baseline" in line for line in lines) == 2  # a table per number of cores


def test_the_change_from_the_baseline_is_one_of_means_and_says_if_it_may_be_chance() -> None:
    trials = {"glibc": [1.0] * 9, "heapfit": [0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 2.0, 2.0]}
    text = shown(reading_of(trials))
    [row] = [line for line in text.splitlines() if line.startswith("heapfit") and " ms " in line]
    assert row.split()[1:5] == ["900", "ms", "~+7", "%"]  # the better median, and the worse mean
    assert " mean vs glibc" in text
    assert "~ no difference from glibc is shown" in text
    single = shown(reading_of({"glibc": [1.0], "heapfit": [0.1]}))
    assert "~ 1 trial: no interval" in single
    assert "no difference from" not in single


def test_an_interval_too_wide_to_be_read_is_told_in_words_and_stays_in_the_page() -> None:
    reading = reading_of({"glibc": [1.0] * 6, "wild": [0.5, 20.0, 0.4, 25.0, 0.6, 30.0]})
    [row] = [line for line in shown(reading).splitlines() if line.startswith("wild")]
    assert "~ inconclusive" in row
    [verdict] = [each for each in reading.summary.verdicts if each.metric == "wall_s"]
    assert f"{verdict.turned().estimate:.3f}" in html_report.page(reading)


def test_where_medians_and_the_change_disagree_the_change_is_to_be_trusted() -> None:
    said = "Where medians say otherwise, trust the change"
    disagree = {"glibc": [1.0] * 9, "other": [0.9] * 7 + [2.0] * 2}
    assert said in shown(reading_of(disagree))
    assert said not in shown(reading_of({"glibc": [1.0] * 9, "other": [0.9] * 9}))
    two = {"glibc": [2.0] * 9, "first": [1.95] * 5 + [1.4] * 4, "second": [1.93] * 9}
    assert said in shown(reading_of(two))
    assert said not in shown(reading_of(two | {"first": [1.95] * 9}))


def test_names_and_commands_cannot_act_on_the_terminal() -> None:
    study = make_study(
        allocators=["glibc", "[red]evil[/]\x1b[31m"], cores=[1], title="\x1b]0;owned\x07[bold]t"
    )
    text = shown(measured(study), 80)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[red]evil[/]" in text
    assert "[bold]t" in text


HOSTILE = "to_string[abi:cxx11] [/x] [bold]"


def test_nothing_that_is_printed_is_read_as_markup(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for console in (output.results, output.messages):
        assert isinstance(console, Console)
        printed = io.StringIO()
        monkeypatch.setattr(console, "_file", printed)  # `file` is never None again once it is set
        rows = output.table(HOSTILE)
        rows.add_row(HOSTILE)
        console.print(rows)
        console.print(HOSTILE)
        assert printed.getvalue().count(HOSTILE) == 3


def test_problems_are_listed_below_in_plain_words() -> None:
    faults = Faults(status={"tcmalloc": (12, TrialStatus.FAILED, "killed by signal 11 (SIGSEGV)")})
    text = shown(measured(make_study(), faults))
    below = text[text.index("Problems") :]
    assert "! tcmalloc, 1 core: 3 of 15 trials failed: killed by signal 11 (SIGSEGV)" in below
    assert "12 to 15 trials" in text


@pytest.mark.parametrize("memory", [1.0, 0.5])  # one that does not count, and one that does
def test_what_decides_is_shown_in_80_columns_beside_long_names(memory: float) -> None:
    """Memory had the same weight as time and was hidden."""
    long = "heapfit:huge_pages=always"
    study = make_study(allocators=["glibc", long], cores=[1], title="t")
    figures = {"wall_s": 12.0, "peak_rss_bytes": 100 * 2**20 * memory}
    trials = [
        each.model_copy(
            update={
                "metrics": {
                    name: value * figures[name] if name in figures else value
                    for name, value in each.metrics.items()
                }
            }
        )
        if each.planned.allocator == long
        else each
        for each in make_trials(study)
    ]
    lines = shown(Reading(study, trials), 80).splitlines()
    assert any("time " in line and "Peak RSS" in line for line in lines)
    names = [line.split("  ")[0].strip() for line in lines]
    assert long in "".join(names)
    assert max(cell_len(line) for line in lines) <= 80
