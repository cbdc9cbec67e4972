"""Larger programs give the same results under every mode, and what php.ini says is heeded."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import CGI, CLI, HERE, Extension, define, full, modules, run

PROGRAMS = HERE / "programs"
OPCACHE = define({"zend_extension": "opcache", "opcache.enable_cli": "1"})
JIT = define({"opcache.jit_buffer_size": "32M", "opcache.jit": "tracing"})
VALGRIND_FOUND = 99


@pytest.mark.parametrize("program", ["twig.php", full("parser.php")])
@pytest.mark.parametrize("mode", ["defrag-dodging", "region", full("off")])
@pytest.mark.parametrize("more", [pytest.param([], id="plain"), full(OPCACHE + JIT, "jit")])
def test_same_output(extension: Extension, program: str, mode: str, more: list[str]) -> None:
    """What PHP prints without heapfit, it prints with it."""
    base = [CLI, "-n", *modules(), *define({"memory_limit": "1G"})]
    expected = run([*base, PROGRAMS / program])
    assert expected.returncode == 0
    assert len(expected.stdout) > 100
    done = run([*base, *more, *extension.settings(mode, debug=True), PROGRAMS / program])
    assert (done.returncode, done.stdout, done.stderr) == (0, expected.stdout, "")


@pytest.mark.parametrize("mode", ["defrag-dodging", full("region")])
def test_phpunit(extension: Extension, mode: str, tmp_path: Path) -> None:
    """PHPUnit runs a test suite to the same end."""
    options = [*modules(), *define({"memory_limit": "512M"}), *extension.settings(mode)]
    done = run(
        [
            CLI,
            "-n",
            *options,
            "/usr/bin/phpunit",
            "--no-configuration",
            PROGRAMS / "ParserTest.php",
        ],
        cwd=tmp_path,
    )
    assert "OK (303 tests, 1103 assertions)" in done.stdout, done.stdout + done.stderr


@pytest.mark.full
def test_valgrind(extension: Extension) -> None:
    """Nothing is read that was never written, and nothing is lost when PHP ends."""
    valgrind = ["valgrind", "--quiet", "--leak-check=full", f"--error-exitcode={VALGRIND_FOUND}"]
    program = "$a = array_map(fn($i) => str_repeat('x', $i), range(0, 2000)); echo count($a);"
    command = [*valgrind, CLI, "-n", *extension.settings("defrag-dodging"), "-r", program]
    done = run(command, ZEND_DONT_UNLOAD_MODULES="1")
    assert (done.returncode, done.stdout) == (0, "2001"), done.stderr


@pytest.mark.parametrize("mode", ["defrag-dodging", "region"])
def test_guarded_objects(extension: Extension, mode: str) -> None:
    """Objects that HEAPFIT_OPTIONS has guarded are freed and resized as all others."""
    base = [CLI, "-n", *modules()]
    expected = run([*base, PROGRAMS / "twig.php"]).stdout
    done = run(
        [*base, *extension.settings(mode), PROGRAMS / "twig.php"],
        HEAPFIT_OPTIONS="guard_sample:4k",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, expected, "")


def test_zend_alloc_off(extension: Extension) -> None:
    """Where PHP was told to use malloc, it does."""
    program = "echo heapfit_stats()['mode'], ' ', heapfit_stats()['footprint'];"
    command = [CLI, "-n", *extension.settings("defrag-dodging"), "-r", program]
    assert run(command, USE_ZEND_ALLOC="0").stdout == "off 0"


def test_limit_of_tracked_allocations_holds(extension: Extension) -> None:
    """Zend's tracked allocator can limit the number of allocations: heapfit leaves it at work."""
    program = "for ($i = 0; $i < 100000; $i++) $a[] = str_repeat('x', 100); echo 'end';"
    command = [CLI, "-n", *extension.settings("defrag-dodging"), "-r", program]
    limited = {"USE_ZEND_ALLOC": "0", "USE_TRACKED_ALLOC": "1", "ZEND_MM_MAX_ALLOCS": "50000"}
    without = run([CLI, "-n", "-r", program], **limited)
    done = run(command, **limited)
    assert (done.returncode, "end" in done.stdout) == (without.returncode, "end" in without.stdout)


@pytest.mark.parametrize(
    ("limit", "message"), [("-1", "Out of memory (allocated "), ("1G", "Allowed memory size of ")]
)
def test_who_refused_memory_is_told(extension: Extension, limit: str, message: str) -> None:
    """What the system refuses is not put down to memory_limit."""
    settings = [*extension.settings("defrag-dodging"), *define({"memory_limit": limit})]
    done = run([CLI, "-n", *settings, "-r", "str_repeat('x', 1 << 46);"])
    assert done.stdout.startswith(f"\nFatal error: {message}")


def test_dl_changes_nothing(extension: Extension) -> None:
    """A heap cannot be put under a program that already runs."""
    folder = define({"extension_dir": str(extension.release.parent), "enable_dl": "1"})
    done = run(
        [
            CLI,
            "-n",
            *folder,
            "-r",
            "var_dump(dl('heapfit')); echo 'alive ', heapfit_stats()['mode'];",
        ]
    )
    assert (
        "Warning: heapfit is off: heapfit must be loaded from php.ini, not by dl()" in done.stdout
    )
    assert done.stdout.endswith("bool(true)\nalive off")


def test_unknown_mode_is_reported(extension: Extension) -> None:
    """A mode that does not exist is named, and the default holds."""
    done = run([CLI, "-n", *extension.settings("fast"), "-r", "echo heapfit_stats()['mode'];"])
    assert "heapfit.mode is 'fast': expected defrag-dodging, region or off" in done.stdout
    assert done.stdout.endswith("defrag-dodging")


def test_sizes_that_break_a_rule(extension: Extension) -> None:
    """PHP goes on with Zend's own manager."""
    sizes = define({"heapfit.segment_size": "10000"})
    program = "echo strlen(str_repeat('x', 100000)), heapfit_stats()['mode'];"
    done = run([CLI, "-n", *extension.settings("defrag-dodging"), *sizes, "-r", program])
    assert "heapfit is off" in done.stdout
    assert done.stdout.endswith("100000off")


def test_huge_pages_and_sizes(extension: Extension) -> None:
    """Other sizes and huge pages change nothing that a program sees."""
    more = define(
        {
            "heapfit.huge_pages": "1",
            "heapfit.segment_size": "65536",
            "heapfit.chunk_size": "4194304",
        }
    )
    base = [CLI, "-n", *modules()]
    expected = run([*base, PROGRAMS / "twig.php"]).stdout
    options = [*extension.settings("defrag-dodging", debug=True), *more]
    assert run([*base, *options, PROGRAMS / "twig.php"]).stdout == expected


def test_count_file(extension: Extension, tmp_path: Path) -> None:
    """A line for each request: calls, bytes, and which page."""
    log = tmp_path / "counts"
    count = define({"heapfit.count": "1", "heapfit.count_file": str(log)})
    options = [*modules(), *extension.settings("defrag-dodging"), *count]
    assert run([CGI, "-n", "-q", "-T", "5", *options, PROGRAMS / "twig.php"]).returncode == 0
    lines = [line.split("\t") for line in log.read_text().splitlines()]
    assert len(lines) >= 5
    mallocs = [int(line[0]) for line in lines]
    assert min(mallocs[1:]) > 1000
    assert max(mallocs[2:]) - min(mallocs[2:]) < 10
    assert all(line[-1].endswith("twig.php") for line in lines)


def test_only_one_name_is_exported(extension: Extension) -> None:
    """Another libheapfit in the process cannot be taken for the extension's own."""
    names = run(["nm", "-D", "--defined-only", extension.release]).stdout
    assert re.findall(r" [A-Z] (\S+)", names) == ["get_module"]
