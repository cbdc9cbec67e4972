"""The kernel and what lies beneath it: virtualisation, address randomisation, counters."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

from heapfit import machine
from heapfit.doctor.finding import Finding, read

# perf_event_open(2): system call numbers, and the parts of `struct perf_event_attr` in use here.
_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}
_TYPE_HARDWARE, _INSTRUCTIONS = 0, 1
_ATTRIBUTE_SIZE = 64  # PERF_ATTR_SIZE_VER0, which every kernel takes.
_DISABLED, _EXCLUDE_KERNEL, _EXCLUDE_HYPERVISOR = 1 << 0, 1 << 5, 1 << 6


def examine() -> list[Finding]:
    """Return the findings about the kernel."""
    return [_virtualisation(), _address_randomisation(), _counters()]


def _virtualisation() -> Finding:
    kind = machine.describe().virtual
    if kind is None:
        return Finding(topic="virtualisation", state="none")
    advice = "neighbours share the hardware: compare ratios within a run, never times across runs"
    return Finding(topic="virtualisation", state=kind, advice=advice)


def _address_randomisation() -> Finding:
    state = "off" if read("/proc/sys/kernel/randomize_va_space") == "0" else "on"
    advice = "every trial sees the same layout, lucky or not; run: sudo sysctl "
    return Finding(
        topic="address randomisation",
        state=state,
        advice=f"{advice}kernel.randomize_va_space=2" if state == "off" else "",
    )


def _counters() -> Finding:
    error = _open_instruction_counter()
    if error is None:
        return Finding(topic="hardware counters", state="available")
    level = read("/proc/sys/kernel/perf_event_paranoid") or "?"
    if error in (errno.EACCES, errno.EPERM):
        return Finding(
            topic="hardware counters",
            state=f"not permitted (perf_event_paranoid is {level})",
            advice="run: sudo sysctl kernel.perf_event_paranoid=2",
        )
    return Finding(
        topic="hardware counters",
        state="missing",
        advice="instructions and cache misses can only be simulated, with Valgrind",
    )


def _open_instruction_counter() -> int | None:
    """Try to count this process's instructions; return the errno of the refusal."""
    number = _PERF_EVENT_OPEN.get(platform.machine())
    if number is None:
        return errno.ENOSYS
    flags = _DISABLED | _EXCLUDE_KERNEL | _EXCLUDE_HYPERVISOR
    head = struct.pack("=IIQQQQQ", _TYPE_HARDWARE, _ATTRIBUTE_SIZE, _INSTRUCTIONS, 0, 0, 0, flags)
    attributes = ctypes.create_string_buffer(head, _ATTRIBUTE_SIZE)
    libc = ctypes.CDLL(None, use_errno=True)
    this_process, any_core, no_group, no_flags = 0, -1, -1, 0
    descriptor = libc.syscall(number, attributes, this_process, any_core, no_group, no_flags)
    if descriptor < 0:
        return ctypes.get_errno()
    os.close(descriptor)
    return None
