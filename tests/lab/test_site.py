"""The documentation's site: MkDocs builds it without a warning, such as of a dead link, and no page
of it asks another host for anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.full

ROOT = Path(__file__).resolve().parents[2]
LOADED = re.compile(
    r"""<(?:link|script|img|iframe)\b[^>]*?(?:src|href)=["']?(?:https?:)?//[^>]*>"""
)


def test_the_site_is_whole_and_asks_nobody_else(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    pages = [path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.html")]
    assert len(pages) > 40
    assert [found for page in pages for found in LOADED.findall(page)] == []
