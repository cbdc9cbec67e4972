"""What is in a recording as far as its blocks' headers say: how many events, in how many bytes.

Only the headers are read (allocator/record/format.h), so that a large file takes no time; what the
blocks hold is not checked. `heapfit trace info` reads it all.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_FILE_MAGIC = b"heapfit\x1a"
_FILE_HEADER = struct.Struct("<8sHHI")  # magic, version, size, reserved
_BLOCK_MAGIC = 0x31424648
# Magic, type, codec, reserved, stored, raw, thread, events; two clocks, sequence and checksum.
_BLOCK_HEADER = struct.Struct("<IBBHIIII16x4x4x")
_END = 7  # TRACE_END
_RECORDER = b"/libheapfit-record"


@dataclass(frozen=True)
class Written:
    """A file of the recorder. `whole` says that the recorder closed it, and was not killed."""

    path: Path
    size: int
    events: int
    whole: bool

    @property
    def bytes_per_event(self) -> float | None:
        """What an event takes in the file, all blocks included; None where there is no event."""
        return self.size / self.events if self.events else None


def examine(path: Path) -> Written:
    """Return what the file at `path` holds up to its last whole block."""
    with path.open("rb") as file:
        return Written(path, path.stat().st_size, *_walk(file))


def is_written(path: Path) -> bool:
    """Return whether a process whose number is in the file's name runs on under the recorder."""
    numbers = re.findall(r"[0-9]+", path.name)
    return any(_RECORDER in _maps(number) for number in numbers)


def _maps(process: str) -> bytes:
    try:
        return Path(f"/proc/{process}/maps").read_bytes()
    except OSError:  # There is none of this number, or it is another user's.
        return b""


def _walk(file: BinaryIO) -> tuple[int, bool]:
    events, whole = 0, False
    opening = file.read(_FILE_HEADER.size)
    if not opening.startswith(_FILE_MAGIC) or len(opening) < _FILE_HEADER.size:
        return 0, False
    file.seek(_FILE_HEADER.unpack(opening)[2])
    while len(raw := file.read(_BLOCK_HEADER.size)) == _BLOCK_HEADER.size:
        magic, kind, _, _, stored, _, _, count = _BLOCK_HEADER.unpack(raw)
        if magic != _BLOCK_MAGIC:
            break
        events += count
        whole = kind == _END
        file.seek(stored, 1)
    return events, whole
