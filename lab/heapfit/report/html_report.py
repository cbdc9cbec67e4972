"""The report of a study as one HTML page: what it shows, in which order. `page.py` makes it."""

from __future__ import annotations

import shlex
from pathlib import Path

from markupsafe import Markup

from heapfit.records import InstalledAllocator, Summary
from heapfit.report import drift as drifts
from heapfit.report import figures, html_findings, html_trials
from heapfit.report.analysis import Findings
from heapfit.report.conclusions import DIFFERENCES, MERE_RANGES, NOTHING, alone, by_setting
from heapfit.report.deployment import deployment
from heapfit.report.design import precision_reached
from heapfit.report.files import write_text
from heapfit.report.machine import machine_facts
from heapfit.report.page import FigureStore, render
from heapfit.report.problems import Problem, problems, remarks
from heapfit.report.results import Results
from heapfit.report.settings import factor_title, level_text, setting_label
from heapfit.report.variants import explained
from heapfit.statistics import Readings, analysed_metrics
from heapfit.text import visible


def write(
    summary: Summary, readings: Readings, path: Path, findings: Findings | None = None
) -> None:
    """Write the page to `path`. `readings` are what `summary` is of."""
    write_text(path, page(summary, readings, findings))


def page(summary: Summary, readings: Readings, findings: Findings | None = None) -> str:
    """Return the page's HTML."""
    results = Results(summary)
    findings = findings or Findings()
    store = FigureStore()
    analysed = analysed_metrics(summary.study)
    advice = html_findings.advice_view(findings.advice, results, store)
    found = html_findings.finding_sections(results, findings, analysed, store)
    sections, thinned = html_trials.sections(results, readings, analysed, store)
    return render(
        "report.html.j2",
        store,
        summary=summary,
        study=summary.study,
        title=summary.study.title or summary.study.name,
        command=shlex.join(summary.study.command),
        folds=html_trials.folds(results),
        factors=_factors(summary),
        advice=advice,
        deployment=deployment(summary.study, findings.advice),
        findings=found,
        conclusions=_conclusions(results),
        overviews=html_trials.overviews(results),
        metrics=results.metrics,
        units={metric.name: html_trials.unit_of(results, metric) for metric in results.metrics},
        problems=[_problem_view(problem) for problem in problems(summary)],
        remarks=remarks(summary),
        precision=precision_reached(summary),
        sections=sections,
        drift=_drift(results, readings, store),
        allocators=summary.study.allocators,
        explained=explained,
        library_text=_library_text,
        machine=machine_facts(summary.study.machine),
        mere_ranges=MERE_RANGES if results.has_mere_ranges else None,
        differences=DIFFERENCES.format(results.baseline) if results.has_differences else None,
        thinned=thinned,
        generator=f"heapfit {summary.study.heapfit_version}",
    )


def _factors(summary: Summary) -> list[tuple[str, str]]:
    """The factors beyond allocators and cores with their levels, and parameters that are set."""
    study = summary.study
    varied = [
        (factor_title(factor.name), ", ".join(map(level_text, factor.levels)))
        for factor in study.factors
    ]
    return varied + [(factor_title(k), level_text(v)) for k, v in study.parameters.items()]


def _conclusions(results: Results) -> list[tuple[str, list[str]]]:
    """The conclusions under their setting, which goes unsaid where there is one only."""
    if not results.metrics:
        return [("", [NOTHING])]
    if said := alone(results):
        return [("", said)]
    several = len(results.settings) > 1
    return [
        (setting_label(setting) if several else "", sentences)
        for setting, sentences in by_setting(results)
    ]


def _drift(results: Results, readings: Readings, store: FigureStore) -> dict[str, str] | None:
    primary = next((m for m in results.metrics if m.name == results.study.primary_metric), None)
    found = drifts.deviations(readings, primary) if primary else None
    if primary is None or found is None or not len(found.rows):
        return None
    return {
        "figure": store.add(figures.drift(results, readings, found, primary)),
        "sentence": drifts.describe(found, primary),
        "label": primary.label,
    }


def _problem_view(problem: Problem) -> dict[str, str]:
    tail = problem.first.stderr_tail.strip()
    return {
        "sentence": problem.sentence,
        "stderr": Markup("\n").join(visible(line) for line in tail.splitlines()),
        "places": problem.places,
    }


def _library_text(allocator: InstalledAllocator) -> str:
    return str(allocator.library) if allocator.library else "the system's own"
