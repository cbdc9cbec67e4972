"""One honest sentence per metric: who leads, who cannot be told apart, or that nothing can be said.

The rule: two allocators can be told apart when their 95 % intervals do not overlap. That is
stricter than a test of their difference at 5 % (non-overlap of two such intervals corresponds to
roughly p < 0.01 for independent estimates: Cumming and Finch, "Inference by eye", American
Psychologist 60, 2005), so the sentence errs towards "cannot be told apart".
"""

from __future__ import annotations

from heapfit.records import Metric
from heapfit.report.results import FEWEST_TRIALS, Results
from heapfit.report.text import capitalised, counted, join_words, visible
from heapfit.report.units import TERMINAL_DIGITS, ratio

MERE_RANGES = (
    f"Where fewer than {FEWEST_TRIALS} trials succeeded, the interval is only their range, which "
    "holds the true median with less than 95 % confidence."
)
NOTHING = "No trial succeeded, so there is nothing to compare."

# Memory is the other side of every trade that an allocator makes.
_SECOND_METRIC = "peak_rss_bytes"


def headline_metrics(results: Results) -> list[Metric]:
    """The metrics that a conclusion is drawn for: the primary one and peak memory."""
    primary = results.study.primary_metric
    return [m for m in results.metrics if m.name in (primary, _SECOND_METRIC)]


def conclude(results: Results, cores: int, metric: Metric) -> str:
    """Return what the trials say about one metric at one number of cores, as one sentence."""
    estimates = results.estimates(cores, metric)
    where = f"on {_mid_sentence(metric.label)}"
    if not estimates:
        return f"No trial gave a figure for {_mid_sentence(metric.label)}: nothing can be said."
    if len(estimates) == 1:
        only = visible(estimates[0].allocator)
        return f"Only {only} has a figure {where}: there is nothing to compare it with."
    sound = [e.allocator for e in estimates if e.n >= FEWEST_TRIALS]
    if len(sound) < 2:
        return _too_few(results, cores, metric)
    verdict = capitalised(_compare(results, cores, metric, where, sound))
    thin = [visible(e.allocator) for e in estimates if e.allocator not in sound]
    if not thin:
        return verdict
    return f"{verdict} Left out, with fewer than {FEWEST_TRIALS} trials: {join_words(thin)}."


def by_cores(results: Results) -> list[tuple[int, list[str]]]:
    """Return the conclusions of the whole study: for each number of cores, its sentences."""
    metrics = headline_metrics(results)
    return [(cores, [conclude(results, cores, m) for m in metrics]) for cores in results.cores]


def overall(results: Results) -> list[str]:
    """Return the same as plain lines, labelled with the cores where a study has several."""
    if not results.metrics:
        return [NOTHING]
    several = len(results.cores) > 1
    return [
        (f"{counted(cores, 'core')}: " if several else "") + sentence
        for cores, sentences in by_cores(results)
        for sentence in sentences
    ]


def _compare(results: Results, cores: int, metric: Metric, where: str, among: list[str]) -> str:
    tied = results.leaders(cores, metric, among)
    leaders = [name for name in results.ranked(cores, metric) if name in tied]
    names = join_words([visible(name) for name in leaders])
    if len(leaders) == len(among):
        return f"{where}, no difference can be shown between {names}."
    figures = _figures(results, cores, metric, leaders)
    if len(leaders) > 1:
        return f"{where}, {names} lead and cannot be told apart ({figures})."
    return f"{where}, {names} leads, ahead of all the others ({figures})."


def _too_few(results: Results, cores: int, metric: Metric) -> str:
    fewest, most = results.trials_per_cell(cores, metric)
    trials = counted(most, "trial") if fewest == most else f"{fewest} to {counted(most, 'trial')}"
    best = results.ranked(cores, metric)[0]
    return (
        f"{trials} per allocator cannot settle {_mid_sentence(metric.label)}: "
        f"a 95 % interval needs {FEWEST_TRIALS}. {visible(best)} has the best median so far "
        f"({_figures(results, cores, metric, [best])})."
    )


def _figures(results: Results, cores: int, metric: Metric, names: list[str]) -> str:
    """The names' ratios to the baseline, or their medians where a ratio is missing."""
    found = [e for name in names if (e := results.estimate(cores, metric, name)) is not None]
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
