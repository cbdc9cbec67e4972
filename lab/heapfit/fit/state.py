"""What a fit has asked for and found so far: `fit.json` in its folder, beside its studies."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from pydantic import Field, ValidationError

from heapfit.errors import UsageError
from heapfit.files import write_durably
from heapfit.fit.answer import Answer
from heapfit.fit.candidates import Candidate
from heapfit.fit.facts import Facts
from heapfit.records import Record
from heapfit.study.journal import cannot_write

FILE = "fit.json"


class Request(Record):
    """What was asked for; a folder holds one request."""

    command: str  # the command line that repeats it, but for where
    goal: str
    process_began: int = 0  # of a process, which a later one may share its number with; 0: ended

    def is_of(self, kept: Request) -> bool:
        """Whether `kept` asked for the same: an ended process is the one that it was of."""
        began = self.process_began or kept.process_began
        return self.model_copy(update={"process_began": began}) == kept


class Considered(Record):
    """An allocator or a setting, and why it was tried or not."""

    name: str
    tried: bool
    reason: str
    trades: str

    @classmethod
    def of(cls, found: Candidate) -> Considered:
        return cls(name=found.name, tried=found.tried, reason=found.reason, trades=found.trades)


class State(Record):
    """`fit.json`."""

    schema_version: int = 1
    request: Request
    looked: datetime | None = None  # when the look began that the facts are from
    facts: Facts | None = None  # None: not looked at yet
    notes: list[str] = Field(default=[])
    candidates: list[Considered] = Field(default=[])
    answer: Answer | None = None


def load(folder: Path, request: Request) -> State:
    """Return what `folder` has of this request; UsageError where it holds another."""
    path = folder / FILE
    if not path.exists():
        if folder.is_dir() and any(folder.iterdir()):
            raise UsageError(f"{folder} holds something else; use another --out")
        return State(request=request)
    try:
        found = State.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise UsageError(f"{path} cannot be read by this version; use another --out") from error
    if not request.is_of(found.request):
        raise UsageError(
            f"{folder} holds another request: {found.request.command}; repeat that, or use "
            "another --out"
        )
    return found


def save(folder: Path, state: State) -> None:
    """Keep `state`: what was there stays until it is whole."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_durably(folder / FILE, state.model_dump_json(indent=1).encode())
    except OSError as error:
        raise cannot_write(folder, error) from error
