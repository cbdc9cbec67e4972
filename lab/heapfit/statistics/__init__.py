"""What trials say: medians with their intervals and ratios, and the analysis of designed
studies."""

from heapfit.statistics.analyse import analyse, analyse_all
from heapfit.statistics.median import Interval, coverage, median_interval
from heapfit.statistics.observations import Readings, read
from heapfit.statistics.peers import compare_with_peers
from heapfit.statistics.summary import summarise

__all__ = [
    "Interval",
    "Readings",
    "analyse",
    "analyse_all",
    "compare_with_peers",
    "coverage",
    "median_interval",
    "read",
    "summarise",
]
