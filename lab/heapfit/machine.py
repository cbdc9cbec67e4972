"""Describe the machine that a study runs on, as far as it matters to the figures."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

from heapfit.records import Machine

_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage")
_HUGE_PAGE_POOLS = Path("/sys/kernel/mm/hugepages")
_OVERCOMMIT = Path("/proc/sys/vm/overcommit_memory")
_CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")
_MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")

# How the variables begin that steer an allocator, or the loader, from outside; every trial inherits
# them.
_SETTINGS = (
    "GLIBC_TUNABLES",
    "HEAPFIT_OPTIONS",
    "HEAPFIT_POOLS_",
    "HEAPFIT_RECORD",
    "JE_MALLOC_CONF",
    "LD_",
    "MALLOC_",
    "MIMALLOC_",
    "PYTHONMALLOC",
    "TBB_MALLOC_",
    "TCMALLOC_",
    "_RJEM_MALLOC_CONF",
)
# A trial is given the preload of its allocator alone; the other is a number of each process.
_NOT_INHERITED = ("LD_PRELOAD", "HEAPFIT_RECORD_PROCESS")


def describe() -> Machine:
    """Return what this machine is; what cannot be found out is None or said in `notes`."""
    memory = _meminfo()
    return Machine(
        hostname=platform.node(),
        cpu=_cpu_model(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=memory.get("MemTotal", 0),
        kernel=platform.release(),
        distribution=_distribution(),
        libc=os.confstr("CS_GNU_LIBC_VERSION") or "unknown",
        governor=_text(_GOVERNOR),
        virtual=_virtual(),
        huge_pages=_chosen(_text(_HUGE_PAGES / "enabled")),
        swap_bytes=memory.get("SwapTotal", 0),
        notes=_notes(),
    )


def inherited_settings() -> dict[str, str]:
    """Return the variables of this process that steer the allocators of programs it starts."""
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(_SETTINGS) and name not in _NOT_INHERITED
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
    found = {name: _text(path) for name, path in files.items()}
    return {name: _chosen(text) or text for name, text in found.items() if text is not None}


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _meminfo() -> dict[str, int]:
    """Return /proc/meminfo in bytes (the file counts in KiB)."""
    fields = (line.split() for line in (_text(Path("/proc/meminfo")) or "").splitlines())
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in fields}


def _cpu_model() -> str:
    """The processor's name; aarch64 kernels give only numbers, which `lscpu` translates."""
    for line in (_text(Path("/proc/cpuinfo")) or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    for line in _output("lscpu").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "Model name":
            return f"{value.strip()} ({platform.machine()})"
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
    words = (_text(Path("/proc/cpuinfo")) or "").split()
    return "virtual machine" if "hypervisor" in words else None


def _chosen(choices: str | None) -> str | None:
    """Return the bracketed one of `always [madvise] never`."""
    return choices.partition("[")[2].partition("]")[0] if choices else None


def _notes() -> list[str]:
    notes = [
        f"{name}={value} is set in the environment of every trial"
        for name, value in inherited_settings().items()
    ]
    online = os.cpu_count() or 0
    allowed = len(os.sched_getaffinity(0))
    if allowed < online:
        notes.append(f"{allowed} of {online} processors may be used")
    for path, what in ((_CPU_LIMIT, "processor time"), (_MEMORY_LIMIT, "memory")):
        limit = _text(path)
        if limit and not limit.startswith("max"):
            notes.append(f"this control group limits {what}: {limit}")
    return notes


def _output(program: str) -> str:
    """Return what a program prints, or nothing if it is missing; its exit code is no help."""
    if shutil.which(program) is None:
        return ""
    environment = {**os.environ, "LC_ALL": "C"}
    return subprocess.run([program], capture_output=True, text=True, env=environment).stdout
