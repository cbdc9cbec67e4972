"""Put what is wrong with a trace's file into words."""

import os

from heapfit.text import counted
from heapfit.trace.native import NO_SITES, Problems


def sentences(found: Problems) -> list[str]:
    """Return what is wrong with a file, a sentence each.

    >>> sentences(Problems(lost_events=1, missing_blocks=2))
    ['The file lacks 2 blocks.', 'The recorder could not keep 1 event.']
    """
    told = (
        (
            found.cut_short,
            "The recording has no end: its process was killed, or is still being recorded. Later "
            "events are not in it.",
        ),
        (found.error, f"Reading ended early: {os.strerror(found.error).lower()}."),
        (
            found.damaged_blocks,
            f"Damage in the file was skipped: {counted(found.damaged_blocks, 'block')}.",
        ),
        (
            found.damaged_bytes,
            f"Damage in the file was skipped: {counted(found.damaged_bytes, 'byte')} between "
            "blocks.",
        ),
        (found.missing_blocks, f"The file lacks {counted(found.missing_blocks, 'block')}."),
        (
            found.gap_ns,
            f"Nothing was recorded for {found.gap_ns / 1e9:.3g} s between the parts that were "
            "merged. What became of the blocks that were live then is not known: they count as "
            "freed at the end of their part.",
        ),
        (
            found.unknown_blocks,
            f"The file has {counted(found.unknown_blocks, 'block')} of unknown kinds, left out.",
        ),
        (
            found.sites_limit,
            "There were more call chains than the recorder keeps: "
            + (
                "later ones have no call site"
                if found.sites_limit == NO_SITES
                else "of later ones, only the innermost address is known"
            )
            + ". Record with fewer --sites to have them all.",
        ),
        (found.lost_events, f"The recorder could not keep {counted(found.lost_events, 'event')}."),
        (
            found.late_events,
            f"{counted(found.late_events, 'event')} came late: the time there is inexact.",
        ),
        (
            found.backward_clocks,
            f"The clock went backwards at {counted(found.backward_clocks, 'event')}.",
        ),
    )
    return [sentence for wrong, sentence in told if wrong]
