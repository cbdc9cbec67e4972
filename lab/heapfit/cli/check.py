"""`heapfit check`: does this change cost more allocations, memory or instructions than before?"""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heapfit.cli.arguments import AsJson, program_of
from heapfit.cli.commands import new_app
from heapfit.cli.gate import Github, Junit, Markdown, check_folders, decides, tell
from heapfit.cli.output import messages, print_json, results, warn
from heapfit.cli.progress import WorkProgress
from heapfit.errors import UsageError
from heapfit.host.program import check_text, inherited, why_not_preloadable
from heapfit.text import counted, shell_word, shell_words

if TYPE_CHECKING:
    from heapfit.gate.against import FigureDecision
    from heapfit.gate.heap import Heap, Program

app = new_app()

_USUAL_RUNS = 5


@app.command(
    options_metavar="[OPTIONS] -- CMD",
    epilog="Example:  heapfit check --against heap.json -- ./my-program input.xml",
)
@decides()
def check(
    context: typer.Context,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Save the program's figures to this file.")
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Compare the program's figures with those saved in this file."
        ),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIGURE<=BOUND",
            help="Allow this ratio to the saved figure, or +N more; repeatable. Default: no "
            "growth.",
        ),
    ] = None,
    runs: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Make at most this many runs to see which figures vary; too few cannot show "
            "growth.",
        ),
    ] = _USUAL_RUNS,
    instructions: Annotated[
        bool,
        typer.Option(
            "--instructions", help="Also count instructions, with Valgrind, which is slow."
        ),
    ] = False,
    children: Annotated[
        bool,
        typer.Option(
            "--attach-children",
            help="Also record the processes that the program starts. --against does so if "
            "--save did.",
        ),
    ] = False,
    junit: Junit = None,
    markdown: Markdown = None,
    github: Github = False,
    as_json: AsJson = False,
) -> None:
    """Check that a program allocates no more than it did before: counts and bytes, by call site.

    The program's standard output is discarded.

    Exit codes:

    - 0: no figure is shown to have grown
    - 1: a figure is shown to have grown
    - 3: inconclusive
    - 4: nothing can be counted
    """
    command = program_of(context, "check --save heap.json -- CMD")
    check_text(command)
    if (save is None) == (against is None):
        raise UsageError("give either --save FILE or --against FILE")
    if save and (allow or junit or markdown or github):
        raise UsageError("--allow, --junit, --markdown and --github are for --against")
    check_folders(save, junit, markdown)
    if runs < 1:
        raise UsageError(f"--runs takes a number of at least 1, not {runs}")
    if obstacle := why_not_preloadable(command[0]):
        warn(f"note: nothing can be recorded of {command[0]} itself: {obstacle}")
    from heapfit.gate.heap import Program  # What reads recordings takes a while to load.

    program = Program(command, inherited(), children, instructions, _standard_input())
    if save:
        _save(program, runs, save, as_json=as_json)
    elif against:
        decisions, notes = _against(program, runs, against, allow or [])
        if as_json:
            print_json({"decisions": decisions, "notes": notes})
        tell(decisions, f"heapfit check: {shlex.join(command)}", as_json=as_json,
             junit=junit, markdown=markdown, github=github)  # fmt: skip


def _standard_input() -> int:
    """Return what each run of the program can read anew."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return subprocess.DEVNULL
    if stat.S_ISREG(mode):
        try:  # With an offset of its own: whoever started us reads on where they were.
            return os.open("/proc/self/fd/0", os.O_RDONLY)
        except OSError:
            return 0
    if stat.S_ISFIFO(mode):
        warn(
            "note: a pipe cannot be read again in each run, so the program's input is empty (use "
            "< FILE)"
        )
    return subprocess.DEVNULL


def _save(program: Program, runs: int, path: Path, *, as_json: bool) -> None:
    from heapfit.files import write_text
    from heapfit.gate.against import are_enough, left_out
    from heapfit.gate.heap import dumps

    found = _measured(program, runs)
    write_text(path, dumps(found), "name a file that can be written")
    if found.exit_code:
        warn(
            f"note: the program ended with exit code {found.exit_code}; it must do so when "
            "checked, too"
        )
    if not are_enough(runs, _USUAL_RUNS):
        warn(
            f"note: {counted(runs, 'run')} cannot show which figures vary, so no growth will be "
            f"shown; save {_USUAL_RUNS} (--runs)"
        )
    for note in left_out(found):
        warn(f"note: {note}")
    if as_json:
        print_json(found)
    else:
        _print_saved(found, path)


def _print_saved(found: Heap, path: Path) -> None:
    for name, runs in found.figures.items():
        scatter = f" to {runs[-1]:,} in {len(runs)} runs" if runs[-1] > runs[0] else ""
        results.print(f"{name:16}{runs[0]:>16,}{scatter}")
    again = f"heapfit check --against {shell_word(path)} -- {shell_words(found.command)}"
    line = f"saved {path}; next: {again}"
    messages.print(line, soft_wrap=True)


def _against(
    program: Program, runs: int, path: Path, allow: list[str]
) -> tuple[list[FigureDecision], list[str]]:
    from heapfit.gate import against
    from heapfit.gate.heap import INSTRUCTIONS, load

    allowed, before = against.allowances(allow), load(path)
    counts = INSTRUCTIONS in before.figures
    if not counts and (program.instructions or INSTRUCTIONS in allowed):
        raise UsageError(f"{path} has no instructions; save it again with --instructions")
    if program.children and not before.children:
        raise UsageError(
            f"{path} has only the program itself, not what it starts; save it again with "
            "--attach-children"
        )
    program = replace(program, instructions=counts, children=before.children)
    now = _measured(program, runs, lambda found: against.is_settled(before, found, allowed))
    notes = against.notes(before, now)
    for note in notes:
        warn(f"note: {note}")
    return against.compare(before, now, allowed), notes


def _measured(
    program: Program, runs: int, enough: Callable[[Heap], bool] = lambda _: False
) -> Heap:
    from heapfit.gate.heap import measure

    with WorkProgress(messages) as shown:
        return measure(program, runs, shown, enough)
