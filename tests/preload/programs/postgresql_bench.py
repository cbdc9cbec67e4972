"""PostgreSQL makes a new cluster, runs pgbench's transactions and queries of many kinds, restarts.

It listens on a socket file in the present folder only. pgbench's random numbers have a fixed seed,
so the sums that its transactions leave do not depend on the order in which they were served.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

from serving import NOT_ROOT, check_preloaded, serving

PROGRAMS = Path("/usr/lib/postgresql/15/bin")
CLIENTS = 4
TRANSACTIONS_EACH = 250
STEP_TIMEOUT_S = 90

# A backend per client and parallel workers: the planner is told that those cost nothing.
SETTINGS = {
    "listen_addresses": "",
    "unix_socket_directories": os.getcwd(),
    "fsync": "off",
    "shared_buffers": "16MB",
    "work_mem": "1MB",
    "min_parallel_table_scan_size": "0",
    "parallel_setup_cost": "0",
    "parallel_tuple_cost": "0",
    "log_min_messages": "warning",
}

FILL = """
CREATE TABLE words AS
  SELECT n, md5(n::text) AS word, (n * 7919) % 1000 AS class,
    repeat(chr(97 + n % 26), n % 3000) AS text
  FROM generate_series(1, 20000) AS n;
CREATE INDEX ON words (word);
CREATE INDEX ON words USING gin (to_tsvector('simple', word || ' ' || class));
CREATE TABLE documents AS
  SELECT n, jsonb_build_object('word', word, 'nested', jsonb_build_array(class, text)) AS document
  FROM words WHERE n <= 4000;
CREATE FUNCTION fibonacci(n int) RETURNS numeric LANGUAGE plpgsql AS $$
DECLARE a numeric := 0; b numeric := 1; c numeric;
BEGIN
  FOR i IN 1..n LOOP c := a + b; a := b; b := c; END LOOP;
  RETURN a;
END $$;
ANALYZE;
"""

QUERIES = """
SELECT count(*), sum(length(text)), min(word), max(word) FROM words;
SELECT class, count(*), md5(string_agg(word, ',' ORDER BY word)) FROM words GROUP BY class
  ORDER BY class LIMIT 5;
SELECT md5(string_agg(w, '')) FROM (SELECT word AS w FROM words ORDER BY reverse(word), text) AS s;
SELECT count(*), sum(a.n) FROM words a JOIN words b ON a.word > b.word AND a.class = b.class;
SELECT sum(rank) FROM (SELECT rank() OVER (PARTITION BY class ORDER BY text, n) FROM words) AS r;
SELECT count(*) FROM words WHERE to_tsvector('simple', word || ' ' || class) @@ '7'::tsquery;
SELECT md5(string_agg(document::text, '' ORDER BY n)) FROM documents;
SELECT sum((document -> 'nested' ->> 0)::int) FROM documents WHERE document ? 'word';
SELECT md5(string_agg(regexp_replace(word, '([0-9]+)([a-f])', '\\2\\1', 'g'), '' ORDER BY n))
  FROM words;
SELECT md5(fibonacci(5000)::text), md5((2 ^ 4000::numeric)::text);
SELECT md5(string_agg(x::text, '')) FROM unnest(array(SELECT text FROM words ORDER BY n)) AS x;
WITH RECURSIVE tree (n, path) AS (
  SELECT 1, '1' UNION ALL SELECT n * 2 + k, path || '.' || n FROM tree, (VALUES (0), (1)) v(k)
  WHERE n < 3000)
  SELECT count(*), md5(string_agg(path, ',' ORDER BY path, n)) FROM tree;
"""

LEFT_BY_PGBENCH = """
SELECT count(*), sum(delta) FROM pgbench_history;
SELECT sum(abalance), md5(string_agg(abalance::text, ',' ORDER BY aid)) FROM pgbench_accounts;
SELECT sum(tbalance) FROM pgbench_tellers;
SELECT sum(bbalance) FROM pgbench_branches;
SELECT count(*) FROM pgbench_accounts a LEFT JOIN pgbench_history h USING (aid)
  WHERE a.abalance <> 0 AND h.aid IS NULL;
"""


def run(program: str, *words: str, stdin: str | None = None, check: bool = True) -> str:
    done = subprocess.run(
        [str(PROGRAMS / program), *words],
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=STEP_TIMEOUT_S,
        **NOT_ROOT,
    )
    if check and done.returncode != 0:
        raise SystemExit(f"{program} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def query(statements: str) -> str:
    options = ("--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1")
    return run("psql", "-h", os.getcwd(), "-U", "postgres", *options, stdin=statements)


def pgbench(*words: str) -> str:
    return run("pgbench", "-h", os.getcwd(), "-U", "postgres", *words, "postgres")


def answers() -> bool:
    return "accepting" in run("pg_isready", "-h", os.getcwd(), check=False).split()


def make_cluster() -> None:
    options = ("--no-sync", "--auth=trust", "--username=postgres", "--no-locale", "--encoding=UTF8")
    print(run("initdb", "--pgdata=cluster", *options))


def server() -> list[str]:
    settings = [f"--{name}={value}" for name, value in SETTINGS.items()]
    return [str(PROGRAMS / "postgres"), "-D", "cluster", *settings]


def load() -> None:
    pgbench("--initialize", "--quiet")
    clients = ("--client", str(CLIENTS), "--jobs", "2", "--random-seed", "1")
    for mode in ("simple", "prepared"):
        said = pgbench(*clients, "--transactions", str(TRANSACTIONS_EACH), "--protocol", mode)
        print(*(line for line in said.splitlines() if "transactions" in line), sep="\n")


Path.cwd().chmod(0o777)  # the server may run as another user
make_cluster()
with serving(server(), answers, stop=signal.SIGINT) as process:
    query(FILL)
    print(query(QUERIES))
    load()
    check_preloaded(process)
    print(query(LEFT_BY_PGBENCH))
with serving(server(), answers, stop=signal.SIGINT):
    print(query(LEFT_BY_PGBENCH))
    print(query(QUERIES))
    query("VACUUM FULL words, documents; REINDEX TABLE pgbench_accounts;")
    print(query(QUERIES))
shutil.rmtree("cluster")
