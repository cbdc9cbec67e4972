"""The catalogue: which allocators and workloads there are, and how each comes onto this machine.

Allocators are `allocators/*.toml` beside this file; workloads are `*/workload.toml` in the
workloads folder. Users add their own: `name=path/to/lib.so` and a TOML file's path stand wherever
a name does.
"""

from heapfit.catalogue.allocators import (
    find_installed,
    install_allocator,
    load_allocators,
    resolve_allocators,
)
from heapfit.catalogue.smoke import check_loads, smoke_test
from heapfit.catalogue.workloads import (
    ad_hoc_workload,
    data_folder,
    install_workload,
    load_workloads,
    missing_for,
    prepare_workload,
    resolve_workload,
)

__all__ = [
    "ad_hoc_workload",
    "check_loads",
    "data_folder",
    "find_installed",
    "install_allocator",
    "install_workload",
    "load_allocators",
    "load_workloads",
    "missing_for",
    "prepare_workload",
    "resolve_allocators",
    "resolve_workload",
    "smoke_test",
]
