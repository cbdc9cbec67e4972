"""The quick form of each study is a small part of the whole: counted in the trials that it plans.

How long a trial takes is the machine's affair; the pages on results say what was measured.
"""

from __future__ import annotations

from math import prod

import pytest
from heapfit.catalogue.studies import load_studies
from heapfit.records import ALLOCATOR, StudyDefinition
from heapfit.study.experiments import shaped

pytestmark = pytest.mark.full

STUDIES = {name: study for name, study in load_studies().items() if study.experiments}
# Of the whole study's trials; that of the recorder, whose programs are all short, is nearest.
LARGEST_PART = 1 / 5


def trials(study: StudyDefinition, *, quick: bool) -> int:
    return sum(
        prod(len(levels) for name, levels in experiment.factors.items() if name != ALLOCATOR)
        * len(experiment.factors.get(ALLOCATOR, study.allocators))
        * ((experiment.replicates or 0) + (experiment.warmups or 0))
        for experiment in (
            shaped(each, study, quick=quick, replicates=None)
            for each in study.experiments
            if not quick or not each.quick.workloads or each.workload in each.quick.workloads
        )
    )


@pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES.keys())
def test_the_quick_form_is_a_small_part_of_the_study(study: StudyDefinition) -> None:
    assert 0 < trials(study, quick=True) <= LARGEST_PART * trials(study, quick=False)
