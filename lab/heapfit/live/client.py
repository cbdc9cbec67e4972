"""Ask one process: its figures, its options, and to change what it does.

Each request has a connection of its own: a process serves few at a time, and those who have nothing
to ask just now shall not be among them.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import ClassVar, TypeVar

from pydantic import ValidationError

from heapfit.errors import HeapfitError, UsageError
from heapfit.host.proc import Gone, Process, find, plain, present
from heapfit.live.channel import REQUEST_MAX, SERVICE, TIMEOUT_S, Peer, opened
from heapfit.live.ledger import Ledger
from heapfit.live.processes import (
    NotAnswering,
    NotListening,
    belongs_to_another,
    in_another_network,
    listening,
    why_not_listening,
)
from heapfit.live.profile import LiveProfile, profile
from heapfit.live.records import Count, LedgerRow, LiveOption, LiveRecord, ProfileAnswer, Stats

# The process looks at each block that is resident: of some ten gigabytes that takes some seconds.
LEDGER_TIMEOUT_S = 60.0
# States of a process, as the kernel writes them.
_STOPPED, _TRACED = "T", "t"


class Refused(UsageError):
    """The process says no: these are the library's own words."""


class Reply(LiveRecord):
    """What every answer has."""

    ok: bool
    error: str = ""


class _StatsReply(Reply):
    stats: Stats


class _OptionsReply(Reply):
    options: list[LiveOption]


class _LedgerReply(Reply):
    ledger: list[LedgerRow]
    complete: bool


class _ProfileReply(Reply):
    profile: ProfileAnswer


class _ValueReply(Reply):
    value: str


class _GivenBackReply(Reply):
    given_back: Count


_AnyReply = TypeVar("_AnyReply", bound=Reply)


class Asker:
    """One process that listens, and how it is asked: who listens there, and what it answers."""

    service: ClassVar[str] = SERVICE

    def __init__(self, pid: int, timeout_s: float = TIMEOUT_S) -> None:
        """Find the process; Gone when there is none, NotListening when it is somebody else's."""
        self.process: Process = present(pid, "heapfit top shows which can be watched")
        self._timeout_s = timeout_s
        error = belongs_to_another(self.process)
        if error:
            raise error

    def _ask(
        self, request: str, kind: type[_AnyReply], timeout_s: float | None = None
    ) -> _AnyReply:
        if len(request) > REQUEST_MAX:
            raise UsageError(f"a request has at most {REQUEST_MAX} characters; this one is longer")
        line = self._exchange(request, timeout_s or self._timeout_s)
        try:
            reply = Reply.model_validate_json(line)
            if reply.ok:
                return kind.model_validate_json(line)
        except ValidationError as error:
            raise self._nonsense() from error
        raise Refused(plain(reply.error) or f"process {self.process.pid} refuses")

    def _why_not(self) -> HeapfitError:
        """Return the error for a process that does not listen."""
        return why_not_listening(self.process.pid)

    def _exchange(self, request: str, timeout_s: float) -> bytes:
        """Return the line that the process answers with, if it is the process that we mean."""
        pid = self.process.pid
        try:
            with opened(self.process.own_pid, timeout_s, self.service) as channel:
                self._check(channel.peer)
                self._check_runs()
                return channel.ask(request)
        except ConnectionRefusedError:
            raise self._why_not() from None
        except TimeoutError:
            raise NotAnswering(
                f"process {pid} ({self.process.name}) does not answer within "
                f"{timeout_s:g} s; {_why_silent(pid)}"
            ) from None
        except (EOFError, ConnectionError):
            if find(pid) is None:
                raise self._why_not() from None
            raise HeapfitError(
                f"process {pid} ({self.process.name}) closed the connection; try again"
            ) from None
        except ValueError as error:
            raise self._nonsense() from error

    def _check(self, peer: Peer) -> None:
        """Raise NotListening when another process has taken the name; nothing was sent then."""
        pid = self.process.pid
        if peer.pid != pid:
            if (error := in_another_network(self.process)) is not None:
                raise error
            other = find(peer.pid)
            own = self.process.own_pid
            # The kernel says 0 of a process that is in none of our PID namespaces.
            if not peer.pid or (other and other.own_pid == own):
                who = f"process {peer.pid} ({other.name})" if other else "one that is not seen here"
                raise NotListening(
                    f"{who} and process {pid} ({self.process.name}) are both process {own} in "
                    "containers that share a network, where only one of them can listen; have the "
                    "containers share their processes, too (shareProcessNamespace: true in a pod), "
                    "or give each its own network"
                )
            raise NotListening(
                f"process {peer.pid} listens in the place of {pid} ({self.process.name}), and was "
                f"sent nothing; end it, then start {pid} again"
            )
        # It may have been root when it opened the socket.
        if peer.uid not in (self.process.user, 0):
            raise NotListening(
                f"the socket of process {pid} ({self.process.name}) was opened by user {peer.uid}, "
                "not by its own; it was sent nothing"
            )

    def _check_runs(self) -> None:
        """Raise NotAnswering of a process that is stopped, which would not answer in any time."""
        pid = self.process.pid
        if _state(pid) == _STOPPED:
            raise NotAnswering(
                f"process {pid} ({self.process.name}) is stopped; have it go on: kill -CONT {pid}"
            )

    def _nonsense(self) -> HeapfitError:
        return HeapfitError(
            f"process {self.process.pid} ({self.process.name}) gives an answer that this "
            "heapfit does not understand; is its library of another version?"
        )


class Client(Asker):
    """The heap of one process. Every method may raise HeapfitError with what to do."""

    def stats(self) -> Stats:
        """Return what the heap holds."""
        return self._ask("stats", _StatsReply).stats

    def ledger(self, timeout_s: float = LEDGER_TIMEOUT_S) -> Ledger:
        """Return what the resident memory is there for; takes long for a large heap."""
        reply = self._ask("ledger", _LedgerReply, timeout_s)
        return Ledger(reply.ledger, reply.complete)

    def profile(self, timeout_s: float = LEDGER_TIMEOUT_S) -> LiveProfile:
        """Return who asked for what lives; of a process that takes no samples, nothing."""
        return profile(self.samples(timeout_s), Path(f"/proc/{self.process.pid}/root"))

    def samples(self, timeout_s: float = LEDGER_TIMEOUT_S) -> ProfileAnswer:
        """Return what that is made from."""
        return self._ask("profile", _ProfileReply, timeout_s).profile

    def sampled_profile(self, timeout_s: float = LEDGER_TIMEOUT_S) -> LiveProfile:
        """Return the same; HeapfitError of a process that takes no samples."""
        found = self.profile(timeout_s)
        if not found.mean and not found.sites:
            pid = self.process.pid
            raise HeapfitError(
                f"process {pid} ({self.process.name}) is not sampled; "
                f"turn that on: heapfit ctl {pid} set sample=512k"
            )
        return found

    def options(self) -> list[LiveOption]:
        """Return the options that the library in the process has, and their values."""
        return self._ask("options", _OptionsReply).options

    def get(self, name: str) -> str:
        """Return the value of an option; Refused when there is none of this name."""
        return self._ask(f"get {_word(name)}", _ValueReply).value

    def set(self, name: str, value: str) -> str:
        """Set an option and return its value as the library understood it."""
        return self._ask(f"set {_word(name)} {_word(value)}", _ValueReply).value

    def shrink(self) -> int:
        """Give all free memory back and keep none from now on; return the bytes given back."""
        return self._ask("shrink", _GivenBackReply).given_back

    def restore(self) -> None:
        """Put the options in force again, after `shrink`."""
        self._ask("restore", Reply)

    def trim(self) -> int:
        """Give free memory back once; return the bytes given back."""
        return self._ask("trim", _GivenBackReply).given_back


def all_clients() -> list[Client]:
    """Return a client for each process that may be asked, in the order of their numbers."""
    found = []
    for process in listening():
        with suppress(Gone):  # since it was found
            found.append(Client(process.pid))
    return found


def some_clients() -> list[Client]:
    """Return these; HeapfitError, which says how to start one, where there is none."""
    found = all_clients()
    if not found:
        raise HeapfitError(
            "no process of yours can be asked; start one with: heapfit run --control -- COMMAND"
        )
    return found


def _why_silent(pid: int) -> str:
    if _state(pid) == _TRACED:
        return "a debugger holds it: have it go on there"
    return "it has no time; try again"


def _state(pid: int) -> str:
    """Return the letter for what a process does now; empty where nobody knows."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return ""
    return stat.rpartition(")")[2].strip()[:1]  # behind the name, which may hold anything


def _word(text: str) -> str:
    """Return a word of a request, if it is one."""
    if not text or " " in text or not (text.isascii() and text.isprintable()):
        raise UsageError(f"{plain(text)!r} is not one word; names and values have no spaces")
    return text
