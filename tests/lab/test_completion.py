"""How a shell completes a command line of heapfit's: what it is told, and how little that takes."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping

import pytest
from conftest import heapfit_command
from heapfit.cli.commands import COMMANDS
from heapfit.cli.completion import about, candidates


@pytest.mark.parametrize(
    ("before", "word", "offered"),
    [
        ([], "comp", ["compare"]),
        (["workloads"], "sh", ["show"]),
        (["workloads", "show"], "xml-transform-", ["xml-transform-large"]),
        (["compare"], "sqli", ["sqlite"]),
        (["compare"], "--repl", ["--replicates"]),
        (["compare", "--metric"], "peak_r", ["peak_rss_bytes"]),
        (["compare", "--baseline"], "gli", ["glibc"]),
        (
            ["compare", "--allocators"],
            "glibc,mimalloc",
            ["glibc,mimalloc", "glibc,mimalloc-secure", "glibc,mimalloc2"],
        ),
        (["compare", "--allocators"], "glibc,gli", []),
        (["compare", "--output"], "", ["same", "ignore"]),
        (["compare", "--json", "sqlite", "--baseline"], "hoa", ["hoard"]),
        (["study", "run"], "tra", ["trading"]),
        (["lib", "--variant"], "p", ["pools"]),
        (["run", "--set"], "decay_", ["decay_ms="]),
        (["run", "--set"], "control=", ["control=off", "control=on"]),
        (["compare", "--out"], "glib", []),
        (["compare", "--", "cat"], "--repl", []),
        (["no-such-command"], "--vers", ["--version"]),
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
        timeout=60,
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
    answer, _ = asked(clean_environment, "zsh", _TYPER_COMPLETE_ARGS="heapfit compare --tim")
    told = '"--timeout":"Give up a trial after this many seconds."'
    assert answer == f"_arguments '*: :(({told}))'\n"
    answer, _ = asked(clean_environment, "zsh", _TYPER_COMPLETE_ARGS="heapfit report ")
    assert answer == "_files\n"


def test_fish_is_told_whether_there_is_anything_and_then_what(
    clean_environment: dict[str, str],
) -> None:
    words = {"_TYPER_COMPLETE_ARGS": "heapfit compare --tim"}
    is_args, get_args = ({"_TYPER_COMPLETE_FISH_ACTION": f"{each}-args"} for each in ("is", "get"))
    assert asked(clean_environment, "fish", **words, **is_args) == ("", 0)
    answer, _ = asked(clean_environment, "fish", **words, **get_args)
    assert answer == "--timeout\tGive up a trial after this many seconds.\n"
    files = {"_TYPER_COMPLETE_ARGS": "heapfit report "}
    assert asked(clean_environment, "fish", **files, **is_args) == ("", 1)


def test_a_shell_waits_for_nothing_but_the_standard_library(
    clean_environment: dict[str, str],
) -> None:
    """To load the parser and the commands' own modules would take ten times as long."""
    program = (
        "import sys, heapfit.cli\n"
        "try: heapfit.cli.main()\n"
        "except SystemExit: pass\n"
        "print({'typer', 'pydantic', 'rich', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={
            **clean_environment,
            "_HEAPFIT_COMPLETE": "complete_bash",
            "COMP_WORDS": "heapfit compare --replic",
            "COMP_CWORD": "2",
        },
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == "--replicates\nset()\n"


def test_the_help_of_all_commands_imports_none_of_them() -> None:
    imported = "import sys; print([each for each in sys.modules if each == 'heapfit.cli.compare'])"
    code = f"from heapfit.cli.commands import application; application(['--help']); {imported}"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    assert printed.splitlines()[-1] == "[]"
    told = " ".join(re.sub("[│╭╮╰╯─]", " ", printed).split())
    for name in COMMANDS:
        assert f" {name} {about(name).split(': ')[0]}" in told
