-- An atlas of languages and regions (iso-codes) with journeys between the regions, made with a
-- fixed seed: bulk inserts, indices, joins, grouping, window functions, full-text search, text
-- aggregation, a recursive query, updates and deletes. Everything printed is in a stated order.
-- Figures are integers: the output does not depend on how a floating-point number is rounded.

.bail on
.mode list
.headers off

PRAGMA journal_mode = MEMORY;
PRAGMA temp_store = MEMORY;

-- ---- Real data: every language and every region ----

CREATE TABLE language (code TEXT PRIMARY KEY, name TEXT NOT NULL, scope TEXT, kind TEXT)
  WITHOUT ROWID;
INSERT INTO language
  SELECT value ->> 'alpha_3', value ->> 'name', value ->> 'scope', value ->> 'type'
  FROM json_each(readfile('/usr/share/iso-codes/json/iso_639-3.json'), '$.639-3');

CREATE TABLE region (
  id INTEGER PRIMARY KEY, code TEXT UNIQUE NOT NULL, country TEXT NOT NULL,
  name TEXT NOT NULL, kind TEXT NOT NULL);
INSERT INTO region (code, country, name, kind)
  SELECT value ->> 'code', substr(value ->> 'code', 1, 2), value ->> 'name', value ->> 'type'
  FROM json_each(readfile('/usr/share/iso-codes/json/iso_3166-2.json'), '$.3166-2')
  ORDER BY value ->> 'code';

SELECT 'languages', (SELECT count(*) FROM language), 'regions', (SELECT count(*) FROM region);

-- ---- Journeys: two linear congruential sequences, so the same in every run ----

CREATE TABLE journey (
  id INTEGER PRIMARY KEY, origin INTEGER NOT NULL, target INTEGER NOT NULL, day INTEGER NOT NULL,
  price INTEGER NOT NULL, traveller TEXT NOT NULL, note TEXT);
BEGIN;
WITH RECURSIVE chance(n, x, y) AS (
  VALUES (1, 20240229, 19700101)
  UNION ALL
  SELECT n + 1, (x * 1103515245 + 12345) % 2147483648, (y * 22695477 + 1) % 4294967296
  FROM chance WHERE n < 120000)
INSERT INTO journey
  SELECT n, 1 + (x >> 12) % 5000, 1 + (y >> 16) % 5000, (y >> 9) % 365, 10 + (x >> 10) % 990,
    printf('traveller-%06d', (y >> 13) % 24000),
    CASE WHEN n % 3 = 0 THEN printf('%x by way of %s', x, printf('%.*c', y % 40, '=')) END
  FROM chance;
COMMIT;
CREATE INDEX journey_by_origin ON journey (origin, day);
CREATE INDEX journey_by_traveller ON journey (traveller, day);
ANALYZE;

-- ---- Joins and grouping ----

SELECT 'kind', kind, count(*) FROM language GROUP BY kind ORDER BY kind;
SELECT 'route', o.country, t.country, count(*), sum(j.price)
  FROM journey j JOIN region o ON o.id = j.origin JOIN region t ON t.id = j.target
  GROUP BY o.country, t.country ORDER BY count(*) DESC, o.country, t.country LIMIT 12;
SELECT 'longest list', country, count(*), length(group_concat(name, '; '))
  FROM region GROUP BY country ORDER BY 4 DESC, country LIMIT 5;
SELECT 'speaks', r.name, l.code
  FROM region r JOIN language l ON l.name = r.name ORDER BY r.code, l.code LIMIT 8;

-- ---- Window functions: the running cost and the rank of each traveller's journeys ----

SELECT 'dearest day', traveller, day, running FROM (
  SELECT traveller, day,
    sum(price) OVER (PARTITION BY traveller ORDER BY day, id) AS running,
    row_number() OVER (PARTITION BY traveller ORDER BY price DESC, id) AS place
  FROM journey)
  WHERE place = 1 ORDER BY running DESC, traveller LIMIT 8;
SELECT 'steepest rise', traveller, day, rise FROM (
  SELECT traveller, day, id,
    price - lag(price, 1, price) OVER (PARTITION BY traveller ORDER BY day, id) AS rise
  FROM journey)
  ORDER BY rise DESC, traveller, id LIMIT 5;

-- ---- Text: full-text search over all names, and the commonest words ----

CREATE VIRTUAL TABLE names USING fts5(name, kind UNINDEXED, prefix = '2 3');
INSERT INTO names SELECT name, 'language' FROM language ORDER BY code;
INSERT INTO names SELECT name, 'region' FROM region ORDER BY code;
SELECT 'found', kind, name FROM names WHERE names MATCH 'north* OR south*'
  ORDER BY kind, name LIMIT 10;
SELECT 'matches', count(*) FROM names WHERE names MATCH 'sign NOT american';
WITH RECURSIVE words(word, rest) AS (
  SELECT '', lower(name) || ' ' FROM language
  UNION ALL
  SELECT substr(rest, 1, instr(rest, ' ') - 1), substr(rest, instr(rest, ' ') + 1)
  FROM words WHERE rest <> '')
SELECT 'word', word, count(*) FROM words WHERE length(word) > 3
  GROUP BY word ORDER BY count(*) DESC, word LIMIT 8;
SELECT 'pattern', count(*) FROM region WHERE name LIKE '%berg%' OR name GLOB '*[aeiou]ss*';

-- ---- Changes: updates through an index, deletes, and rows rewritten as JSON ----

BEGIN;
UPDATE journey SET note = upper(coalesce(note, '')) || ' (checked ' || day || ')'
  WHERE origin % 7 = 3;
UPDATE region SET name = replace(name, ' ', '_') WHERE country IN ('DE', 'FR', 'GB', 'IT');
DELETE FROM journey WHERE day BETWEEN 100 AND 150;
DELETE FROM names WHERE kind = 'region' AND rowid % 2 = 0;
COMMIT;
SELECT 'left', count(*), sum(length(note)), min(id), max(id) FROM journey;
SELECT 'as json', sum(length(document)) FROM (
  SELECT json_group_array(json_object('id', id, 'from', origin, 'to', target, 'note', note))
    AS document
  FROM journey GROUP BY traveller);
VACUUM;

-- ---- The check: the database is sound, and two ways to count agree ----

PRAGMA integrity_check;
SELECT CASE WHEN
    (SELECT sum(n) FROM (SELECT count(*) AS n FROM journey GROUP BY traveller))
      = (SELECT count(*) FROM journey)
    AND (SELECT count(*) FROM language) > 7000 AND (SELECT count(*) FROM region) > 4500
  THEN 'atlas sound' ELSE 'atlas BROKEN' END;
