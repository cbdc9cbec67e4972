"""Medians, their intervals, and ratios to the baseline."""

from heapfit.statistics.median import Interval, coverage, median_interval
from heapfit.statistics.summary import summarise

__all__ = ["Interval", "coverage", "median_interval", "summarise"]
