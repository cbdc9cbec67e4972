#!/usr/bin/env python3
"""How often does the lab see a difference where there is none, on real programs?

Five programs, each compared with itself again and again: one allocator under two names, as
`heapfit compare --aa` does. Whatever a verdict shows is false. That is asked of every metric that a
study has by itself, and answered by the share of verdicts that show a difference.

Run it on a quiet machine, with heapfit installed. 200 studies of ten blocks are 4,400 trials of a
quarter of a second, some 20 minutes:

    .venv/bin/python benchmarks/aa.py --json docs/results/aa.json

Studies are kept in the folder; the same command goes on where it was interrupted. Prints a line for
each program and metric in which anything was shown. Exits 0 where at most 6 % of the verdicts show
a difference, 1 where more do. `scripts/update-docs verdict` writes what is kept into the docs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lab"))

from heapfit import catalogue  # noqa: E402
from heapfit.records import Study, Verdict, Workload  # noqa: E402
from heapfit.report import read  # noqa: E402
from heapfit.study import execute, plan  # noqa: E402

MOST_FALSE = 0.06
REPLICATES = 10

_JSON = """
import json
rows = [{"id": n, "name": f"item {n}", "tags": [f"a{n % 7}", f"b{n % 11}"]} for n in range(60000)]
text = json.dumps(rows)
print(len(text), sum(len(row["tags"]) for row in json.loads(text)))
"""
_SQL = """
CREATE TABLE item(key, value);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 150000)
INSERT INTO item SELECT (i * 7919) % 1000, 'value ' || i FROM n;
CREATE INDEX by_value ON item(value);
SELECT count(*), sum(length(value)) FROM item GROUP BY key % 10;
"""
_AWK = """BEGIN {
    for (i = 0; i < 150000; i++) word[(i * 7919) % 100003] = word[i % 5003] i % 10
    for (key in word) letters += length(word[key])
    print letters
}"""
_PERL = """
my %list;
push @{$list{"key" . ($_ * 7919 % 5003)}}, "value $_" for 1 .. 300000;
my $letters = 0;
$letters += length join ",", sort @{$list{$_}} for sort keys %list;
print "$letters\\n";
"""
# A tenth to half a second each: long enough to be judged, short enough for thousands of trials.
PROGRAMS = {
    "python": ["/usr/bin/python3", "-c", _JSON],
    "sqlite": ["sqlite3", "-batch", "-init", "/dev/null", ":memory:", _SQL],
    "awk": ["awk", _AWK],
    "perl": ["perl", "-e", _PERL],
    "gcc": ["gcc", "-O2", "-I", f"{HERE.parent / 'include'}", "-c", "-o", "{scratch}/launch.o",
            f"{HERE.parent / 'lab/heapfit/trial/launch.c'}"],
}  # fmt: skip


def study_of(workload: Workload, allocator: str, seed: int) -> Study:
    [one] = catalogue.resolve_allocators([allocator])
    return plan(
        workload,
        [one, catalogue.once_more(one)],
        baseline=one.name,
        cores=[1],
        replicates=REPLICATES,
        seed=seed,
    )


def verdicts_of(study: Study, folder: Path) -> list[Verdict]:
    """Run what is missing of the study and return its verdicts."""
    execute(study, folder)
    return [each for each in read(folder).summary.verdicts if each.p is not None]


def said(name: str, false: int, judged: int) -> str:
    return f"{name}: {false} of {judged} false ({100 * false / max(judged, 1):.1f} %)"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=200, metavar="N", help="Of all programs.")
    parser.add_argument("--allocator", default="glibc", metavar="NAME")
    parser.add_argument("--out", type=Path, default=Path("heapfit-results/aa"), metavar="FOLDER")
    parser.add_argument("--json", type=Path, metavar="FILE", help="Keep the result there.")
    arguments = parser.parse_args()
    judged: Counter[tuple[str, str]] = Counter()
    false: Counter[tuple[str, str]] = Counter()
    names = list(PROGRAMS)
    with_any = 0  # studies
    for number in range(arguments.studies):
        name = names[number % len(names)]
        workload = catalogue.ad_hoc_workload(PROGRAMS[name])
        study = study_of(workload, arguments.allocator, seed=number + 1)
        found = verdicts_of(study, arguments.out / f"{name}-{number + 1}")
        with_any += any(each.shown for each in found)
        for verdict in found:
            judged[name, verdict.metric] += 1
            false[name, verdict.metric] += verdict.shown
        print(f"{number + 1} of {arguments.studies} studies: "
              + said("verdicts", false.total(), judged.total()), flush=True)  # fmt: skip
    print(said("studies with any", with_any, arguments.studies))
    for key, count in sorted(false.items()):
        if count:
            print(said(f"{key[0]}, {key[1]}", count, judged[key]))
    for metric in sorted({metric for _, metric in judged}):
        print(said(metric, *(sum(counts[n, metric] for n in names) for counts in (false, judged))))
    if arguments.json is not None:
        kept = [
            {"program": program, "metric": metric, "judged": count, "false": false[program, metric]}
            for (program, metric), count in sorted(judged.items())
        ]
        result = {"studies": arguments.studies, "studies_with_any_false": with_any,
                  "allocator": arguments.allocator, "verdicts": kept}  # fmt: skip
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0 if judged.total() > 0 and false.total() <= MOST_FALSE * judged.total() else 1


if __name__ == "__main__":
    sys.exit(main())
