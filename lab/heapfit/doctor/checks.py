"""What of this machine helps or spoils a measurement: one function for each thing to look at."""

import os
import resource
import statistics
import time

from heapfit import catalogue
from heapfit.errors import HeapfitError
from heapfit.host import cgroups, machine
from heapfit.host.machine import chosen, meminfo, read
from heapfit.records import Record
from heapfit.text import join_words
from heapfit.trial import BUILTIN_METRIC_NAMES, METRIC_NAMES, find_metric, unavailable_metrics
from heapfit.trial.perf import Instructions

_GIB = 1 << 30
_CPU = "/sys/devices/system/cpu"
_HUGE_PAGES = "/sys/kernel/mm/transparent_hugepage"

# With this much of a core busy on average, another program shares the cores with a trial.
_BUSY_PER_CORE = 0.25

# Noise: for how long the same work is timed, and how much at a time. Long enough for the clock's
# own cost to vanish, short enough for some hundred repeats.
_DURATION_S = 1.0
_SPIN = 40_000
_ENOUGH_REPEATS = 5
# Spread of the middle half above which differences of a few percent drown in noise.
_NOISY = 0.02


class Finding(Record):
    """What was found of `topic`; `advice` says what to do when it spoils a measurement."""

    topic: str
    state: str
    advice: str = ""

    @property
    def ok(self) -> bool:
        """Tell whether there is nothing to do."""
        return not self.advice


def examine() -> list[Finding]:
    """Return every finding about this machine; takes about two seconds."""
    processor = [_cores(), _quota(), _load(), _governor(), _turbo(), _threads_per_core()]
    memory = [_available(), _huge_pages(), _swap(), _overcommit(), _address_space(), _container()]
    missing = unavailable_metrics()
    kernel = [_virtualisation(), _address_randomisation(), _counters(missing)]
    metrics = _metrics(missing)
    return [*processor, *memory, *kernel, _noise(), _library(), _allocators(), *metrics]


# ----------------------------------------------------------------- processor


def _cores() -> Finding:
    usable, present = len(os.sched_getaffinity(0)), os.cpu_count() or 1
    state = f"{usable} of {present} usable"
    if usable > 1:
        return Finding(topic="cores", state=state)
    advice = "the memory sampler shares the core with the program: give this shell two or more"
    return Finding(topic="cores", state=state, advice=advice)


def _quota() -> Finding:
    """Look for a limit on processor time, which stops a program in the middle of a trial."""
    share = cgroups.cores_of(cgroups.own_groups())
    if share is None:
        return Finding(topic="cpu quota", state="none")
    advice = "the container is stopped when it has used its share: run without a cpu limit"
    return Finding(topic="cpu quota", state=f"{share:.1f} cores", advice=advice)


def _load() -> Finding:
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    advice = "" if load < _BUSY_PER_CORE * cores else "other programs are running: wait or end them"
    return Finding(topic="load now", state=f"{load:.2f} on {cores} cores", advice=advice)


def _governor() -> Finding:
    governor = read(f"{_CPU}/cpu0/cpufreq/scaling_governor")
    if governor is None:
        return Finding(topic="cpu governor", state="not visible (virtual machine, or fixed)")
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


# -------------------------------------------------------------------- memory


def _available() -> Finding:
    known = meminfo()
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
    known = meminfo()
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
    memory = cgroups.memory_of(cgroups.own_groups())
    if memory is None:
        return Finding(topic="memory limit", state="none")
    advice = "close to it the kernel reclaims during a trial" if memory.limit < _GIB else ""
    return Finding(topic="memory limit", state=f"{memory.limit / _GIB:.1f} GiB", advice=advice)


# -------------------------------------------------------------------- kernel


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


def _counters(missing: dict[str, str]) -> Finding:
    reason = Instructions.unavailable()
    if reason is None:
        return Finding(topic="hardware counters", state="available")
    without = [name for name, why in missing.items() if why == reason]
    metrics = f", so the metric {join_words(without)} cannot be measured" if without else ""
    return Finding(
        topic="hardware counters",
        state=f"none: {reason}{metrics}",
        advice="Valgrind can count instructions and misses instead, where you ask for them",
    )


# --------------------------------------------------------------------- noise


def _noise() -> Finding:
    """Say how steady the machine is: the same small work, timed again and again."""
    times = _repeat()
    quarter, median, three_quarters = statistics.quantiles(times, n=4)
    spread, worst = (three_quarters - quarter) / median, max(times) / median
    state = (
        f"of {len(times)} equal runs of a short loop of heapfit's own, the middle half differ by "
        f"{spread:.1%}, and the slowest took {worst:.3g} times the median"
    )
    advice = "" if spread < _NOISY else "use more replicates, or a quieter machine"
    return Finding(topic="noise", state=state, advice=advice)


def _repeat() -> list[float]:
    times: list[float] = []
    end = time.perf_counter() + _DURATION_S
    while time.perf_counter() < end or len(times) < _ENOUGH_REPEATS:
        start = time.perf_counter()
        for _ in range(_SPIN):
            pass
        times.append(time.perf_counter() - start)
    return times


# ------------------------------------------------------------ heapfit itself


def _library() -> Finding:
    try:
        installed = catalogue.resolve_allocators(["heapfit"])[0]
        catalogue.smoke_test(installed)
    except HeapfitError as error:
        return Finding(topic="heapfit's library", state="unusable", advice=str(error))
    return Finding(topic="heapfit's library", state=f"loads: {installed.library}")


def _allocators() -> Finding:
    """Say which allocators are installed; the others are wanted only where there is no peer yet."""
    entries = catalogue.load_allocators()
    installed = [name for name, entry in entries.items() if catalogue.find_installed(entry)]
    peers = [name for name in installed if entries[name].source.kind not in {"system", "heapfit"}]
    return Finding(
        topic="allocators",
        state=f"installed: {', '.join(installed)}",
        advice="" if peers else "run: heapfit allocators install jemalloc mimalloc tcmalloc",
    )


def _metrics(missing: dict[str, str]) -> list[Finding]:
    """Say of each metric how it is measured here: first the built-in ones. Those that want hardware
    counters are named where these are."""
    no_counters = Instructions.unavailable()
    return [
        _metric(name, missing)
        for name in METRIC_NAMES
        if no_counters is None or missing.get(name) != no_counters
    ]


def _metric(name: str, missing: dict[str, str]) -> Finding:
    topic = f"metric {name}"
    if name in missing:
        return Finding(topic=topic, state="not available", advice=missing[name])
    when = "in every trial" if name in BUILTIN_METRIC_NAMES else "when asked for"
    return Finding(topic=topic, state=f"{when}: {find_metric(name).source}")
