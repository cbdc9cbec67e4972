"""The peak and the mean over time of a size that is looked at now and then."""

from __future__ import annotations


class Averaging:
    """Each look stands for the time around it: the mean is that of the line through all looks."""

    def __init__(self) -> None:
        self.peak = 0.0
        self._last = 0.0
        self._last_s: float | None = None
        self._area = 0.0  # size times seconds
        self._duration_s = 0.0

    def add(self, now_s: float, size: float) -> None:
        """Take the `size` seen at `now_s`."""
        if self._last_s is not None:
            span_s = now_s - self._last_s
            self._area += span_s * (size + self._last) / 2
            self._duration_s += span_s
        self._last, self._last_s = size, now_s
        self.peak = max(self.peak, size)

    def mean(self) -> float:
        """Return the mean weighted by time; of a single look, what it saw; of none, 0."""
        return self._area / self._duration_s if self._duration_s else self._last
