"""From measurements and weights to a recommendation with its reasons."""

from heapfit.advice.recommend import failing_words, recommend

__all__ = ["failing_words", "recommend"]
