"""Memory: what the kernel does behind an allocator's back, and what limits it."""

from __future__ import annotations

import resource

from heapfit.doctor.finding import Finding, chosen, read

_GIB = 1 << 30
_HUGE_PAGES = "/sys/kernel/mm/transparent_hugepage"


def examine() -> list[Finding]:
    """Return the findings about memory."""
    return [_available(), _huge_pages(), _swap(), _overcommit(), _address_space(), _container()]


def _meminfo() -> dict[str, int]:
    """Return the figures of /proc/meminfo in bytes."""
    lines = (line.split() for line in (read("/proc/meminfo") or "").splitlines())
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines}


def _available() -> Finding:
    known = _meminfo()
    available, total = known.get("MemAvailable", 0), known.get("MemTotal", 0)
    advice = "" if available >= _GIB else "little memory is left: end other programs"
    state = f"{available / _GIB:.1f} of {total / _GIB:.1f} GiB available"
    return Finding(topic="memory", state=state, advice=advice)


def _huge_pages() -> Finding:
    enabled = read(f"{_HUGE_PAGES}/enabled")
    if enabled is None:
        return Finding(topic="huge pages", state="not supported by this kernel")
    mode = chosen(enabled)
    advice = {
        "always": "they hide differences between allocators; "
        f"as root write madvise to {_HUGE_PAGES}/enabled",
        "never": f"no allocator can use them here; as root write madvise to {_HUGE_PAGES}/enabled",
    }.get(mode, "")
    return Finding(topic="huge pages", state=mode, advice=advice)


def _swap() -> Finding:
    known = _meminfo()
    used = known.get("SwapTotal", 0) - known.get("SwapFree", 0)
    if known.get("SwapTotal", 0) == 0:
        return Finding(topic="swap", state="none")
    advice = "memory that is swapped out is not counted as resident: run: sudo swapoff -a"
    state = f"{used / _GIB:.1f} of {known['SwapTotal'] / _GIB:.1f} GiB used"
    return Finding(topic="swap", state=state, advice=advice if used else "")


def _overcommit() -> Finding:
    mode = read("/proc/sys/vm/overcommit_memory")
    state = {"0": "by estimate", "1": "always", "2": "never"}.get(mode or "", "unknown")
    refuses = "large reservations are refused; run: sudo sysctl vm.overcommit_memory=0"
    return Finding(topic="overcommit", state=state, advice=refuses if mode == "2" else "")


def _address_space() -> Finding:
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY:
        return Finding(topic="address space", state="unlimited")
    advice = "allocators reserve large ranges and work around a limit: run: ulimit -v unlimited"
    return Finding(topic="address space", state=f"{soft / _GIB:.1f} GiB", advice=advice)


def _container() -> Finding:
    limit = read("/sys/fs/cgroup/memory.max")
    if limit in (None, "max"):
        return Finding(topic="memory limit", state="none")
    size = int(str(limit))
    advice = "close to it the kernel reclaims during a trial" if size < _GIB else ""
    return Finding(topic="memory limit", state=f"{size / _GIB:.1f} GiB", advice=advice)
