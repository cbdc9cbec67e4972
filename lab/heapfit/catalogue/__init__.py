"""The catalogue: which allocators, workloads and studies there are, and how to get each.

Allocators are `allocators/*.toml` beside this file; workloads are `*/workload.toml` in the
workloads folder; studies of many workloads are `*.toml` in the studies folder. Users add their own:
`name=path/to/lib.so` and a TOML file's path stand wherever a name does.
"""

from heapfit.catalogue.allocators import (
    check_loads,
    find_installed,
    install_allocator,
    load_allocators,
    resolve_allocators,
    smoke_test,
)
from heapfit.catalogue.studies import allocators_of, load_studies, resolve_study, workloads_of
from heapfit.catalogue.variants import (
    PLACEHOLDER,
    PROGRAM,
    already_preloaded,
    entry_of,
    environment_under,
    libraries_of,
    name_of,
    once_more,
    plain_word,
    resolve_programs,
    resolve_treatment,
    resolve_treatments,
    split_words,
    taking_programs,
    treatment_word,
    with_programs,
    with_setting,
    with_variants,
)
from heapfit.catalogue.workloads import (
    ad_hoc_workload,
    data_folder,
    install_workload,
    load_workloads,
    missing_for,
    prepare_workload,
    resolve_workload,
)
