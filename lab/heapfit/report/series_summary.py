"""Sum a series up from its folder, finished or not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from heapfit.records import FigureDefinition, Series, SeriesSummary, Study, Summary, Trial
from heapfit.statistics import compare_with_peers, read, summarise
from heapfit.study import load_problems, load_series


def summarise_series(folder: Path) -> SeriesSummary:
    """Return the summary of what has been measured so far in the series' `folder`."""
    series, measured = load_series(folder)
    summaries = {name: summarise(read(*each)) for name, each in measured.items()}
    return summarise_parts(folder, series, measured, summaries)


def summarise_parts(
    folder: Path,
    series: Series,
    measured: Mapping[str, tuple[Study, list[Trial]]],
    summaries: Mapping[str, Summary],
) -> SeriesSummary:
    """Return the same from parts that are loaded and summed up already."""
    names = [allocator.name for allocator in series.allocators]
    definition = series.definition
    return SeriesSummary(
        series=series,
        figures=[
            compare_with_peers(
                figure,
                [measured[name] for name in _parts_of(figure, series) if name in measured],
                names,
                definition.subject_of(figure),
            )
            for figure in definition.figures
        ],
        workloads={name: summaries[name] for name in series.workloads if name in summaries},
        probes={name: summaries[name] for name in series.probes if name in summaries},
        experiments={name: summaries[name] for name in series.experiments if name in summaries},
        problems=load_problems(folder),
    )


def _parts_of(figure: FigureDefinition, series: Series) -> list[str]:
    """Return the parts that a figure combines."""
    if not figure.experiments:
        return series.workloads
    return [each.name for each in series.definition.experiments_of(figure)]
