"""The study serving: rows that are the paper's, and settings that there are."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from heapfit.catalogue import allocators_of, libraries_of
from heapfit.catalogue.studies import load_studies
from heapfit.catalogue.variants import check_variants
from heapfit.catalogue.workloads import resolve_workload
from heapfit.options import OPTIONS
from heapfit.records import ALLOCATOR, CORES, Experiment, StudyDefinition, Variant
from heapfit.trial.metrics import METRIC_NAMES

pytestmark = pytest.mark.full

STUDY = Path(__file__).resolve().parents[2] / "studies" / "serving.toml"
ROWS = ["T0", "T1", "T2", "T3", "T4"]


@pytest.fixture(scope="module")
def study() -> StudyDefinition:
    return load_studies()["serving"]


def variants(study: StudyDefinition) -> dict[str, Variant]:
    return {each.name: each for each in study.variants}


def experiment(study: StudyDefinition, name: str) -> Experiment:
    (found,) = [each for each in study.experiments if each.name == name]
    return found


def served(study: StudyDefinition) -> list[Experiment]:
    return [each for each in study.experiments if each.workload == "ad-server"]


def as_bytes(value: object) -> int:
    text = str(value)
    shifts = {"k": 10, "m": 20, "g": 30}
    return int(text[:-1]) << shifts[text[-1]] if text[-1] in shifts else int(text)


def test_every_variant_is_of_an_allocator_and_sets_what_there_is(study: StudyDefinition) -> None:
    check_variants(STUDY, study)
    assert set(libraries_of(study, allocators_of(study))) == set(study.allocators)
    used = {str(name) for each in study.experiments for name in each.factors.get(ALLOCATOR, [])}
    assert set(study.allocators) == used
    for each in study.variants:
        for name, value in each.options.items():
            OPTIONS[name].check(str(value))


def test_each_row_keeps_no_less_than_the_row_before(study: StudyDefinition) -> None:
    rows = [variants(study)[name].options for name in ROWS]
    for name in ("free_page_threshold", "thread_span_threshold", "shared_span_threshold"):
        assert as_bytes(rows[0][name]) == 0
        for less, more in pairwise(rows):
            assert as_bytes(less[name]) <= as_bytes(more[name])
    assert rows[0]["lockless_threads"] == 0
    assert all("lockless_threads" not in row for row in rows[1:])
    assert [row["decay_ms"] for row in rows] == [0, *["unlimited"] * 4]


def test_the_last_row_keeps_more_than_the_heap_swings(study: StudyDefinition) -> None:
    swing = int(resolve_workload("ad-server").parameters["swing"]) << 20
    kept = [as_bytes(variants(study)[row].options["shared_span_threshold"]) for row in ROWS]
    assert kept[1] < swing < kept[4]


def test_the_papers_other_tables_are_there(study: StudyDefinition) -> None:
    sources = [table.source for each in study.experiments for table in each.published]
    for number in range(2, 7):
        assert sum(f"Table {number}" in source for source in sources) == 1, number


def test_table_2_is_the_papers(study: StudyDefinition) -> None:
    (table,) = experiment(study, "table-2").published
    assert [row[0] for row in table.rows] == ROWS
    assert [row[-1] for row in table.rows] == ["0", "13", "16", "18", "18"]
    assert [row[2] for row in table.rows] == ["-", "100", "200", "500", "1000"]


def test_tuned_peers_stand_beside_the_rows(study: StudyDefinition) -> None:
    compared = experiment(study, "table-2").factors[ALLOCATOR]
    tuned = {name for name in study.allocators if name.endswith("-tuned")}
    assert tuned == {f"{name}-tuned" for name in ("heapfit", "jemalloc", "mimalloc", "tcmalloc")}
    assert tuned <= set(compared)
    assert {name.removesuffix("-tuned") for name in tuned} <= set(compared)


def test_each_experiment_sets_parameters_that_its_workload_has(study: StudyDefinition) -> None:
    for each in study.experiments:
        workload = resolve_workload(each.workload)
        named = map(str, each.factors.get(ALLOCATOR, study.allocators))
        by_variants = {
            p for name in named if name in variants(study) for p in variants(study)[name].parameters
        }
        varied = {*each.factors, *each.parameters, *each.quick.factors, *each.quick.parameters}
        assert (varied | by_variants) - {ALLOCATOR, CORES} <= workload.parameters.keys()
        metrics = {*METRIC_NAMES, *(metric.name for metric in workload.metrics)}
        assert metrics >= {*each.metrics, *(table.metric for table in each.published)}


def test_reloads_are_measured_with_and_without_asking_for_memory(study: StudyDefinition) -> None:
    reload = experiment(study, "reload")
    assert reload.factors["shrink"] == ["off", "on"]
    usual = {**resolve_workload("ad-server").parameters, **reload.parameters}
    for parameters in (usual, {**usual, **reload.quick.parameters}):
        assert float(parameters["seconds"]) >= 2 * float(parameters["reload_s"])  # two of them
