"""What a reader sees never contradicts itself: marks, sentence, letters and recommendation.

A thousand made studies, shown as a terminal shows them: some with real differences, some without,
some too small to matter, with unequal scatter, failed trials and few blocks.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pytest
from design_data import MEMORY, WALL, study_of, trial_of
from heapfit.advice import recommend
from heapfit.findings import Advice
from heapfit.records import Metric, Study, Trial, TrialStatus
from heapfit.report import terminal
from heapfit.report.conclusions import conclude
from heapfit.report.findings_words import headline
from heapfit.report.letters import grids
from heapfit.report.reading import Findings
from heapfit.report.results import Results
from heapfit.statistics import read, summarise
from heapfit.text import TERMINAL_DIGITS
from rich.console import Console

pytestmark = pytest.mark.full

STUDIES = 1000
SETTING = (1, ())
NAMES = ["glibc", "alpha", "bravo", "delta", "gamma", "omega"]
METRICS = (WALL, MEMORY)


@dataclass(frozen=True)
class Cell:
    """What a cell of the table says besides its median."""

    starred: bool
    undecided: bool
    ratio: str

    @property
    def better(self) -> bool:
        """Shown to be better than the baseline, as far as its decimals can tell."""
        return not self.undecided and float(self.ratio[:-1]) < 1


@dataclass(frozen=True)
class Shown:
    """A study as it is shown, by metric."""

    cells: dict[str, dict[str, Cell]]
    sentences: dict[str, str]
    letters: dict[str, dict[str, str]]
    advice: Advice
    results: Results

    def matters(self, metric: Metric, name: str) -> bool:
        verdict = self.results.against_baseline(SETTING, metric, name)
        return verdict is not None and verdict.matters


def made(generator: np.random.Generator) -> tuple[Study, list[Trial]]:
    """A study of few allocators whose true differences and scatter are drawn."""
    names = NAMES[: generator.integers(2, len(NAMES) + 1)]
    study = study_of(names, {}, METRICS)
    blocks = int(generator.integers(3, 13))
    sizes = {"wall_s": generator.choice([0.02, 2.0]), "peak_rss_bytes": generator.choice([3, 300])}
    truth = generator.normal(0, generator.choice([0, 0.02, 0.1]), (len(names), len(METRICS)))
    spread = 0.02 * np.exp(generator.normal(0, 0.8, (len(names), len(METRICS))))
    trials = []
    for block in range(blocks):
        for name, true, own in zip(names, truth, spread, strict=True):
            wall, memory = np.exp(true + generator.normal(0, own))
            figures = {
                "wall_s": float(sizes["wall_s"] * wall),
                "peak_rss_bytes": float(round(sizes["peak_rss_bytes"] * memory * 256) * 4096),
            }
            failed = generator.random() < 0.02
            status = TrialStatus.FAILED if failed else TrialStatus.OK
            trials.append(trial_of(study, (name,), {} if failed else figures, block, status))
    return study, trials


def shown(study: Study, trials: list[Trial]) -> Shown:
    readings = read(study, trials)
    results = Results(summarise(readings))
    advice = recommend(readings, {})
    console = Console(file=io.StringIO(), width=200)
    terminal.render(results.summary, console, Findings(advice=advice))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert headline(advice) in text
    table = text[text.index("1 core") :]
    cells: dict[str, dict[str, Cell]] = {metric.name: {} for metric in METRICS}
    for allocator in study.allocators:
        line = next(li for li in table.splitlines() if li.startswith(allocator.name))
        found = re.findall(r"[\d.,] *(\*?)(~?)(\d+\.\d\d+x)", line)
        for metric, (star, mark, ratio) in zip(METRICS, found, strict=True):
            cells[metric.name][allocator.name] = Cell(star == "*", bool(mark), ratio)
    sentences = {metric.name: conclude(results, SETTING, metric) for metric in METRICS}
    assert all(sentence in " ".join(text.split()) for sentence in sentences.values())
    return Shown(cells, sentences, _letters(results), advice, results)


def _letters(results: Results) -> dict[str, dict[str, str]]:
    found = {}
    for metric in METRICS:
        made_of = grids(results, metric, results.scale(metric, TERMINAL_DIGITS))
        rows = {name: cells[0] for grid in made_of for name, cells in grid.rows}
        found[metric.name] = {n: cell.letters.strip("()") for n, cell in rows.items() if cell}
    return found


def contradictions(seen: Shown) -> Iterator[str]:
    for metric in METRICS:
        yield from _of_metric(seen, metric)
    yield from _of_advice(seen)


def _of_metric(seen: Shown, metric: Metric) -> Iterator[str]:
    cells, letters = seen.cells[metric.name], seen.letters[metric.name]
    sentence = seen.sentences[metric.name]

    def share(first: str, second: str) -> bool:
        return bool(set(letters[first]) & set(letters[second]))

    for name, cell in cells.items():
        told = {name, "glibc"} <= letters.keys()
        if name != "glibc" and cell.undecided != (not told or share(name, "glibc")):
            yield f"mark and letters of {name}"
        if name != "glibc" and not cell.undecided and float(cell.ratio[:-1]) == 1:
            yield f"a difference of {name} that reads {cell.ratio}"
    if not letters:
        if "nothing can be shown" not in sentence and "nothing to compare" not in sentence:
            yield "a conclusion from nothing"
        return
    alike = all(share(first, second) for first in letters for second in letters)
    if alike != ("no difference can be shown" in sentence):
        yield "letters and sentence on whether anything differs"
    leader = re.search(r", (\w+) (?:leads|has the best mean)", sentence)
    if leader is None:
        if not alike:
            yield "nobody leads where some differ"
        return
    best = leader[1]
    starred = [name for name, cell in cells.items() if cell.starred]
    if starred != [best]:
        yield f"star of {starred}, leader {best}"
    tied = {name for name in letters if name != best and share(name, best)}
    if "ahead of all the others" in sentence and tied:
        yield f"ahead of all, though {tied} share a letter"
    for name in letters:
        if name != best and (name in _tied(sentence)) != (name in tied):
            yield f"tied with {best}: {name}"
    for ratio in re.findall(r"\d+\.\d\d+x", sentence):
        if ratio not in {cells[name].ratio for name in (best, *tied)}:
            yield f"ratio {ratio} of the sentence is in no cell"


def _tied(sentence: str) -> set[str]:
    """Whom the sentence says not to be told apart from the leader."""
    if "none of the others" in sentence:
        return set(NAMES)
    told = re.search(r"leads; (.*) cannot be told apart", sentence)
    return set(re.findall(r"\w+", told[1])) if told else set()


def _of_advice(seen: Shown) -> Iterator[str]:
    advice = seen.advice
    better = {
        name: [
            m.name for m in METRICS if _counts(seen, m, name) and seen.cells[m.name][name].better
        ]
        for name in seen.cells["wall_s"]
        if name != "glibc"
    }
    worse = {
        name: [
            m.name
            for m in METRICS
            if _counts(seen, m, name) and not seen.cells[m.name][name].better
        ]
        for name in better
    }
    if advice.recommended not in (None, "glibc") and not better[advice.recommended]:
        yield f"{advice.recommended} is recommended, though no cell shows it to be better"
    if advice.recommended in (None, "glibc"):
        # Who fails more often than the baseline is left out, and a note says so.
        left_out = {name for name in better if f"{name} is left out: " in " ".join(advice.notes)}
        for name in better.keys() - left_out:
            if better[name] and not worse[name]:
                yield f"{headline(advice)}, though {name} is shown to be better and not worse"
    if said := re.search(
        r"cannot be told apart from (.+?)(?:, and (?:differs|is)|[.:])", advice.reasons
    ):
        for metric in (each for each in METRICS if each.name in advice.metrics.values()):
            letters = seen.letters[metric.name]
            first = letters.get(advice.standings[0].allocator)
            for name in set(re.findall(r"\w+", said[1])) & letters.keys():
                if first and not set(first) & set(letters[name]):
                    yield f"{name} is told apart in {metric.name}"
    if advice.recommended is None and "may be chance" in advice.reasons:
        for metric in (each for each in METRICS if each.name in advice.metrics.values()):
            # Of those that take part: who fails more often than the baseline is left out.
            letters = seen.letters[metric.name]
            compared = [s.allocator for s in advice.standings if s.allocator in letters]
            marks = [set(letters[name]) for name in compared]
            if not all(first & second for first, second in combinations(marks, 2)):
                yield f"no significant difference, beside one in {metric.name}"
    if advice.recommended is not None and all(
        "no difference can be shown" in sentence for sentence in seen.sentences.values()
    ):
        yield "a recommendation where nothing differs"


def _counts(seen: Shown, metric: Metric, name: str) -> bool:
    return not seen.cells[metric.name][name].undecided and seen.matters(metric, name)


@pytest.mark.parametrize(
    ("seed", "studies"), [(1, 120), pytest.param(20251123, STUDIES, marks=pytest.mark.full)]
)
def test_made_studies_do_not_contradict_themselves(seed: int, studies: int) -> None:
    generator = np.random.default_rng(seed)
    kinds: set[str] = set()
    for number in range(studies):
        seen = shown(*made(generator))
        assert list(contradictions(seen)) == [], f"study {number}: {seen}"
        kinds.add(headline(seen.advice).split()[0])
        words = ("leads;", "ahead", "no difference", "too little")
        kinds |= {w for w in words if any(w in each for each in seen.sentences.values())}
    kinds.discard("Nothing")  # that can be said yet: there are few with so few trials
    assert kinds == {"Recommended:", "Keep", "No", "leads;", "ahead", "no difference", "too little"}
