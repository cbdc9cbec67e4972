"""What is time and what is memory is said once."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from heapfit.files import replacing, replacing_folder


def half_done(making: AbstractContextManager[Path]) -> None:
    with making as unfinished:
        (unfinished / "half" if unfinished.is_dir() else unfinished).write_text("half")
        raise KeyboardInterrupt


def test_what_is_not_finished_leaves_what_was_there(tmp_path: Path) -> None:
    file, folder = tmp_path / "file", tmp_path / "folder"
    file.write_text("old")
    (folder / "old").mkdir(parents=True)
    for making in (replacing(file), replacing_folder(folder)):
        with pytest.raises(KeyboardInterrupt):
            half_done(making)
    assert sorted(tmp_path.rglob("*")) == [file, folder, folder / "old"]
    assert file.read_text() == "old"
    with replacing_folder(folder) as new_folder:
        (new_folder / "new").touch()
    assert sorted(tmp_path.rglob("*")) == [file, folder, folder / "new"]
