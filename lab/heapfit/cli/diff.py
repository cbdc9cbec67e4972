"""`heapfit diff`: two results, or two recordings, and what may be concluded from them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heapfit.cli.arguments import AsJson
from heapfit.cli.commands import new_app
from heapfit.cli.output import messages, print_json, results
from heapfit.cli.progress import WorkProgress
from heapfit.errors import UsageError
from heapfit.study import is_series
from heapfit.study.journal import STUDY_FILE

if TYPE_CHECKING:
    from heapfit.diff import Diff

app = new_app()


@app.command(epilog="Example:  heapfit diff heapfit-results/server heapfit-results/server-2")
def diff(
    old: Annotated[
        Path, typer.Argument(metavar="OLD", help="A folder of results, or a recording.")
    ],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The newer one, of the same kind.")],
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Print Markdown, for a ticket or a pull request.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compare two results, or two recordings: what differs, and what that may mean.

    Counts and memory of two runs can be compared; times cannot: for those, see heapfit compare.
    """
    if as_markdown and as_json:
        raise UsageError("--json or --markdown? give one of them")
    found = _found(old, new)
    from heapfit.diff import markdown, show

    if as_json:
        print_json(found)
    elif as_markdown:
        print(markdown(found), end="")
    else:
        show(found, results)


def _found(old: Path, new: Path) -> Diff:
    kinds = _is_study(old), _is_study(new)
    if kinds[0] != kinds[1]:
        raise UsageError(
            "OLD and NEW must be of the same kind, two folders of results or two recordings; "
            f"there is no {STUDY_FILE} in {new if kinds[0] else old}, so it is not a folder of "
            "results"
        )
    is_something = kinds[0] or old.is_file() or any(old.glob("*.parquet"))
    if old.samefile(new) and is_something:  # else it is said below what it is not
        raise UsageError(f"{old} and {new} are the same; name two that were measured separately")
    from heapfit.diff import of_recordings, of_studies

    if kinds[0]:
        return of_studies(old, new)
    with WorkProgress(messages) as shown:
        return of_recordings(old, new, shown)


def _is_study(path: Path) -> bool:
    """Tell a study's folder from a recording; UsageError for what is neither."""
    if not path.exists():
        raise UsageError(f"there is no {path}; name a folder of results, or a recording (.hft)")
    if path.is_dir() and is_series(path):
        raise UsageError(f"{path} holds a study of many parts; name one of them: {path}/NAME")
    return (path / STUDY_FILE).is_file()
