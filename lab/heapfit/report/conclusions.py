"""One honest sentence per metric: who leads, who cannot be told apart, or that nothing can be said.

Where the metric has been analysed, the sentence is drawn from the analysis' own comparisons at that
setting (`tested.py`), those that its tables of letters show.

Where it has not, two allocators can be told apart when their 95 % intervals do not overlap. That is
stricter than a test of their difference at 5 % (non-overlap of two such intervals corresponds to
roughly p < 0.01 for independent estimates: Cumming and Finch, "Inference by eye", American
Psychologist 60, 2005), so the sentence errs towards "cannot be told apart".
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from heapfit.findings import Analysis
from heapfit.records import Metric, Setting
from heapfit.report.analysis import Findings
from heapfit.report.results import FEWEST_TRIALS, Results
from heapfit.report.settings import setting_label
from heapfit.report.tested import Verdict, verdict
from heapfit.report.units import TERMINAL_DIGITS, ratio
from heapfit.text import capitalised, counted, join_words, visible

MERE_RANGES = (
    f"Where fewer than {FEWEST_TRIALS} trials succeeded, the interval is only their range, which "
    "holds the true median with less than 95 % confidence."
)
NOTHING = "No trial succeeded, so there is nothing to compare."

# Memory is the other side of every trade that an allocator makes.
_MEMORY_METRICS = ("replay_peak_bytes", "peak_rss_bytes")


def headline_metrics(results: Results) -> list[Metric]:
    """The metrics that a conclusion is drawn for: the primary one and peak memory."""
    primary = results.study.primary_metric
    return [m for m in results.metrics if m.name in (primary, *_MEMORY_METRICS)]


def conclude(
    results: Results, setting: Setting, metric: Metric, analysis: Analysis | None = None
) -> str:
    """Return what the trials say about one metric in one setting, as one sentence.

    `analysis` is that of the metric, if there is one.
    """
    estimates = results.estimates(setting, metric)
    where = f"on {_mid_sentence(metric.label)}"
    if not estimates:
        return f"No trial gave a figure for {_mid_sentence(metric.label)}: nothing can be said."
    if len(estimates) == 1:
        only = visible(estimates[0].allocator)
        return f"Only {only} has a figure {where}: there is nothing to compare it with."
    found = analysis and verdict(analysis, setting, metric, results.baseline)
    if found:
        left_out = [e.allocator for e in estimates if e.allocator not in found.compared]
        return _without(_tested(results, setting, metric, where, found), left_out)
    sound = [e.allocator for e in estimates if e.n >= FEWEST_TRIALS]
    if len(sound) < 2:
        return _too_few(results, setting, metric)
    thin = [e.allocator for e in estimates if e.allocator not in sound]
    said = _compare(results, setting, metric, where, sound)
    return _without(said, thin, f", with fewer than {FEWEST_TRIALS} trials")


def _without(said: str, left_out: Sequence[str], why: str = "") -> str:
    """Add to a sentence whom it says nothing of."""
    names = join_words([visible(name) for name in left_out])
    return capitalised(said) + (f" Left out{why}: {names}." if names else "")


def by_setting(
    results: Results, findings: Findings | None = None
) -> list[tuple[Setting, list[str]]]:
    """Return the conclusions of the whole study: for each setting, its sentences."""
    analyses = findings or Findings()
    metrics = headline_metrics(results)
    return [
        (each, [conclude(results, each, m, analyses.of(m.name)) for m in metrics])
        for each in results.settings
    ]


def overall(results: Results, findings: Findings | None = None) -> list[str]:
    """Return the same as plain lines, labelled with the setting where a study has several."""
    if not results.metrics:
        return [NOTHING]
    several = len(results.settings) > 1
    return [
        (f"{setting_label(setting)}: " if several else "") + sentence
        for setting, sentences in by_setting(results, findings)
        for sentence in sentences
    ]


def _tested(results: Results, setting: Setting, metric: Metric, where: str, found: Verdict) -> str:
    if found.alike:
        names = join_words([visible(name) for name in found.compared])
        return f"{where}, no difference can be shown between {names}."
    best = visible(found.best)
    tied = [name for name in results.ranked(setting, metric) if name in found.tied]
    figures = _tested_figures(results, setting, metric, [found.best, *tied], found)
    if not tied:
        return f"{where}, {best} leads, ahead of all the others ({figures})."
    if len(tied) == len(found.compared) - 1:
        return (
            f"{where}, {best} has the best mean; none of the others can be told apart from it, "
            f"though some differ from each other ({figures})."
        )
    names = join_words([visible(name) for name in tied])
    return f"{where}, {best} leads; {names} cannot be told apart from it ({figures})."


def _tested_figures(
    results: Results, setting: Setting, metric: Metric, names: list[str], found: Verdict
) -> str:
    """The names' ratios to the baseline, of the means that were compared."""
    others = [name for name in names if name != results.baseline]
    ratios = [found.ratios.get(name, math.nan) for name in others]
    if not others or not all(map(math.isfinite, ratios)):
        return _figures(results, setting, metric, names)
    of = f" of {visible(results.baseline)}"
    if len(others) == len(names):
        return _each([ratio(each) for each in ratios], of)
    # The baseline has no ratio, so the figures no longer go with the names in their order.
    pairs = zip(others, ratios, strict=True)
    return join_words([f"{visible(name)} {ratio(each)}" for name, each in pairs]) + of


def _compare(
    results: Results, setting: Setting, metric: Metric, where: str, among: list[str]
) -> str:
    tied = results.leaders(setting, metric, among)
    leaders = [name for name in results.ranked(setting, metric) if name in tied]
    names = join_words([visible(name) for name in leaders])
    if len(leaders) == len(among):
        return f"{where}, no difference can be shown between {names}."
    figures = _figures(results, setting, metric, leaders)
    if len(leaders) > 1:
        return f"{where}, {names} lead and cannot be told apart ({figures})."
    return f"{where}, {names} leads, ahead of all the others ({figures})."


def _too_few(results: Results, setting: Setting, metric: Metric) -> str:
    fewest, most = results.trials_per_cell(setting, metric)
    trials = counted(most, "trial") if fewest == most else f"{fewest} to {counted(most, 'trial')}"
    best = results.ranked(setting, metric)[0]
    return (
        f"{trials} per allocator cannot settle {_mid_sentence(metric.label)}: "
        f"a 95 % interval needs {FEWEST_TRIALS}. {visible(best)} has the best median so far "
        f"({_figures(results, setting, metric, [best])})."
    )


def _figures(results: Results, setting: Setting, metric: Metric, names: list[str]) -> str:
    """The names' ratios to the baseline, or their medians where a ratio is missing."""
    found = [e for name in names if (e := results.estimate(setting, metric, name)) is not None]
    others = [e for e in found if e.allocator != results.baseline]
    if not others or any(results.ratio(e) is None for e in others):
        scale = results.scale(metric, TERMINAL_DIGITS)
        return f"median {_each([scale.text(e.median) for e in found])}"
    baseline = visible(results.baseline)
    if len(others) == len(found):
        return _each([ratio(results.ratio(e)) for e in others], f" of {baseline}")
    return f"the others {_each([ratio(results.ratio(e)) for e in others], f' of {baseline}')}"


def _each(figures: list[str], of: str = "") -> str:
    """Join figures, saying one that is common to all of them once."""
    if len(figures) > 1 and len(set(figures)) == 1:
        return f"{figures[0]}{of} each"
    return f"{join_words(figures)}{of}"


def _mid_sentence(label: str) -> str:
    """Return a label as it stands within a sentence: "Wall time" but "RSS", "CPU time"."""
    first = label.split(" ", 1)[0]
    plain = first[:1].isupper() and first[1:] == first[1:].lower()
    return visible(label[:1].lower() + label[1:] if plain else label)
