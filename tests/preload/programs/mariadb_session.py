"""MariaDB makes its system tables, serves several clients at once, and is read after a restart.

It listens on a socket file in the present folder only. The clients work on rows of their own and
move amounts between shared ones, so that what they leave does not depend on their order.
"""

from __future__ import annotations

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from serving import NOT_ROOT, check_preloaded, serving

DATA = Path("data").absolute()
# A server that starts deletes all temporary tables in its folder for them, another server's too.
TEMPORARY = Path("temporary").absolute()
SOCKET = "mariadb.sock"
CLIENTS = 4
TRANSACTIONS_EACH = 150
STEP_TIMEOUT_S = 90

SERVER = [
    *("mariadbd", "--no-defaults", f"--datadir={DATA}", f"--socket={Path(SOCKET).absolute()}"),
    *(
        f"--tmpdir={TEMPORARY}",
        "--skip-networking",
        "--innodb-buffer-pool-size=24M",
        "--innodb-log-file-size=8M",
    ),
    *("--debug-no-sync", "--tmp-table-size=64K", "--sort-buffer-size=64K"),
]

FILL = """
CREATE DATABASE shop; USE shop;
CREATE TABLE words (
  n INT PRIMARY KEY, word CHAR(32), class INT, text MEDIUMTEXT,
  KEY (word), KEY (class), FULLTEXT (text)
) ENGINE=InnoDB CHARACTER SET utf8mb4;
INSERT INTO words SELECT seq, MD5(seq), seq * 7919 % 500,
  CONCAT_WS(' ', MD5(seq * 3), REPEAT(CHAR(97 + seq % 26 USING utf8mb4), seq % 2000))
  FROM seq_1_to_8000;
CREATE TABLE copied ENGINE=Aria AS SELECT * FROM words;
CREATE TABLE counted (n INT PRIMARY KEY, class INT, total INT) ENGINE=MyISAM
  AS SELECT n, class, n * 2 AS total FROM words;
CREATE TABLE accounts (id INT PRIMARY KEY, balance INT NOT NULL) ENGINE=InnoDB;
INSERT INTO accounts SELECT seq, 1000 FROM seq_1_to_50;
CREATE TABLE moved (client INT, step INT, note TEXT, PRIMARY KEY (client, step)) ENGINE=InnoDB;
DELIMITER //
CREATE PROCEDURE move(client INT, steps INT)
BEGIN
  DECLARE step INT DEFAULT 0;
  WHILE step < steps DO
    START TRANSACTION;
    SET @one = step * 7 % 50 + 1, @other = (step * 11 + client) % 50 + 1;
    SELECT COUNT(*) INTO @rows FROM accounts WHERE id IN (@one, @other) ORDER BY id FOR UPDATE;
    UPDATE accounts SET balance = balance - 1 WHERE id = @one;
    UPDATE accounts SET balance = balance + 1 WHERE id = @other;
    INSERT INTO moved VALUES (client, step, REPEAT(MD5(step), client * 20));
    COMMIT;
    SET step = step + 1;
  END WHILE;
END //
DELIMITER ;
"""

QUERIES = """
SELECT COUNT(*), SUM(LENGTH(text)), MIN(word), MAX(word) FROM words;
SELECT class, COUNT(*), MD5(GROUP_CONCAT(word ORDER BY word)) FROM words GROUP BY class LIMIT 5;
SELECT MD5(GROUP_CONCAT(MD5(text) ORDER BY REVERSE(word))) FROM copied WHERE n < 3000;
SELECT COUNT(*), SUM(a.n) FROM words a JOIN copied b ON a.class = b.class AND a.word > b.word;
SELECT COUNT(DISTINCT LEFT(text, 40)) FROM words;
SELECT SUM(r) FROM (SELECT RANK() OVER (PARTITION BY class ORDER BY text, n) AS r FROM words) AS x;
SELECT COUNT(*), MIN(n) FROM words WHERE MATCH (text) AGAINST ('+zzzz*' IN BOOLEAN MODE);
SELECT SUM(CRC32(REGEXP_REPLACE(word, '([0-9]+)([a-f])', '\\\\2\\\\1'))) FROM words;
SELECT MD5(JSON_ARRAYAGG(JSON_OBJECT('word', word, 'class', class) ORDER BY n)) FROM words
  WHERE n < 900;
SELECT SUM(CRC32(UNCOMPRESS(COMPRESS(text)))) FROM words WHERE n < 2000;
SELECT SUM(total) FROM counted JOIN words USING (n) WHERE words.class < 100;
WITH RECURSIVE tree (n, path) AS (
  SELECT 1, CAST('1' AS CHAR(200)) UNION ALL
  SELECT n * 2 + k.seq, CONCAT(path, '.', n) FROM tree, seq_0_to_1 AS k WHERE n < 1500)
  SELECT COUNT(*), SUM(CRC32(path)) FROM tree;
"""

LEFT_BY_CLIENTS = """
SELECT COUNT(*), SUM(balance), MD5(GROUP_CONCAT(balance ORDER BY id)) FROM accounts;
SELECT client, COUNT(*), SUM(CRC32(note)) FROM moved GROUP BY client ORDER BY client;
CHECK TABLE words, copied, counted, accounts, moved;
"""


def query(statements: str, *options: str) -> str:
    done = subprocess.run(
        ["mariadb", "--no-defaults", f"--socket={SOCKET}", "--user=root", *options],
        input=statements,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=STEP_TIMEOUT_S,
    )
    if done.returncode != 0:
        raise SystemExit(f"mariadb ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def answers() -> bool:
    if not Path(SOCKET).exists():
        return False
    asked = ["mariadb", "--no-defaults", f"--socket={SOCKET}", "--user=root", "-e", "SELECT 1"]
    return subprocess.run(asked, capture_output=True, timeout=STEP_TIMEOUT_S).returncode == 0


def make_system_tables() -> None:
    options = ("--no-defaults", f"--datadir={DATA}", f"--tmpdir={TEMPORARY}")
    done = subprocess.run(
        [
            *("mariadb-install-db", *options, "--skip-test-db", "--debug-no-sync"),
            "--auth-root-authentication-method=normal",
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=STEP_TIMEOUT_S,
        **NOT_ROOT,
    )
    print("mariadb-install-db's exit code", done.returncode)
    if done.returncode != 0:
        raise SystemExit(done.stdout + done.stderr)


def load() -> None:
    calls = [f"CALL move({client}, {TRANSACTIONS_EACH});" for client in range(CLIENTS)]
    with ThreadPoolExecutor(2 * CLIENTS) as pool:
        moves = [pool.submit(query, call, "shop") for call in calls]
        reads = [pool.submit(query, QUERIES, "shop") for _ in range(CLIENTS)]
        print("moved without a word:", not any(move.result() for move in moves))
        print("all read the same:", len({read.result() for read in reads}) == 1)


Path.cwd().chmod(0o777)  # the server may run as another user
TEMPORARY.mkdir()
TEMPORARY.chmod(0o777)
make_system_tables()
with serving(SERVER, answers) as server:
    query(FILL)
    print(query(QUERIES, "shop"))
    load()
    check_preloaded(server)
    print(query(LEFT_BY_CLIENTS, "shop"))
with serving(SERVER, answers):
    print(query(QUERIES + LEFT_BY_CLIENTS, "shop"))
    query(
        "ALTER TABLE copied ENGINE=InnoDB; ALTER TABLE counted ENGINE=Aria; OPTIMIZE TABLE moved;",
        "shop",
    )
    print(query(QUERIES + LEFT_BY_CLIENTS, "shop"))
shutil.rmtree(DATA)
shutil.rmtree(TEMPORARY)
