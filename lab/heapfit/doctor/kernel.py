"""The kernel and what lies beneath it: virtualisation, address randomisation, counters."""

from __future__ import annotations

from heapfit import machine
from heapfit.doctor.finding import Finding, read
from heapfit.trial.perf import Instructions


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
    reason = Instructions.unavailable()
    if reason is None:
        return Finding(topic="hardware counters", state="available")
    return Finding(
        topic="hardware counters",
        state=f"none: {reason}",
        advice="instructions and misses are simulated then, with Valgrind",
    )
