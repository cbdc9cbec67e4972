r"""The socket between us and a process: found by name, the peer's identity, lines with a deadline.

heapfit listens, with `control:on`, at the abstract Unix socket "\0heapfit/PID", the recorder at
"\0heapfit-record/PID". Anybody can bind such a name, so who listens is not known before the kernel
has been asked (SO_PEERCRED); nothing is sent before.
"""

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

# The process answers within milliseconds, unless it is stopped.
TIMEOUT_S = 5.0
SERVICE = "heapfit"  # the name before the process's number: that of the control channel
REQUEST_MAX = 256  # bytes, without the newline, as the library reads them
# As many samples and call sites as the library keeps take less; more than this is no
# answer of ours.
_REPLY_MAX = 32 << 20
_CHUNK = 1 << 16
_BUSY_POLL_S = 0.01
_CREDENTIALS = struct.Struct("3i")  # struct ucred


class Peer(NamedTuple):
    """Who listens, as the kernel noted it when the socket was opened. Seen from our namespaces."""

    pid: int
    uid: int
    gid: int


class Channel:
    """A connection that has been made, and the time by which all must be done."""

    def __init__(self, connected: socket.socket, deadline_s: float) -> None:
        self._socket = connected
        self._deadline_s = deadline_s

    @property
    def peer(self) -> Peer:
        """The process at the other end."""
        raw = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        return Peer(*_CREDENTIALS.unpack(raw))

    def ask(self, line: str) -> bytes:
        """Send a line and return the line that comes back; OSError when none does.

        EOFError when the other side closes before its line has ended; ValueError when it does not
        end.
        """
        self._socket.settimeout(_left(self._deadline_s))
        with suppress(BrokenPipeError):  # Who refuses us has closed already, and said why.
            self._socket.sendall(line.encode() + b"\n")
        reply = bytearray()
        while b"\n" not in reply[-_CHUNK:]:
            self._socket.settimeout(_left(self._deadline_s))
            chunk = self._socket.recv(_CHUNK)
            if not chunk:
                raise EOFError
            reply += chunk
            if len(reply) > _REPLY_MAX:
                raise ValueError("the line does not end")
        return bytes(reply.partition(b"\n")[0])


@contextmanager
def opened(number: int, timeout_s: float = TIMEOUT_S, service: str = SERVICE) -> Iterator[Channel]:
    """Connect to the process that calls itself `number`.

    ConnectionRefusedError when nobody listens there, TimeoutError when nobody has time for us.
    """
    deadline_s = time.monotonic() + timeout_s
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
        _connect(made, f"\0{service}/{number}", deadline_s)
        yield Channel(made, deadline_s)


def _connect(made: socket.socket, name: str, deadline_s: float) -> None:
    while True:
        made.settimeout(_left(deadline_s))
        try:
            made.connect(name)
        except BlockingIOError:  # Others wait to be served, and the queue has no place left.
            time.sleep(_BUSY_POLL_S)
        else:
            return


def _left(deadline_s: float) -> float:
    left = deadline_s - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
