"""README.md and docs/ are true: commands parse, options exist, links and paths lead somewhere.

What a program can write in them (the commands, the options) is compared with what
`scripts/update-docs` would write now.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from conftest import load_benchmark
from engine_helpers import study_of, system_allocator, workload
from heapfit.catalogue import resolve_workload
from heapfit.catalogue.allocators import find_allocators
from heapfit.catalogue.studies import load_study, workloads_of
from heapfit.cli.arguments import split_program
from heapfit.cli.commands import _root
from heapfit.records import StudyDefinition, Workload
from heapfit.study import execute, load
from heapfit.study.journal import Journal

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


# ---------------------------------------------------------------- commands


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


def test_command_lines_are_found_where_they_are_shown() -> None:
    shown = heapfit_commands(README)
    assert ["fit", "--goal", "memory", "--", "./my-program"] in shown
    assert ["run", "--", "./my-program"] in shown
    with pytest.raises(Exception, match="jsn"):
        parse(["doctor", "--jsn"])
    with pytest.raises(Exception, match="comapre"):
        parse(["comapre", "--", "true"])
    with pytest.raises(Exception, match="folder"):
        parse(["report"])


def test_the_reference_says_what_the_commands_and_the_library_say(
    update_docs: ModuleType, library: Path
) -> None:
    assert library.exists()
    text = REFERENCE.read_text(encoding="utf-8")
    for name, content in update_docs.REFERENCE_BLOCKS.items():
        expected = update_docs.replaced(text, name, content())
        assert text == expected, "run: .venv/bin/python scripts/update-docs reference"


@pytest.mark.parametrize(
    ("command", "codes"),
    [
        ("lib", {"0", "1", "2", "130"}),
        ("compare", {"0", "1", "2", "3", "130"}),
        ("fit", {"0", "1", "2", "3", "130"}),
        ("check", {"0", "1", "2", "3", "126", "127", "130"}),
        ("run", {"1", "2", "126", "127"}),
        ("record", {"1", "2", "126", "127"}),
        ("profile", {"0", "1", "2", "126", "127", "130"}),
    ],
)
def test_a_commands_manual_names_its_exit_codes(command: str, codes: set[str]) -> None:
    page = (MANUAL / f"heapfit-{command}.1").read_text(encoding="utf-8")
    status = page.partition(".SH EXIT STATUS\n")[2].partition(".SH")[0]
    assert set(re.findall(r"\b([0-9]+) (?:also )?when", status)) == codes
    assert status.startswith("That of the program") == (command in ("run", "record"))


def test_the_commands_manual_pages_are_what_help_is_made_of(update_docs: ModuleType) -> None:
    pages = {page.name: page.read_text(encoding="utf-8") for page in MANUAL.glob("*.1")}
    assert pages == update_docs.manual(), "run: .venv/bin/python scripts/update-docs reference"


@pytest.mark.parametrize("page", sorted(MANUAL.iterdir()), ids=lambda page: str(page.name))
def test_a_manual_page_is_set_without_a_warning(page: Path) -> None:
    done = subprocess.run(
        ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", page],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "80"},
    )
    assert done.stderr == ""
    assert page.stem in re.sub(r".\x08", "", done.stdout)  # bold letters are printed twice


def test_what_shells_complete_is_what_the_commands_take(
    update_docs: ModuleType, library: Path
) -> None:
    assert update_docs.COMPLETION.read_text(encoding="utf-8") == update_docs.completion(), (
        "run: .venv/bin/python scripts/update-docs reference"
    )


def test_the_pages_are_written_from_the_checkout_whatever_is_installed(tmp_path: Path) -> None:
    (tmp_path / "heapfit").mkdir()
    (tmp_path / "heapfit" / "__init__.py").write_text("raise SystemExit('an older wheel')\n")
    subprocess.run(
        [sys.executable, ROOT / "scripts" / "update-docs", "--help"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        check=True,
    )


# -------------------------------------------------------- options, C interface


def test_the_library_page_names_the_functions_of_the_header() -> None:
    header = (ROOT / "include" / "heapfit" / "heapfit.h").read_text(encoding="utf-8")
    declared = set(re.findall(r"^HF_API .*?\b(hf_\w+)\(", header, re.MULTILINE))
    types = set(re.findall(r"\b(?:struct|\}) (hf_\w+)", header))
    page = LIBRARY.read_text(encoding="utf-8")
    named = set(re.findall(r"\bhf_\w+", page))
    assert len(declared) > 10
    assert declared - named == set()
    assert named - declared - types == set()


# ------------------------------------------------------------ links and paths


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
    formats = {normal(text) for text in re.findall(r'platform_message\("([^"]*)"', source)}
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


# ---------------------------------------------------------------- examples

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
        for line in (
            re.split(r"^\$ ", block, flags=re.MULTILINE)[1:] if language == "console" else []
        ):
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


def test_the_example_workflow_runs_commands_that_there_are() -> None:
    text = (ROOT / "docs" / "examples" / "gate.yml").read_text(encoding="utf-8")
    commands = [shlex.split(line) for line in re.findall(r"heapfit (\w+ .*-- \S+)", text)]
    assert [words[0] for words in commands] == ["check", "check", "compare"]
    for words in commands:
        parse(words)


def test_the_example_workload_is_the_one_that_is_shown() -> None:
    path = ROOT / "docs" / "examples" / "orders" / "workload.toml"
    blocks = FENCE.findall(COMPARE.read_text(encoding="utf-8"))
    shown = [tomllib.loads(block) for language, block in blocks if language == "toml"]
    assert shown == [tomllib.loads(path.read_text(encoding="utf-8"))]
    assert resolve_workload(str(path)).name == "orders"


def test_the_example_of_the_guide_is_the_one_that_is_shown() -> None:
    folder = ROOT / "docs" / "examples" / "sessions"
    page = ROOT / "docs" / "studying-a-service.md"
    blocks = FENCE.findall(page.read_text(encoding="utf-8"))
    shown = [tomllib.loads(block) for language, block in blocks if language == "toml"]
    files = [folder / "workload.toml", folder / "study.toml"]
    assert shown[: len(files)] == [
        tomllib.loads(path.read_text(encoding="utf-8")) for path in files
    ]
    study = load_study(files[1])
    assert [each.name for each in workloads_of(study, [study.experiments[0].workload])] == [
        study.name
    ]


def test_the_example_allocator_is_one() -> None:
    (eager,) = find_allocators([str(ROOT / "docs" / "examples" / "eager.toml")])
    assert eager.environment == {"HEAPFIT_OPTIONS": "decay_ms:50"}


@every_page
def test_every_workload_and_study_shown_is_valid(page: Path) -> None:
    for language, block in FENCE.findall(page.read_text(encoding="utf-8")):
        content = tomllib.loads(block) if language == "toml" else {}
        if "name" in content:
            kind = StudyDefinition if "allocators" in content else Workload
            kind.model_validate(content)


# ----------------------------------------------------------- figures from results


def test_the_demos_table_is_made_from_the_results_that_are_kept(update_docs: ModuleType) -> None:
    text = update_docs.START.read_text(encoding="utf-8")
    made = update_docs.replaced(text, "demo table", update_docs.demo_table())
    assert text == made, "run: .venv/bin/python scripts/update-docs demo"


def test_the_guides_examples_are_made_from_kept_results(update_docs: ModuleType) -> None:
    text = made = update_docs.COMPARE.read_text(encoding="utf-8")
    for name, content in update_docs.COMPARE_BLOCKS.items():
        made = update_docs.replaced(made, name, content())
    assert text == made, "run: .venv/bin/python scripts/update-docs compare"


def test_an_example_is_the_whole_answer_of_a_kept_study(update_docs: ModuleType) -> None:
    """By the results of the demo, which stand in for those of the guide."""
    output = update_docs.example_output(update_docs.DEMO)
    table = update_docs.demo_table().removeprefix("```text\n").removesuffix("```")
    assert table in output
    assert "unbeaten" in output.partition(table)[0]
    page = update_docs.COMPARE.read_text(encoding="utf-8")
    page = update_docs.replaced(page, "example", output)
    assert page.count("<!-- example -->") == 1
    assert table in page


def test_the_tables_of_errors_are_those_of_the_kept_simulation(update_docs: ModuleType) -> None:
    text = update_docs.METHOD.read_text(encoding="utf-8")
    made = text
    for name, content in update_docs.METHOD_BLOCKS.items():
        made = update_docs.replaced(made, name, content())
    assert text == made, "run: .venv/bin/python scripts/update-docs verdict"


def test_the_table_of_musl_is_that_of_the_kept_runs(
    update_docs: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "tests" / "musl")
    kept = json.loads(update_docs.MUSL.read_text(encoding="utf-8"))
    programs = [each["program"] for each in kept["programs"]]
    assert programs == [*importlib.import_module("musl_programs").BY_NAME]
    assert kept["pairs"] >= 20
    text = update_docs.LIBRARY.read_text(encoding="utf-8")
    made = update_docs.replaced(text, "musl", update_docs.musl_table())
    assert text == made, "run: .venv/bin/python scripts/update-docs musl"


def test_the_tables_of_languages_are_those_of_the_kept_runs(update_docs: ModuleType) -> None:
    pages = update_docs.language_blocks()
    assert set(pages) == set(update_docs.LANGUAGES.glob("*.md"))
    for page, blocks in pages.items():
        text = page.read_text(encoding="utf-8")
        for name, content in blocks.items():
            made = update_docs.replaced(text, name, content)
            assert text == made, "run: .venv/bin/python scripts/update-docs languages"


def test_the_kept_runs_of_languages_are_those_of_the_benchmark(update_docs: ModuleType) -> None:
    benchmark = load_benchmark(ROOT / "benchmarks" / "languages.py")
    kept = json.loads(update_docs.PROGRAMS.read_text(encoding="utf-8"))["languages"]
    assert list(kept) == list(benchmark.PROGRAMS)
    for name, program in benchmark.PROGRAMS.items():
        levels = [each["level"] for each in kept[name]["seen"]]
        assert (kept[name]["variable"], levels) == (program.variable, list(program.levels))
        assert kept[name]["replicates"] >= 10


def test_the_tables_of_attacks_are_those_of_the_kept_outcomes(update_docs: ModuleType) -> None:
    text = update_docs.SECURITY.read_text(encoding="utf-8")
    for name, content in update_docs.ATTACK_BLOCKS.items():
        made = update_docs.replaced(text, name, content())
        assert text == made, "run: .venv/bin/python scripts/update-docs attacks"


def test_the_kept_outcomes_are_those_of_all_attacks(update_docs: ModuleType) -> None:
    benchmark = load_benchmark(ROOT / "benchmarks" / "attacks.py")
    kept = update_docs.attack_outcomes()
    cases = list(benchmark.all_cases())
    for allocator in benchmark.ALLOCATORS.split(","):
        found = [each for each in kept if each["allocator"] == allocator]
        assert [(each["row"], each["attack"], each["size"], each["way"]) for each in found] == cases
        assert all(each["ended"] + each["harmless"] <= each["runs"] for each in found)
    hardened = [each for each in kept if each["allocator"] == "heapfit-hardened"]
    stopped = sum(each["ended"] + each["harmless"] for each in hardened)
    assert stopped >= 0.95 * sum(each["runs"] for each in hardened)


def test_an_attack_that_was_not_made_is_no_catch() -> None:
    benchmark = load_benchmark(ROOT / "benchmarks" / "attacks.py")
    assert benchmark.count([10, 11, -6]) == (1, 1)
    with pytest.raises(ValueError, match="did not make the attack"):
        benchmark.count([10, 2])


def test_the_table_of_accounts_is_that_of_the_kept_figures(update_docs: ModuleType) -> None:
    text = update_docs.CHARACTERISE.read_text(encoding="utf-8")
    made = update_docs.replaced(text, "accounts", update_docs.accounts_table())
    assert text == made, "run: .venv/bin/python scripts/update-docs accounts"
    benchmark = load_benchmark(ROOT / "benchmarks" / "accounts.py")
    kept = json.loads(update_docs.ACCOUNTS.read_text(encoding="utf-8"))
    assert list(kept) == list(benchmark.PARTS)
    assert list(kept["ledger"]["programs"]) == list(benchmark.ledger.PROGRAMS)
    known = {*benchmark.sampler.COMMANDS, *benchmark.sampler.REAL}
    assert set(kept["sampler"]["programs"]) == known


def test_the_table_of_fits_is_that_of_the_kept_runs(update_docs: ModuleType) -> None:
    text = update_docs.FIT.read_text(encoding="utf-8")
    made = update_docs.replaced(text, "fit reached", update_docs.fit_table())
    assert text == made, "run: .venv/bin/python scripts/update-docs fit"


def test_kept_runs_of_fits_make_its_table(
    update_docs: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    benchmark = load_benchmark(ROOT / "benchmarks" / "fit.py")
    for name in {*benchmark.PROGRAMS, *benchmark.TAU_PROGRAMS, *benchmark.GRID_PROGRAMS}:
        assert resolve_workload(name).name == name
    monkeypatch.setattr(benchmark, "RESULTS", tmp_path / "fit.json")
    monkeypatch.setattr(update_docs, "FITTED", tmp_path / "fit.json")
    benchmark.keep("gains", "lua", {"choice": "heapfit", "estimate": 0.85})
    benchmark.keep("gains", "redis", {"choice": None, "estimate": 1.0})
    benchmark.keep("false", "awk", {"choice": None})
    promises = [{"within": True}, {"within": False}]
    benchmark.keep("promises", "lua", {"choice": "heapfit", "promises": promises})
    rows = update_docs.fit_table().splitlines()
    assert rows[2].endswith("| 1 of 2: lua 0.85, redis 1.00 |")
    assert rows[3].endswith("| not measured yet |")
    assert rows[4].endswith("| 1 of 2 |")
    assert rows[6].endswith("| 0 of 1 |")


def test_an_allocator_was_seldom_told_from_itself(update_docs: ModuleType) -> None:
    benchmark = load_benchmark(ROOT / "benchmarks" / "aa.py")
    kept = json.loads(update_docs.SAME.read_text(encoding="utf-8"))
    assert kept["studies"] >= 200
    assert {each["program"] for each in kept["verdicts"]} == set(benchmark.PROGRAMS)
    judged = sum(each["judged"] for each in kept["verdicts"])
    assert sum(each["false"] for each in kept["verdicts"]) <= benchmark.MOST_FALSE * judged


def test_the_kept_simulation_keeps_what_the_method_promises(update_docs: ModuleType) -> None:
    benchmark = load_benchmark(ROOT / "benchmarks" / "verdict_errors.py")
    kept = json.loads(update_docs.ERRORS.read_text(encoding="utf-8"))
    lines = [benchmark.Line(**line) for line in kept["lines"]]
    designs = {(line.scatter, line.treatments, line.blocks) for line in lines}
    assert designs == set(product(benchmark.SCATTERS, benchmark.TREATMENTS, benchmark.BLOCKS))
    assert all(benchmark.keeps_promises(line) for line in lines)
    assert min(line.studies for line in lines) >= 10_000


def test_the_kept_simulation_of_stopping_keeps_what_the_method_promises(
    update_docs: ModuleType,
) -> None:
    benchmark = load_benchmark(ROOT / "benchmarks" / "stopping_errors.py")
    kept = json.loads(update_docs.STOPPING.read_text(encoding="utf-8"))
    lines = [benchmark.Line(**line) for line in kept["lines"]]
    designs = {(line.scatter, line.treatments) for line in lines}
    assert designs == set(product(benchmark.SCATTERS, benchmark.TREATMENTS))
    assert kept["looks"] == list(benchmark.LOOKS)
    assert all(benchmark.keeps_promises(line) for line in lines)
    assert max(line.false["as if fixed"] for line in lines) > benchmark.MOST_FALSE
    assert set(update_docs.RULES) == set(benchmark.RULES) == set(lines[0].false)
    savings = [
        benchmark.Saving(**{name: value for name, value in each.items() if name != "share"})
        for each in kept["savings"]
    ]
    assert {each.scatter for each in savings} == set(benchmark.SCATTERS)
    assert benchmark.saves(savings)


def test_other_results_make_another_table(update_docs: ModuleType, tmp_path: Path) -> None:
    """What is kept of a run is its trials as they are, and nothing of where it ran."""
    with update_docs.unpacked(update_docs.DEMO) as folder:
        study, trials = load(folder)
    metrics = {**trials[-1].metrics, "wall_s": 1000.0}
    changed = [*trials[:-1], trials[-1].model_copy(update={"metrics": metrics})]
    ran = tmp_path / "ran"
    places = {"reproduce": f"{study.reproduce} --out {ran}", "directory": str(tmp_path)}
    elsewhere = study.model_copy(update=places)
    with Journal(ran, elsewhere) as journal:
        for trial in changed:
            journal.append(trial)
    update_docs.keep(ran, tmp_path / "kept")
    assert str(tmp_path) not in (tmp_path / "kept" / "study.json").read_text()
    with update_docs.unpacked(tmp_path / "kept") as folder:
        assert load(folder) == (study, changed)
    assert update_docs.demo_table(tmp_path / "kept") != update_docs.demo_table()


def test_of_what_was_measured_no_place_is_kept(update_docs: ModuleType, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    execute(study_of(workload(str(program)), [system_allocator()]), tmp_path / "ran")
    update_docs.keep(tmp_path / "ran", tmp_path / "kept")
    with update_docs.unpacked(tmp_path / "kept") as folder:
        [session] = load(folder)[0].sessions
    names = {each.path for each in session.identity.files}
    assert Path("program") in names
    assert not any(each.is_absolute() for each in names)


def test_a_study_that_is_not_finished_is_not_kept(update_docs: ModuleType, tmp_path: Path) -> None:
    with update_docs.unpacked(update_docs.DEMO) as folder:
        lines = (folder / "trials.jsonl").read_text().splitlines(keepends=True)
        (folder / "trials.jsonl").write_text("".join(lines[:-1]))
        with pytest.raises(SystemExit, match="1 trials are missing"):
            update_docs.keep(folder, tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


def test_the_picture_of_a_report_is_one() -> None:
    picture = ROOT / "docs" / "images" / "report.png"
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_readme_shows_an_answer_that_the_guide_has() -> None:
    answer = README.read_text(encoding="utf-8").partition("```text\n")[2].partition("```")[0]
    assert answer.startswith("Choose ")
    assert answer in (ROOT / "docs" / "fit.md").read_text(encoding="utf-8")


def test_the_readmes_means_are_those_of_the_page_on_performance() -> None:
    text = README.read_text(encoding="utf-8").partition("\n## How fast, how small\n")[2]
    rows = re.findall(r"^\|(.*)\|$", text.partition("\n## ")[0], re.MULTILINE)
    names, _, *means = [[cell.strip(" *") for cell in row.split("|")] for row in rows]
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    lines = re.findall(
        r"^\| (?:geometric mean of time|the same for peak resident memory).*", page, re.M
    )
    assert [row[0] for row in means] == ["time", "peak memory"]
    for row, line in zip(means, lines, strict=True):
        own, others = line.split("|")[3].strip(" *").replace("*", "").split(" (")
        measured = dict(
            each.rsplit(" ", 1) for each in re.split(r"[,;] ", others.split(" with")[0])
        )
        measured["heapfit"] = own
        for name, mean in zip(names[1:], row[1:], strict=True):
            assert float(mean) == pytest.approx(float(measured[name]), abs=0.005), name
