"""What is in a recording as far as its blocks' headers say: how many events, in how many bytes.

Only the headers are read (allocator/record/format.h), so that a large file takes no time; what the
blocks hold is not checked. `heapfit trace info` reads it all.
"""

import json
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from heapfit.errors import HeapfitError
from heapfit.files import RECORDING_MAGIC
from heapfit.trace.ending import ended_early

_FILE_HEADER = struct.Struct("<8sHHI")  # magic, version, size, reserved
_BLOCK_MAGIC = 0x31424648
# Magic, type, codec, reserved, stored, raw, thread, events; two clocks, sequence and checksum.
_BLOCK_HEADER = struct.Struct("<IBBHIIII16x4x4x")
_END = 7  # TRACE_END
_AS_IT_IS = 0  # the codec
_LONGEST_END = 1 << 16  # bytes
_RECORDER = b"/libheapfit-record"
# Why a recording of a running process ends where nothing is amiss, beside the program's own end.
_ASKED_FOR = ("stop", "the time is over", "exec")
# allocator/record/file.c: another recording, once there is room, has the rest.
_NO_ROOM = ("the disk is full", "the user's quota of disk space is used up")


@dataclass(frozen=True)
class Written:
    """A file of the recorder. `whole` says that the recorder closed it, and was not killed; `end`
    what it said then."""

    path: Path
    size: int
    events: int
    whole: bool
    end: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def ended(self) -> str:
        """Why it ended, in the recorder's words; nothing where it does not say."""
        return str(self.end.get("reason", ""))

    @property
    def trouble(self) -> str:
        """Why it ended before its program, where nobody asked for that; nothing if it did not."""
        return "" if self.ended in _ASKED_FOR else ended_early(self.end if self.whole else None)

    @property
    def bytes_per_event(self) -> float | None:
        """What an event takes in the file, all blocks included; None where there is no event."""
        return self.size / self.events if self.events else None


def examine(path: Path) -> Written:
    """Return what the file at `path` holds up to its last whole block."""
    with path.open("rb") as file:
        return Written(path, path.stat().st_size, *_walk(file))


def check_room(path: Path) -> None:
    """Remove a recording that lacked room for its events, and raise HeapfitError then."""
    if path.exists() and (why := examine(path).ended) in _NO_ROOM:
        path.unlink(missing_ok=True)
        raise HeapfitError(
            f"only the beginning could be recorded to {path.parent}: {why}; make room and repeat "
            "the same command"
        )


def is_written(path: Path, process: int | None = None) -> bool:
    """Return whether the process that writes the file runs on under the recorder.

    Where nobody knows its number, each number in the file's name may be that.
    """
    numbers = re.findall(r"[0-9]+", path.name) if process is None else [str(process)]
    return any(_RECORDER in _maps(number) for number in numbers)


def _maps(process: str) -> bytes:
    try:
        return Path(f"/proc/{process}/maps").read_bytes()
    except OSError:  # There is none of this number, or it is another user's.
        return b""


def _walk(file: BinaryIO) -> tuple[int, bool, Mapping[str, Any]]:
    events, whole = 0, False
    end: Mapping[str, Any] = {}
    opening = file.read(_FILE_HEADER.size)
    if not opening.startswith(RECORDING_MAGIC) or len(opening) < _FILE_HEADER.size:
        return 0, False, end
    file.seek(_FILE_HEADER.unpack(opening)[2])
    while len(raw := file.read(_BLOCK_HEADER.size)) == _BLOCK_HEADER.size:
        magic, kind, codec, _, stored, size, _, count = _BLOCK_HEADER.unpack(raw)
        if magic != _BLOCK_MAGIC:
            break
        events += count
        whole = kind == _END
        if whole:
            end = _ending(file.read(stored), codec, size)
        else:
            file.seek(stored, 1)
    return events, whole, end


def _ending(content: bytes, codec: int, size: int) -> Mapping[str, Any]:
    """Return what TRACE_END has; nothing where it cannot be read."""
    try:
        text = content if codec == _AS_IT_IS else _decompressed(content, size)
        found = json.loads(text)
    except (ValueError, OSError):  # the latter is of zstd
        return {}
    return found if isinstance(found, dict) else {}


def _decompressed(content: bytes, size: int) -> bytes:
    import pyarrow as pa  # It takes a while, and the block is seldom large enough to be compressed.

    return bytes(pa.decompress(content, min(size, _LONGEST_END), "zstd", asbytes=True))
