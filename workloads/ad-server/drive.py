"""Loads the ad server with wrk, has it reload its index meanwhile, checks every answer.

First each question is asked once, which gives the right answers (they are compared with those under
other allocators: SCRATCH/answers.txt) and warms the server up. Then come a short load that does not
count, the load that does, and a third in which system calls are counted, if the kernel lets us.
Prints one figure a line and `answers right` at the end; exits 1 when an answer is wrong.

Usage: drive.py PORT SCRATCH SECONDS RELOAD_S
"""

from __future__ import annotations

import hashlib
import http.client
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from figures import Span, latencies
from process import Unavailable, count_calls, resident_bytes, used

HERE = Path(__file__).resolve().parent
HOST = "127.0.0.1"

LIMITS = (256, 512, 1024, 2048)  # candidates of a usual question
SMALL_QUESTIONS, LARGE_QUESTIONS = 64, 8
CANDIDATES_A_WORD = 256  # fewer than a word has, so that the limit is reached

# Parts of the load's time.
WARM_UP, COUNTING = 0.2, 0.25
# Without reloads: seconds from one wave of large questions to the next.
WAVE_S = 2.0
# A reload begins here in each period: when the wave is over, as one would plan it.
RELOAD_AT = 0.4
SAMPLE_S = 0.01
NANOSECOND = 1e-9
# An answer, and a reload under load, may take long on a busy machine.
ANSWER_TIMEOUT_S = 60
RELOAD_TIMEOUT_S = 120.0


def fail(reason: str) -> None:
    sys.exit(f"drive.py: {reason}")


@dataclass(frozen=True)
class Question:
    """A path, and the right answer."""

    path: str
    answer: str
    is_large: bool

    def lua(self) -> str:
        return (
            f"{{path = [==[{self.path}]==], is_large = {str(self.is_large).lower()}, "
            f"answer = [==[\n{self.answer}]==]}}"
        )


@dataclass
class Load:
    """What came of a load."""

    answers: list[Span] = field(default_factory=list)
    large: int = 0
    reloads: list[Span] = field(default_factory=list)
    resident: list[tuple[float, int]] = field(default_factory=list)  # when, and how much

    def read(self, line: str) -> None:
        match line.split():
            case ["sample", begin, end, is_large]:
                self.answers.append(Span(float(begin), float(end)))
                self.large += int(is_large)
            case ["errors", kind, number] if int(number) > 0:
                fail(f"connections had errors: {number} of {kind}")
            case ["wrong", *what]:
                fail(f"wrong answer: {' '.join(what)}")

    @property
    def seconds(self) -> float:
        """From the first question to the last answer."""
        return max(each.end for each in self.answers) - min(each.begin for each in self.answers)

    @property
    def reload_peak_bytes(self) -> int:
        """The most that was resident during a reload; 0: there was none."""
        return max(
            (
                size
                for at, size in self.resident
                if any(r.begin <= at <= r.end for r in self.reloads)
            ),
            default=0,
        )


class Server:
    """The server, asked from outside."""

    def __init__(self, port: int) -> None:
        self.port = port
        status = self.status()
        self.pid = int(status["pid"][0])
        self.workers = int(status["workers"][0])
        self.ads = int(status["ads"][0])
        self.large_request_ads = int(status["large_request_ads"][0])

    def ask(self, path: str, method: str = "GET") -> str:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=ANSWER_TIMEOUT_S)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            if answer.status != 200:
                fail(f"{path} answers {answer.status}")
            return answer.read().decode()
        finally:
            connection.close()

    def status(self) -> dict[str, list[str]]:
        """Each line's last words by its first; of `reload`, the last line's."""
        lines = (line.split() for line in self.ask("/status").splitlines())
        return {first: rest for first, *rest in lines}

    def reloads(self) -> list[Span]:
        lines = (line.split() for line in self.ask("/status").splitlines())
        return [
            Span(int(begin) * NANOSECOND, int(end) * NANOSECOND)
            for begin, end in (line[1:] for line in lines if line[0] == "reload")
        ]

    def begin_reload(self) -> None:
        self.ask("/reload", "POST")

    def wait_for_reload(self) -> None:
        deadline = time.monotonic() + RELOAD_TIMEOUT_S
        while self.status()["reloading"] == ["1"]:
            if time.monotonic() > deadline:
                fail(f"a reload takes longer than {RELOAD_TIMEOUT_S:g} s")
            time.sleep(SAMPLE_S)


def small_path(number: int) -> str:
    limit = LIMITS[number % len(LIMITS)]
    words = "+".join(str(number * 977 + i * 131) for i in range(limit // CANDIDATES_A_WORD + 1))
    return f"/ads?user={number}&words={words}&limit={limit}"


def large_path(number: int, server: Server) -> str:
    """From half of what a worker may hold to all of it."""
    count = server.large_request_ads * (LARGE_QUESTIONS + number + 1) // (2 * LARGE_QUESTIONS)
    place = server.ads * number // LARGE_QUESTIONS
    return f"/forecast?user={number}&from={place}&count={max(1, count)}"


def questions(server: Server) -> list[Question]:
    """Every question with its answer, which is the right one if other allocators give it too."""
    small = [(small_path(number), False) for number in range(SMALL_QUESTIONS)]
    large = [(large_path(number, server), True) for number in range(LARGE_QUESTIONS)]
    return [Question(path, server.ask(path), is_large) for path, is_large in small + large]


def write_answers(asked: list[Question], scratch: Path) -> Path:
    """One file for the comparison with other allocators, and one, which is returned, for wrk."""
    digests = [f"{hashlib.sha256(each.answer.encode()).hexdigest()} {each.path}" for each in asked]
    (scratch / "answers.txt").write_text("\n".join(digests) + "\n")
    for_wrk = scratch / "questions.lua"
    for_wrk.write_text("return {\n" + ",\n".join(each.lua() for each in asked) + "\n}\n")
    return for_wrk


def wrk(server: Server, file: Path, seconds: float, begin: float, wave_s: float) -> list[str]:
    command = ["wrk", "--threads", server.workers, "--connections", server.workers]
    command += ["--duration", f"{max(1, round(seconds))}s", "--timeout", f"{ANSWER_TIMEOUT_S}s"]
    command += ["--script", HERE / "load.lua", f"http://{HOST}:{server.port}"]
    command += ["--", file, f"{begin:.6f}", wave_s]
    return [str(word) for word in command]


def load(server: Server, file: Path, seconds: float, reload_s: float) -> Load:
    """Load the server for a time, with a reload in each period of `reload_s`; 0: none."""
    came = Load()
    begin = time.monotonic()
    due = begin + RELOAD_AT * reload_s if reload_s else float("inf")
    command = wrk(server, file, seconds, begin, reload_s or WAVE_S)
    known = len(server.reloads())
    with (file.parent / "wrk.txt").open("w+") as output:
        with subprocess.Popen(command, stdout=output) as running:
            while running.poll() is None:
                came.resident.append((time.monotonic(), resident_bytes(server.pid)))
                if time.monotonic() >= due:
                    server.begin_reload()
                    due += reload_s
                time.sleep(SAMPLE_S)
        output.seek(0)
        for line in output:
            came.read(line)
    server.wait_for_reload()
    came.reloads = server.reloads()[known:]
    if running.returncode != 0 or not came.answers:
        fail(f"wrk ended with {running.returncode} and {len(came.answers)} answers")
    return came


def system_calls(server: Server, scratch: Path, run: Callable[[], Load]) -> dict[str, float]:
    """Calls for a request by name, and together; nothing where they cannot be counted."""
    try:
        came, calls = count_calls(server.pid, scratch, run)
    except Unavailable as reason:
        print(f"system calls are not counted: {reason}", file=sys.stderr)
        return {}
    each = {f"{call}_per_request": count / len(came.answers) for call, count in calls.items()}
    return {**each, "memory_calls_per_request": sum(each.values())}


def main() -> None:
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    server, scratch = Server(int(sys.argv[1])), Path(sys.argv[2])
    seconds, reload_s = float(sys.argv[3]), float(sys.argv[4])

    file = write_answers(questions(server), scratch)
    if reload_s:
        server.begin_reload()  # so that the first that counts is not the first of all
    load(server, file, WARM_UP * seconds, 0)
    before = used(server.pid)
    came = load(server, file, seconds, reload_s)
    cost = used(server.pid) - before
    calls = system_calls(server, scratch, lambda: load(server, file, COUNTING * seconds, 0))

    requests = len(came.answers)
    resident = [size for _, size in came.resident]
    figures = {
        "requests": float(requests),
        "large_requests": float(came.large),
        "reloads": float(len(came.reloads)),
        "requests_per_s": requests / came.seconds,
        **latencies(came.answers, came.reloads),
        "cpu_s_per_request": cost.cpu_s / requests,
        "page_faults_per_request": cost.page_faults / requests,
        "loaded_peak_rss_bytes": float(max(resident)),
        "loaded_mean_rss_bytes": sum(resident) / len(resident),
        "loaded_least_rss_bytes": float(min(resident)),
        **calls,
    }
    if came.reloads:
        figures["reload_peak_rss_bytes"] = float(came.reload_peak_bytes)
        figures["reload_s"] = sum(reload.length for reload in came.reloads) / len(came.reloads)
    for name, figure in figures.items():
        print(f"{name} {figure:.9f}")
    print("answers right")


if __name__ == "__main__":
    main()
