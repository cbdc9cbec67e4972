"""`heapfit run` and `heapfit lib`: the program behaves as without, but for its allocator."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest
from conftest import Heapfit, assert_one_line, heapfit_command
from engine_helpers import compiled
from heapfit.catalogue import find_installed, load_allocators
from heapfit.options import OPTIONS

pytestmark = pytest.mark.usefixtures("library")


def test_the_library_is_in_the_program(run_heapfit: Heapfit, library: Path) -> None:
    result = run_heapfit("run", "--", "cat", "/proc/self/maps")
    assert result.returncode == 0
    assert str(library.resolve()) in result.stdout


@pytest.mark.parametrize(
    "command", [["python3", "-c", "print(1)"], ["sh", "-c", "echo out; echo err >&2; exit 3"]]
)
def test_a_program_behaves_as_without_heapfit(
    run_heapfit: Heapfit, clean_environment: dict[str, str], command: list[str]
) -> None:
    environment = {"LC_ALL": "", "LANG": "C"}
    alone = subprocess.run(
        command, env={**clean_environment, **environment}, capture_output=True, text=True
    )
    under = run_heapfit("run", "--", *command, environment=environment)
    assert (under.returncode, under.stdout, under.stderr) == (
        alone.returncode,
        alone.stdout,
        alone.stderr,
    )


def test_a_signal_to_heapfit_reaches_the_program(clean_environment: dict[str, str]) -> None:
    script = "trap 'echo caught; exit 7' USR1; echo ready; while :; do sleep 0.05; done"
    with subprocess.Popen(
        heapfit_command("run", "--", "sh", "-c", script),
        env=clean_environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGUSR1)
        assert process.communicate(timeout=500)[0] == "caught\n"
    assert process.returncode == 7


def test_what_was_preloaded_before_stays_behind_heapfit(
    run_heapfit: Heapfit, library: Path
) -> None:
    result = run_heapfit("run", "--json", "--", "x", environment={"LD_PRELOAD": "/a.so:/b.so"})
    assert json.loads(result.stdout)["environment"]["LD_PRELOAD"] == f"{library}:/a.so:/b.so"


def test_options_are_merged_with_those_that_are_set(run_heapfit: Heapfit) -> None:
    result = run_heapfit(
        *("run", "--set", "decay_ms=10", "--set", "thread_span_threshold=1m"),
        *("--", "printenv", "HEAPFIT_OPTIONS"),
        environment={"HEAPFIT_OPTIONS": "decay_ms:5,remote_free_batch:8"},
    )
    assert result.stdout == "remote_free_batch:8,decay_ms:10,thread_span_threshold:1m\n"
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (["--set", "decay_ms=10", "--control"], "control:on,decay_ms:10"),
        (["--set", "decay_ms=10", "--guard"], "guard_sample:32m,decay_ms:10"),
        (["--set", "guard_sample=32k", "--guard"], "guard_sample:32k"),
    ],
)
def test_some_options_have_a_short_form_which_what_is_set_refines(
    run_heapfit: Heapfit, words: list[str], options: str
) -> None:
    result = run_heapfit("run", *words, "--", "printenv", "HEAPFIT_OPTIONS")
    assert (result.stdout, result.stderr) == (f"{options}\n", "")


# Asks the library itself, through its C API, in a program that runs under it.
ASK_THE_LIBRARY = """
import ctypes, json
class Option(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("description", ctypes.c_char_p),
                ("kind", ctypes.c_int), ("live", ctypes.c_int), ("initial", ctypes.c_uint64),
                ("minimum", ctypes.c_uint64), ("maximum", ctypes.c_uint64),
                ("choices", ctypes.POINTER(ctypes.c_char_p))]
    def words(self):
        count = self.maximum + 1 if self.choices else 0
        return [self.choices[i].decode() for i in range(count)]
library = ctypes.CDLL(None)
library.hf_option_at.restype = ctypes.POINTER(Option)
kinds = ["number", "size", "flag", "choice"]
found = [library.hf_option_at(i).contents for i in range(library.hf_option_count())]
rows = [[o.name.decode(), kinds[o.kind], o.minimum, o.maximum, o.words()] for o in found]
print(json.dumps(rows))
"""


def test_the_options_are_those_of_the_library(run_heapfit: Heapfit) -> None:
    result = run_heapfit("run", "--variant", "pools", "--", "python3", "-c", ASK_THE_LIBRARY)
    assert result.returncode == 0, result.stderr
    known = [option for option in OPTIONS.values() if option.variant in (None, "pools")]
    expected = [[o.name, o.kind, o.minimum, o.maximum, list(o.choices)] for o in known]
    assert sorted(json.loads(result.stdout)) == sorted(expected)


def test_the_options_are_listed_with_what_they_do(run_heapfit: Heapfit) -> None:
    shown = run_heapfit("allocators", "show", "heapfit", "--json")
    options = {each["name"]: each for each in json.loads(shown.stdout)["options"]}
    assert options.keys() == {name for name, each in OPTIONS.items() if each.variant is None}
    assert options["decay_ms"]["default"] == "500"
    assert "returned to the kernel" in options["decay_ms"]["meaning"]
    narrow = run_heapfit("allocators", "show", "heapfit", environment={"COLUMNS": "40"})
    for name, option in options.items():
        assert [name, option["default"]] in map(str.split, narrow.stdout.splitlines())
    assert json.loads(run_heapfit("allocators", "show", "glibc", "--json").stdout)["options"] == []


def test_a_missing_program_is_explained(run_heapfit: Heapfit) -> None:
    """With a shell's exit code, as scripts expect of what stands in front of a program."""
    assert_one_line(run_heapfit("run", "--", "no-such-program"), 127, ["'no-such-program'"])
    assert_one_line(run_heapfit("run", "--", "./no-such"), 127, ["there is no program './no-such'"])


def test_a_file_that_is_no_program_is_explained(run_heapfit: Heapfit, tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("no program\n")
    advice = f"is not executable; run: chmod +x {text}"
    assert_one_line(run_heapfit("run", "--", text), 126, [str(text), advice])
    assert_one_line(run_heapfit("compare", "--", text, folder=tmp_path), 2, [advice])
    text.chmod(0o755)
    says = ["does not say what runs it", f"in the command: sh {text}"]
    assert_one_line(run_heapfit("run", "--", text), 126, says)
    text.write_bytes(b"\x7fELF\0")
    assert_one_line(run_heapfit("run", "--", text), 126, [str(text), "not a program that this"])
    assert_one_line(run_heapfit("run", "--", tmp_path), 126, ["is a folder"])
    text.write_text("#!/no/such/interpreter\n")
    for command, exit_code in (("run", 127), ("compare", 1)):
        result = run_heapfit(command, "--", text, folder=tmp_path)
        assert_one_line(
            result, exit_code, ["is a script for /no/such/interpreter, which is not there"]
        )


def test_a_program_that_is_linked_with_a_malloc_is_told_where_nothing_is_preloaded(
    run_heapfit: Heapfit, tmp_path: Path
) -> None:
    code = "#include <stddef.h>\nstatic char a[9];\nvoid *malloc(size_t n) { return n ? a : 0; }\n"
    arena = compiled(tmp_path / "libarena.so", code, "-w", "-fno-builtin", "-shared", "-fPIC")
    links = ("-Wl,--no-as-needed", f"-Wl,-rpath,{tmp_path}", str(arena))
    program = compiled(tmp_path / "program", "int main(void) { return 3; }", *links)
    result = run_heapfit("run", "--allocator", "glibc", "--", program)
    assert result.returncode == 3
    assert "is linked with libarena.so, which serves it, since glibc preloads" in result.stderr
    libc = result.stderr.rsplit("--allocator ", 1)[1].strip()
    result = run_heapfit("run", "--allocator", libc, "--", program)
    assert (result.returncode, result.stderr) == (3, "")


def test_what_is_preloaded_already_is_told_where_nothing_is_preloaded(
    run_heapfit: Heapfit, library: Path, tmp_path: Path
) -> None:
    other = compiled(tmp_path / "libother.so", "int other;", "-shared", "-fPIC")
    note = f"note: glibc preloads nothing, and {library}, which LD_PRELOAD names here, may serve"
    for allocator, preloaded, is_told in (
        ("glibc", f":{other}:{library}", True),  # as of LD_PRELOAD=$LD_PRELOAD:…
        ("glibc", str(other), False),
        (f"mine={library}", str(library), False),
    ):
        for command in (["run", "--json"], ["record", "-o", tmp_path / "%p.hft"]):
            words = [*command, "--allocator", allocator, "--", "true"]
            result = run_heapfit(*words, environment={"LD_PRELOAD": preloaded})
            assert result.returncode == 0, result.stderr
            assert (note in result.stderr) == is_told


def test_a_program_in_which_the_library_has_no_effect_is_told(
    run_heapfit: Heapfit, tmp_path: Path
) -> None:
    static = compiled(tmp_path / "static", "int main(void) { return 3; }", "-static")
    code = (
        "#include <stdlib.h>\nstatic char a[99];\nvoid *malloc(size_t n) { return n ? a : 0; }\n"
        "int main(void) { return malloc(9) ? 3 : 0; }\n"
    )
    own = compiled(tmp_path / "own", code, "-w", "-fno-builtin")
    for program, why in ((static, "it is linked statically"), (own, "is its own")):
        result = run_heapfit("run", "--", program)
        assert result.returncode == 3
        assert result.stderr.startswith(f"heapfit: note: the malloc of {program} is ")
        assert why in result.stderr
        assert result.stderr.count("\n") == 1


def test_another_allocator_is_in_the_program_with_what_it_needs(
    run_heapfit: Heapfit, library: Path
) -> None:
    named = f"mine={library}:decay_ms=10,option.huge_pages=never,env.MODE=a=b"
    show = ("--", "sh", "-c", "echo $HEAPFIT_OPTIONS $MODE $LD_PRELOAD")
    result = run_heapfit("run", "--allocator", named, "--set", "verbose=0", *show)
    assert result.stdout == f"decay_ms:10,huge_pages:never,verbose:0 a=b {library}\n"
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("name", ["heapfit-hardened", "ptmalloc3"])
def test_each_allocator_of_the_catalogue_runs_or_says_how_to_come_by_it(
    run_heapfit: Heapfit, name: str
) -> None:
    allocator = find_installed(load_allocators()[name])
    result = run_heapfit("run", "--allocator", name, "--", "cat", "/proc/self/maps")
    if allocator is None:
        assert_one_line(result, 1, [name, f"name it {name}="])
    else:
        assert result.returncode == 0, result.stderr
        library = str(allocator.library.resolve()) if allocator.library else "libc"
        assert library in result.stdout
        variables = allocator.environment.items()
        described = run_heapfit("run", "--allocator", name, "--json", "--", "x")
        assert variables <= json.loads(described.stdout)["environment"].items()


def test_lib_prints_what_ld_preload_takes(
    run_heapfit: Heapfit, library: Path, clean_environment: dict[str, str]
) -> None:
    printed = run_heapfit("lib").stdout
    assert printed == f"{library}\n"
    preload = {"LD_PRELOAD": printed.strip()}
    result = subprocess.run(
        ["git", "--version"], env={**clean_environment, **preload}, capture_output=True, text=True
    )
    assert result.stdout.startswith("git version")
    assert result.stderr == ""
