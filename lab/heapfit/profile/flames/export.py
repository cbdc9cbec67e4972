"""From a trace to a file for another tool."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from heapfit.profile.analyse import OnPart
from heapfit.profile.files import converted
from heapfit.profile.flames import folded, perfetto, pprof, speedscope
from heapfit.profile.flames.formats import Format, Unit, What
from heapfit.profile.flames.stacks import Stacks, count
from heapfit.profile.sections.recording import count_steps
from heapfit.profile.tally import Tally
from heapfit.profile.trace import Summary, Trace

_WRITERS: dict[Format, Callable[[Stacks, Summary, What, Unit], bytes]] = {
    Format.PPROF: pprof.write,
    Format.FOLDED: folded.write,
    Format.SPEEDSCOPE: speedscope.write,
    Format.PERFETTO: perfetto.write,
}


def export(
    path: Path,
    made: Format,
    what: What = What.LIVE_AT_PEAK,
    unit: Unit = Unit.BYTES,
    on_part: OnPart | None = None,
) -> bytes:
    """Return the file that a trace, or the folder of its tables, becomes.

    Raises HeapfitError for what cannot be read.
    """
    aside = tempfile.TemporaryDirectory(prefix="heapfit-export-")
    with converted(path, None, on_part) as folder, aside, Trace(folder, Path(aside.name)) as trace:
        count_steps(trace, Tally())  # which finds the time of the peak
        return _WRITERS[made](count(trace), trace.summary, what, unit)
