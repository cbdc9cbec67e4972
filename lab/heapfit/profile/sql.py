"""Questions of the user's own, in SQL, about the tables of traces."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from heapfit.errors import UsageError
from heapfit.profile.trace import connect, interruptible, quoted, read_summary
from heapfit.text import join_words
from heapfit.trace.schema import FILES

# Rows that are fetched at a time: an answer may have millions.
_BATCH = 4096

Rows = Iterator[tuple[Any, ...]]


@contextmanager
def asked(folders: Sequence[Path], query: str) -> Iterator[tuple[list[str], Rows]]:
    """Yield the columns' names and the rows of the answer to `query`, which are read as they come.

    It is asked over the views objects, memory, sites, threads and flow. They are of all `folders`
    together; their column `recording` says which one, from 0. Raises UsageError with what is wrong
    with the query.
    """
    for folder in folders:
        read_summary(folder)
    with tempfile.TemporaryDirectory(prefix="heapfit-sql-") as aside:
        connection = connect(Path(aside))
        for name in FILES:
            connection.execute(_view(name, folders))
        try:
            with interruptible():
                if not connection.extract_statements(query):
                    raise UsageError("--sql: there is no query")
                found = connection.execute(query)
                columns = [column[0] for column in found.description or []]
                yield columns, _rows(found)
        except duckdb.Error as error:
            raise UsageError(_wrong(error)) from error
        finally:
            connection.close()


def _wrong(error: duckdb.Error) -> str:
    """Say what is wrong with a query; of a name that there is not, the tables, not DuckDB's own."""
    if isinstance(error, duckdb.CatalogException) and "Table with name" in str(error):
        missing = str(error).partition("\n")[0].partition("Catalog Error: ")[2].rstrip("!")
        return (
            f"--sql: {missing}; there are {join_words([*FILES])}, and --sql 'DESCRIBE objects' "
            "lists the columns of one"
        )
    return f"--sql: {error}"


def _rows(found: duckdb.DuckDBPyConnection) -> Rows:
    while batch := found.fetchmany(_BATCH):
        yield from batch


def _view(name: str, folders: Sequence[Path]) -> str:
    parts = (
        f"SELECT {i} AS recording, * FROM read_parquet({quoted(f'{folder}/{name}.parquet')})"
        for i, folder in enumerate(folders)
    )
    return f"CREATE VIEW {name} AS {' UNION ALL '.join(parts)}"
