"""The study range-coding: its workloads run under the library as under glibc, its factors are the
paper's.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from heapfit import paths
from heapfit.catalogue import load_workloads
from heapfit.catalogue.studies import load_studies, workloads_of
from heapfit.records import Experiment, InstalledAllocator, StudyDefinition, TrialStatus, Workload
from heapfit.study import plan
from heapfit.trial import run_trial
from shared_home import workload_data

pytestmark = pytest.mark.full

RANGE_CODING = paths.workloads_dir() / "range-coding"
WORKLOADS = load_workloads([RANGE_CODING])
LITTLE = {"chunk-search": "64", "range-encoder": "2", "range-decoder": "2"}


@pytest.fixture(scope="module")
def study() -> StudyDefinition:
    return load_studies()["range-coding"]


@pytest.fixture(scope="module")
def prepared() -> dict[str, Path]:
    """The data of each workload."""
    return {name: workload_data(workload) for name, workload in WORKLOADS.items()}


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS.keys())
def test_a_workload_runs_under_the_library_as_under_glibc(
    workload: Workload, prepared: dict[str, Path], tmp_path: Path
) -> None:
    library = paths.library()
    allocators = [
        InstalledAllocator(name="glibc", title="glibc", version="", library=None),
        InstalledAllocator(name="heapfit", title="heapfit", version="", library=library),
    ]
    planned = plan(
        workload,
        allocators,
        baseline="glibc",
        cores=[1],
        replicates=1,
        warmups=0,
        parameters={"mebibytes": LITTLE[workload.name]},
    )
    by_name = {each.allocator: each for each in planned.plan}
    data = prepared[workload.name]
    reference = run_trial(planned, by_name["glibc"], tmp_path, None, data)
    assert reference.status is TrialStatus.OK, f"{reference.reason}\n{reference.stderr_tail}"
    trial = run_trial(planned, by_name["heapfit"], tmp_path, reference, data)
    assert trial.status is TrialStatus.OK, f"{trial.reason}\n{trial.stderr_tail}"
    assert trial.metrics[workload.primary_metric] > 0


def test_what_the_decoder_works_on_is_the_content_that_the_encoder_has(
    prepared: dict[str, Path],
) -> None:
    made = {name: {path.name for path in folder.iterdir()} for name, folder in prepared.items()}
    assert {"random.raw", "text.raw"} <= made["range-encoder"]
    assert {"random.range", "text.range"} <= made["range-decoder"]
    assert not any(name.endswith(".raw") for name in made["range-decoder"])


# ------------------------------------------------------------------------ study


def experiment(study: StudyDefinition, name: str) -> Experiment:
    return next(each for each in study.experiments if each.name == name)


def test_the_factors_are_the_papers(study: StudyDefinition) -> None:
    assert {"jemalloc", "dlmalloc"} <= set(study.allocators)
    assert study.replicates == 10
    assert experiment(study, "chunk-search").factors == {
        "cores": [1, 2],
        "threads": [1, 2, 4, 8, 16],
        "chunk": ["256k", "512k", "1m"],
    }
    for name in ("encoder", "decoder"):
        factors = experiment(study, name).factors
        assert factors["content"] == ["random", "text"]
        assert factors["mebibytes"] == [200, 400, 600]


def test_each_experiment_varies_parameters_that_its_workload_has(study: StudyDefinition) -> None:
    for each in study.experiments:
        (workload,) = workloads_of(study, [each.workload])
        varied = {*each.factors, *each.parameters, *each.quick.factors, *each.quick.parameters}
        assert varied - {"cores"} <= workload.parameters.keys()
        assert set(each.quick.factors) <= set(each.factors)
        assert each.published
