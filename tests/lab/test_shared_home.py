"""What the tests share is made once, by one of them, and anew when what it is made from changes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import shared_home
from heapfit.catalogue import load_workloads

pytestmark = pytest.mark.full

# Takes long enough that the other would begin before this one has ended.
MAKE = """
import pathlib, sys, time
import shared_home
folder = pathlib.Path(sys.argv[1])
def make():
    with open(sys.argv[2], "a") as made: made.write("made\\n")
    folder.mkdir()
    time.sleep(0.3)
    (folder / "whole").touch()
shared_home.once("thing", folder, "recipe", make)
assert (folder / "whole").exists()
"""


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_home, "HOME", tmp_path)
    monkeypatch.setenv("HEAPFIT_TEST_HOME", str(tmp_path))


def test_of_several_that_want_a_thing_one_makes_it(tmp_path: Path) -> None:
    made = tmp_path / "made"
    words = [sys.executable, "-c", MAKE, str(tmp_path / "folder"), str(made)]
    path = {"PYTHONPATH": ":".join(sys.path), "HEAPFIT_TEST_HOME": str(tmp_path)}
    running = [subprocess.Popen(words, env=path) for _ in range(3)]
    assert [each.wait(60) for each in running] == [0, 0, 0]
    assert made.read_text() == "made\n"


def maker(folder: Path, made: list[str], word: str) -> Callable[[], None]:
    def make() -> None:
        folder.mkdir()
        made.append(word)

    return make


def test_a_thing_is_made_anew_when_its_recipe_changes(tmp_path: Path) -> None:
    folder, made = tmp_path / "folder", list[str]()
    for recipe in ("one", "one", "other", "other"):
        shared_home.once("thing", folder, recipe, maker(folder, made, recipe))
    assert made == ["one", "other"]


def test_what_was_begun_and_not_finished_is_made_anew(tmp_path: Path) -> None:
    folder, made = tmp_path / "folder", list[str]()

    def fail() -> None:
        folder.mkdir()
        raise RuntimeError("no luck")

    for recipe in ("recipe", "changed"):
        with pytest.raises(RuntimeError):
            shared_home.once("thing", folder, recipe, fail)
        shared_home.once("thing", folder, recipe, maker(folder, made, recipe))
    assert made == ["recipe", "changed"]


def test_a_recipe_is_all_that_lies_in_its_folders(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    found = set()
    for name, text in [("a", "1"), ("a", "2"), ("deep/b", "1"), ("c", "1")]:
        (source / name).write_text(text)
        found.add(shared_home.recipe_of([source], "word"))
    assert len(found) == 4
    (source / "leftover.o").write_text("compiled")
    assert shared_home.recipe_of([source], "word") in found
    assert shared_home.recipe_of([source], "another word") not in found


@pytest.mark.parametrize(
    ("name", "folders"),
    [
        ("ledger", ["ledger"]),
        ("olden-bh", ["olden"]),
        ("nextpnr", ["nextpnr", "yosys"]),
        ("xml-transform-large", ["xml-transform-large", "xml-transform"]),
        ("php-dokuwiki", ["php-dokuwiki", "php"]),
    ],
)
def test_a_workloads_data_is_made_from_its_folder_and_those_that_it_names(
    name: str, folders: list[str]
) -> None:
    sources = shared_home.sources_of(load_workloads()[name])
    assert [path.name for path in sources] == folders
