"""What can be asked of an export: for which tool, of which blocks, counted in what."""

from enum import StrEnum


class Format(StrEnum):
    """Whose file it is."""

    PPROF = "pprof"
    FOLDED = "folded"
    SPEEDSCOPE = "speedscope"
    PERFETTO = "perfetto"


class What(StrEnum):
    """Which of a stack's blocks are counted."""

    LIVE_AT_PEAK = "live-at-peak"
    LIVE_AT_END = "live-at-end"
    ALLOCATED = "allocated"
    SHORT_LIVED = "short-lived"


class Unit(StrEnum):
    """In what."""

    BYTES = "bytes"
    BLOCKS = "blocks"
