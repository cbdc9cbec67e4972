"""Which metrics there are, and where each comes from on this machine.

The built-in metrics are measured in every trial: they cost next to nothing. The optional ones are
measured when a study asks for them by name. Some have more than one source (counted by the
processor, or simulated). The first that works on this machine is used, and the `source` of the
study's `Metric` says which. A study keeps that source to its end, on every machine.
"""

from collections.abc import Iterable, Sequence

from heapfit.errors import HeapfitError, unknown
from heapfit.records import Metric, Study
from heapfit.trial.own_libraries import PoolExplanations, Recordings
from heapfit.trial.perf import COUNTERS, KernelFragmentation
from heapfit.trial.resources import Memory, ProportionalMemory, Resources
from heapfit.trial.simulation import SimulatedCaches, SimulatedTlb
from heapfit.trial.source import Source
from heapfit.trial.system_calls import StracedCalls, TracedCalls

BUILTIN_SOURCES: tuple[type[Source], ...] = (Resources, Memory)

# Of two sources of one metric the better comes first.
OPTIONAL_SOURCES: tuple[type[Source], ...] = (
    ProportionalMemory,
    KernelFragmentation,
    TracedCalls,
    StracedCalls,
    *COUNTERS,
    SimulatedCaches,
    SimulatedTlb,
    PoolExplanations,
    Recordings,
)
_ALL_SOURCES = (*BUILTIN_SOURCES, *OPTIONAL_SOURCES)

BUILTIN_METRICS = [metric for source in BUILTIN_SOURCES for metric in source.metrics]
BUILTIN_METRIC_NAMES = [metric.name for metric in BUILTIN_METRICS]
OPTIONAL_METRIC_NAMES = list(
    dict.fromkeys(metric.name for source in OPTIONAL_SOURCES for metric in source.metrics)
)
METRIC_NAMES = [*BUILTIN_METRIC_NAMES, *OPTIONAL_METRIC_NAMES]


# Why a source does not work here, or None; asked once, since some have to try.
_reasons: dict[type[Source], str | None] = {}


def _why_not(source: type[Source]) -> str | None:
    if source not in _reasons:
        _reasons[source] = source.unavailable()
    return _reasons[source]


def _ways(name: str) -> list[tuple[type[Source], Metric]]:
    """Return the sources of a metric, each with its description of it, the best first."""
    return [
        (each, metric) for each in _ALL_SOURCES for metric in each.metrics if metric.name == name
    ]


def unavailable_metrics(names: Iterable[str] | None = None) -> dict[str, str]:
    """Return which of the metrics `names` this machine cannot give, each with the reason.

    Without `names`, of all metrics. This takes some milliseconds where a tool has to be tried.
    """
    asked = METRIC_NAMES if names is None else names
    reasons = {name: _reason(name) for name in asked}
    return {name: reason for name, reason in reasons.items() if reason is not None}


def _reason(name: str) -> str | None:
    """Return why no source of `name` works here; None if one does."""
    reasons = [_why_not(source) for source, _ in _ways(name)]
    if None in reasons:
        return None
    return "; ".join(dict.fromkeys(reason for reason in reasons if reason))


def find_metric(name: str) -> Metric:
    """Return the metric `name` as this machine can give it.

    Raises `UsageError` for an unknown name, `HeapfitError` where this machine cannot give it.
    """
    ways = _ways(name)
    if not ways:
        raise unknown("metric", name, METRIC_NAMES)
    for source, metric in ways:
        if _why_not(source) is None:
            return metric
    raise HeapfitError(f"{name} cannot be measured on this machine: {_reason(name)}")


def find_metrics(names: Sequence[str]) -> list[Metric]:
    """Return `find_metric` of each of `names`, once and in the order of the lists above."""
    found = {name: find_metric(name) for name in names}
    return sorted(found.values(), key=lambda metric: METRIC_NAMES.index(metric.name))


def sources_of(study: Study) -> list[type[Source]]:
    """Return the sources that the metrics of `study` come from.

    Raises `HeapfitError` if one does not work on this machine: another source would give figures
    that must not be compared with the study's.
    """
    wanted = {(metric.name, metric.source) for metric in study.metrics}
    chosen = []
    for source in _ALL_SOURCES:
        asked = [metric.name for metric in source.metrics if (metric.name, metric.source) in wanted]
        reason = _why_not(source) if asked else None
        if reason is not None:
            raise HeapfitError(f"{asked[0]} cannot be measured on this machine: {reason}")
        if asked:
            chosen.append(source)
    _check_known(study, chosen)
    return chosen


def _check_known(study: Study, chosen: Sequence[type[Source]]) -> None:
    """Refuse a study of another version of heapfit that measured something in another way."""
    given = {metric.name for source in chosen for metric in source.metrics}
    named = {metric.name for source in _ALL_SOURCES for metric in source.metrics}
    for metric in study.metrics:
        if metric.name in named - given:
            raise HeapfitError(
                f"the study takes {metric.name} by another way ({metric.source}) than this "
                "version of heapfit can; start it again"
            )
