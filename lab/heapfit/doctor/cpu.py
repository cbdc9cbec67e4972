"""The processor: how many cores there are to measure on, and what makes their speed vary."""

from __future__ import annotations

import os

from heapfit.doctor.finding import Finding, read

_CPU = "/sys/devices/system/cpu"

# With this much of a core busy on average, another program shares the cores with a trial.
_BUSY_PER_CORE = 0.25


def examine() -> list[Finding]:
    """Return the findings about the processor."""
    return [_cores(), _quota(), _load(), _governor(), _turbo(), _threads_per_core()]


def _cores() -> Finding:
    usable, present = len(os.sched_getaffinity(0)), os.cpu_count() or 1
    state = f"{usable} of {present} usable"
    if usable > 1:
        return Finding(topic="cores", state=state)
    advice = "the sampler of memory shares the core with the program: give this shell two or more"
    return Finding(topic="cores", state=state, advice=advice)


def _quota() -> Finding:
    """Look for a limit on processor time, which stops a program in the middle of a trial."""
    limit = read("/sys/fs/cgroup/cpu.max")
    quota, _, period = (limit or "max").partition(" ")
    if quota == "max":
        return Finding(topic="cpu quota", state="none")
    share = int(quota) / int(period)
    advice = "the container is stopped when it has used its share: run without a cpu limit"
    return Finding(topic="cpu quota", state=f"{share:.1f} cores", advice=advice)


def _load() -> Finding:
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    advice = "" if load < _BUSY_PER_CORE * cores else "other programs are running: wait or end them"
    return Finding(topic="load now", state=f"{load:.2f} on {cores} cores", advice=advice)


def _governor() -> Finding:
    governor = read(f"{_CPU}/cpu0/cpufreq/scaling_governor")
    if governor is None:
        return Finding(topic="cpu governor", state="not ours to see (virtual machine or fixed)")
    advice = "" if governor == "performance" else "run: sudo cpupower frequency-set -g performance"
    return Finding(topic="cpu governor", state=governor, advice=advice)


def _turbo() -> Finding:
    no_turbo = read(f"{_CPU}/intel_pstate/no_turbo")
    boost = read(f"{_CPU}/cpufreq/boost")
    if no_turbo is None and boost is None:
        return Finding(topic="turbo", state="not ours to see")
    if no_turbo == "1" or boost == "0":
        return Finding(topic="turbo", state="off")
    switch = "0 > cpufreq/boost" if no_turbo is None else "1 > intel_pstate/no_turbo"
    advice = f"speed follows temperature; as root write {switch} in {_CPU}"
    return Finding(topic="turbo", state="on", advice=advice)


def _threads_per_core() -> Finding:
    active = read(f"{_CPU}/smt/active")
    if active != "1":
        return Finding(topic="smt", state="off" if active == "0" else "not ours to see")
    return Finding(
        topic="smt",
        state="on: two threads share a core",
        advice="leave a core's other thread idle: compare on at most half of the cores",
    )
