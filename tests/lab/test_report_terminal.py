"""The table in the terminal: what it holds at each width, and that it needs no colour."""

from __future__ import annotations

import io

import pytest
from heapfit.records import Study, Summary, TrialStatus
from heapfit.report import conclusions, terminal
from heapfit.report.results import Results
from heapfit.statistics import read, summarise
from heapfit.text import DASH, TERMINAL_DIGITS, ratio
from report_data import METRICS, Faults, make_study, make_trials
from rich.cells import cell_len
from rich.console import Console
from test_report_words import summary_with

WIDTHS = [80, 200]


def shown(summary: Summary, width: int = 200, colour: bool = False) -> str:
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=colour,
        color_system="truecolor" if colour else None,
        legacy_windows=False,
    )
    terminal.render(summary, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def measured(study: Study, faults: Faults | None = None) -> Summary:
    return summarise(read(study, make_trials(study, faults)))


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_is_wider_than_the_terminal_and_no_number_is_torn(width: int) -> None:
    lines = shown(measured(make_study()), width).splitlines()
    assert max(cell_len(line) for line in lines) <= width
    assert not any("…" in line for line in lines)
    assert sum(line.startswith("baseline") for line in lines) == 2  # a table per number of cores


def test_memory_is_there_before_what_only_explains_it() -> None:
    """Of eighty columns, and of sixty: it is the other half of the answer."""
    for width in (60, 80):
        lines = shown(measured(make_study()), width).splitlines()
        header = next(line for line in lines if line.strip().startswith("Wall  "))
        assert header.index("Wall") < header.index("Peak") < header.index("User")


def test_a_cell_has_median_ratio_and_interval() -> None:
    summary = measured(make_study(allocators=["glibc", "jemalloc"], cores=[1]))
    lines = shown(summary).splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("jemalloc"))
    scale = Results(summary).scale(METRICS[0], TERMINAL_DIGITS)
    wall = Results(summary).estimate((1, ()), METRICS[0], "jemalloc")
    assert wall is not None
    verdict = Results(summary).against_baseline((1, ()), METRICS[0], "jemalloc")
    assert verdict is not None
    shown_ratio = ratio(verdict.estimate)
    assert lines[at].split()[1:3] == [scale.number(wall.median), f"*{shown_ratio}"]
    between = f"{scale.number(wall.low)}{DASH}{scale.number(wall.high)}"
    assert lines[at + 1].split()[0] == between


def test_the_mark_of_the_best_mean_stands_beside_the_ratio_of_means() -> None:
    trials = {"glibc": [1.0] * 9, "heapfit": [0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 2.0, 2.0]}
    results = Results(summary_with(trials))
    verdict = results.against_baseline((1, ()), METRICS[0], "heapfit")
    assert verdict is not None
    assert verdict.estimate > 1  # the better median, and the worse mean
    text = shown(results.summary)
    rows = {line.split()[0]: line for line in text.splitlines() if "x" in line and "  " in line}
    assert rows["glibc"].split()[2:] == [f"{terminal.BEST}1.00x"]
    assert terminal.BEST not in rows["heapfit"]
    assert "* beside a ratio or difference: the best mean of its column" in text


def test_a_ratio_that_may_be_one_is_marked() -> None:
    text = shown(measured(make_study(cores=[1])))
    assert conclusions.UNDECIDED in next(li for li in text.splitlines() if li.startswith("heapfit"))
    assert "~ no difference from glibc is shown" in text


def test_problems_are_listed_below_in_plain_words() -> None:
    faults = Faults(status={"tcmalloc": (12, TrialStatus.FAILED, "killed by signal 11 (SIGSEGV)")})
    text = shown(measured(make_study(), faults))
    below = text[text.index("Problems") :]
    assert "! tcmalloc, 1 core: 3 of 15 trials failed: killed by signal 11 (SIGSEGV)" in below
    assert "12 to 15 trials" in text


def test_names_and_commands_cannot_act_on_the_terminal() -> None:
    study = make_study(
        allocators=["glibc", "[red]evil[/]\x1b[31m"], cores=[1], title="\x1b]0;owned\x07[bold]t"
    )
    text = shown(measured(study), 80)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[red]evil[/]" in text
    assert "[bold]t" in text


def test_a_terminal_without_unicode_gets_ascii() -> None:
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, encoding="ascii", write_through=True) as stream:
        console = Console(file=stream, width=120, legacy_windows=False)
        terminal.render(measured(make_study(allocators=["glibc", "möglich"])), console)
        assert b"m\\xf6glich" in raw.getvalue()
