"""The study defrag-dodging: its treatments fit its workloads, its tables are the paper's."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from heapfit.catalogue import allocators_of, libraries_of, load_allocators
from heapfit.catalogue.studies import load_studies, workloads_of
from heapfit.records import ALLOCATOR, CORES, Experiment, StudyDefinition, Variant

pytestmark = pytest.mark.full

WORKLOADS = Path(__file__).resolve().parents[2] / "workloads"


@pytest.fixture(scope="module")
def study() -> StudyDefinition:
    return load_studies()["defrag-dodging"]


def variants(study: StudyDefinition) -> dict[str, Variant]:
    return {each.name: each for each in study.variants}


def php_experiments(study: StudyDefinition) -> list[Experiment]:
    return [each for each in study.experiments if each.workload != "rails"]


def named(experiment: Experiment) -> list[str]:
    return [str(level) for level in experiment.factors[ALLOCATOR]]


def test_every_application_meets_every_memory_manager(study: StudyDefinition) -> None:
    served = [each for each in php_experiments(study) if each.name != "calls"]
    assert {each.workload for each in served} == {
        *(f"php-{name}" for name in ("mediawiki", "dokuwiki", "wordpress", "twig", "shop"))
    }
    for each in served:
        modes = {variants(study)[name].parameters["mode"] for name in named(each)}
        assert modes == {"zend", "defrag-dodging", "region", "malloc"}
        assert each.factors[CORES] == [1, 2, 8]
    edited = [each.name for each in served if each.parameters.get("edits") == 20]
    assert edited == ["mediawiki-edits"]


def test_plain_malloc_is_tried_with_every_allocator_that_a_registry_has(
    study: StudyDefinition,
) -> None:
    known = load_allocators().values()
    every = {each.name for each in known if each.source.kind != "by-hand" and not each.when_named}
    every -= {"heapfit-pools"}  # a variant of heapfit
    found = variants(study).values()
    assert {each.allocator for each in found if each.parameters["mode"] == "malloc"} == every
    [rails] = [each for each in study.experiments if each.name == "rails"]
    assert set(named(rails)) == every


def test_only_what_is_preloaded_differs_between_variants_of_malloc(study: StudyDefinition) -> None:
    for each in study.variants:
        if each.parameters["mode"] == "malloc":
            assert each.name == f"malloc-{each.allocator}"
            assert each.parameters == {"mode": "malloc"}
        else:
            assert each.allocator == "glibc"  # nothing is preloaded
    assert set(libraries_of(study, allocators_of(study))) == set(study.allocators)


def test_each_experiment_sets_parameters_that_its_workload_has(study: StudyDefinition) -> None:
    for each in study.experiments:
        (workload,) = workloads_of(study, [each.workload])
        varied = {*each.factors, *each.parameters, *each.quick.factors, *each.quick.parameters}
        set_by_variants = {
            name
            for label in named(each)
            if label in variants(study)
            for name in variants(study)[label].parameters
        }
        assert (varied | set_by_variants) - {ALLOCATOR, CORES} <= workload.parameters.keys()
        metrics = {metric.name for metric in workload.metrics}
        assert set(each.metrics) <= metrics
        assert {table.metric for table in each.published} <= metrics


def test_restarts_are_reached_by_every_process(study: StudyDefinition) -> None:
    [restarts] = [each for each in study.experiments if "restart_every" in each.factors]
    longest = max(int(level) for level in restarts.factors["restart_every"])
    assert restarts.factors[CORES] == [1]
    for parameters in (restarts.parameters, restarts.quick.parameters):
        assert int(parameters["requests"]) > longest


def test_the_calls_are_counted_of_every_scenario(study: StudyDefinition) -> None:
    [calls] = [each for each in study.experiments if each.name == "calls"]
    scenarios = {str(level).removesuffix("-edits") for level in calls.factors["application"]}
    applications = {path.parent.name for path in WORKLOADS.glob("php-*/application.toml")}
    assert {f"php-{name}" for name in scenarios} == applications


def test_counting_installs_what_the_applications_need(study: StudyDefinition) -> None:
    del study
    packages = {
        path.parent.name: set(tomllib.loads(path.read_text())["install"]["debian"])
        for path in WORKLOADS.glob("php-*/workload.toml")
    }
    counting = packages.pop("php-calls")
    assert set().union(*packages.values()) <= counting


def test_the_papers_table_4_is_whole_and_its_percentages_are_right(study: StudyDefinition) -> None:
    tables = [
        table for each in study.experiments for table in each.published if "Table 4" in table.source
    ]
    rows = [row for table in tables for row in table.rows]
    assert len(rows) == 7 * 3  # workloads, allocators
    base: list[str] = []
    for row in rows:
        if "default" in row[0]:
            base = row
        for column in (1, 2, 4, 5):
            check_percentage(row[column], base[column])
        for one, eight, speedup in ((1, 2, 3), (4, 5, 6)):
            assert rate(row[eight]) / rate(row[one]) == pytest.approx(
                float(row[speedup].rstrip("x")), abs=0.16
            )


def check_percentage(cell: str, base: str) -> None:
    """The percentage in a cell must be what the throughputs give, as far as their digits go."""
    found = re.search(r"\(([+-][0-9.]+)%\)", cell)
    if found:
        change = 100 * (rate(cell) / rate(base) - 1)
        assert change == pytest.approx(float(found[1]), abs=100 * 0.1 / rate(base) + 0.1)


def rate(cell: str) -> float:
    return float(cell.split()[0])


def test_the_papers_table_3_is_whole(study: StudyDefinition) -> None:
    [table] = [
        table for each in study.experiments for table in each.published if "Table 3" in table.source
    ]
    assert len(table.rows) == 7
    kept = [1 - int(free) / int(malloc) for _, malloc, free, _, _ in table.rows]
    # As the paper's text says of the frees that never come.
    assert (min(kept), max(kept)) == (
        pytest.approx(0.079, abs=5e-4),
        pytest.approx(0.273, abs=5e-4),
    )
