"""`heapfit.live`: who is asked, what is understood, and what is said when it goes wrong."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from heapfit.errors import HeapfitError, UsageError
from heapfit.live import Client, Gone, NotListening, Refused, processes, rates_between
from heapfit.live.channel import Channel, Peer
from heapfit.live.processes import (
    Process,
    find,
    listening,
    why_not_listening,
    why_not_recording,
)
from heapfit.live.records import LiveOption, Stats
from heapfit.live.snapshot import parse_memory, read_memory, take
from live_double import MIB, Answer, Double

ME = os.getpid()
NOBODY = 65534
DOUBLE = Path(__file__).with_name("live_double.py")


@pytest.fixture
def double() -> Iterator[Double]:
    with Double() as made:
        yield made


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has nothing to do with heapfit."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        while getattr(find(process.pid), "command", None) != ("sleep", "1000"):
            time.sleep(0.01)  # Between fork and exec it is still called as we are.
        yield process
        process.kill()


# ------------------------------------------------------------------- the answers


def test_the_figures_are_those_that_the_process_gives(double: Double) -> None:
    stats = Client(ME).stats()
    assert (stats.pid, stats.version, stats.shrunk) == (ME, "0.1.0", False)
    assert stats.total.live_bytes == 65 * MIB
    assert [each.thread for each in stats.heaps] == [0, 4711, -1]
    assert double.asked == ["stats"]


def test_a_figure_of_an_older_library_is_zero(double: Double) -> None:
    assert Client(ME).stats().total.threads_sharing == 0


def test_options_are_read_set_and_read_again(double: Double) -> None:
    client = Client(ME)
    assert client.get("decay_ms") == "500"
    assert client.set("decay_ms", "100") == "100"
    values = {option.name: option.value for option in client.options()}
    assert values["decay_ms"] == "100"


def test_a_process_is_shrunk_trimmed_and_restored(double: Double) -> None:
    client = Client(ME)
    assert client.shrink() == 12 * MIB
    assert client.stats().shrunk
    client.restore()
    assert not client.stats().shrunk
    assert client.trim() == 3 * MIB


def test_small_thresholds_are_in_force_while_shrunk(double: Double) -> None:
    client = Client(ME)
    double.options["shared_span_threshold"]["value"] = "4096"
    client.shrink()
    snapshot = take(client)
    in_force = {option.name: option.in_force for option in snapshot.options}
    assert (in_force["thread_span_threshold"], in_force["decay_ms"]) == ("0", "10")
    assert in_force["free_page_threshold"] == "1048576"  # of `unlimited`
    assert in_force["shared_span_threshold"] == "4096"  # less than that anyway
    assert in_force["remote_free_batch"] == "256"


def test_no_connection_is_kept_between_requests(double: Double) -> None:
    first, second = Client(ME), Client(ME, timeout_s=2.0)
    first.stats()
    second.stats()
    first.stats()
    assert double.looks == 3


def test_a_process_that_is_busy_with_others_is_waited_for(double: Double) -> None:
    # They fill the queue of connections, which the double serves one by one, and leave.
    crowd = [socket.socket(socket.AF_UNIX) for _ in range(5)]
    for each in crowd:
        each.connect(f"\0heapfit/{ME}")
    client = Client(ME)
    leave = threading.Timer(0.3, lambda: [each.close() for each in crowd])
    leave.start()
    assert client.get("decay_ms") == "500"
    leave.join()


# -------------------------------------------------------------- what goes wrong


def test_the_librarys_own_words_are_passed_on(double: Double) -> None:
    with pytest.raises(Refused, match="no option 'decay_sm'; the nearest is 'decay_ms'"):
        Client(ME).set("decay_sm", "1")
    with pytest.raises(Refused, match="cannot be set while the program runs"):
        Client(ME).set("huge_pages", "never")


@pytest.mark.parametrize("word", ["", "two words", "line\nshrink", "tab\t", "\x1b", "größe"])
def test_what_is_no_word_is_not_sent(double: Double, word: str) -> None:
    with pytest.raises(UsageError, match="is not one word"):
        Client(ME).set("decay_ms", word)
    assert double.asked == []


def test_a_request_that_is_too_long_is_not_sent(double: Double) -> None:
    with pytest.raises(UsageError, match="at most 256 characters"):
        Client(ME).get("x" * 253)
    assert double.asked == []


def test_a_process_that_is_not_there(sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(Gone, match=f"no process {sleeper.pid}"):  # a zombie, until it is waited for
        Client(sleeper.pid)
    sleeper.wait()
    with pytest.raises(Gone, match=f"no process {sleeper.pid}"):
        Client(sleeper.pid)


def test_a_process_that_ends_while_it_is_watched(sleeper: subprocess.Popen[bytes]) -> None:
    client = Client(sleeper.pid)
    sleeper.kill()
    sleeper.wait()
    with pytest.raises(Gone, match="has ended"):
        client.stats()


def test_a_thread_is_no_process(double: Double) -> None:
    thread = next(int(each) for each in os.listdir("/proc/self/task") if int(each) != ME)
    with pytest.raises(Gone, match="no process"):
        Client(thread)


def test_a_process_without_heapfit_is_told_how_to_start_with_it(
    sleeper: subprocess.Popen[bytes],
) -> None:
    with pytest.raises(NotListening, match=r"heapfit run --control -- sleep 1000; or "):
        Client(sleeper.pid).stats()


def test_a_process_of_another_user_is_not_asked(
    double: Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    with pytest.raises(NotListening, match=r"belongs to \w+, .*sudo -u \w+"):
        Client(ME)
    assert ME not in [each.pid for each in listening()]
    assert double.asked == []


def test_root_may_ask_everybody(double: Double, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert Client(ME).get("decay_ms") == "500"


def test_a_process_may_have_opened_its_socket_before_it_ceased_to_be_root(
    double: Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(ME)
    client.process = replace(client.process, user=NOBODY)
    monkeypatch.setattr(Channel, "peer", property(lambda _: Peer(ME, 0, 0)))
    assert client.get("decay_ms") == "500"


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


def test_a_process_that_does_not_answer(double: Double) -> None:
    double.behave = double.hang
    with pytest.raises(HeapfitError, match=r"not answer within 0\.2 s"):
        Client(ME, timeout_s=0.2).stats()


def test_a_process_that_is_stopped() -> None:
    command = [sys.executable, str(DOUBLE)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as stopped:
        assert stopped.stdout is not None
        assert stopped.stdout.readline() == b"ready\n"
        stopped.send_signal(signal.SIGSTOP)
        os.waitpid(stopped.pid, os.WUNTRACED)  # each of its threads stops when it next runs
        try:
            began = time.monotonic()
            for ask in (Client(stopped.pid).stats, Client(stopped.pid).ledger):
                with pytest.raises(HeapfitError, match=f"is stopped; .*kill -CONT {stopped.pid}"):
                    ask()
            assert time.monotonic() - began < 5  # the time that an answer has
        finally:
            stopped.kill()


@pytest.mark.parametrize(
    "answer",
    [
        lambda _: b"\xff\xfe\n",
        lambda _: b"\n",
        lambda _: b"[]\n",
        lambda _: b'{"ok":true}\n',
        lambda _: b'{"ok":true,"stats":{}}\n',
        lambda _: b'{"ok":true,"stats":{"format":"heapfit-stats/2","pid":1}}\n',
        lambda _: b"HTTP/1.1 400 Bad Request\r\n",
        lambda _: b"x" * (33 << 20),
    ],
)
def test_garbage_is_not_believed(answer: Answer) -> None:
    with Double(behave=answer), pytest.raises(HeapfitError, match="does not understand"):
        Client(ME).stats()


def profile_of(
    mean: int = 1 << 19, size: int = 64, call: str = "/bin/a b+0x10", **more: int
) -> bytes:
    sample = {"site": 1, "bytes": size, "mean": mean, **more}
    told: dict[str, Any] = {"mean": 1 << 19, "samples": [sample]}
    told["sites"] = [{"site": 1, "calls": [call]}]
    return json.dumps({"ok": True, "profile": told}).encode() + b"\n"


@pytest.mark.parametrize(
    "answer",
    [
        profile_of(mean=0),
        profile_of(mean=-1),
        profile_of(size=0),
        profile_of(size=-5),
        profile_of(size=10**400),
        profile_of(size=1 << 64),
        profile_of(age_ms=-1),
        profile_of(call="nonsense"),
        profile_of(call="/bin/true+0x"),
        profile_of(call="/bin/true+0x1" + "0" * 16),
    ],
)
def test_a_profile_that_no_library_gives_is_not_believed(answer: bytes) -> None:
    with Double(behave=lambda _: answer), pytest.raises(HeapfitError, match="not understand"):
        Client(ME).profile()


@pytest.mark.parametrize("call", ["/bin/a b+0x10", "/bin/a+b\n+0xffffffffffffffff", "0x7f00"])
def test_the_largest_and_oddest_profile_is_believed(call: str) -> None:
    most = (1 << 64) - 1
    for mean, size in ((1, most), (most, 1), (most, most)):
        answer = profile_of(mean=mean, size=size, call=call)
        with Double(behave=lambda _, answer=answer: answer):  # type: ignore[misc]
            [site] = Client(ME).profile().sites
        assert site.bytes.low <= site.bytes.value <= site.bytes.high


def test_a_connection_that_is_closed_early() -> None:
    with Double(behave=lambda _: None), pytest.raises(HeapfitError, match="closed the connection"):
        Client(ME).stats()


def test_an_answer_that_breaks_off() -> None:
    with Double(behave=lambda _: b'{"ok":tr'), pytest.raises(HeapfitError, match="not answer"):
        Client(ME, timeout_s=0.2).stats()


def test_what_a_process_says_cannot_steer_the_terminal() -> None:
    escape = b'{"ok":false,"error":"a\\u001b[2Jb"}\n'
    with Double(behave=lambda _: escape), pytest.raises(Refused, match=r"^a\?\[2Jb$"):
        Client(ME).get("x")


# ------------------------------------------------------------------- processes


def test_those_that_listen_are_found_with_their_command_lines(double: Double) -> None:
    (found,) = [each for each in listening() if each.pid == ME]
    assert found == find(ME)
    assert "python" in found.command_line


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


def test_who_has_no_time_and_no_heapfit_is_not_found(
    double: Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another test may have loaded the library into this process.
    monkeypatch.setattr(processes, "_libraries", lambda _: [])
    double.behave = double.hang
    first = socket.socket(socket.AF_UNIX)
    first.connect(f"\0heapfit/{ME}")
    first.sendall(b"stats\n")
    while not double.asked:  # From now on it serves nobody else.
        time.sleep(0.01)
    crowd = [first, *fill_queue(ME)]
    assert ME not in [each.pid for each in listening()]
    for each in crowd:
        each.close()


def described(command: tuple[str, ...], name: str = "server") -> Process:
    return Process(pid=1, own_pid=1, user=0, name=name, command=command)


@pytest.mark.parametrize(
    ("library", "environment", "line"),
    [
        (None, {}, "heapfit run --control -- server 'a b'"),
        (
            "libheapfit.so",
            {"LD_PRELOAD": "/x/libheapfit.so", "HEAPFIT_OPTIONS": "decay_ms:5, control:off"},
            "heapfit run --control --set decay_ms=5 -- server 'a b'",
        ),
        (
            "libheapfit-pools.so",
            {"LD_PRELOAD": "/x/libheapfit-pools.so"},
            "heapfit run --control --variant pools -- server 'a b'",
        ),
        (
            "libheapfit.so.1",
            {"HEAPFIT_OPTIONS": "decay_ms:5"},
            "HEAPFIT_OPTIONS=decay_ms:5,control:on server 'a b'",
        ),
    ],
)
def test_the_line_to_start_with_keeps_what_the_process_was_started_with(
    library: str | None, environment: dict[str, str], line: str
) -> None:
    assert processes._start_line(described(("server", "a b")), environment, library) == line


def test_a_command_line_shows_no_control_characters() -> None:
    assert "\x1b" not in described(("server", "\x1b[2J")).command_line


def can_unshare(kind: str) -> bool:
    return subprocess.run(["unshare", kind, "--fork", "true"], capture_output=True).returncode == 0


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


@pytest.mark.skipif(not can_unshare("--net"), reason="this user may not make a network namespace")
def test_a_process_in_another_network_is_told_how_to_get_there() -> None:
    command = ["unshare", "--net", sys.executable, str(DOUBLE)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as apart:
        assert apart.stdout is not None
        assert apart.stdout.readline() == b"ready\n"
        with pytest.raises(NotListening, match=f"nsenter --target {apart.pid} --net heapfit"):
            Client(apart.pid).stats()
        apart.kill()


# ----------------------------------------------------------------------- rates


def stats(number: int, **total: int) -> Stats:
    raw = Double().stats()
    raw |= {"time_ms": number * 500, "total": {**raw["total"], **total}}
    return Stats.model_validate(raw)


def test_rates_are_per_second_of_the_process_s_own_clock() -> None:
    before = stats(0, purges=10, purged=0, refills=100, zeroed_hits=1, zeroed_misses=1)
    after = stats(1, purges=20, purged=MIB, refills=101, zeroed_hits=4, zeroed_misses=2)
    rates = rates_between(before, after)
    assert rates is not None
    assert (rates.seconds, rates.purges, rates.purged_bytes) == (0.5, 20.0, 2.0 * MIB)
    assert rates.refills == 2.0
    assert rates.zeroed_hit_share == 0.75
    assert rates.refills_of_heaps == {0: 0.0, 1: 0.0, 2: 0.0}


def test_without_callocs_there_is_no_share_of_them() -> None:
    rates = rates_between(stats(0), stats(1))
    assert rates is not None
    assert rates.zeroed_hit_share is None


def test_a_program_that_was_replaced_has_no_rates_yet() -> None:
    assert rates_between(stats(0, commits=9), stats(1, commits=2)) is None
    assert rates_between(stats(1), stats(1)) is None
    assert rates_between(stats(2), stats(1)) is None


# ---------------------------------------------------------------------- memory


def test_huge_pages_of_the_pool_count_as_resident() -> None:
    rollup = b"0-7f [rollup]\nRss: 6144 kB\nAnonHugePages: 2048 kB\nPrivate_Hugetlb: 2048 kB\n"
    memory = parse_memory(rollup)
    assert memory is not None
    assert (memory.resident, memory.huge, memory.huge_share) == (8 * MIB, 4 * MIB, 0.5)


def test_the_memory_of_a_process_that_is_gone_is_unknown(sleeper: subprocess.Popen[bytes]) -> None:
    assert read_memory(ME) is not None
    sleeper.kill()
    sleeper.wait()
    assert read_memory(sleeper.pid) is None


def test_an_option_may_have_members_that_we_do_not_know() -> None:
    raw = {"name": "x", "kind": "size", "value": "1", "in_force": "1", "later": True}
    assert LiveOption.model_validate(raw).value == "1"


def test_of_a_process_that_has_changed_its_title_the_program_is_named() -> None:
    program = "import sys; print(flush=True); sys.stdin.read()"
    title = "server: *:7631 [idle]"
    with subprocess.Popen(
        [title, "-c", program, ""],
        executable=sys.executable,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        told = str(why_not_listening(process.pid))
        recording = str(why_not_recording(process.pid))
        process.communicate()
    assert f"heapfit run --control -- {Path(sys.executable).resolve()} ARGUMENTS" in told
    assert f"heapfit record --pid {process.pid}" in told
    assert "*:7631" not in told.partition("start it with")[2] + recording.partition("with:")[2]
