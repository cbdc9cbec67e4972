"""PHP's own form of tests, run by PHP's run-tests.php in each way that PHP can be set up."""

from __future__ import annotations

import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from conftest import CGI, CLI, HERE, RUN_TIMEOUT_S, Extension, define, environment, full

RUN_TESTS = Path("/usr/lib/php/20220829/build/run-tests.php")
OPCACHE = {"zend_extension": "opcache", "opcache.enable_cli": "1"}
JIT = {"opcache.jit_buffer_size": "32M", "opcache.jit": "tracing"}
SECTIONS_BY_CGI = ("--GET--", "--POST--", "--POST_RAW--", "--CGI--")


@dataclass(frozen=True)
class Setting:
    """One way to run all tests."""

    name: str
    mode: str
    debug: bool = False
    cgi: bool = False
    ini: tuple[tuple[str, str], ...] = ()


SETTINGS = (
    Setting("dodging", "defrag-dodging"),
    Setting("region", "region"),
    Setting("off", "off"),
    Setting("opcache", "defrag-dodging", ini=tuple(OPCACHE.items())),
    Setting("jit", "defrag-dodging", ini=tuple((OPCACHE | JIT).items())),
    Setting("slow-end", "defrag-dodging", debug=True, ini=(("heapfit.fast_shutdown", "0"),)),
    Setting("debug-dodging", "defrag-dodging", debug=True),
    Setting("debug-region", "region", debug=True),
    Setting("debug-jit", "defrag-dodging", debug=True, ini=tuple((OPCACHE | JIT).items())),
    Setting("cgi", "defrag-dodging", debug=True, cgi=True),
    Setting("cgi-region", "region", cgi=True),
)
# Those of the everyday run: each mode, each server of PHP, and the build with checks.
EVERYDAY = ("dodging", "debug-region", "cgi")
TESTS = sorted(path.name for path in HERE.glob("*.phpt"))


def for_cgi(text: str) -> str:
    """Return a test that php-cgi runs instead of php."""
    if any(section in text for section in SECTIONS_BY_CGI):
        return text
    return text.replace("--FILE--", "--CGI--\n--FILE--", 1)


def outcomes(extension: Extension, setting: Setting, folder: Path) -> dict[str, str]:
    """Run all tests; return what is wrong with each, by its file's name: nothing if it passed."""
    for name in TESTS:
        text = (HERE / name).read_text(encoding="utf-8")
        (folder / name).write_text(for_cgi(text) if setting.cgi else text, encoding="utf-8")
    results = folder / "results.xml"
    program = shutil.copy(RUN_TESTS, folder)  # It writes a file beside itself.
    options = extension.settings(setting.mode, debug=setting.debug) + define(dict(setting.ini))
    done = subprocess.run(
        [CLI, "-n", program, "-n", "-q", "-j2", *options, folder],
        env=environment(
            TEST_PHP_EXECUTABLE=CLI,
            TEST_PHP_CGI_EXECUTABLE=CGI,
            TEST_PHP_JUNIT=str(results),
            NO_INTERACTION="1",
        ),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    if not results.exists():
        raise AssertionError(f"run-tests.php left no results:\n{done.stdout}\n{done.stderr}")
    found = {}
    for case in ElementTree.parse(results).iter("testcase"):
        trouble = [child.tag for child in case]
        name = next(test for test in TESTS if test in "".join(case.attrib.values()))
        difference = folder / Path(name).with_suffix(".diff")
        shown = difference.read_text(errors="replace") if difference.exists() else ""
        found[name] = f"{trouble}\n{shown}" if trouble else ""
    return found


@pytest.fixture(scope="module")
def results(
    extension: Extension, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Setting], dict[str, str]]:
    """Runs all tests in a setting, once."""

    @cache
    def found(setting: Setting) -> dict[str, str]:
        folder = tmp_path_factory.mktemp(setting.name)
        outcome = outcomes(extension, setting, folder)
        shutil.rmtree(folder)
        return outcome

    return found


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize(
    "setting",
    [
        pytest.param(each, id=each.name) if each.name in EVERYDAY else full(each, each.name)
        for each in SETTINGS
    ],
)
def test_phpt(results: Callable[[Setting], dict[str, str]], setting: Setting, test: str) -> None:
    """The test passed."""
    assert results(setting).get(test, "did not run") == ""
