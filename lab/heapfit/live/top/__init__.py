"""The full-screen view of a running process, in Textual."""

from heapfit.live.top.app import TopApp

__all__ = ["TopApp"]
