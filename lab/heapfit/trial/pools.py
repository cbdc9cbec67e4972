"""Metric source: what libheapfit-pools.so says of its own work.

The library writes an explanation when a process ends (`heapfit.pools`). That takes a moment, so a
run of its own is made for it. Under another library, or where the process does not end in order,
there is none, and the figures are missing. Of several processes that with the most objects counts.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from heapfit.errors import UsageError
from heapfit.pools import VARIABLE, Explanation, main_process, read
from heapfit.records import Metric
from heapfit.trial.launcher import Ended
from heapfit.trial.source import Source, SourceFailed


def _metric(
    name: str, label: str, unit: str, better: Literal["lower", "higher"] = "lower"
) -> Metric:
    source = "libheapfit-pools.so's explanation of a run of its own"
    return Metric(name=name, label=label, unit=unit, better=better, source=source)


class PoolExplanations(Source):
    metrics = (
        _metric("pool_chain_length", "Mean length of a call chain", "calls"),
        _metric("pool_instructions", "Instructions decoded for a new chain", "count"),
        _metric("pool_analysis_s", "Median time to analyse a new chain", "s"),
        _metric("pool_groups", "Groups of objects", "count"),
        _metric("pool_count", "Pools", "count"),
        _metric("pool_merged_share", "Part of pools' memory with merged groups", "", "higher"),
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
