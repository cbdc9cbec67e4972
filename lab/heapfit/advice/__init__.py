"""From measurements and weights to a recommendation with its reasons."""

from heapfit.advice.recommend import recommend

__all__ = ["recommend"]
