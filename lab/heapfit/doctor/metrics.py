"""Which metrics this machine can give, how, and what would help with those that it cannot."""

from __future__ import annotations

from heapfit.doctor.finding import Finding
from heapfit.trial import BUILTIN_METRIC_NAMES, METRIC_NAMES, find_metric, unavailable_metrics


def examine() -> list[Finding]:
    """Return a finding for each metric: first the built-in ones, then those to be asked for."""
    missing = unavailable_metrics()
    return [_metric(name, missing) for name in METRIC_NAMES]


def _metric(name: str, missing: dict[str, str]) -> Finding:
    topic = f"metric {name}"
    if name in missing:
        return Finding(topic=topic, state="not available", advice=missing[name])
    when = "in every trial" if name in BUILTIN_METRIC_NAMES else "when asked for"
    return Finding(topic=topic, state=f"{when}: {find_metric(name).source}")
