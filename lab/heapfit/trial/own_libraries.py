"""Metric sources: what heapfit's own libraries write about a run."""

from pathlib import Path
from tempfile import TemporaryDirectory

from heapfit.errors import UsageError
from heapfit.pools import VARIABLE, Explanation, main_process, read
from heapfit.record.written import examine
from heapfit.records import Metric
from heapfit.trial.launcher import Ended
from heapfit.trial.source import Source, SourceFailed, cost

# The folder, in that of a run, which the recorder writes to.
RECORDINGS = "recordings"

_HEADERS = "the headers of the recorder's files"
_EXPLANATION = "libheapfit-pools.so's explanation of a run of its own"


class Recordings(Source):
    """What heapfit's recorder wrote while the program was timed.

    A study's variant asks for it (`record`). Under any other treatment there is nothing, and the
    figures are missing. All processes of the program count together.
    """

    metrics = (
        Metric(
            name="recorded_events",
            label="Events recorded",
            unit="count",
            better="higher",
            source=_HEADERS,
        ),
        cost("recorded_bytes_per_event", "Recording, for each event", "bytes", _HEADERS),
    )

    def __init__(self) -> None:
        self._folder: Path | None = None

    def wrap(self, command: list[str], folder: Path) -> list[str]:
        self._folder = folder / RECORDINGS
        return command

    def figures(self, ended: Ended) -> dict[str, float]:
        files = [examine(path) for path in self._folder.iterdir()] if self._folder else []
        events = sum(each.events for each in files)
        if not events:
            return {}
        size = sum(each.size for each in files)
        return {"recorded_events": float(events), "recorded_bytes_per_event": size / events}


class PoolExplanations(Source):
    """What libheapfit-pools.so says of its own work when a process ends (`heapfit.pools`).

    Writing it takes a moment, so it gets a run of its own. Under another library, or where the
    process does not end in order, there is none, and the figures are missing. Of several processes
    the one with the most objects counts.
    """

    metrics = (
        cost("pool_chain_length", "Mean length of a call chain", "calls", _EXPLANATION),
        cost("pool_instructions", "Instructions decoded for a new chain", "count", _EXPLANATION),
        cost("pool_analysis_s", "Median time to analyse a new chain", "s", _EXPLANATION),
        cost("pool_groups", "Groups of objects", "count", _EXPLANATION),
        cost("pool_count", "Pools", "count", _EXPLANATION),
        Metric(
            name="pool_merged_share",
            label="Part of pools' memory with merged groups",
            unit="",
            better="higher",
            source=_EXPLANATION,
        ),
    )
    own_run = True
    slowdown = 2.0

    def __init__(self) -> None:
        # The library takes no path of more than 255 bytes, and a trial's own folder may lie deep.
        self._folder = TemporaryDirectory(prefix="heapfit-pools-")

    def wrap(self, command: list[str], folder: Path) -> list[str]:
        return ["env", f"{VARIABLE}={self._folder.name}/%p.json", *command]

    def figures(self, ended: Ended) -> dict[str, float]:
        try:
            found = [read(path) for path in Path(self._folder.name).iterdir()]
        except UsageError as error:
            raise SourceFailed(str(error)) from error
        return _figures(main_process(found)) if found else {}

    def close(self) -> None:
        self._folder.cleanup()


def _figures(explanation: Explanation) -> dict[str, float]:
    chains = explanation.counter("chains")
    figures = {
        "pool_groups": float(len(explanation.groups)),
        "pool_count": float(len(explanation.pools)),
        "pool_merged_share": explanation.merged_share(),
    }
    if chains:
        figures |= {
            "pool_chain_length": explanation.counter("chain_length_mean"),
            "pool_instructions": explanation.counter("instructions_decoded") / chains,
            "pool_analysis_s": explanation.counter("analysis_ns_median") * 1e-9,
        }
    return figures
