"""Where the files of one trial are, and the paths of its sockets."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Layout:
    """The folders of one run of the stack, all absolute."""

    here: Path
    data: Path
    scratch: Path

    def expand(self, text: str) -> str:
        """`text` with its placeholders replaced."""
        places = {
            "{here}": self.here,
            "{data}": self.data,
            "{scratch}": self.scratch,
            "{socket}": self.database_socket,
        }
        for name, place in places.items():
            text = text.replace(name, str(place))
        return text

    @property
    def database_socket(self) -> str:
        return self._socket("database")

    @property
    def fpm_socket(self) -> str:
        return self._socket("fpm")

    def _socket(self, name: str) -> str:
        # The path of a socket has at most 107 bytes, which a trial's folder may well exceed. This
        # one leads into it as long as this process, which has gone there, lives.
        return f"/proc/{os.getpid()}/cwd/{name}.sock"

    @property
    def description(self) -> Path:
        """Tells the driver which processes serve."""
        return self.scratch / "stack.json"
