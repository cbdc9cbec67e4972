"""The live heap profiles of processes over HTTP, where Go's programs have theirs.

`http://HOST:PORT/debug/pprof/heap?pid=PID` is a file for `go tool pprof`, and for the profilers
that collect such files. With only one process to ask, its number may be left out.
"""

from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import parse_qs

from heapfit.errors import HeapfitError
from heapfit.host.proc import Process
from heapfit.live.client import Client

_FOLDER = "/debug/pprof/"
PATH = f"{_FOLDER}heap"

# As collectors of profiles wait for thirty seconds.
_TIMEOUT_S = 25.0

Find = Callable[[], Iterable[Process]]
# What WSGI calls an application (PEP 3333).
_Environment = dict[str, Any]
_Start = Callable[..., Any]
Application = Callable[[_Environment, _Start], Iterable[bytes]]


class _Refused(Exception):
    """There is no such page: why."""


def beside(others: Application, find: Find) -> Application:
    """Return an application that serves the profiles, and leaves other paths to `others`.

    Not those of Go's other profiles: a collector would take what is there for a broken one.
    """

    def serve(environment: _Environment, start: _Start) -> Iterable[bytes]:
        path = environment.get("PATH_INFO", "")
        if not path.startswith(_FOLDER) or environment["REQUEST_METHOD"] != "GET":
            return others(environment, start)  # which know no other method either
        if path != PATH:
            return _say(start, "404 Not Found", f"of the profiles there is only {PATH}")
        try:
            content = _file(_chosen(environment, list(find())))
        except _Refused as why:
            return _say(start, "404 Not Found", str(why))
        except HeapfitError as error:
            return _say(start, "503 Service Unavailable", str(error))
        start("200 OK", [("Content-Type", "application/octet-stream")])
        return [content]

    return serve


def _chosen(environment: _Environment, found: list[Process]) -> Process:
    wanted = parse_qs(environment.get("QUERY_STRING", "")).get("pid", [])
    named = [each for each in found if not wanted or str(each.pid) in wanted]
    if len(named) == 1:
        return named[0]
    if not named:
        raise _Refused("there is no such process to ask")
    numbers = ", ".join(str(each.pid) for each in named)
    raise _Refused(f"which process? write {PATH}?pid=PID with one of: {numbers}")


def _file(process: Process) -> bytes:
    # Late: what it loads is not needed for metrics.
    from heapfit.export.profile_files import pprof_file

    client = Client(process.pid, _TIMEOUT_S)
    return pprof_file(client.sampled_profile(_TIMEOUT_S), process)


def _say(start: _Start, status: str, words: str) -> list[bytes]:
    start(status, [("Content-Type", "text/plain; charset=utf-8")])
    return [f"{words}\n".encode()]
