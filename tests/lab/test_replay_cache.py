"""Plans that nobody uses any more leave the cache."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from heapfit.replay import plan

DAY_S = 24 * 3600


def test_the_plans_unused_for_longest_go_and_those_in_use_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "MOST_BYTES", 250)
    for days in (0, 1, 10, 20, 30):
        folder = tmp_path / f"{days} days"
        folder.mkdir()
        (folder / "plan").write_bytes(b"x" * 100)
        os.utime(folder, (0, (40 - days) * DAY_S))
    plan._evict(tmp_path, 40 * DAY_S)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["0 days", "1 days"]
    monkeypatch.setattr(plan, "MOST_BYTES", 1)
    plan._evict(tmp_path, 40 * DAY_S)
    assert len(list(tmp_path.iterdir())) == 2
