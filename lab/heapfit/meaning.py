"""What the metrics are figures of: the one list of what is time, what is memory, and of what.

Sources of metrics (`trial/`, a replay) name them; whoever weighs, orders or judges figures asks
here, so that a headline, a recommendation, a goal and a difference mean the same by "memory".
"""

from heapfit.records import Metric, Study

WALL = "wall_s"
PROCESSOR_TIME = ("user_s", "system_s")
# Both added; a metric of a study in which it decides (`statistics/time_metric.py`).
PROCESSOR = "processor_s"
# A replay's own: what the calls took, and the heap alone, for the rest is the replayer's.
REPLAYED_TIME, REPLAYED_MEMORY = "allocator_s", "replay_peak_bytes"
RESIDENT_PEAK, RESIDENT_MEAN = "peak_rss_bytes", "mean_rss_bytes"
# Unless it keeps to the recorded times.
NO_IDLE_TIME = "A replay has no idle time"

# In the order of preference. Proportional set size where a study asked for it: it does not count
# twice what processes share. Peaks before averages: memory is provided for the peak.
PEAKS = (REPLAYED_MEMORY, "peak_pss_bytes", RESIDENT_PEAK)
MEANS = ("mean_pss_bytes", RESIDENT_MEAN)
MEMORY = (*PEAKS, *MEANS)
MEAN_MEMORY = ("replay_mean_bytes", *MEANS)
# Of the kernel's pages. A replay's peak over what is live would be its memory once more: what is
# live is the same under all allocators.
FRAGMENTATION = ("fragmentation_events",)

# Of a whole run. What a program measures itself may be of any size.
_OF_A_RUN = frozenset((WALL, PROCESSOR, *PROCESSOR_TIME, "replay_s", REPLAYED_TIME, *MEMORY))

# Differences of less than that, in base units, are too small to matter, however certain. 5 ms: a
# process that is put aside once loses a slice of the scheduler's, 3 to 4 ms. 1 MiB: the kernel's
# own count of resident pages may be off by that on eight processors (32 pages on each, since 6.2).
TOO_SMALL = {"s": 0.005, "bytes": float(2**20)}

# Below this peak of resident memory, in bytes, a difference may be what an allocator costs each
# process, however much it allocates: a C program without a heap has 1.3 MiB with glibc, 1.8 with
# heapfit.
SMALL_PEAK = 8 << 20

_TIME_UNITS = ("s", "ms", "µs", "us", "ns")
# Counts that other programs, the disk and the order of threads have a say in.
_OF_THE_MACHINE = (
    "cycles",
    "futex_calls",
    "involuntary_switches",
    "major_faults",
    "voluntary_switches",
)
_COUNTED = "counter of the processor"


def is_replay(study: Study) -> bool:
    """Tell whether the program of a study is the replay of a recording."""
    return any(each.name == REPLAYED_TIME for each in study.metrics)


def is_time(metric: Metric) -> bool:
    """Tell whether a metric is a time, or a rate, which is one turned round."""
    return metric.unit in _TIME_UNITS or metric.unit.endswith("/s")


def is_of_program(metric: Metric) -> bool:
    """Tell whether a figure says the same on a busy machine and on a quiet one."""
    if is_time(metric) or metric.name in _OF_THE_MACHINE:
        return False
    return not (metric.name.endswith("_misses") and metric.source.startswith(_COUNTED))


def too_small(metric: Metric) -> float:
    """Return below which size, in the metric's unit, a difference does not matter; 0: each does."""
    return TOO_SMALL.get(metric.unit, 0.0) if metric.name in _OF_A_RUN else 0.0


def deciding_metrics(study: Study) -> list[Metric]:
    """Return the metrics that the headline and the recommendation read.

    Memory is the other side of every trade that an allocator makes.
    """
    wanted = (study.primary_metric, PROCESSOR, *PEAKS)
    return [metric for metric in study.metrics if metric.name in wanted]
