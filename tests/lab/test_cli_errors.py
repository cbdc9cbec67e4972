"""What every command does alike: answers that fit anywhere, errors of one line."""

from __future__ import annotations

import errno
import importlib
import io
import json
import os
import pwd
import shlex
import shutil
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest
from conftest import Heapfit, assert_fits_everywhere, assert_one_line, heapfit_command
from heapfit import __version__, paths
from heapfit.cli.commands import application
from heapfit.cli.failures import explain, reported
from heapfit.cli.output import print_json, print_table, results, warn
from heapfit.cli.quick import done_quickly
from heapfit.errors import CannotRun, HeapfitError, UsageError
from heapfit.profile.advice import replayed
from heapfit.text import SPELLED_OUT, shell_words
from trace_data import service
from typer.core import TyperGroup

pytestmark = pytest.mark.full

# The package has a function of this name.
record_run = importlib.import_module("heapfit.record.run")


def test_a_command_in_an_error_is_the_same_command_when_a_shell_reads_it() -> None:
    """One with a line feed, or two spaces, became another."""
    words = ["printf", "%s\\0", "echo  'a'\n\techo b\\n", "a  b", "\x1b[31m \x85\xad\u202e", "é"]
    command = shell_words(words)
    said, _ = explain(UsageError(f"it holds another request: {command}"))
    assert said.isprintable()
    shown = said.partition(": ")[2]
    assert shown == command
    printed = subprocess.run(["bash", "-c", shown], capture_output=True, check=True,
                             env={"LC_ALL": "C.UTF-8"})  # fmt: skip
    assert printed.stdout.decode().split("\0")[:-1] == words[2:]
    assert explain(HeapfitError("two\n  lines"))[0] == "two lines"


def test_errors_are_lines_of_whole_words_in_a_terminal_and_one_line_elsewhere(
    clean_environment: dict[str, str],
) -> None:
    command = heapfit_command("compare", "--max-time", "never", "--replicates", "7", "--", "true")
    piped = subprocess.run(
        command, env=clean_environment, capture_output=True, text=True, check=False
    ).stderr
    assert piped.count("\n") == 1
    for width in (40, 0):  # 0: one that does not know its width, such as a serial console
        ours, theirs = os.openpty()
        termios.tcsetwinsize(theirs, (24, width))
        done = subprocess.run(command, env=clean_environment, stderr=theirs, check=False)
        shown = os.read(ours, 1 << 16).decode()
        os.close(theirs)
        os.close(ours)
        lines = shown.splitlines()
        assert done.returncode == 2
        assert (len(lines) > 1 and max(map(len, lines)) <= 40) == (width == 40)
        assert " ".join(lines).split() == piped.split()
    closed = ["sh", "-c", '"$0" "$@" 2>&-', *command]
    done = subprocess.run(closed, env=clean_environment, stdout=subprocess.PIPE, check=False)
    assert (done.returncode, done.stdout) == (2, b"")


def test_the_version_is_all_that_is_printed(run_heapfit: Heapfit) -> None:
    alone = run_heapfit("--version").stdout
    assert alone == run_heapfit("--version", "lib", "--json").stdout == f"heapfit {__version__}\n"


def test_ctrl_c_is_answered_where_a_command_has_nothing_to_say_of_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(TyperGroup, "invoke", interrupted)
    assert reported(lambda: application(["doctor"])) == 130
    assert capsys.readouterr().err == "heapfit: interrupted\n"


def test_who_has_no_home_is_told_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HEAPFIT_HOME", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    with pytest.raises(HeapfitError, match="no home folder; set HEAPFIT_HOME"):
        paths.data_dir()
    monkeypatch.setenv("HOME", str(tmp_path))
    assert paths.data_dir() == tmp_path / ".cache" / "heapfit"


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (errno.EACCES, "set HEAPFIT_HOME to a folder"),
        (errno.EROFS, "set HEAPFIT_HOME to a folder"),
        (errno.ENOSPC, "make room"),
        (errno.EDQUOT, "make room"),
    ],
)
def test_room_is_advised_only_where_there_is_none(code: int, remedy: str) -> None:
    said = f"cannot write to /x: .*; {remedy}"
    with pytest.raises(HeapfitError, match=said), paths.keeping(Path("/x")):
        raise OSError(code, os.strerror(code))


OF_TWO = ["compare", "--allocators", "glibc,heapfit", "--fail-if"]


@pytest.mark.gate
@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["comapre"], ["unknown command 'comapre'", "did you mean 'compare'?"]),
        (["top", "--once", "--interval", "nan"], ["--interval takes seconds, of at most a year"]),
        (["top", "--once", "--interval", "1e300"], ["--interval takes seconds", "not 1e+300"]),
        (["compare", "--timeout", "inf", "--", "true"], ["--timeout takes seconds", "not inf"]),
        (["doctor", "--jsn"], ["unknown option '--jsn'", "did you mean '--json'?"]),
        (["lib", "--variant"], ["--variant", "requires an argument"]),
        (["allocators", "show"], ["missing argument", "NAME"]),
        (["allocators", "--json", "show", "a"], ["behind", "heapfit allocators show --json"]),
        (["explain", "/"], ["'/' is a folder"]),
        (["frobnicate"], ["unknown command 'frobnicate'; heapfit --help lists them"]),
        (["compare", "--", "true | cat"], ["one by one", "sh -c 'true | cat'"]),
        (["compare", "--replicates", "ten"], ["--replicates takes a whole number, not 'ten'"]),
        (["compare", "xml-transfrom"], ["unknown workload", "did you mean 'xml-transform'?"]),
        (["compare", "--metric", "wal_s", "--", "true"], ["metric 'wal_s'", "'wall_s'?"]),
        (["compare", "--precision", "0%", "--", "true"], ["--precision", "more than 0 %"]),
        (
            ["compare", "--precision", "2%", "--metric", "major_faults", "--", "true"],
            ["major_faults can be zero", "--replicates"],
        ),
        (
            ["compare", "--allocators", "glibc", "--", "touch", "ran"],
            ["nothing to compare glibc with", "--allocators glibc,heapfit", "--aa"],
        ),
        ([*OF_TWO, "wall>1.03", "--", "true"], ["unknown metric 'wall'", "wall_s"]),
        ([*OF_TWO, "wall_s>100", "--", "true"], ["here 100 times as much", "'wall_s>+100'"]),
        ([*OF_TWO, "wall_s>+0.1", "--", "true"], ["by its ratio", "without a sign: 'wall_s>1.03'"]),
        (["run", "--"], ["which program?"]),
        (["run", "--set", "decay_msec=1", "--", "true"], ["'decay_msec'", "mean 'decay_ms'?"]),
        (["run", "--set", "decay_ms=soon", "--", "true"], ["decay_ms", "whole number"]),
        (["run", "--set", "remote_free_batch=0", "--", "true"], ["not between 1 and 4096"]),
        (["run", "--allocator", "jemaloc", "--", "true"], ["unknown allocator", "'jemalloc'?"]),
        (["run", "--allocator", "glibc:decay_ms=1", "--", "true"], ["work with heapfit only"]),
        (["run", "--allocator", "heapfit:pools=all", "--", "true"], ["only the variant pools"]),
        (["record"], ["which program", "heapfit record -- CMD"]),
        (["record", "--sites", "65", "--", "true"], ["sites", "between 0 and 64"]),
        (["ctl", "12x"], ["'12x' is not a process ID", "heapfit top"]),
        (["record", "--pid", "99999999"], ["not a process ID", "heapfit why lists the largest"]),
        (["ctl", "1", "shrnk"], ["unknown action 'shrnk'", "did you mean 'shrink'?"]),
        (["ctl", "set", "123", "a=1"], ["comes first: heapfit ctl 123 set a=1"]),
        (["profile"], ["which recording"]),
        (["profile", os.devnull], ["cannot read /dev/null", "is empty"]),
        (["trace", "info", sys.executable], ["it is not a trace of heapfit"]),
        (["profile", os.devnull, "--page", "/no/such/page.html"], ["there is no folder /no/such"]),
        (["why", "4194304"], ["there is no process 4194304; heapfit why lists the largest"]),
        (["profile", "x.hft", "--", "true"], ["which recording"]),
        (["profile", "x.hft", "--csv"], ["--csv"]),
        (["profile", "--on", "tcp://127.0.0.1:1", "--", "true"], ["--on"]),
        (["pools", "explain"], ["which program?", "heapfit pools explain -- CMD"]),
        (["pools", "explain", __file__, "--set", "pools=all"], ["is to be run"]),
        (["pools", "explain", __file__], ["no explanation", "heapfit-pools/1"]),
    ],
)
def test_a_senseless_command_line_is_explained_in_one_line_before_anything_runs(
    run_heapfit: Heapfit, tmp_path: Path, arguments: list[str], said: list[str]
) -> None:
    assert_one_line(run_heapfit(*arguments, folder=tmp_path), 2, said)
    assert not list(tmp_path.iterdir())


MISSING = [
    ["report", "none"],
    ["diff", "none", "nor"],
    ["explain", "none"],
    ["profile", "none.hft"],
    ["replay", "none.hft"],
    ["trace", "info", "none.hft"],
    ["check", "--against", "none.json", "--", "true"],
    ["pools", "explain", "none.json"],
    ["compare", "./none.toml"],
    ["study", "run", "./none.toml"],
    ["workloads", "show", "./none.toml"],
    ["run", "--allocator", "mine=./none.so", "--", "true"],
]


@pytest.mark.parametrize("arguments", MISSING, ids=" ".join)
def test_a_file_that_is_not_there_is_a_mistake_in_the_command_line(
    run_heapfit: Heapfit, tmp_path: Path, arguments: list[str]
) -> None:
    assert_one_line(run_heapfit(*arguments, folder=tmp_path), 2, ["none"])


def test_a_reader_that_leaves_early_is_no_reason_for_noise(
    clean_environment: dict[str, str],
) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    result = subprocess.run(
        heapfit_command("allocators", "list"),
        env=clean_environment,
        stdout=write_end,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(write_end)
    assert result.returncode == 141, "as of SIGPIPE, and no gate that has failed"
    assert result.stderr == ""


@pytest.fixture(scope="session")
def made(run_heapfit: Heapfit, library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the results of a small comparison, and two recordings."""
    assert library
    folder = tmp_path_factory.mktemp("made")
    quick = ["--allocators", "glibc,heapfit", "--replicates", "3", "--cores", "1"]
    program = [sys.executable, "-S", "-c", "print(sum(len(str(n)) for n in range(20000)))"]
    compared = run_heapfit("compare", *quick, "--out", folder / "results", "--", *program)
    assert compared.returncode == 0, compared.stderr
    for name in ("t.hft", "t-2.hft"):
        recorded = run_heapfit("record", "-o", folder / name, "--", *program)
        assert recorded.returncode == 0, recorded.stderr
    shutil.copytree(folder / "results", folder / "results-2")
    return folder


# Of each command that prints an answer, the words after it; `made` is where they are run.
ANSWERING = [
    ["allocators"],
    ["study", "list"],
    ["report", "results"],
    ["profile", "t.hft"],
    ["trace", "info", "t.hft"],
    ["lib"],
    ["compare", "--aa", "--replicates", "1", "--cores", "1", "--", "true"],
    ["check", "--save", "heap.json", "--", "true"],
    ["diff", "results", "results-2"],
    ["allocators", "show", "heapfit"],
    ["workloads"],
    ["workloads", "show", "redis"],
    ["doctor"],
    ["profile", "t.hft", "--sql", "SELECT * FROM threads LIMIT 2"],
    ["replay", "t.hft", "--allocators", "glibc", "--replicates", "1", "--cores", "1"],
    ["record", "-o", "recorded-%p.hft", "--", "true"],
    ["diff", "t.hft", "t-2.hft"],
    ["trace", "convert", "t.hft"],
    ["trace", "cut", "t.hft", "--threads", "0"],
    ["trace", "merge", "t.hft", "t-2.hft", "--out", "merged.hft"],
    ["trace", "anonymise", "t.hft"],
]


@pytest.mark.parametrize("words", ANSWERING, ids=" ".join)
def test_every_answer_fits_a_narrow_terminal_a_pipe_and_a_program(
    run_heapfit: Heapfit, made: Path, words: list[str]
) -> None:
    def run(*given: Any, **options: Any) -> subprocess.CompletedProcess[str]:
        (made / "merged.hft").unlink(missing_ok=True)
        return run_heapfit(*given, **options)

    assert_fits_everywhere(run, words, made, lambda line: _is_whole(line, words))


def _is_whole(line: str, words: list[str]) -> bool:
    """Whether a line is meant to be copied, or read by a program, and so never broken."""
    is_of_answer = "--sql" in words and line.startswith("  ")
    return is_of_answer or line.startswith("The page: ") or "/" in line


def test_a_word_that_is_no_text_is_refused_before_anything_runs(
    clean_environment: dict[str, str], tmp_path: Path
) -> None:
    """It was an internal error, of `check` after all runs."""
    words = [*heapfit_command("compare", "--"), "touch", b"caf\xe9"]
    result = subprocess.run(words, env=clean_environment, cwd=tmp_path, capture_output=True)
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].startswith(b"heapfit: caf")
    assert b"is not UTF-8; put the command into a script, and name that" in result.stderr
    assert list(tmp_path.iterdir()) == []


NOT_TEXT = os.fsdecode(b"caf\xe9")


@pytest.mark.gate
def test_a_name_that_is_no_text_is_spelled_out(run_heapfit: Heapfit, tmp_path: Path) -> None:
    """Each was an internal error, some after all the work was done."""
    trace = service(20).write(tmp_path / f"{NOT_TEXT}.hft")
    other = service(20).write(tmp_path / "other.hft")
    folder = tmp_path / NOT_TEXT
    folder.mkdir()
    for words in (
        ["profile", trace],
        ["profile", trace, "--json"],
        ["profile", other, "--against", trace, "--markdown"],
        ["profile", trace, "--sql", "select count(*) from objects"],
        ["diff", trace, other],
        ["diff", other, trace, "--json"],
        ["trace", "info", trace, "--json"],
        ["trace", "anonymise", trace],
        ["trace", "convert", trace, "--out", tmp_path / "tables"],
        ["trace", "export", trace, "--to", "speedscope", "--out", tmp_path / "speedscope.json"],
    ):
        done = run_heapfit(*words, folder=folder)
        assert done.returncode == 0, (words, done.stderr)
        if words[-1] == "--json":
            json.loads(done.stdout)
    page = folder / f"{NOT_TEXT}.html"
    assert r"caf\xe9.hft" in page.read_text(encoding="utf-8")
    assert r"caf\xe9.hft" in run_heapfit("diff", trace, other).stdout


@pytest.mark.gate
def test_a_log_may_be_a_file_a_pipe_or_stdin_and_have_bytes_that_are_no_text(
    clean_environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "log").write_bytes(b"before\ncaf\xe9\n")
    command = shlex.join(heapfit_command("explain"))
    for given in ("log", "<(cat log)", "< log", "- < log"):
        done = subprocess.run(
            ["bash", "-c", f"{command} {given}"],
            env=clean_environment,
            cwd=tmp_path,
            capture_output=True,
        )
        assert (done.returncode, done.stderr) == (0, b""), given
        assert done.stdout.startswith(b"before\ncaf"), given


@pytest.mark.gate
@pytest.mark.usefixtures("library")
def test_a_name_that_is_no_text_is_refused_where_it_must_be_read_back(
    run_heapfit: Heapfit, tmp_path: Path
) -> None:
    trace = service(20).write(tmp_path / f"{NOT_TEXT}.hft")
    folder = tmp_path / NOT_TEXT
    folder.mkdir()
    shutil.copy(paths.library(), library := folder / "lib.so")
    both = ["--allocators", "glibc,heapfit", "--replicates", "1"]
    for where, words in (
        (tmp_path, ["replay", trace, *both]),
        (tmp_path, ["fit", trace]),
        (tmp_path, ["fit", "--out", NOT_TEXT, "--", "true"]),
        (tmp_path, ["compare", *both, "--out", NOT_TEXT, "--", "true"]),
        (tmp_path, ["compare", *both, f"{NOT_TEXT}.toml"]),
        (tmp_path, ["profile", trace, "--keep", NOT_TEXT]),
        (tmp_path, ["trace", "convert", trace]),
        (tmp_path, ["run", "--allocator", f"mine={library}", "--", "true"]),
        (tmp_path, ["compare", "--allocators", f"glibc,mine={library}", "--", "true"]),
        (folder, ["run", "--allocator", "mine=./lib.so", "--", "true"]),
        (folder, ["compare", *both, "--", "true"]),
        (folder, ["fit", "--", "true"]),
    ):
        done = run_heapfit(*words, folder=where)
        assert done.returncode == 2, (words, done.stderr)
        assert r"caf\xe9" in done.stderr
        assert "is not UTF-8; give that file or folder another name" in done.stderr
    assert {each.name for each in tmp_path.iterdir()} == {trace.name, folder.name}
    assert list(folder.iterdir()) == [library]


@pytest.mark.gate
def test_a_command_that_is_printed_quotes_the_names_in_it(
    run_heapfit: Heapfit, tmp_path: Path
) -> None:
    """It could not be pasted."""
    service(20).write(tmp_path / "a b.hft")
    (tmp_path / "a b").touch()
    for words, command in (
        (["check", "--against", "c d.json", "--", "true"], "check --save 'c d.json' -- CMD"),
        (["trace", "info", "c d.hft"], "heapfit record -o 'c d.hft' -- CMD"),
        (["run", "--allocator", "./a b.so", "--", "true"], "write 'mine=./a b.so'"),
        (["run", "--", "./a b"], "chmod +x './a b'"),
        (["compare", "./a b"], "heapfit compare -- './a b'"),
        (["workloads", "new", "-o", "a b.toml", "--", "true"], "heapfit fit 'a b.toml'"),
        (["profile", "a b.hft"], "heapfit profile 'a b.hft' --all"),
    ):
        done = run_heapfit(*words, folder=tmp_path)
        assert command in done.stdout + done.stderr, words
    assert replayed([], "a b.hft") == "`heapfit replay 'a b.hft'`"


@pytest.mark.gate
@pytest.mark.usefixtures("library")
def test_a_program_whose_name_is_no_text_is_recorded(run_heapfit: Heapfit, tmp_path: Path) -> None:
    program = tmp_path / NOT_TEXT
    shutil.copy(str(shutil.which("sh")), program)
    recorded = run_heapfit("record", "-o", "a.hft", "--", program, "-c", "exit 3", folder=tmp_path)
    assert recorded.returncode == 3, recorded.stderr
    assert "cannot run" not in recorded.stderr


@pytest.mark.gate
def test_a_library_is_found_by_its_name_exactly(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    library = Path(f"/opt/{NOT_TEXT}/libheapfit.so")
    monkeypatch.setattr(paths, "library", lambda *_: library)
    assert done_quickly(["lib"])
    sys.stdout.flush()
    assert reported(lambda: application(["lib"])) == 0
    assert capfdbinary.readouterr().out == 2 * (os.fsencode(library) + b"\n")


@pytest.mark.gate
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_json_is_valid_whatever_the_encoding_of_standard_output(
    monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    """What the encoding lacks was spelled out as in a message, `\\xe9`, which no JSON may hold."""
    names = ["café", "a \U0001f600", f"{NOT_TEXT}.hft"]
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding=encoding, errors=SPELLED_OUT)
    monkeypatch.setattr(sys, "stdout", stream)
    print_json(names)
    stream.flush()
    assert json.loads(written.getvalue()) == names
    assert ("café".encode() in written.getvalue()) == (encoding == "utf-8")


@pytest.mark.gate
def test_a_command_warns_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heapfit.cli.output._warned", set())
    for each in ("the machine is busy", "the machine is noisy", "the machine is busy"):
        warn(each)
    assert capsys.readouterr().err == "the machine is busy\nthe machine is noisy\n"


@pytest.mark.gate
def test_what_is_printed_is_never_read_as_codes(capsys: pytest.CaptureFixture[str]) -> None:
    """`:a:` became an emoji, in commands that are to be copied."""
    command = "java -cp lib:a:b.jar [red]"
    results.print(command)
    print_table(["command"], [[command]])
    assert capsys.readouterr().out.count(command) == 2


@pytest.mark.gate
@pytest.mark.usefixtures("library")
def test_what_fails_after_a_program_has_run_is_not_that_it_cannot_run(tmp_path: Path) -> None:
    def failing(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_run, "examine", failing)
        with pytest.raises(OSError, match="No space left"):
            record_run.run(["true"], tmp_path / "a.hft")
    with pytest.raises(CannotRun, match="there is no program"):
        record_run.run(["./nosuch"], tmp_path / "b.hft")
    with pytest.raises(CannotRun, match="cannot run 'true': embedded null byte"):
        record_run.run(["true", "a\0b"], tmp_path / "b.hft")
