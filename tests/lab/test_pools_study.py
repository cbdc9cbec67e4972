"""The study pools: the paper's figures on relatives of its programs."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from heapfit import paths
from heapfit.catalogue import allocators_of, libraries_of, load_workloads, workloads_of
from heapfit.catalogue.studies import load_studies
from heapfit.catalogue.variants import check_variants
from heapfit.options import OPTIONS
from heapfit.records import (
    ALLOCATOR,
    CORES,
    Experiment,
    FigureDefinition,
    PublishedTable,
    StudyDefinition,
)
from heapfit.trial.metrics import METRIC_NAMES

pytestmark = pytest.mark.full

STUDY = Path(__file__).resolve().parents[2] / "studies" / "pools.toml"
PAPERS_PROGRAMS = 12


@pytest.fixture(scope="module")
def study() -> StudyDefinition:
    return load_studies()["pools"]


def family(study: StudyDefinition, name: str) -> list[Experiment]:
    return [each for each in study.experiments if name in (each.family, each.name)]


def figure(study: StudyDefinition, name: str) -> FigureDefinition:
    (found,) = [each for each in study.figures if each.name == name]
    return found


def compared(experiment: Experiment) -> set[str]:
    return set(map(str, experiment.factors[ALLOCATOR]))


def test_every_workload_and_metric_exists(study: StudyDefinition) -> None:
    for each in study.experiments:
        (workload,) = workloads_of(study, [each.workload])
        assert {*METRIC_NAMES, *(metric.name for metric in workload.metrics)} >= set(each.metrics)
        assert set(each.factors) <= {ALLOCATOR, CORES, *workload.parameters}


def test_every_treatment_is_compared_and_differs_from_the_others(study: StudyDefinition) -> None:
    check_variants(STUDY, study)
    assert set(libraries_of(study, allocators_of(study))) == set(study.allocators)
    assert set().union(*map(compared, study.experiments)) == set(study.allocators)
    settings = [(each.allocator, tuple(each.options.items())) for each in study.variants]
    assert len(set(settings)) == len(settings)


def test_the_levels_are_those_of_the_options(study: StudyDefinition) -> None:
    tried = {
        name: {str(each.options[name]) for each in study.variants if name in each.options}
        for name in OPTIONS
        if OPTIONS[name].variant == "pools"
    }
    assert tried["pool_chain"] == set(OPTIONS["pool_chain"].choices) - {"adaptive"}
    assert {"10", "1000"} <= tried["pool_min_objects"]
    assert {"32", "64", "256"} <= tried["pool_max_size"]
    assert all(tried.values())  # none is left untried


def test_each_of_the_papers_programs_has_a_relative(study: StudyDefinition) -> None:
    relatives = {each.workload for each in family(study, "relatives")}
    assert len(relatives) == PAPERS_PROGRAMS
    for name in ("rules", "misses"):
        assert {each.workload for each in family(study, name)} == relatives
    opening = STUDY.read_text().partition("\nname =")[0]
    assert all(f" {name} " in opening for name in relatives)


def test_the_sets_of_the_literature_are_whole(study: StudyDefinition) -> None:
    names = {each.workload for each in family(study, "pointers")}
    folders = [paths.workloads_dir() / name for name in ("olden", "ptrdist")]
    assert names == set(load_workloads(folders))


def test_goals_are_set_where_the_subject_and_its_peers_are_measured(study: StudyDefinition) -> None:
    for each in study.figures:
        parts = study.experiments_of(each)
        assert parts
        for part in parts:
            assert {study.subject_of(each), *each.peers} <= compared(part), (each.name, part.name)


# ------------------------------------------------------------------ the paper's tables


def published(study: StudyDefinition) -> list[PublishedTable]:
    ours = [*study.figures, *study.experiments]
    return [table for each in ours for table in each.published]


def test_the_papers_figures_are_there(study: StudyDefinition) -> None:
    sources = " ".join(table.source for table in published(study))
    for number in (6, 9, 10, 13, 14):
        assert f"figure {number}" in sources, number
    assert "figures 7 and 8" in sources
    assert "figures 11 and 12" in sources
    for table in published(study):
        assert {len(row) for row in table.rows} == {len(table.columns)}


@pytest.mark.parametrize(
    ("figure_name", "title", "mean"),
    [
        ("cache-misses", "Cache misses on platform 1", 0.85),
        ("cache-misses", "Cache misses on platform 2", 0.63),
        ("tlb-misses", "TLB misses on platform 2", 0.70),
    ],
)
def test_tables_3_and_4_come_to_what_the_paper_says(
    study: StudyDefinition, figure_name: str, title: str, mean: float
) -> None:
    (table,) = [t for t in figure(study, figure_name).published if t.title == title]
    assert len(table.rows) == PAPERS_PROGRAMS
    ratios = []
    for _, before, after, printed in table.rows:
        ratio = int(printed.rstrip("%")) / 100
        ratios.append(ratio)
        # The misses are printed to the next million or thousand.
        error = 0.5 / number(before) + 0.5 / number(after) + 0.005
        assert number(after) / number(before) == pytest.approx(ratio, rel=error, abs=0.006)
    assert math.exp(sum(map(math.log, ratios)) / len(ratios)) == pytest.approx(mean, abs=0.01)


def number(printed: str) -> int:
    return int(printed[:-1])
