"""What the Debian packages say beside the project's own files, as far as it shows without building.

`scripts/dist-debian` builds and tries them.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEBIAN = ROOT / "debian"


def test_the_packages_have_the_projects_version() -> None:
    version = re.search(r'__version__ = "(.+)"', (ROOT / "lab/heapfit/__init__.py").read_text())
    assert version is not None
    assert (DEBIAN / "changelog").read_text().startswith(f"heapfit ({version[1]}) ")
