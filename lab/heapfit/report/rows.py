"""Every trial as a row of a table, for whoever computes on their own: CSV and Parquet.

The raw figures as the journal has them, warm-ups and failures included: base units, no figure
where a trial gave none. docs/reference.md says what each column is.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from heapfit.files import write_bytes
from heapfit.records import InstalledAllocator, Metric, Study, Trial

# A study with its trials, by the name of its part in a study of many; a single one has its own.
Parts = Mapping[str, tuple[Study, Sequence[Trial]]]

_TREATMENT = ("study", "treatment", "program", "allocator", "cores")
_COURSE = ("block", "replicate", "order", "warmup", "machine", "started")
_OUTCOME = ("status", "reason", "exit_code")
_REMEDY = "make room or mend the folder, and run it again"


class Rows:
    """The table: its columns, of all parts, and its rows in the order of the plan."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        studies = [study for study, _ in parts.values()]
        own = {*_TREATMENT, *_COURSE, *_OUTCOME}
        # A factor or a metric of a workload may be called as a column is, or as each other.
        self._factors = {
            each.name: _free(each.name, "factor", own)
            for study in studies
            for each in study.factors
        }
        own |= set(self._factors.values())
        self.metrics: dict[str, Metric] = {
            _free(each.name, "metric", own): each for study in studies for each in study.metrics
        }
        self.columns = [*_TREATMENT, *self._factors.values(), *_COURSE, *_OUTCOME, *self.metrics]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for name, (study, trials) in self._parts.items():
            treatments = {each.name: each for each in study.allocators}
            for trial in sorted(trials, key=lambda each: each.planned.index):
                yield self._row(name, treatments[trial.planned.allocator], trial)

    def _row(self, name: str, treatment: InstalledAllocator, trial: Trial) -> dict[str, Any]:
        planned = trial.planned
        return {
            "study": name,
            "treatment": treatment.name,
            "program": treatment.program,
            "allocator": (treatment.variant_of or treatment).name,
            "cores": planned.cores,
            **{column: planned.levels.get(each) for each, column in self._factors.items()},
            "block": planned.block,
            "replicate": planned.replicate,
            "order": planned.index,
            "warmup": planned.warmup,
            "machine": trial.machine,
            "started": trial.started,
            "status": trial.status.value,
            "reason": trial.reason,
            "exit_code": trial.exit_code,
            **{column: trial.metrics.get(each.name) for column, each in self.metrics.items()},
        }


def _free(name: str, kind: str, taken: Iterable[str]) -> str:
    return f"{kind}.{name}" if name in taken else name


def csv_text(parts: Parts) -> str:
    """Return the table as CSV; what there is none of is empty."""
    rows = Rows(parts)
    text = io.StringIO()
    writer = csv.DictWriter(text, rows.columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        row["warmup"] = str(row["warmup"]).lower()
        row["started"] = row["started"].isoformat()
        writer.writerow(row)
    return text.getvalue()


def write_csv(parts: Parts, path: Path) -> None:
    """Write the table to `path` as CSV. Raises `HeapfitError` where it cannot be written."""
    write_bytes(path, csv_text(parts).encode(), _REMEDY)


def write_parquet(parts: Parts, path: Path) -> None:
    """Write the table to `path` as Parquet, each metric with its label, unit and direction.

    Raises `HeapfitError` where it cannot be written.
    """
    import pyarrow as pa  # Takes a while to load, and few want it.
    import pyarrow.parquet as pq

    rows = Rows(parts)
    kinds = {
        **dict.fromkeys(("cores", "block", "replicate", "order", "exit_code"), pa.int64()),
        "warmup": pa.bool_(),
        "started": pa.timestamp("us", tz="UTC"),
        **dict.fromkeys(rows.metrics, pa.float64()),
    }
    fields = [
        pa.field(name, kinds.get(name, pa.string()), metadata=_described(rows.metrics.get(name)))
        for name in rows.columns
    ]
    made = io.BytesIO()
    table = pa.Table.from_pylist(list(rows), schema=pa.schema(fields))
    pq.write_table(table, made, compression="zstd")
    write_bytes(path, made.getvalue(), _REMEDY)


def _described(metric: Metric | None) -> dict[str, str] | None:
    if metric is None:
        return None
    return {"label": metric.label, "unit": metric.unit, "better": metric.better}
