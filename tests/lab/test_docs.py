"""README.md and docs/ are true: commands parse, options exist, links and paths lead somewhere.

What a program can write in them (the commands, the options) is compared with what
`scripts/update-docs` would write now.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import heapfit
import pytest
import typer
from heapfit.catalogue import resolve_workload
from heapfit.cli.arguments import split_program
from heapfit.cli.commands import _root
from heapfit.records import StudyDefinition, Workload
from heapfit.trial.metrics import METRIC_NAMES

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
        *(ROOT / "workloads").rglob("*.md"),
    ]
)
README = ROOT / "README.md"
REFERENCE = ROOT / "docs" / "reference.md"
MANUAL = ROOT / "docs" / "man"
LIBRARY = ROOT / "docs" / "library.md"
COMPARE = ROOT / "docs" / "compare.md"
METHOD = ROOT / "docs" / "method.md"
GATE = ROOT / "docs" / "continuous-integration.md"
CONTEXTS = ROOT / "docs" / "contexts.md"

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
SHELL_LANGUAGES = ("sh", "console")
FOLDERS = "allocator|cmake|docs|examples|include|integrations|lab|scripts|studies|tests|workloads"
PATH = re.compile(rf"(?:{FOLDERS})/[\w./+-]*")
# What ends a command in a shell line, for the few forms that the pages use.
ENDS_A_COMMAND = ("|", "&", "&&", ";", ">", "#")


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


every_page = pytest.mark.parametrize("page", PAGES, ids=page_id)


@pytest.fixture(scope="module")
def update_docs() -> ModuleType:
    """The program that writes parts of the pages, as a module."""
    loader = importlib.machinery.SourceFileLoader("update_docs", f"{ROOT}/scripts/update-docs")
    spec = importlib.util.spec_from_loader("update_docs", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def shell_lines(text: str) -> Iterator[str]:
    """The commands in a page's shell blocks, continuation lines joined; no output."""
    for language, block in FENCE.findall(text):
        if language not in SHELL_LANGUAGES:
            continue
        for line in block.replace("\\\n", " ").splitlines():
            if language == "sh":
                yield line
            elif line.startswith("$ "):
                yield line.removeprefix("$ ")


def prose(text: str) -> str:
    return FENCE.sub("", text)


def heapfit_commands(page: Path) -> list[list[str]]:
    """Every heapfit command line that a page shows, as words without the program's name.

    A command's bare name in prose, such as `heapfit report`, is a mention and asks for `--help`:
    it must exist, and may lack arguments.
    """
    text = page.read_text(encoding="utf-8")
    commands = [words for line in shell_lines(text) for words in _in_line(line)]
    for inline in INLINE.findall(prose(text)):
        is_mention = re.fullmatch(r"heapfit( [a-z]+){1,2}", inline) is not None
        commands += [words + ["--help"] * is_mention for words in _in_line(inline)]
    return commands


def _in_line(line: str) -> list[list[str]]:
    substituted = re.findall(r"\$\((heapfit [^)]*)\)", line)
    direct = re.findall(r"(?:^|&& |; )(?:\.venv/bin/)?(heapfit(?: .*)?)$", line)
    return [words for command in [*substituted, *direct] if (words := _words(command))]


def _words(command: str) -> list[str]:
    words = shlex.split(command, comments=True)[1:]
    own, program = split_program(words)
    end = next((i for i, word in enumerate(own) if word in ENDS_A_COMMAND), len(own))
    return own[:end] + (["--", *program] if program and end == len(own) else [])


def parse(words: list[str]) -> None:
    """Parse a command line as heapfit would, without doing anything; raises where it would fail."""
    own, _ = split_program(words)
    wants_help = own[-1] == "--help"
    command: Any = typer.main.get_command(_root)
    context = command.make_context("heapfit", own[:-1] if wants_help else own)
    while hasattr(command, "resolve_command"):
        rest = [*context._protected_args, *context.args]
        if not rest:
            return
        name, command, rest = command.resolve_command(context, rest)
        if wants_help and not rest:
            return
        context = command.make_context(name, rest, parent=context)


@every_page
def test_every_command_line_shown_can_be_typed(page: Path) -> None:
    for words in heapfit_commands(page):
        parse(words)


def test_reference_manual_and_completion_say_what_the_commands_and_the_library_say(
    update_docs: ModuleType, library: Path
) -> None:
    assert library.exists()
    to_do = "run: .venv/bin/python scripts/update-docs reference"
    text = REFERENCE.read_text(encoding="utf-8")
    for name, content in update_docs.REFERENCE_BLOCKS.items():
        assert text == update_docs.replaced(text, name, content()), to_do
    pages = {page.name: page.read_text(encoding="utf-8") for page in MANUAL.glob("*.1")}
    assert pages == update_docs.manual(), to_do
    completion = update_docs.COMPLETION.read_text(encoding="utf-8")
    assert completion == update_docs.completion(), to_do


def test_the_library_page_names_the_functions_of_the_header() -> None:
    header = (ROOT / "include" / "heapfit" / "heapfit.h").read_text(encoding="utf-8")
    declared = set(re.findall(r"^HF_API .*?\b(hf_\w+)\(", header, re.MULTILINE))
    types = set(re.findall(r"\b(?:struct|\}) (hf_\w+)", header))
    page = LIBRARY.read_text(encoding="utf-8")
    named = set(re.findall(r"\bhf_\w+", page))
    assert len(declared) > 10
    assert declared - named == set()
    assert named - declared - types == set()


def test_the_page_that_keep_refers_to_names_every_metric() -> None:
    section = METHOD.read_text(encoding="utf-8").partition("## A trial")[2].partition("\n## ")[0]
    assert set(METRIC_NAMES) - set(INLINE.findall(section)) == set()


def slug(heading: str) -> str:
    """The anchor that a heading gets where the pages are read."""
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", "-")


@every_page
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue  # another site
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), f"{page_id(page)}: {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in map(slug, headings), f"{page_id(page)}: {target}"


@every_page
def test_every_path_named_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    candidates = INLINE.findall(prose(text))
    candidates += [word for line in shell_lines(text) for word in line.split()]
    named = [word for word in candidates if PATH.fullmatch(word)]
    missing = [word for word in named if not (ROOT / word).exists()]
    assert not missing, f"{page_id(page)} names what is not there"


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    listed = {(ROOT / "docs" / link.partition("#")[0]).resolve() for link in LINK.findall(index)}
    assert [page for page in PAGES if page.name != "README.md" and page not in listed] == []


def normal(message: str) -> str:
    """A message, or its format in the source, without what differs from case to case."""
    plain = re.sub(r"%p|0x(?:[0-9a-f]+|…)", "ADDRESS", message.replace("%s", "free"))
    return re.sub(r"%zu|\b\d+\b", "NUMBER", plain)


def test_the_messages_shown_are_those_of_the_library() -> None:
    source = (ROOT / "allocator" / "heap" / "check.c").read_text(encoding="utf-8")
    formats = {normal(text) for text in re.findall(r'platform_message\(\s*"([^"]*)"', source)}
    section = LIBRARY.read_text(encoding="utf-8").partition("## What it catches")[2]
    shown = re.findall(r"^\| `([^`]+)` \|", section.partition("\n## ")[0], re.MULTILINE)
    objects = "free of an interior pointer: ADDRESS points NUMBER bytes into the object"
    of_small_blocks = {text for text in formats if not text.startswith(objects)}
    assert set(map(normal, shown)) == of_small_blocks


def test_the_messages_shown_are_those_of_contexts() -> None:
    sources = (ROOT / "allocator" / "context").glob("*.c")
    call = re.compile(r'\b(?:failed|check_context_live)\(\s*"([^"]*)"')
    messages = {each for path in sources for each in call.findall(path.read_text(encoding="utf-8"))}
    section = CONTEXTS.read_text(encoding="utf-8").partition("## What is checked")[2]
    shown = re.findall(r"^\| `([^`]+): 0x[0-9a-f]+` \|", section, re.MULTILINE)
    assert set(shown) == messages


COMPILERS = {"c": ("cc", "-std=c17"), "cpp": ("c++", "-std=c++17")}


@every_page
def test_every_program_shown_compiles_without_a_warning_and_runs(
    page: Path, library: Path, tmp_path: Path
) -> None:
    for language, block in FENCE.findall(page.read_text(encoding="utf-8")):
        if language not in COMPILERS or "int main" not in block:
            continue
        source, program = tmp_path / f"example.{language}", tmp_path / "example"
        missing = "" if "#include" in block else "#include <stdlib.h>\n"
        source.write_text(missing + block, encoding="utf-8")
        flags = ["-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'include'}"]
        linked = [str(library), f"-Wl,-rpath,{library.parent}"]
        command = [*COMPILERS[language], *flags, "-o", program, source, *linked]
        subprocess.run(command, check=True)
        subprocess.run([program], check=True)


def test_the_gates_example_prints_what_is_shown(
    library: Path, clean_environment: dict[str, str], tmp_path: Path
) -> None:
    assert library.exists()
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "heapfit"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m heapfit "$@"\n')
    command.chmod(0o755)
    path = f"{command.parent}:{os.environ['PATH']}"
    for language, block in FENCE.findall(GATE.read_text(encoding="utf-8")):
        if language == "c":
            (tmp_path / "words.c").write_text(block)
        lines = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
        for line in lines if language == "console" else []:
            typed, _, shown = line.partition("\n")
            ran = subprocess.run(
                ["sh", "-c", f"{typed} 2>&1"],
                cwd=tmp_path,
                env={**clean_environment, "PATH": path},
                stdout=subprocess.PIPE,
                text=True,
                check=False,
            )
            lines = [each.rstrip() for each in ran.stdout.splitlines()]
            # On a slow machine it says how far it is.
            printed = [each for each in lines if not re.match(r"\d+ %: run ", each)]
            assert printed == shown.splitlines()
            assert ran.returncode == ("--against" in typed)


def test_the_example_workload_is_the_one_that_is_shown() -> None:
    path = ROOT / "docs" / "examples" / "orders" / "workload.toml"
    blocks = FENCE.findall(COMPARE.read_text(encoding="utf-8"))
    shown = [tomllib.loads(block) for language, block in blocks if language == "toml"]
    assert shown == [tomllib.loads(path.read_text(encoding="utf-8"))]
    assert resolve_workload(str(path)).name == "orders"


@every_page
def test_every_workload_and_study_shown_is_valid(page: Path) -> None:
    for language, block in FENCE.findall(page.read_text(encoding="utf-8")):
        content = tomllib.loads(block) if language == "toml" else {}
        if "name" in content:
            kind = StudyDefinition if "allocators" in content else Workload
            kind.model_validate(content)


def test_tables_and_examples_are_made_from_the_results_that_are_kept(
    update_docs: ModuleType,
) -> None:
    """Each part of a page that `scripts/update-docs` writes."""
    parts = {
        update_docs.START: {"demo table": lambda: update_docs.example_output(update_docs.DEMO)},
        update_docs.COMPARE: update_docs.COMPARE_BLOCKS,
        update_docs.METHOD: update_docs.METHOD_BLOCKS,
        update_docs.MUSL_PAGE: {"musl": update_docs.musl_table},
        update_docs.SECURITY: update_docs.ATTACK_BLOCKS,
        update_docs.ACCOUNT: update_docs.ACCOUNT_BLOCKS,
        update_docs.SUITES: update_docs.SUITES_BLOCKS,
        **update_docs.core_blocks(),
    }
    for page, blocks in parts.items():
        text = page.read_text(encoding="utf-8")
        for name, content in blocks.items():
            assert text == update_docs.replaced(text, name, content()), f"{page_id(page)}: {name}"


def test_the_debian_packages_have_the_projects_version() -> None:
    assert (ROOT / "debian/changelog").read_text().startswith(f"heapfit ({heapfit.__version__}) ")


def options(command: Any) -> Iterator[Any]:
    context = command.make_context("", [], resilient_parsing=True)
    if hasattr(command, "list_commands"):
        for name in command.list_commands(context):
            yield from options(command.get_command(context, name))
    else:
        yield from (each for each in command.params if each.param_type_name == "option")


def test_the_place_of_a_result_is_out_in_every_command_and_o_is_short_for_it() -> None:
    every = list(options(typer.main.get_command(_root)))
    places = [each for each in every if {"-o", "--out"} & set(each.opts)]
    assert len(places) > 8
    assert all(set(each.opts) == {"-o", "--out"} for each in places)
    assert {each.metavar for each in places} == {"FILE", "DIR"}  # of one command and of others
