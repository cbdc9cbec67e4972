"""The server as its clients meet it: every mode answers the same, and answers right.

python3 test_server.py PROGRAM
"""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import unittest
from collections.abc import Iterator
from contextlib import closing, contextmanager
from html import unescape
from http.client import HTTPConnection
from threading import Thread

MODES = ("malloc", "context", "region", "switch")
TIMEOUT_S = 30
ROUNDS = 40  # of all requests, in each mode
HEAD_MAX = 16 * 1024  # bytes that a request's head may have

LIST = "/products?category=tea&words=dark+sweet&most=6000&sort=price"
ORDER = {"items": [{"id": 17, "count": 3}, {"id": 4, "count": 12}], "coupon": "WINTER"}
REQUESTS: list[tuple[str, str, bytes | None]] = [
    ("GET", "/products", None),
    ("GET", LIST, None),
    ("GET", "/products?category=coffee&page=2", None),
    ("GET", "/products?category=%3Cb%3E", None),
    *(("GET", f"/products/{number}", None) for number in range(0, 500, 71)),
    ("POST", "/quote", json.dumps(ORDER).encode()),
    ("POST", "/quote", b'{"items": [{"id": 1, "count": 0}]}'),
    ("POST", "/quote", b'{"items": '),
    ("GET", "/products/500", None),
    ("GET", "/nothing", None),
    ("PUT", "/products", None),
]

program = ""


class Server:
    """A running server."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.port = port

    def connect(self) -> closing[HTTPConnection]:
        return closing(HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S))

    def raw(self, request: bytes) -> bytes:
        """All that comes back for some bytes until the server closes the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT_S) as connection:
            connection.sendall(request)
            return b"".join(iter(lambda: connection.recv(65536), b""))


@contextmanager
def running(mode: str) -> Iterator[Server]:
    """A server that is ended by SIGTERM, and must then end well."""
    command = [program, "--memory", mode, "--workers", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Server(process, int(process.stdout.readline().rpartition(":")[2]))
            process.send_signal(signal.SIGTERM)
            assert process.wait(TIMEOUT_S) == 0, f"{mode}: exit code {process.returncode}"
        finally:
            process.kill()


def ask(connection: HTTPConnection, method: str, path: str, body: bytes | None) -> tuple[int, str]:
    connection.request(method, path, body)
    answer = connection.getresponse()
    text = answer.read().decode()
    assert len(text.encode()) == int(answer.headers["Content-Length"])
    return answer.status, text


def ask_all(server: Server) -> list[tuple[int, str]]:
    """Every request over one connection that is kept alive."""
    with server.connect() as connection:
        return [ask(connection, *request) for request in REQUESTS]


class EveryMode(unittest.TestCase):
    """What holds whatever memory the requests take."""

    def test_answers_the_same_over_and_over_and_to_several_clients(self) -> None:
        with running("malloc") as server:
            expected = ask_all(server)
        for mode in MODES:
            with self.subTest(mode), running(mode) as server:
                wrong: list[int] = []

                def client(server: Server = server, wrong: list[int] = wrong) -> None:
                    wrong += [i for i in range(ROUNDS // 4) if ask_all(server) != expected]
                    wrong.append(-1)  # came to its end

                clients = [Thread(target=client) for _ in range(4)]
                for each in clients:
                    each.start()
                for each in clients:
                    each.join()
                assert wrong == [-1] * len(clients)

    def test_list_holds_what_was_asked_for_in_order(self) -> None:
        for mode in MODES:
            with self.subTest(mode), running(mode) as server, server.connect() as connection:
                _, page = ask(connection, "GET", LIST, None)
                rows = re.findall(r"<b>(.*?)</b> <i>(.*?)</i></li>", page)
                prices = [float(price) for price, _ in rows]
                assert len(rows) > 3
                assert prices == sorted(prices)
                assert prices[-1] <= 60
                for _, description in rows:
                    assert {"dark", "sweet"} <= set(unescape(description).split())
                assert not re.search("<wild>|[^&]& ", page)

    def test_similar_products_share_tags(self) -> None:
        for mode in MODES:
            with self.subTest(mode), running(mode) as server, server.connect() as connection:
                product = json.loads(ask(connection, "GET", "/products/17", None)[1])
                shared = [
                    sum(tag in product["tags"] for tag in other["tags"])
                    for other in product["similar"]
                ]
                assert len(shared) == 5
                assert shared[-1] > 0
                assert shared == sorted(shared, reverse=True)

    def test_quote_adds_up(self) -> None:
        for mode in MODES:
            with self.subTest(mode), running(mode) as server, server.connect() as connection:
                cents = [
                    json.loads(ask(connection, "GET", f"/products/{number}", None)[1])["cents"]
                    for number in (17, 4)
                ]
                few, many = 3 * cents[0], 12 * cents[1]
                many -= many * 5 // 100
                quote = json.loads(ask(connection, "POST", "/quote", json.dumps(ORDER).encode())[1])
                assert [line["sum"] for line in quote["lines"]] == [few, many]
                assert quote["total"] == few + many - (few + many) * 10 // 100

    def test_memory_does_not_grow_with_requests(self) -> None:
        for mode in MODES:
            with self.subTest(mode), running(mode) as server:
                for _ in range(5):
                    ask_all(server)
                before = resident_kib(server.process.pid)
                for _ in range(ROUNDS):
                    ask_all(server)
                assert resident_kib(server.process.pid) < before + 1024


class Protocol(unittest.TestCase):
    """HTTP, which is the same in every mode."""

    def test_requests_sent_together_are_answered_in_order(self) -> None:
        request = b"GET /products/%d HTTP/1.1\r\nHost: x\r\n\r\n"
        last = b"GET /nothing HTTP/1.1\r\nConnection: close\r\n\r\n"
        with running("context") as server:
            answers = server.raw(request % 1 + request % 2 + last)
        numbers = re.findall(rb'\r\n\r\n{"id":(\d+)', answers)
        assert numbers == [b"1", b"2"]
        assert answers.endswith(b"Connection: close\r\n\r\nno such page\n")

    def test_request_that_arrives_in_pieces_is_answered(self) -> None:
        body = json.dumps(ORDER).encode()
        request = b"POST /quote HTTP/1.0\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        with running("switch") as server:
            at_once = server.raw(request)
            address = ("127.0.0.1", server.port)
            with socket.create_connection(address, timeout=TIMEOUT_S) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for byte in request:
                    connection.sendall(bytes([byte]))
                in_pieces = b"".join(iter(lambda: connection.recv(65536), b""))
        assert at_once.startswith(b"HTTP/1.1 200 OK\r\n")
        assert in_pieces == at_once

    def test_what_is_not_http_is_refused(self) -> None:
        refused = {
            b"GET / HTTP/2.0\r\n\r\n": 505,
            b"hello\r\n\r\n": 400,
            b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n": 400,
            b"GET / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n": 413,
            b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n": 501,
            b"GET /".ljust(HEAD_MAX + 1, b"x"): 431,
        }
        with running("region") as server:
            for request, status in refused.items():
                with self.subTest(request[:40]):
                    assert int(server.raw(request).split()[1]) == status

    def test_large_answers_reach_a_slow_reader_whole(self) -> None:
        count = 2000
        with running("context") as server, server.connect() as connection:
            _, page = ask(connection, "GET", "/products", None)
            request = b"GET /products HTTP/1.1\r\n\r\n" * (count - 1)
            answers = server.raw(request + b"GET /products HTTP/1.0\r\n\r\n")
        assert answers.count(page.encode()) == count

    def test_wrong_options_are_refused(self) -> None:
        for words in (["--memory", "magic"], ["--port", "x"], ["--workers", "0"], ["--port"]):
            with self.subTest(words):
                ended = subprocess.run([program, *words], capture_output=True, check=False)
                assert ended.returncode == 2
                assert b"usage:" in ended.stderr


def resident_kib(pid: int) -> int:
    """VmRSS of a process."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


if __name__ == "__main__":
    program = sys.argv.pop(1)
    unittest.main(verbosity=2)
