"""Debian packages: what is installed, and installing what is missing."""

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

from heapfit.catalogue.command import last_line, run_quietly
from heapfit.errors import HeapfitError

# Another package manager may hold the lock for a while: wait for it rather than fail at once.
_LOCK_TIMEOUT_S = 120
_APT_GET = ("apt-get", "-o", f"DPkg::Lock::Timeout={_LOCK_TIMEOUT_S}")
# dpkg writes it anew at each change.
_DATABASE = Path("/var/lib/dpkg/status")
_NOT_IN_LISTS = ("unable to locate package", "has no installation candidate", "404 ")


def is_used() -> bool:
    """Tell whether this machine's packages are Debian's."""
    return shutil.which("dpkg-query") is not None


def version(package: str) -> str | None:
    """Return the installed version of `package`, or None."""
    if not is_used():
        return None
    first_line = _asked("-W", "-f", "${db:Status-Status} ${Version}\n", package).partition("\n")[0]
    status, _, installed = first_line.partition(" ")
    return installed if status == "installed" else None


def files(package: str) -> list[Path]:
    """Return the files of an installed `package`."""
    return [Path(line) for line in _asked("-L", package).splitlines()]


def _asked(*question: str) -> str:
    """Return what dpkg-query answers, nothing where it fails.

    A command that compares allocators looks for each several times, which takes longer than all
    else before its first trial; an answer holds until a package is installed or removed.
    """
    database = _DATABASE.stat().st_mtime_ns if _DATABASE.exists() else None
    return _answer(question, database)


@lru_cache(maxsize=256)
def _answer(question: tuple[str, ...], database: int | None) -> str:
    result = run_quietly(["dpkg-query", *question])
    return result.stdout if result.returncode == 0 else ""


def missing(packages: Sequence[str]) -> list[str]:
    """Return those of `packages` that are not installed."""
    if not packages or not is_used():
        return list(packages)
    query = ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *packages]
    words = (line.split() for line in run_quietly(query).stdout.splitlines())
    installed = {name for name, status in words if status == "installed"}
    return [package for package in packages if package not in installed]


def first_available(packages: Sequence[str]) -> str:
    """Return the first of `packages` that this release has; the last where none is known to be."""
    for package in packages:
        policy = run_quietly(["apt-cache", "policy", package], environment={"LC_ALL": "C"}).stdout
        if "Candidate:" in policy and "Candidate: (none)" not in policy:
            return package
    return packages[-1]


def install(packages: Sequence[str], say: Callable[[str], None]) -> None:
    """Install what is missing of `packages`; `say` tells the person what goes on.

    Raises HeapfitError with the command to type when this user may not install packages.
    """
    wanted = missing(packages)
    if not wanted:
        return
    advice = f"run: sudo apt-get install -y {' '.join(wanted)}"
    if shutil.which("apt-get") is None:
        raise HeapfitError(
            f"cannot install {', '.join(wanted)}: this machine has no apt-get; "
            "install the program by other means"
        )
    say(f"installing {', '.join(wanted)} (apt-get)")
    result = _apt_get(["install", "-y", "--no-install-recommends", *wanted], advice)
    if result.returncode != 0 and _lists_are_stale(result):
        say("refreshing the package lists (apt-get update)")
        _apt_get(["update"], advice)
        result = _apt_get(["install", "-y", "--no-install-recommends", *wanted], advice)
    if result.returncode != 0:
        raise HeapfitError(f"apt-get failed: {last_line(result)}; {advice}")


def _apt_get(arguments: Sequence[str], advice: str) -> subprocess.CompletedProcess[str]:
    # `env` carries the variable through sudo, which drops the caller's.
    command = ["env", "DEBIAN_FRONTEND=noninteractive", *_APT_GET, *arguments]
    return run_quietly([*_as_root(advice), *command])


def _as_root(advice: str) -> list[str]:
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") is None:
        raise HeapfitError(f"installing packages needs root; {advice}")
    # A password can only be asked for where there is a terminal (sudo reads it from /dev/tty).
    if os.isatty(0) and subprocess.run(["sudo", "-v"], check=False).returncode == 0:
        return ["sudo"]
    if run_quietly(["sudo", "-n", "true"]).returncode == 0:
        return ["sudo", "-n"]
    raise HeapfitError(f"installing packages needs root; {advice}")


def _lists_are_stale(result: subprocess.CompletedProcess[str]) -> bool:
    said = (result.stdout + result.stderr).lower()
    return any(phrase in said for phrase in _NOT_IN_LISTS)
