"""Describe the machine that a study runs on, as far as it matters to the figures."""

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from heapfit.host import cgroups
from heapfit.records import Machine
from heapfit.text import readable, size

_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage")
_HUGE_PAGE_POOLS = Path("/sys/kernel/mm/hugepages")
_OVERCOMMIT = Path("/proc/sys/vm/overcommit_memory")
_MODEL_NAME = re.compile(r"^model name[ \t]*:[ \t]*(.*?)[ \t]*$", re.IGNORECASE | re.MULTILINE)

# How the variables begin that steer an allocator, a runtime's memory or the loader from outside.
_SETTINGS = (
    "GLIBC_TUNABLES",
    "GOGC",
    "GOMEMLIMIT",
    "HEAPFIT_OPTIONS",
    "HEAPFIT_POOLS_",
    "HEAPFIT_RECORD",
    "JE_MALLOC_CONF",
    "LD_",
    "MALLOC_",
    "MIMALLOC_",
    "NODE_OPTIONS",
    "PYTHONMALLOC",
    "TBB_MALLOC_",
    "TCMALLOC_",
    "USE_ZEND_ALLOC",
    "_RJEM_MALLOC_CONF",
)
# A trial is given the preload of its allocator alone; the other is a number of each process.
_NOT_INHERITED = ("LD_PRELOAD", "HEAPFIT_RECORD_PROCESS")


def describe() -> Machine:
    """Return what this machine is; what cannot be found out is None or said in `notes`."""
    memory = meminfo()
    return Machine(
        hostname=platform.node(),
        cpu=_cpu_model(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=memory.get("MemTotal", 0),
        kernel=platform.release(),
        distribution=_distribution(),
        libc=os.confstr("CS_GNU_LIBC_VERSION") or "unknown",
        governor=read(_GOVERNOR),
        virtual=_virtual(),
        huge_pages=chosen(read(_HUGE_PAGES / "enabled") or "") or None,
        swap_bytes=memory.get("SwapTotal", 0),
        notes=_notes(),
    )


def inherited_settings() -> dict[str, str]:
    """Return the variables of this process that steer the allocators of programs it starts."""
    found = settings_in(os.environ)
    return {name: value for name, value in found.items() if name not in _NOT_INHERITED}


def settings_in(environment: Mapping[str, str]) -> dict[str, str]:
    """Return those variables of an environment that change how memory is allocated."""
    return {
        readable(name): readable(environment[name])
        for name in sorted(environment)
        if name.startswith(_SETTINGS)
    }


def memory_settings() -> dict[str, str]:
    """Return what of the machine an allocator's figures depend on and an administrator may set."""
    files = {
        "frequency governor": _GOVERNOR,
        "mode of overcommitment": _OVERCOMMIT,
        "mode of huge pages": _HUGE_PAGES / "enabled",
        "mode of huge pages' defragmentation": _HUGE_PAGES / "defrag",
        "mode of huge pages of shared memory": _HUGE_PAGES / "shmem_enabled",
    }
    for folder in sorted(_HUGE_PAGES.glob("hugepages-*kB")):
        files[f"mode of {folder.name}"] = folder / "enabled"
    for folder in sorted(_HUGE_PAGE_POOLS.glob("hugepages-*kB")):
        files[f"pool of {folder.name}"] = folder / "nr_hugepages"
    found = {name: read(path) for name, path in files.items()}
    return {name: chosen(text) for name, text in found.items() if text is not None}


def has_huge_page_pool() -> bool:
    """Whether an allocator may take pages from a pool of huge pages."""
    sizes = ("nr_hugepages", "nr_overcommit_hugepages")
    files = (folder / each for folder in _HUGE_PAGE_POOLS.glob("hugepages-*kB") for each in sizes)
    return any(read(file) not in (None, "0") for file in files)


def read(path: Path | str) -> str | None:
    """Return what the kernel says in the file `path`, or None when it does not say it."""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return None


def meminfo() -> dict[str, int]:
    """Return /proc/meminfo in bytes (the file counts in KiB)."""
    fields = (line.split() for line in (read("/proc/meminfo") or "").splitlines())
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in fields}


def _cpu_model() -> str:
    """The processor's name; aarch64 kernels give only numbers, which `lscpu` translates."""
    if named := _MODEL_NAME.search(read("/proc/cpuinfo") or ""):
        return named[1]
    if named := _MODEL_NAME.search(_output("lscpu")):
        return f"{named[1]} ({platform.machine()})"
    return platform.machine()


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "unknown")
    except OSError:
        return "unknown"


def _virtual() -> str | None:
    """The hypervisor or container that surrounds this system, or None on bare metal."""
    if shutil.which("systemd-detect-virt"):
        found = _output("systemd-detect-virt").strip()
        return found if found != "none" else None
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        return "container"
    words = (read("/proc/cpuinfo") or "").split()
    return "virtual machine" if "hypervisor" in words else None


def chosen(text: str) -> str:
    """Return the word in brackets: how the kernel marks the setting in force.

    >>> chosen("always [madvise] never")
    'madvise'
    """
    return text.partition("[")[2].partition("]")[0] or text


def _notes() -> list[str]:
    notes = [
        f"{name}={value} is set in the environment of every trial"
        for name, value in inherited_settings().items()
    ]
    online = os.cpu_count() or 0
    allowed = len(os.sched_getaffinity(0))
    if allowed < online:
        notes.append(f"{allowed} of {online} processors may be used")
    groups = cgroups.own_groups()
    cores, memory = cgroups.cores_of(groups), cgroups.memory_of(groups)
    if cores is not None:
        notes.append(f"this control group limits processor time: {cores:g} cores")
    if memory is not None:
        notes.append(f"this control group limits memory: {size(memory.limit)}")
    return notes


def _output(program: str) -> str:
    """Return what a program prints, or nothing if it is missing; its exit code is no help."""
    if shutil.which(program) is None:
        return ""
    environment = {**os.environ, "LC_ALL": "C"}
    return subprocess.run([program], capture_output=True, text=True, env=environment).stdout
