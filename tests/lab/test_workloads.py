"""The workloads of the catalogue that run real programs: described, repeatable, self-checking."""

from __future__ import annotations

import hashlib
import os
import re
import tomllib
from pathlib import Path

import pytest
from heapfit import paths
from heapfit.catalogue import load_workloads, missing_for, prepare_workload
from heapfit.records import InstalledAllocator, TrialStatus, Workload
from heapfit.study import plan
from heapfit.trial import run_trial
from sampling import sampled
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

# What each workload prints when all is well, and when it has found itself out.
GOOD_AND_BAD = {
    "ad-server": ("requests 1.0\nanswers right\n", "requests 1.0\n"),
    "xml-transform": (
        "<p>catalogue complete: true, 4255 types</p>",
        "<p>catalogue complete: false, 4255 types</p>",
    ),
    "python-tree": ("catalogue consistent\n", "catalogue INCONSISTENT\n"),
    "rails": ("restarts 0\nanswers right\n", "restarts 0\n"),
    "redis": ("rate get 8.5\nanswers right\n", "rate get 8.5\n"),
    "sqlite": ("ok\natlas sound\n", "row 7 missing from index\natlas sound\n"),
    "trading": ("seconds 1.5\ncheck ok\n", "seconds 1.5\n"),
    "cc1plus": ("\t.globl\tmain\n", "\t.globl\tnot_main\n"),
    "lua": ("digest 1\nlua consistent\n", "digest 1\n"),
    "xml-transform-large": (
        "<p>catalogue complete: true, 13616 types</p>",
        "<p>catalogue complete: true, 851 types</p>",
    ),
    "link-grammar": (
        "Found 2 linkages\n\tLinkage 1, cost vector = (UNUSED=0 DIS= 0.00 LEN=16)\n\n +--+\n" * 700,
        "Found 2 linkages\n\tLinkage 1, cost vector = (UNUSED=1 DIS= 0.00 LEN=16)\n\n +--+\n" * 900,
    ),
    "perl-pods": ("words 5\npods consistent\n", "words 5\n"),
    "graywolf": (
        "DFF_7 -239 -200  3281 1800  3 1\n" * 1500,
        "DFF_7 -239 -200  3281 1800  3 1\n" * 99,
    ),
    "nextpnr": (".device 8k\n", ".device 1k\n"),
    "povray": ("BM" + 16 * "\0" + "d\0\0\0K\0\0\0", "BM" + 16 * "\0" + "P\0\0\0K\0\0\0"),
    "pocketsphinx": (
        "to consider how much there might be in his power (x-0870 -3)\n"
        "he was not an illness those young man (x-0880 -1)\n"
        "to be rather cold hearted and rather selfish (x-0890 -2)\n"
        "had he married a more amiable woman he might have been (x-0920 -2)\n"
        "he might even have been made the amiable itself (x-0930 -1)\n",
        "he might even have been made the amiable itself (x-0930 -1)\n" * 5,
    ),
    "dealii": ("error 1e-3\nconverged\n", "error 1e-3\nthe error stays\n"),
    "yosys": ("SB_CARRY  80\n SB_DFF  4\n SB_LUT4  4711\n", "SB_CARRY  80\n"),
    "ledger": ("12.00 EUR\n%s\n       0\n" % ("-" * 20), "%s\n  12.00 EUR\n" % ("-" * 20)),
    "z3": (
        "a should be sat\nsat\n" * 15 + "b should be unsat\nunsat\n" * 15 + "all asked\n",
        "a should be sat\nsat\n" * 29 + "b should be unsat\nsat\n" + "all asked\n",
    ),
    "ghostscript": (
        " 0.00117  0.00117  0.00000  0.01779 CMYK OK\n" * 397,
        " 0.00117  0.00117  0.00000  0.01779 CMYK OK\n" * 97,
    ),
}


def check_installed(workload: Workload) -> None:
    """Fail when `workload` lacks anything; a large one is tested only where it is installed."""
    missing = missing_for(workload)
    if missing and workload.install.large:
        pytest.skip(f"takes gigabytes: heapfit workloads install {workload.name}")
    assert not missing, f"apt-get install {' '.join(workload.install.debian)}"


every_workload = pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS.keys())


def allocators() -> list[InstalledAllocator]:
    """The C library's own, and the library that HEAPFIT_LIBRARY names, else heapfit's."""
    named = os.environ.get("HEAPFIT_LIBRARY")
    library = Path(named).absolute() if named else paths.library()
    return [
        InstalledAllocator(name="glibc", title="glibc", version="", library=None),
        InstalledAllocator(name="under-test", title=library.name, version="", library=library),
    ]


def digests(folder: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if not path.name.startswith(".")
    }


@every_workload
def test_is_called_like_its_folder_and_stands_in_the_readme(workload: Workload) -> None:
    assert workload.here == FOLDER / workload.name
    assert f"| `{workload.name}` |" in (FOLDER / "README.md").read_text()


def test_the_example_in_the_readme_is_a_whole_workload() -> None:
    readme = (FOLDER / "README.md").read_text()
    first, *_ = re.findall(r"```toml\n(.*?)```", readme, re.DOTALL)
    workload = Workload.model_validate(tomllib.loads(first))
    assert workload.run.command


@every_workload
def test_accepts_good_output_and_refuses_bad(workload: Workload) -> None:
    good, bad = GOOD_AND_BAD[workload.name]
    pattern = re.compile(workload.check.must_match or "", re.MULTILINE)
    assert pattern.search(good)
    assert not pattern.search(bad)
    assert not pattern.search("")


# deal.II's headers take a compiler minutes where others compile too.
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "workload",
    sampled({name: workload for name, workload in WORKLOADS.items() if workload.prepare}, "ledger"),
)
def test_prepares_the_same_data_every_time(
    workload: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What this test makes from nothing is what others have found, perhaps since an earlier run."""
    check_installed(workload)
    shared = digests(workload_data(workload))
    monkeypatch.setenv("HEAPFIT_HOME", str(tmp_path / "home"))
    assert digests(prepare_workload(workload, print)) == shared != {}


@pytest.mark.parametrize("workload", sampled(WORKLOADS, "lua", "redis"))
def test_runs_under_the_library_as_under_glibc(workload: Workload, tmp_path: Path) -> None:
    check_installed(workload)
    data = workload_data(workload)

    study = plan(
        workload,
        allocators(),
        baseline="glibc",
        cores=[1],
        replicates=1,
        warmups=0,
    )
    by_name = {planned.allocator: planned for planned in study.plan}
    reference = run_trial(study, by_name["glibc"], tmp_path, None, data)
    assert reference.status is TrialStatus.OK, f"{reference.reason}\n{reference.stderr_tail}"
    trial = run_trial(study, by_name["under-test"], tmp_path, reference, data)
    assert trial.status is TrialStatus.OK, f"{trial.reason}\n{trial.stderr_tail}"
    assert trial.metrics[workload.primary_metric] > 0
