"""From measurements and weights to a recommendation with its reasons."""

from heapfit.advice.recommend import failed_trials, failing, failing_words, recommend

__all__ = ["failed_trials", "failing", "failing_words", "recommend"]
