"""The workloads of the catalogue that run real programs: described, repeatable, self-checking."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from heapfit import paths
from heapfit.catalogue import load_workloads, missing_for, workloads_of
from heapfit.catalogue.studies import load_studies
from heapfit.catalogue.variants import check_variants
from heapfit.records import InstalledAllocator, TrialStatus, Workload
from heapfit.study import plan
from heapfit.trial import run_trial
from shared_home import workload_data

pytestmark = pytest.mark.full

FOLDER = paths.workloads_dir()
# Only the folders at the top: the small programs of our own below micro/ have their own tests. So
# have the PHP applications, whose databases are not the same to the byte each time.
WORKLOADS = {
    name: workload
    for name, workload in load_workloads([FOLDER]).items()
    if workload.here.parent == FOLDER and not name.startswith("php-")
}


def check_installed(workload: Workload) -> None:
    """Fail when `workload` lacks anything; a large one is tested only where it is installed."""
    missing = missing_for(workload)
    if missing and workload.install.large:
        pytest.skip(f"takes gigabytes: heapfit workloads install {workload.name}")
    assert not missing, f"apt-get install {' '.join(workload.install.debian)}"


def allocators() -> list[InstalledAllocator]:
    """The C library's own, and the library that HEAPFIT_LIBRARY names, else heapfit's."""
    named = os.environ.get("HEAPFIT_LIBRARY")
    library = Path(named).absolute() if named else paths.library()
    return [
        InstalledAllocator(name="glibc", title="glibc", version="", library=None),
        InstalledAllocator(name="under-test", title=library.name, version="", library=library),
    ]


def test_every_study_loads_with_its_workloads() -> None:
    for study in load_studies().values():
        workloads_of(study, study.workloads or [each.workload for each in study.experiments])
        check_variants(FOLDER, study)


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS.keys())
def test_runs_under_the_library_as_under_glibc(workload: Workload, tmp_path: Path) -> None:
    check_installed(workload)
    data = workload_data(workload)

    study = plan(workload, allocators(), baseline="glibc", cores=[1], replicates=1, warmups=0)
    by_name = {planned.allocator: planned for planned in study.plan}
    reference = run_trial(study, by_name["glibc"], tmp_path, None, data)
    assert reference.status is TrialStatus.OK, f"{reference.reason}\n{reference.stderr_tail}"
    trial = run_trial(study, by_name["under-test"], tmp_path, reference, data)
    assert trial.status is TrialStatus.OK, f"{trial.reason}\n{trial.stderr_tail}"
    assert trial.metrics[workload.primary_metric] > 0
