"""From measurements and weights to a recommendation with its reasons."""

from heapfit.advice.goals import missing_words
from heapfit.advice.recommend import failed_trials, failing, failing_words, recommend
