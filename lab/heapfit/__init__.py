"""heapfit's lab: fit a program's heap to the program."""

__version__ = "0.1.0"
