"""Run a program to its end under the recorder, and find the files that its processes wrote."""

import math
import os
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, NoReturn

from heapfit import options as heap_options
from heapfit import paths
from heapfit.errors import HeapfitError, UsageError
from heapfit.files import check_new
from heapfit.host.program import starting, why_not_preloadable
from heapfit.record.options import PROCESS, PROCESS_VARIABLE, RecordOptions, library, variables
from heapfit.record.written import examine
from heapfit.records import InstalledAllocator

_PRELOAD = "LD_PRELOAD"
# What is said to us and meant for the program. Ctrl-C and Ctrl-\ are most often said to our whole
# process group, by the terminal, and so to the program as well.
_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_BECAME_ANOTHER = "exec"  # why such a recording ended
_OF_THE_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
_WITNESS_S = 0.2  # within which who is sent the same signal has told us
_SAID = struct.Struct("<id")  # a signal, and when it came
_ORPHAN_S = 1.0  # within which the witness sees that we have been killed


@dataclass(frozen=True)
class Recording:
    """What came of a program: its files, the main process's first, and how it ended.

    Where a process became another program (`exec`), the file that has its name is of the last one,
    and FILE.1, FILE.2 and so on are of those before.
    """

    files: list[Path]
    exit_code: int  # minus the number of the signal that ended it
    had_children: bool = False  # it waited for processes that it had started
    children_share: float = 0.0  # of the processor time, what these took
    interrupted: bool = False  # Ctrl-C was pressed, or we were sent its signal


class NothingRecorded(HeapfitError):
    """The program has run, and wrote no file; `status` is its exit code, as of a `Recording`."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def run(
    command: Sequence[str],
    path: Path,
    options: RecordOptions = RecordOptions(),  # noqa: B008, it cannot be changed
    environment: Mapping[str, str] | None = None,
    stdout: int | None = None,
    stdin: int | None = None,
    allocator: InstalledAllocator | None = None,
) -> Recording:
    """Run `command` with `environment` (None: ours) under the recorder, which writes to `path`.

    `%p` in the path becomes a process's number. `stdout` and `stdin` are the program's, as
    subprocess has them; without an `allocator` it keeps its own. Raises UsageError where a file is
    in the way, NothingRecorded where there is none afterwards, CannotRun where the program
    cannot be started.
    """
    path = path.absolute()
    check_path(path)
    given = dict(os.environ if environment is None else environment)
    given.pop(PROCESS_VARIABLE, None)  # We may be recorded ourselves; the program is its own.
    before = _found(path)
    changes = _changes(path, options, given, allocator)
    ended = _run(command, {**given, **changes}, stdout, stdin)
    main = path.name.replace(PROCESS, str(ended.process))
    # Other recorders may write to this folder, too.
    new = set(_found(path if options.children else path.with_name(main))) - set(before)
    for file in sorted(new):
        _put_last_program_first(file, new)
    files = sorted(new, key=lambda each: _rank(each, main))
    if not files:
        why = _why_nothing(command[0], ended.exit_code)
        raise NothingRecorded(f"{command[0]} wrote no recording: {why}", ended.exit_code)
    return Recording(
        files, ended.exit_code, ended.had_children, ended.children_share, ended.interrupted
    )


def _put_last_program_first(file: Path, new: set[Path]) -> None:
    """Give the name of a process's first recording to that of the program that it became last.

    A launcher such as env, timeout or taskset becomes the program that is meant.
    """
    if file not in new:  # it has been renamed
        return
    chain = [file]
    while examine(chain[-1]).ended == _BECAME_ANOTHER:
        following = file.with_name(f"{file.name}.{len(chain) + 1}")
        if following not in new:
            break
        chain.append(following)
    if len(chain) > 1 and not file.with_name(f"{file.name}.1").exists():
        first = file.rename(file.with_name(f"{file.name}.1"))
        chain[-1].rename(file)
        new ^= {chain[-1], first}


def check_path(path: Path) -> None:
    """Raise UsageError or HeapfitError where no new file can be written at `path`."""
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent} to write a recording to; create it")
    if PROCESS not in path.name:
        check_new(path)
    try:
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise HeapfitError(
            f"cannot write to {path.parent}: {reason}; choose another place with -o"
        ) from error


def _changes(
    path: Path,
    options: RecordOptions,
    environment: Mapping[str, str],
    allocator: InstalledAllocator | None,
) -> dict[str, str]:
    """Return what a recorded program's environment has beyond `environment`."""
    libraries = [library()]
    changes = variables(path, options.settings())
    if allocator is not None:
        changes |= allocator.environment
        if allocator.options:
            present = environment.get(heap_options.VARIABLE, "")
            changes[heap_options.VARIABLE] = heap_options.merge(present, allocator.options)
        libraries += [allocator.library] if allocator.library else []
    for each in libraries:
        paths.check_preloadable(each)
    preloaded = [*map(str, libraries), environment.get(_PRELOAD, "")]
    return {**changes, _PRELOAD: ":".join(filter(None, preloaded))}


class _Ended(NamedTuple):
    """The number of a program that has run, and what a `Recording` says of it."""

    process: int
    exit_code: int
    had_children: bool
    children_share: float
    interrupted: bool


def _run(
    command: Sequence[str], environment: Mapping[str, str], stdout: int | None, stdin: int | None
) -> _Ended:
    sys.stdout.flush()
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:  # Then no exit code could be had.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with _group_witness() as is_groups, _signals_pass_through(is_groups) as (pass_to, interrupted):
        with starting(command):
            program = subprocess.Popen(command, env=environment, stdout=stdout, stdin=stdin)
        with program:
            pass_to(program)
            os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOWAIT)
            had_children, share = _of_children(program.pid)
            return _Ended(program.pid, program.wait(), had_children, share, interrupted())


def _of_children(process: int) -> tuple[bool, float]:
    """Return whether a process has waited for others that it had started, and the part of the
    processor time of all of them that these took. It has ended and still has its number."""
    try:
        after_name = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return False, 0.0
    user, system, of_children, system_of_children = map(int, after_name[11:15])
    children = of_children + system_of_children
    had_children = int(after_name[8]) > 0  # their page faults: no process is without any
    return had_children, children / (user + system + children) if children else 0.0


@contextmanager
def _group_witness() -> Iterator[Callable[[int], bool]]:
    """Yield a function that says of a signal of the terminal's, just sent to us, whether our whole
    process group was sent it, or all processes of our control group, and so the program as well.

    Only another process can know: one that waits for these signals and does nothing else.
    """
    ours = os.getpid()
    told, tells = os.pipe()
    os.set_blocking(told, False)
    heard = dict.fromkeys(map(int, _OF_THE_TERMINAL), -math.inf)  # when, if not answered for
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        witness = os.fork()
        if witness == 0:
            _wait_as_witness(ours, tells)
    except OSError:  # No more processes: a signal that arrives twice is better than none.
        witness = -1
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    os.close(tells)

    def is_groups(number: int) -> bool:
        deadline = time.monotonic() + _WITNESS_S
        # Of two that we saw as one, the witness has heard both: what is older is of another.
        while heard[number] < deadline - 2 * _WITNESS_S:
            if not select.select([told], [], [], max(deadline - time.monotonic(), 0))[0]:
                break
            with suppress(BlockingIOError):  # Else a handler within this one has read it.
                if not (said := os.read(told, _SAID.size)):
                    break
                by, at = _SAID.unpack(said)
                heard[by] = at
        is_heard = heard[number] >= deadline - 2 * _WITNESS_S
        heard[number] = -math.inf
        return is_heard

    try:
        yield is_groups
    finally:
        os.close(told)
        if witness > 0:
            os.kill(witness, signal.SIGKILL)
            os.waitpid(witness, 0)


def _wait_as_witness(ours: int, tells: int) -> NoReturn:
    """Write the number of each such signal and the time, as the witness, which has all signals
    blocked."""
    try:
        while os.getppid() == ours:
            if found := signal.sigtimedwait(_OF_THE_TERMINAL, _ORPHAN_S):
                os.write(tells, _SAID.pack(found.si_signo, time.monotonic()))
    finally:
        os._exit(0)


@contextmanager
def _signals_pass_through(
    is_groups: Callable[[int], bool],
) -> Iterator[tuple[Callable[[subprocess.Popen[bytes]], None], Callable[[], bool]]]:
    """Yield the function to be told of the program, and one that says whether Ctrl-C was pressed
    since; what is said to us before is kept for the program.

    What was ignored stays so, for the program too: it inherits that, but not our handlers.
    """
    early: list[int] = []
    interrupts: list[int] = []
    programs: list[subprocess.Popen[bytes]] = []

    def forward(number: int, _: object) -> None:
        if not programs:
            early.append(number)
        elif programs[0].returncode is None:  # Popen's own would wait for one that has ended.
            os.kill(programs[0].pid, number)

    def interrupt(number: int, frame: object) -> None:
        interrupts.append(number)
        if not is_groups(number):  # but ours alone, as by a supervisor
            forward(number, frame)

    taken = [each for each in _FORWARDED if signal.getsignal(each) is not signal.SIG_IGN]
    before = {number: signal.signal(number, forward) for number in taken}

    def pass_to(program: subprocess.Popen[bytes]) -> None:
        programs.append(program)
        for number in early:
            forward(number, None)
        for number in _OF_THE_TERMINAL:
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, interrupt)

    try:
        yield pass_to, lambda: signal.SIGINT in interrupts
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _found(path: Path) -> list[Path]:
    """Return the files that recorders told to write to `path` have made, as they were numbered.

    Beside the path itself these are PATH.N: of a process N that is another's child, or of the Nth
    recording of the same process.
    """
    digits = re.escape(path.name).replace(re.escape(PROCESS), r"[0-9]+")
    pattern = re.compile(rf"{digits}(\.[0-9]+)*")
    return [each for each in path.parent.iterdir() if pattern.fullmatch(each.name)]


def _rank(file: Path, main: str) -> tuple[bool, bool, int]:
    """Where `file` stands among those of a run: the file `main` first, others as they ended."""
    is_main = file.name == main
    return not is_main, not file.name.startswith(main), file.stat().st_mtime_ns


def _why_nothing(program: str, status: int) -> str:
    if status < 0:
        return f"signal {-status} ended it before it could ({signal.strsignal(-status)})"
    why = why_not_preloadable(program) or (
        "the recorder has said why above, or it was told to wait and never to start"
    )
    return f"{why} (the program's exit code: {status})"
