"""Questions of the user's own, in SQL, about the tables of traces."""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from heapfit.errors import UsageError
from heapfit.profile.trace import connect, interruptible, quoted, read_summary
from heapfit.trace.schema import FILES


@dataclass(frozen=True)
class Answer:
    """The columns' names and the rows."""

    columns: list[str]
    rows: list[tuple[Any, ...]]

    def records(self) -> list[dict[str, Any]]:
        """Return each row by the columns' names."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def csv(self) -> str:
        """Return the rows as comma-separated values, below a line of names."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return text.getvalue()


def ask(folders: Sequence[Path], query: str) -> Answer:
    """Return the answer to `query` over the views objects, memory, sites, threads and flow.

    They are of all `folders` together; their column `recording` says which one, from 0. Raises
    UsageError with what is wrong with the query.
    """
    for folder in folders:
        read_summary(folder)
    with tempfile.TemporaryDirectory(prefix="heapfit-sql-") as aside:
        connection = connect(Path(aside))
        for name in FILES:
            connection.execute(_view(name, folders))
        try:
            with interruptible():
                found = connection.execute(query)
                columns = [column[0] for column in found.description or []]
                return Answer(columns, found.fetchall() if columns else [])
        except duckdb.Error as error:
            raise UsageError(f"--sql: {error}") from error
        finally:
            connection.close()


def _view(name: str, folders: Sequence[Path]) -> str:
    parts = (
        f"SELECT {i} AS recording, * FROM read_parquet({quoted(f'{folder}/{name}.parquet')})"
        for i, folder in enumerate(folders)
    )
    return f"CREATE VIEW {name} AS {' UNION ALL '.join(parts)}"
