"""`heapfit.live`: who is asked, what is understood, and what is said when it goes wrong."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from heapfit.errors import HeapfitError
from heapfit.host.proc import (
    Gone,
    Process,
    environment_of,
    find,
    from_folder,
    has_other_root,
    named,
    started_as,
)
from heapfit.live import Client, NotListening, Refused
from heapfit.live.channel import Channel, Peer
from heapfit.live.processes import listening, why_not_listening, why_not_recording
from live_double import Answer, Double

ME = os.getpid()
NOBODY = 65534
DOUBLE = Path(__file__).with_name("live_double.py")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has nothing to do with heapfit."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        try:
            while getattr(find(process.pid), "command", None) != ("sleep", "1000"):
                time.sleep(0.01)  # Between fork and exec it is still called as we are.
            yield process
        finally:
            process.kill()


def test_a_process_that_is_not_there(sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(Gone, match=f"no process {sleeper.pid}"):  # a zombie, until it is waited for
        Client(sleeper.pid)
    sleeper.wait()
    with pytest.raises(Gone, match=f"no process {sleeper.pid}"):
        Client(sleeper.pid)


def test_a_socket_that_another_user_opened_is_sent_nothing(
    double: Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(ME)
    monkeypatch.setattr(Channel, "peer", property(lambda _: Peer(ME, NOBODY, NOBODY)))
    with pytest.raises(NotListening, match="opened by user 65534"):
        client.stats()
    assert double.asked == []


def test_a_name_that_another_process_has_taken_is_sent_nothing(
    sleeper: subprocess.Popen[bytes],
) -> None:
    with Double(number=sleeper.pid) as squatter:
        with pytest.raises(NotListening, match=f"process {ME} listens in the place of"):
            Client(sleeper.pid).shrink()
        assert not {ME, sleeper.pid} & {each.pid for each in listening()}
        assert squatter.asked == []


@pytest.mark.parametrize("peer", [ME, 0])  # 0: the kernel shows no other container's process
@pytest.mark.parametrize("shares", [True, False])
def test_two_first_processes_of_containers_with_one_network_are_told_what_helps(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, peer: int, shares: bool
) -> None:
    mine = Process(pid=ME, own_pid=sleeper.pid, user=os.getuid(), name="other", command=())
    monkeypatch.setattr("heapfit.live.client.find", lambda pid: mine if pid == ME else None)
    monkeypatch.setattr(Channel, "peer", property(lambda _: Peer(peer, os.getuid(), os.getgid())))
    if not shares:
        monkeypatch.setattr("heapfit.live.processes._namespace", str)
    with Double(number=sleeper.pid) as other:
        said = "share their processes, too .* or give each its own network"
        with pytest.raises(NotListening, match=said if shares else "in another network namespace"):
            Client(sleeper.pid).stats()
        assert other.asked == []


def test_a_process_that_is_stopped() -> None:
    command = [sys.executable, str(DOUBLE)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as stopped:
        assert stopped.stdout is not None
        assert stopped.stdout.readline() == b"ready\n"
        stopped.send_signal(signal.SIGSTOP)
        os.waitpid(stopped.pid, os.WUNTRACED)  # each of its threads stops when it next runs
        try:
            for ask in (Client(stopped.pid).stats, Client(stopped.pid).ledger):
                with pytest.raises(HeapfitError, match=f"is stopped; .*kill -CONT {stopped.pid}"):
                    ask()
        finally:
            stopped.kill()


@pytest.mark.parametrize(
    "answer",
    [
        lambda _: b"\xff\xfe\n",
        lambda _: b'{"ok":true,"stats":{"format":"heapfit-stats/2","pid":1}}\n',
    ],
)
def test_garbage_is_not_believed(answer: Answer) -> None:
    with Double(behave=answer), pytest.raises(HeapfitError, match="does not understand"):
        Client(ME).stats()


def fill_queue(number: int) -> list[socket.socket]:
    """Connect to a process until no connection more has a place in its queue."""
    crowd: list[socket.socket] = []
    with suppress(BlockingIOError):
        while len(crowd) < 1000:
            crowd.append(socket.socket(socket.AF_UNIX))
            crowd[-1].setblocking(False)
            crowd[-1].connect(f"\0heapfit/{number}")
    return crowd


def test_a_stopped_process_is_found_however_often_it_was_asked(library: Path) -> None:
    environment = {**os.environ, "LD_PRELOAD": str(library), "HEAPFIT_OPTIONS": "control:on"}
    with subprocess.Popen(["sleep", "1000"], env=environment) as stopped:
        try:
            while stopped.pid not in [each.pid for each in listening()]:
                time.sleep(0.01)
            stopped.send_signal(signal.SIGSTOP)
            os.waitpid(stopped.pid, os.WUNTRACED)
            crowd = fill_queue(stopped.pid)
            assert stopped.pid in [each.pid for each in listening()]
            for each in crowd:
                each.close()
            assert stopped.pid in [each.pid for each in listening()]
        finally:
            stopped.kill()


def test_what_a_process_says_cannot_steer_the_terminal() -> None:
    escape = b'{"ok":false,"error":"a\\u001b[2Jb"}\n'
    with Double(behave=lambda _: escape), pytest.raises(Refused, match=r"^a\?\[2Jb$"):
        Client(ME).get("x")


def can_unshare(kind: str) -> bool:
    return subprocess.run(["unshare", kind, "--fork", "true"], capture_output=True).returncode == 0


@pytest.mark.full
@pytest.mark.skipif(not can_unshare("--pid"), reason="this user may not make a PID namespace")
def test_a_process_in_a_container_is_found_by_the_number_that_we_see() -> None:
    command = ["unshare", "--pid", "--fork", sys.executable, str(DOUBLE)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as unshare:
        assert unshare.stdout is not None
        assert unshare.stdout.readline() == b"ready\n"
        (child,) = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children").read_text().split()
        client = Client(int(child))
        assert client.process.own_pid == 1
        assert client.stats().pid == 1
        assert int(child) in [each.pid for each in listening()]
        os.kill(int(child), signal.SIGKILL)


@contextmanager
def started_with(title: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A Python process of this title, which waits for the end of its input."""
    with subprocess.Popen(
        [title, *arguments],
        executable=sys.executable,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.communicate()


def test_of_a_process_that_has_changed_its_title_the_program_is_named() -> None:
    program = "import sys; print(flush=True); sys.stdin.read()"
    title = "server: *:7631 [idle]"
    with started_with(title, "-c", program, "") as process:
        told = str(why_not_listening(process.pid))
        recording = str(why_not_recording(process.pid))
    assert f"heapfit run --control -- {Path(sys.executable).resolve()} ARGUMENTS" in told
    assert f"heapfit record --pid {process.pid}" in told
    assert "*:7631" not in told.partition("start it with")[2] + recording.partition("with:")[2]


def test_nothing_is_proposed_that_does_not_get_into_the_program(
    sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    (tmp_path / "idle.c").write_text("#include <unistd.h>\nint main(void) { return pause(); }")
    program = tmp_path / "idle"
    subprocess.run(["gcc", "-static", tmp_path / "idle.c", "-o", program], check=True)
    with subprocess.Popen([program]) as process:
        for why_not in (why_not_listening, why_not_recording):
            told = str(why_not(process.pid))
            assert "and cannot: its malloc is built in, because it is linked statically" in told
            assert "heapfit" not in told.partition("and cannot")[2]
            assert f"heapfit record --pid {sleeper.pid}" in str(why_not(sleeper.pid))
        process.kill()


@pytest.mark.parametrize(
    ("variables", "start"),
    [
        ({"LD_PRELOAD": "/x/libheapfit.so"}, "heapfit run --control -- sleep 1000"),
        ({}, "HEAPFIT_OPTIONS=control:on sleep 1000"),  # It is linked.
        (None, "heapfit run --control -- sleep 1000"),
    ],
)
def test_variables_that_a_title_has_taken_the_place_of_are_not_known(
    sleeper: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    variables: dict[str, str] | None,
    start: str,
) -> None:
    """They counted as none: a library that was preloaded as linked."""
    monkeypatch.setattr("heapfit.live.processes.environment_of", lambda _: variables)
    monkeypatch.setattr("heapfit.live.processes._library", lambda _: "libheapfit.so.1")
    told = why_not_listening(sleeper.pid)
    assert isinstance(told, NotListening)
    assert told.start == start
    assert ("without control:on, or" in told.reason) is (variables is None)
    (tmp_path / "7").mkdir()
    monkeypatch.setattr("heapfit.host.proc.PROC", tmp_path)
    assert environment_of(7) is None
    for written, known in ((b"A=b\0C=\0", {"A": "b", "C": ""}), (b"", {}), (b"\0\0e=f\0", None)):
        (tmp_path / "7/environ").write_bytes(written)
        assert environment_of(7) == known


def test_the_command_that_started_a_process_starts_it_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    its, ours = tmp_path / "its", tmp_path / "ours"
    for folder, program in ((its, sys.executable), (ours, "/bin/true")):
        folder.mkdir()
        (folder / "a-python").symlink_to(Path(program).resolve())
    (tmp_path / "app.py").write_text("print(flush=True); input()")
    path, file = os.environ["PATH"], str(Path(sys.executable).resolve())
    go = f"cd {shlex.quote(str(tmp_path))} && "
    for its_path, our_path, shown in (
        (f"{its}:{path}", path, str(its / "a-python")),
        (f"{its}:{path}", f"{ours}:{path}", str(its / "a-python")),
        (path, f"{ours}:{path}", file),
        (path, path, file),
        (path, f"{its}:{path}", "a-python"),
    ):
        monkeypatch.setenv("PATH", our_path)
        with subprocess.Popen(
            ["a-python", "app.py"],
            executable=its / "a-python",
            cwd=tmp_path,
            env={**os.environ, "PATH": its_path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            found = find(process.pid)
            assert found is not None
            assert (from_folder(found), started_as(found)) == (go, f"{shown} app.py")
            elsewhere = replace(found, command=("a-python", "-c", "", "none.py", "/bin"))
            assert from_folder(elsewhere) == ""
            for words in (("-m", "app"), ("--conf=app.py",)):
                assert from_folder(replace(found, command=("a-python", *words))) == go
            assert started_as(replace(found, command=("a-python", "\ufffd"))) == "COMMAND"
            with monkeypatch.context() as there:
                there.chdir(tmp_path)
                assert from_folder(found) == ""
            with monkeypatch.context() as container:
                container.setattr("heapfit.host.proc.has_other_root", lambda _: True)
                assert (from_folder(found), started_as(found)) == ("", "COMMAND")
            process.communicate(b"\n")


def test_another_root_is_told_from_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not has_other_root(ME)
    monkeypatch.setattr("heapfit.host.proc.PROC", tmp_path)
    for pid, root in ((1, "/"), (2, tmp_path)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "root").symlink_to(root)
    assert [has_other_root(each) for each in (1, 2, 3)] == [False, True, False]


def test_the_name_that_a_program_was_started_by_is_kept_where_it_is_a_link(tmp_path: Path) -> None:
    """redis-server is a link to redis-check-rdb, which by that name does something else."""
    link = tmp_path / "the-server"
    link.symlink_to(Path(sys.executable).resolve())
    program = "print(flush=True); input()"
    for title, shown in (
        (f"{link} *:7631", f"{link} ARGUMENTS"),
        (f"{link}", f"{link} -c {shlex.quote(program)}"),
    ):
        with started_with(title, "-c", program) as process:
            [found] = [each for each in named("the-server") if each.pid == process.pid]
            assert started_as(found) == shown
            many = replace(found, command=(f"{link}", *(["argument"] * 50)))
            assert started_as(many).startswith(f"{link} argument ")
            assert started_as(many).endswith(" argument ...")
