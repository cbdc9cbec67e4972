"""The relatives of Ptrdist's and SPEC's programs and the programs on layout: they do the same under
every allocator, free what they take, notice one that is wrong, and run as the workloads say.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
from pathlib import Path

import pytest
import shared_home
from heapfit import paths
from heapfit.catalogue import load_workloads
from heapfit.records import InstalledAllocator, TrialStatus, Workload
from heapfit.study import plan
from heapfit.trial import run_trial
from sampling import sampled
from shared_home import workload_data

pytestmark = pytest.mark.full

FOLDER = paths.workloads_dir()
MICRO_HEADER = FOLDER / "micro" / "micro.h"
GROUPS = [FOLDER / name for name in ("ptrdist", "spec-relatives", "layout")]
WORKLOADS = load_workloads(GROUPS)

# A little of the work; the parameters that are not scaled by --scale are given by name.
LITTLE = {
    "ft": {"vertices": "3000", "connections": "20000"},
    "anagram": {"words": "20000", "phrases": "3"},
    "bc": {"terms": "400", "factorial": "60", "sweeps": "2"},
    "ks": {"modules": "2000", "nets": "3000", "passes": "2", "exchanges": "40"},
    "yacr2": {"columns": "6000", "levels": "30", "channels": "2"},
    "art": {"cells": "2500", "categories": "4", "sweeps": "1"},
    "equake": {"side": "9", "steps": "30"},
    "ammp": {"side": "10", "steps": "6", "rebuild": "3"},
    "astar": {"width": "100", "region": "6", "ways": "4"},
    "order-book": {"messages": "20000", "reports": "2"},
    "dom-walker": {"copies": "2", "rounds": "4", "edits": "100"},
    "two-lifetimes": {"peak": "2000", "requests": "3", "bursts": "5"},
}
# Less than any of them needs as the workloads have it.
FEW_BYTES = 32 << 20

WARNINGS = ["-Wall", "-Wextra", "-Werror"]
SANITIZERS = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
# An exit code that the programs themselves never have.
SANITIZER_FOUND = 99

DOCUMENT = """<?xml version="1.0"?>
<!-- a comment -->
<body class="all">
<h1 id="start">A manual &amp; more</h1>
<p>Words and <a href="#start">links to <b>elsewhere</b></a><br/></p>
<p>More words, and more of them.</p><p id="empty"></p>
<ul><li>one</li><li>two two</li></ul>
</body>
""".replace("<ul>", "<p>text to be found</p>" * 200 + "<ul>")

every_program = pytest.mark.parametrize("name", sorted(WORKLOADS))
some_programs = pytest.mark.parametrize("name", sampled(sorted(WORKLOADS), "dom-walker", "ft"))


def source(name: str) -> Path:
    here = WORKLOADS[name].here.parent
    return next(path for path in (here / f"{name}.c", here / f"{name}.cpp") if path.exists())


def compile_program(name: str, folder: Path, flags: list[str]) -> None:
    path = source(name)
    compiler = ["cc", "-std=c17", "-pthread"] if path.suffix == ".c" else ["c++", "-std=c++17"]
    words = [*compiler, *WARNINGS, *flags, "-o", str(folder / name), str(path), "-lm"]
    subprocess.run(words, check=True)


def build(thing: str, flags: list[str]) -> Path:
    def compile_into(folder: Path) -> None:
        for name in WORKLOADS:
            compile_program(name, folder, flags)

    return shared_home.programs(thing, [Path(__file__), *GROUPS, MICRO_HEADER], compile_into)


@pytest.fixture(scope="session")
def built() -> Path:
    return build("relatives", ["-O2"])


@pytest.fixture(scope="session")
def sanitized() -> Path:
    return build("relatives-sanitized", SANITIZERS)


def little(name: str) -> list[str]:
    return [word for key, value in LITTLE[name].items() for word in (f"--{key}", value)]


def limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (FEW_BYTES, FEW_BYTES))


def run(
    program: Path,
    *words: str,
    document: str = DOCUMENT,
    limited: bool = False,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    sanitizers = {
        "ASAN_OPTIONS": f"exitcode={SANITIZER_FOUND}",
        "UBSAN_OPTIONS": f"exitcode={SANITIZER_FOUND}",
    }
    return subprocess.run(
        [str(program), *words],
        input=document,
        capture_output=True,
        text=True,
        env=os.environ | sanitizers | environment,
        timeout=60,
        preexec_fn=limit_memory if limited else None,
        check=False,
    )


def digest(output: str) -> str:
    found = re.search(r"(?m)^digest: ([0-9a-f]{16})$", output)
    assert found, output
    return found[1]


# --------------------------------------------------------------------- programs


@pytest.mark.full
@some_programs
def test_a_program_passes_its_own_check_and_frees_all_it_took(sanitized: Path, name: str) -> None:
    done = run(sanitized / name, *little(name))
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("check ok\n")
    assert re.search(r"(?m)^operations: [1-9]\d*$", done.stdout)
    assert re.search(r"(?m)^ops_per_s: \d+$", done.stderr)


@some_programs
def test_a_program_prints_the_same_under_an_allocator_that_behaves_differently(
    built: Path, name: str
) -> None:
    plain = run(built / name, *little(name))
    other = run(
        built / name,
        *little(name),
        MALLOC_ARENA_MAX="1",
        MALLOC_PERTURB_="165",
        GLIBC_TUNABLES="glibc.malloc.tcache_count=0",
    )
    assert plain.returncode == other.returncode == 0, other.stderr
    assert digest(other.stdout) == digest(plain.stdout)
    if WORKLOADS[name].check.stdout != "ignore":
        assert other.stdout == plain.stdout


# The numbers of bc are the same for everybody.
@pytest.mark.parametrize("name", sampled(sorted(set(WORKLOADS) - {"bc"}), "dom-walker", "ft"))
def test_another_seed_is_other_work(built: Path, name: str) -> None:
    one, other = (run(built / name, *little(name), "--seed", seed).stdout for seed in ("1", "2"))
    assert digest(one) != digest(other)


@some_programs
def test_a_program_explains_itself(built: Path, name: str) -> None:
    done = run(built / name, "--help")
    assert done.returncode == 0
    assert "?" in done.stdout.splitlines()[0]
    for parameter in WORKLOADS[name].parameters:
        assert f"--{parameter} " in done.stdout


@some_programs
@pytest.mark.parametrize("words", [["--nonsense", "1"], ["--scale"], ["--scale", "many"]])
def test_wrong_arguments_are_a_usage_error(built: Path, name: str, words: list[str]) -> None:
    done = run(built / name, *words)
    assert done.returncode == 2
    assert "--help" in done.stderr


@some_programs
def test_a_program_that_gets_no_memory_says_so(built: Path, name: str) -> None:
    done = run(built / name, limited=True)
    assert done.returncode == 1, done.stdout
    assert done.stderr.startswith("check failed: ")
    assert "check ok" not in done.stdout


@pytest.fixture(scope="session")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shared library with a malloc that is wrong in the way that $FAULT names."""
    library = tmp_path_factory.mktemp("faulty") / "faulty.so"
    fault = Path(__file__).with_name("micro_faulty_malloc.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(fault)], check=True)
    return library


@pytest.mark.parametrize("fault", ["overlapping-blocks", "same-block-twice"])
@pytest.mark.parametrize(
    "name", sampled(["ammp", "art", "dom-walker", "order-book", "two-lifetimes"], "dom-walker")
)
def test_a_wrong_allocator_is_noticed(built: Path, faulty: Path, name: str, fault: str) -> None:
    """By a failed check, another result or a crash."""
    right = run(built / name, *little(name))
    done = run(built / name, *little(name), LD_PRELOAD=str(faulty), FAULT=fault)
    assert done.returncode != 0 or digest(done.stdout) != digest(right.stdout)


# -------------------------------------------------------------------- documents


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ("", "no document"),
        ("<a>", "ends within an element"),
        ("<a></b>", "wrong end tag"),
        ("</a>", "wrong end tag"),
        ("<a x></a>", 'lacks ="'),
        ('<a x="1></a>', 'lacks "'),
        ("<>", "lacks a name"),
        ("<a", "lacks a name"),
        ("<!-- no end", "ends without -->"),
        ("<" + "a" * 300 + "/>", "lacks a name"),
        ("<a>" * 20000, "too deep"),
        ("".join(f"<n{i}/>" for i in range(5000)), "more than 4096 names"),
    ],
)
def test_a_document_that_is_none_is_refused(sanitized: Path, document: str, says: str) -> None:
    done = run(sanitized / "dom-walker", "--rounds", "1", "--copies", "1", document=document)
    assert done.returncode == 1, done.stderr
    assert says in done.stderr


def test_edits_change_the_document_and_walks_do_not(sanitized: Path) -> None:
    still, edited = (
        digest(run(sanitized / "dom-walker", "--rounds", "3", "--edits", edits).stdout)
        for edits in ("0", "900")
    )
    assert still != edited


# --------------------------------------------------------------- two lifetimes


def test_what_a_server_keeps_is_what_lives_and_what_the_allocator_holds(built: Path) -> None:
    output = run(built / "two-lifetimes", *little("two-lifetimes")).stdout
    figures = dict(re.findall(r"(?m)^(\w+): (\d+)$", output))
    sessions = sum(2000 >> i for i in range(5))
    assert int(figures["live_bytes"]) == 64 * sessions
    assert int(figures["operations"]) == sessions * 4
    for moment in (0, 500, 1000, 2000):
        held = int(figures[f"resident_bytes_after_{moment}_ms"])
        assert int(figures["live_bytes"]) < held < 2 * int(figures["peak_resident_bytes"])


# -------------------------------------------------------------------- workloads


@pytest.mark.parametrize("workload", sampled(WORKLOADS, "ft"))
def test_a_workload_runs_under_the_library_as_under_glibc(
    workload: Workload, tmp_path: Path
) -> None:
    allocators = [
        InstalledAllocator(name="glibc", title="glibc", version="", library=None),
        InstalledAllocator(name="heapfit", title="heapfit", version="", library=paths.library()),
    ]
    planned = plan(
        workload,
        allocators,
        baseline="glibc",
        cores=[1],
        replicates=1,
        warmups=0,
        parameters=LITTLE[workload.name],
    )
    by_name = {each.allocator: each for each in planned.plan}
    data = workload_data(workload)
    reference = run_trial(planned, by_name["glibc"], tmp_path, None, data)
    assert reference.status is TrialStatus.OK, f"{reference.reason}\n{reference.stderr_tail}"
    trial = run_trial(planned, by_name["heapfit"], tmp_path, reference, data)
    assert trial.status is TrialStatus.OK, f"{trial.reason}\n{trial.stderr_tail}"
    assert trial.metrics[workload.primary_metric] > 0


@every_program
def test_a_workload_is_called_like_its_folder_and_stands_in_the_readme(name: str) -> None:
    workload = WORKLOADS[name]
    assert workload.here.name == name
    assert f"| `{name}` |" in (workload.here.parent / "README.md").read_text()
    assert set(LITTLE[name]) <= set(workload.parameters)


@pytest.mark.full
def test_the_document_is_a_large_manual() -> None:
    text = (workload_data(WORKLOADS["dom-walker"]) / "manual.xhtml").read_text(encoding="utf-8")
    assert len(text) > 5_000_000
    assert text.count("<section ") > 100
    assert text.count("<p>") > 10_000
