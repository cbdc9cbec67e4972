"""The report as Markdown: to paste into an issue, a pull request or a wiki.

GitHub's dialect (tables). Everything that comes from the user is escaped, so that a name cannot
break a table or become markup.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from heapfit.records import Estimate, Metric, Setting, Summary
from heapfit.report import markdown_findings
from heapfit.report.analysis import Findings
from heapfit.report.conclusions import DIFFERENCES, MERE_RANGES, UNDECIDED, overall
from heapfit.report.deployment import deployment
from heapfit.report.files import write_text
from heapfit.report.machine import machine_facts
from heapfit.report.markdown import bullets, code, escape
from heapfit.report.problems import problems, remarks
from heapfit.report.results import Results
from heapfit.report.settings import setting_label
from heapfit.report.units import PAGE_DIGITS
from heapfit.report.variants import explained


def dumps(summary: Summary, findings: Findings | None = None) -> str:
    """Return the report as Markdown text."""
    results = Results(summary)
    study = summary.study
    findings = findings or Findings()
    parts = [f"# {escape(study.title or study.name)}"]
    parts += markdown_findings.recommendation(findings)
    parts += [bullets(overall(results)), *markdown_findings.sections(results, findings)]
    parts += [_table(results, setting) for setting in results.settings if results.metrics]
    troubles = [problem.sentence for problem in problems(summary)] + remarks(summary)
    if troubles:
        parts += ["## Problems", bullets(troubles)]
    if lines := deployment(study, findings.advice):
        parts += ["## How to run what is recommended", *map(code, lines)]
    parts += ["## How to repeat this", code(study.reproduce)]
    parts += ["The command under study:", code(shlex.join(study.command))]
    parts += ["## Allocators", _allocators(summary), "## Machine", _machine(summary)]
    return "\n\n".join(parts) + "\n"


def write(summary: Summary, path: Path, findings: Findings | None = None) -> None:
    """Write the report to `path`."""
    write_text(path, dumps(summary, findings))


def _table(results: Results, setting: Setting) -> str:
    metrics = results.metrics
    head = [
        results.study.noun,
        *(escape(f"{m.label} {_unit(results, m)}".strip()) for m in metrics),
    ]
    rows = [
        [escape(name), *(_cell(results, setting, m, name) for m in metrics)]
        for name in results.ranked(setting, metrics[0])
    ]
    lines = [head, ["---", *("---:" for _ in metrics)], *rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    caption = (
        f"Median, its 95 % interval, and the ratio of means to {escape(results.baseline)}, with "
        f"{escape(UNDECIDED)} where no difference is shown; the best mean of each column in bold."
    )
    if results.has_differences:
        caption += f" {escape(DIFFERENCES.format(results.baseline))}"
    if results.has_mere_ranges:
        caption += f" {escape(MERE_RANGES)}"
    return f"## {escape(setting_label(setting))}\n\n{table}\n\n{caption}"


def _unit(results: Results, metric: Metric) -> str:
    unit = results.scale(metric, PAGE_DIGITS).unit
    return f"({unit})" if unit else ""


def _cell(results: Results, setting: Setting, metric: Metric, name: str) -> str:
    estimate = results.estimate(setting, metric, name)
    if estimate is None:
        return "n/a"
    scale = results.scale(metric, PAGE_DIGITS)
    median = scale.number(estimate.median)
    shown = f"**{median}**" if name in results.best(setting, metric) else median
    mark = UNDECIDED if results.undecided(setting, metric, name) else ""
    relative = results.relative(setting, metric, name, scale, "x", 2)
    parts = [shown, _interval(results, metric, estimate), relative and escape(mark + relative)]
    return " ".join(filter(None, parts))


def _interval(results: Results, metric: Metric, estimate: Estimate) -> str:
    if estimate.n < 2:
        return ""
    scale = results.scale(metric, PAGE_DIGITS)
    return f"({scale.number(estimate.low)} to {scale.number(estimate.high)})"


def _allocators(summary: Summary) -> str:
    lines = ["| allocator | what | version | library | SHA-256 |", f"| {' | '.join(['---'] * 5)} |"]
    for allocator in summary.study.allocators:
        library = escape(str(allocator.library)) if allocator.library else "the system's own"
        digest = escape(allocator.sha256 or "")
        named = [escape(allocator.name), escape(explained(allocator)), escape(allocator.version)]
        cells = [*named, library, digest]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _machine(summary: Summary) -> str:
    return bullets([f"{label}: {value}" for label, value in machine_facts(summary.study.machine)])
