"""Medians, their intervals, and ratios: to the baseline, and to the best peer."""

from heapfit.statistics.median import Interval, coverage, median_interval
from heapfit.statistics.peers import compare_with_peers
from heapfit.statistics.summary import summarise

__all__ = ["Interval", "compare_with_peers", "coverage", "median_interval", "summarise"]
