"""How a shell completes a command line of heapfit's: what it is told, and how little that takes."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

import pytest
from conftest import heapfit_command
from heapfit.cli.completion import candidates


@pytest.mark.parametrize(
    ("before", "word", "offered"),
    [
        ([], "comp", ["compare"]),
        (["workloads"], "sh", ["show"]),
        (["compare"], "sqli", ["sqlite"]),
        (["compare"], "--repl", ["--replicates"]),
        (["compare", "--metric"], "peak_r", ["peak_rss_bytes"]),
        (
            ["compare", "--allocators"],
            "glibc,mimalloc",
            ["glibc,mimalloc", "glibc,mimalloc-secure", "glibc,mimalloc2"],
        ),
        (["study", "run"], "tra", ["trading"]),
        (["run", "--set"], "control=", ["control=off", "control=on"]),
        (["compare", "--", "cat"], "--repl", []),
    ],
)
def test_words_are_completed_by_where_they_stand(
    before: list[str], word: str, offered: list[str]
) -> None:
    assert [value for value, _ in candidates(before, word)] == offered


def asked(environment: Mapping[str, str], shell: str, **words: str) -> tuple[str, int]:
    done = subprocess.run(
        heapfit_command(),
        env={**environment, "_HEAPFIT_COMPLETE": f"complete_{shell}", **words},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout, done.returncode


def test_bash_is_answered_by_lines_and_takes_an_equals_sign_for_a_word(
    clean_environment: dict[str, str],
) -> None:
    words = "heapfit compare --baseline gli"
    assert asked(clean_environment, "bash", COMP_WORDS=words, COMP_CWORD="3") == ("glibc\n", 0)
    words = "heapfit run --set control = o"
    answer, _ = asked(clean_environment, "bash", COMP_WORDS=words, COMP_CWORD="5")
    assert set(answer.split()) == {"off", "on"}


def test_zsh_is_answered_by_a_command_with_what_each_option_means(
    clean_environment: dict[str, str],
) -> None:
    answer, _ = asked(clean_environment, "zsh", _TYPER_COMPLETE_ARGS="heapfit compare --see")
    told = '"--seed":"Seed for the run order."'
    assert answer == f"_arguments '*: :(({told}))'\n"
    answer, _ = asked(clean_environment, "zsh", _TYPER_COMPLETE_ARGS="heapfit report ")
    assert answer == "_files\n"


def test_fish_is_told_whether_there_is_anything_and_then_what(
    clean_environment: dict[str, str],
) -> None:
    words = {"_TYPER_COMPLETE_ARGS": "heapfit compare --see"}
    is_args, get_args = ({"_TYPER_COMPLETE_FISH_ACTION": f"{each}-args"} for each in ("is", "get"))
    assert asked(clean_environment, "fish", **words, **is_args) == ("", 0)
    answer, _ = asked(clean_environment, "fish", **words, **get_args)
    assert answer == "--seed\tSeed for the run order.\n"
    files = {"_TYPER_COMPLETE_ARGS": "heapfit report "}
    assert asked(clean_environment, "fish", **files, **is_args) == ("", 1)
