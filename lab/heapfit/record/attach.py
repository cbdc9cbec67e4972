"""Record a process that runs already: bring the recorder into it, steer it over the socket that it
listens on, and see to it that it ends.

`heapfit-attach` does the former (native/attach.h). The wheel carries it compiled, beside this
module; a source checkout compiles it.
"""

import errno
import json
import os
import platform
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from heapfit.compiling import compiled_once
from heapfit.errors import HeapfitError, UsageError
from heapfit.files import check_new
from heapfit.host.proc import Gone, Process, find, present
from heapfit.live.client import Asker, Reply
from heapfit.live.processes import NotAnswering, NotListening, why_not_recording
from heapfit.live.records import Count
from heapfit.record.options import PROCESS, RecordOptions, library
from heapfit.record.run import check_path
from heapfit.record.written import examine

ATTACHER = "heapfit-attach"

_HERE = Path(__file__).parent
_NATIVE = _HERE / "native"
_SOURCES = ("attach.c", "process.c", "image.c", "thread.c", "stub.c")
_FLAGS = ("-std=c17", "-D_GNU_SOURCE", "-O2")

# What the helper waits for is bounded by itself; all of it together takes no longer.
_ATTACH_TIMEOUT_S = 60.0
_LOOK_S = 0.2
# Between the end of a file and that of the recorder's threads.
_LEAVE_TIMEOUT_S = 15.0
_KEEPER = b"heapfit-keep\n"  # allocator/record/attach.c
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Attached:
    """A recorder that is in a process. The times are None where it was there before."""

    process: Process
    file: Path
    still_ms: float | None = None  # how long a thread of the process stood still for it
    took_ms: float | None = None


class RecorderState(Reply):
    """Whether events are written down now, and the file of the present recording or the last."""

    recording: bool = False
    file: str = ""
    events: Count = 0
    bytes: Count = 0
    lost: Count = 0


class Recorder(Asker):
    """The recorder in one process. Every method may raise HeapfitError with what to do."""

    service = "heapfit-record"

    def start(self, seconds: int = 0) -> RecorderState:
        """Begin a new recording, unless one is being made; it ends by itself after so long."""
        return self._ask(f"start {seconds}" if seconds else "start", RecorderState)

    def stop(self) -> RecorderState:
        """End the recording; the file is whole when this returns."""
        return self._ask("stop", RecorderState)

    def status(self) -> RecorderState:
        """Return what the recorder does, and change nothing."""
        return self._ask("status", RecorderState)

    def _why_not(self) -> HeapfitError:
        return why_not_recording(self.process.pid)


def find_attacher() -> Path:
    """Return `heapfit-attach`; HeapfitError says what is missing to compile it."""
    sources = [_NATIVE / source for source in _SOURCES]
    headers = sorted(_NATIVE.glob("*.h"))
    return compiled_once(_HERE / ATTACHER, [*_FLAGS, *map(str, sources)], [*sources, *headers])


def can_attach() -> bool:
    """Whether there is an attacher for this processor: native/process.c refuses on others."""
    return platform.machine() == "x86_64"


def attach(pid: int, path: Path, options: RecordOptions) -> Attached:
    """Have the process record itself to `path`, in which `%p` becomes its number.

    HeapfitError, in one line, where that is refused: nothing has changed then.
    """
    process = present(pid)
    path = path.absolute()
    check_path(path)
    if (state := _asked(pid)) is not None:
        return _started(process, state, options.seconds)
    named = path.with_name(path.name.replace(PROCESS, str(process.own_pid)))
    if not _is_in_our_network(pid):
        if not options.seconds:
            raise UsageError(
                f"process {pid} ({process.name}) is in another network namespace, where it cannot "
                "be told to stop; say how long to record it, for example with --for 60s"
            )
        check_new(named)  # It cannot tell us which other name it takes.
    told = _run_attacher(pid, path, options)
    state = None
    with suppress(HeapfitError):  # It is being recorded, whether it answers now or later.
        state = _asked(pid)
    file = Path(state.file) if state is not None and state.file else named
    return Attached(process, file, told["still_ms"], told["took_ms"])


def follow(
    attached: Attached,
    is_told_to_stop: Callable[[], bool],
    seconds: int,
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Return when the recording has ended, by itself or because we were told to end it.

    A process that does not answer is waited for; `say` is told of it once. HeapfitError where we
    were told to end the recording, and the process does not answer then.
    """
    pid = attached.process.pid
    if not _is_in_our_network(pid):
        _follow_file(attached, is_told_to_stop, seconds)
        return
    is_silent = False
    while not is_told_to_stop():
        try:
            state = _asked(pid)
            if state is None or not state.recording:
                break
        except HeapfitError as error:  # What it was about to answer, the next look tells.
            if isinstance(error, NotAnswering) and not is_silent:
                is_silent = True
                say(f"{error}; it is still being recorded")
        time.sleep(_LOOK_S)
    else:
        _stop(attached.process)
    if attached.took_ms is None:  # A recorder that was there before stays.
        return
    deadline = time.monotonic() + _LEAVE_TIMEOUT_S
    while (_listens(pid) or _has_keeper(pid)) and time.monotonic() < deadline:
        time.sleep(_LOOK_S / 10)


@contextmanager
def told_to_stop() -> Iterator[Callable[[], bool]]:
    """Yield whether we have been told to stop, by Ctrl-C or otherwise, which ends nothing else."""
    told: list[int] = []
    before = {
        each: signal.signal(each, lambda number, _: told.append(number)) for each in _STOPPING
    }
    try:
        yield lambda: bool(told)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run_attacher(pid: int, path: Path, options: RecordOptions) -> dict[str, float]:
    words = ",".join(f"{name}:{value}" for name, value in options.settings().items())
    command = [str(each) for each in (find_attacher(), pid, library(), words, path)]
    # Ctrl-C in the terminal is for us: who is told of it late has a recording to stop.
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_ATTACH_TIMEOUT_S,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        raise HeapfitError(
            f"not recorded: process {pid} could not be attached to within {_ATTACH_TIMEOUT_S:g} s; "
            "try again when the machine is less busy"
        ) from None
    if done.returncode != 0:
        why = done.stderr.strip() or f"{ATTACHER} was ended by signal {-done.returncode}"
        if why.endswith(os.strerror(errno.EACCES).lower()):
            why += f": {path}, which it opens itself; choose a folder that its user may write to"
        raise HeapfitError(f"not recorded: {why}")
    told: dict[str, float] = json.loads(done.stdout)
    return told


def _started(process: Process, state: RecorderState, seconds: int) -> Attached:
    """Start a recorder that was there before, which was told then where to write; return it."""
    who = f"process {process.pid} ({process.name})"
    if state.recording:
        raise HeapfitError(
            f"{who} is being recorded already, to {state.file}; "
            f"heapfit ctl {process.pid} record stop ends that"
        )
    state = Recorder(process.pid).start(seconds)
    return Attached(process, Path(state.file))


def _stop(process: Process) -> None:
    try:
        Recorder(process.pid).stop()
    except NotAnswering as error:
        raise HeapfitError(
            f"process {process.pid} ({process.name}) does not answer, and its recording goes on; "
            "should it still do so when the process runs again, this ends it: "
            f"heapfit ctl {process.pid} record stop"
        ) from error
    except HeapfitError:
        if _listens(process.pid):
            raise


def _asked(pid: int) -> RecorderState | None:
    """Return what the recorder in the process says; None where there is none, or not any more.

    HeapfitError where there is one, and it does not say anything.
    """
    try:
        return Recorder(pid).status()
    except (Gone, NotListening):
        return None


def _listens(pid: int) -> bool:
    """Whether there is a recorder in the process to be asked, even if it does not answer."""
    try:
        return _asked(pid) is not None
    except HeapfitError:
        return True


def _has_keeper(pid: int) -> bool:
    """Whether the recorder's last thread is there, which gives the program's calls back."""
    for name in Path(f"/proc/{pid}/task").glob("*/comm"):
        with suppress(OSError):
            if name.read_bytes() == _KEEPER:
                return True
    return False


def _follow_file(attached: Attached, is_told_to_stop: Callable[[], bool], seconds: int) -> None:
    deadline = time.monotonic() + seconds + _LEAVE_TIMEOUT_S
    while time.monotonic() < deadline and not is_told_to_stop():
        time.sleep(_LOOK_S)
        if find(attached.process.pid) is None or examine(attached.file).whole:
            return


def _is_in_our_network(pid: int) -> bool:
    try:
        theirs = os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return True  # The helper says why it cannot be looked at.
    return theirs == os.readlink("/proc/self/ns/net")
