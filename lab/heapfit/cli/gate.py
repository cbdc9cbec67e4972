"""What the gates of `compare` and `check` share: their options, and how decisions are told."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import typer
from rich.table import Table
from rich.text import Text

from heapfit.cli.output import results
from heapfit.errors import HeapfitError, UsageError
from heapfit.gate import formats
from heapfit.gate.condition import Condition, parse
from heapfit.gate.decision import WORK_FAILED, Decision, exit_code
from heapfit.records import Study
from heapfit.text import visible

if TYPE_CHECKING:
    from heapfit.report import Reading

FailIf = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-if",
        metavar="[NAME:]METRIC>BOUND",
        help="Exit with 1 if the ratio to the baseline is shown to meet this, 3 if inconclusive, "
        "4 if nothing can be measured; > or <; repeatable.",
    ),
]
Junit = Annotated[
    Path | None, typer.Option("--junit", metavar="FILE", help="Write the decisions as JUnit XML.")
]
Markdown = Annotated[
    Path | None,
    typer.Option(
        "--markdown", metavar="FILE", help="Write the decisions as Markdown, for a comment."
    ),
]
Github = Annotated[
    bool, typer.Option("--github", help="Print the decisions as annotations for GitHub Actions.")
]

_Command = TypeVar("_Command", bound=Callable[..., None])
_REMEDY = "name a file that can be written"


def conditions(
    fail_if: list[str] | None, junit: Path | None, markdown: Path | None, github: bool
) -> list[Condition]:
    """Return the conditions of `--fail-if`; what they are told by makes no sense without them."""
    if (junit or markdown or github) and not fail_if:
        raise UsageError("--junit, --markdown and --github report what --fail-if decides: add that")
    check_folders(junit, markdown)
    return [parse(text, "--fail-if", "< >", "wall_s>1.03") for text in fail_if or []]


def check_folders(*files: Path | None) -> None:
    """Raise an error where a file cannot be written: hours of measuring should not end in that."""
    for file in files:
        if file and not file.absolute().parent.is_dir():
            raise UsageError(f"there is no folder {file.parent} for {file.name}; make it")
        if file and not os.access(file if file.exists() else file.absolute().parent, os.W_OK):
            raise HeapfitError(f"cannot write {file}, which is read-only for you; {_REMEDY}")


def decides(by: str = "") -> Callable[[_Command], _Command]:
    """Have a command end with 4 where its work fails: 1 says that a bound is exceeded.

    `by` names the option without which the command decides nothing.
    """

    def decorated(command: _Command) -> _Command:
        @wraps(command)
        def run(*arguments: Any, **given: Any) -> None:
            with _deciding() if not by or given[by] else nullcontext():
                command(*arguments, **given)

        return cast(_Command, run)

    return decorated


@contextmanager
def _deciding() -> Iterator[None]:
    try:
        yield
        sys.stdout.flush()
    except typer.Exit:  # with the decision's code
        raise
    except Exception as error:
        if getattr(error, "exit_code", HeapfitError.exit_code) == HeapfitError.exit_code:
            error.__dict__["exit_code"] = WORK_FAILED
        raise


class Gate:
    """The conditions of `--fail-if`: checked before the study runs, judged when it is read."""

    def __init__(self, conditions: list[Condition], study: Study) -> None:
        from heapfit.gate import verdicts  # SciPy takes a while to load.

        verdicts.check(conditions, study)
        self.decisions: Sequence[Decision] = []
        self._judge = partial(verdicts.judge, conditions)

    def __call__(self, reading: Reading) -> dict[str, Any]:
        """Return the decisions for the JSON, and keep them to be told."""
        self.decisions = self._judge(reading.readings, reading.summary)
        return {"gate": self.decisions}


def tell(
    decisions: Sequence[Decision],
    title: str,
    *,
    as_json: bool,
    junit: Path | None,
    markdown: Path | None,
    github: bool,
) -> None:
    """Tell the decisions in every form that was asked for, and end with the code that they have."""
    from heapfit.files import write_text  # The reports take a second to load.

    if not as_json:
        show(decisions)
    if junit:
        write_text(junit, formats.junit(decisions, title), _REMEDY)
    if markdown:
        write_text(markdown, formats.markdown(decisions, title), _REMEDY)
    for line in formats.github(decisions) if github else []:
        print(line, file=sys.stderr if as_json else sys.stdout)
    if code := exit_code(decisions):
        raise typer.Exit(code)


def show(decisions: Sequence[Decision]) -> None:
    """Print the decisions, the places of each that failed below it."""
    shown = Table.grid(padding=(0, 2, 0, 0))
    shown.add_column(no_wrap=True)
    shown.add_column(overflow="fold")
    for each in decisions:
        style = "" if each.outcome == "passed" else "bold"
        shown.add_row(Text(each.word, style=style), _text(f"{each.name}: {each.why}"))
        for place in each.places:
            shown.add_row("", _text(f"  {place.what}"))
    results.print()
    results.print(shown)


def _text(line: str) -> Text:
    from heapfit.report.terminal_text import encodable

    return Text(encodable(visible(line), results))
