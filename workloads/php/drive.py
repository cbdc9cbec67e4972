"""Drives the application that stack.py serves, checks every answer, and prints a metric a line.

The pages come in an order that a fixed seed shuffles; a share of them may be pages with a form,
which is filled in and submitted. A warm-up fills the caches. Then wrk asks for a fixed number of
answers over twice as many connections as there are workers, so that no worker waits for work. At
the end what was submitted is looked for in the application. Ends with `answers right`, or with exit
code 1 at the first wrong answer.

Usage: drive.py --application FOLDER --data FOLDER --scratch FOLDER --port PORT
                [--requests N] [--warmup N] [--edits PERCENT] [--workers N]
"""

from __future__ import annotations

import argparse
import itertools
import random
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from application import Application, Page
from workers import Workers

LOAD = Path(__file__).with_name("load.lua")
SEED = 20090615
CONNECTIONS_PER_WORKER = 2
TIME_LIMIT_S = 200
ANSWER_TIMEOUT_S = 30
# Steps of the plan at most; it is gone through again when it is at its end.
PLAN_STEPS = 5000
PLAN_FIELDS = 12


class Step(NamedTuple):
    """One line of the plan."""

    page: Page
    follows: bool = False  # asked for when the answer to the line before has come


@dataclass(frozen=True)
class Load:
    """What wrk reported of one run."""

    answers: int
    seconds: float
    p50: float
    p99: float
    submitted: list[int]  # numbers of steps in the plan, from 1


def make_plan(pages: list[Page], edits: int) -> list[Step]:
    """The steps, of which `edits` in a hundred have a form to submit.

    The pages of a kind come in random order, and in the same one again: two edits of a page that
    were close to each other might conflict.
    """
    choice = random.Random(SEED)
    kinds = {
        False: [page for page in pages if page.submit is None],
        True: [page for page in pages if page.submit is not None],
    }
    wanted = [False] * (100 - edits) + [True] * edits
    for has_form in set(wanted):
        if not kinds[has_form]:
            sys.exit(
                f"drive.py: the application has no pages {'with' if has_form else 'but'} forms"
            )
    orders = {
        has_form: itertools.cycle(choice.sample(of_kind, len(of_kind)))
        for has_form, of_kind in kinds.items()
    }
    plan: list[Step] = []
    while len(plan) < PLAN_STEPS:
        choice.shuffle(wanted)
        for has_form in wanted:
            page = next(orders[has_form])
            plan += [Step(page), *(Step(each, follows=True) for each in page.then)]
    return plan


def write_plan(plan: list[Step], path: Path) -> None:
    """Write it in the form that load.lua explains."""
    lines = []
    for page, follows in plan:
        then = "then" if follows else ""
        values = [page.path, page.contains, page.cookie, str(page.status), encoded(page.post), then]
        if page.submit:
            form = page.submit
            values += [form.form, form.textarea, form.append, form.action, str(form.status)]
            values.append(encoded(form.fields))
        values += [""] * (PLAN_FIELDS - len(values))
        lines.append("\t".join(quote(value, safe="/?=") for value in values) + "\n")
    path.write_text("".join(lines), encoding="utf-8")


def encoded(fields: dict[str, str]) -> str:
    """`fields` as the body of a submitted form."""
    return "&".join(f"{quote(name, '')}={quote(value, '')}" for name, value in fields.items())


def run_load(plan: Path, port: int, answers: int, connections: int) -> Load:
    command = ["wrk", "--threads", "1", "--connections", str(connections)]
    command += ["--duration", str(TIME_LIMIT_S), "--timeout", str(ANSWER_TIMEOUT_S)]
    command += ["--script", str(LOAD), f"http://127.0.0.1:{port}/", "--", str(plan), str(answers)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * TIME_LIMIT_S)
    said = dict(line.partition(" ")[::2] for line in done.stdout.splitlines())
    if done.returncode != 0 or "answers" not in said:
        sys.exit(f"drive.py: wrk failed: {(done.stdout + done.stderr).strip()[-1000:]}")
    if said["failure"].strip():
        sys.exit(f"drive.py: {said['failure']}")
    if int(said["answers"]) != answers or int(said["errors"]):
        sys.exit(f"drive.py: {said['answers']} of {answers} answers, {said['errors']} errors")
    return Load(
        answers=answers,
        seconds=float(said["seconds"]),
        p50=float(said["p50"]),
        p99=float(said["p99"]),
        submitted=[int(number) for number in said["submitted"].split()],
    )


def check_stored(plan: list[Step], submitted: set[int], port: int) -> None:
    """Exit unless what was submitted is now in the application."""
    pages = [plan[number - 1].page for number in sorted(submitted)]
    for at, text in sorted({(page.stored_at, page.to_find) for page in pages if page.stored_at}):
        url = f"http://127.0.0.1:{port}{at}"
        with urllib.request.urlopen(url, timeout=ANSWER_TIMEOUT_S) as answer:
            if text not in answer.read().decode("utf-8", "replace"):
                sys.exit(f"drive.py: what was submitted is not at {at}: {text!r}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Drive a PHP application and check its answers.")
    parser.add_argument("--application", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--scratch", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--warmup", type=int, default=40)
    parser.add_argument("--edits", type=int, default=0, metavar="PERCENT")
    parser.add_argument("--workers", type=int, default=1)
    arguments = parser.parse_args()
    if not 0 <= arguments.edits <= 100:
        parser.error("--edits is a percentage")
    return arguments


def main() -> None:
    arguments = parse()
    application = Application.load(arguments.application.resolve())
    plan = make_plan(application.all_pages(arguments.data), arguments.edits)
    steps = arguments.scratch / "plan"
    write_plan(plan, steps)
    connections = CONNECTIONS_PER_WORKER * arguments.workers
    port = arguments.port

    warmup = run_load(steps, port, arguments.warmup, connections)
    workers = Workers.of(arguments.scratch)
    used_s = workers.cpu_s()
    load = run_load(steps, port, arguments.requests, connections)
    used_s = workers.cpu_s() - used_s
    print(f"requests_per_s {load.answers / load.seconds:.4f}")
    print(f"latency_p50_s {load.p50:.6f}")
    print(f"latency_p99_s {load.p99:.6f}")
    print(f"php_rss_bytes {workers.rss_bytes():.0f}")
    print(f"php_pss_bytes {workers.pss_bytes():.0f}")
    print(f"php_cpu_s_per_request {used_s / load.answers:.7f}")
    if Workers.of(arguments.scratch) != workers:
        sys.exit("drive.py: a worker of php-fpm died and was replaced")
    print(f"edits {len(load.submitted)}")
    if arguments.edits and not load.submitted:
        sys.exit("drive.py: no form was submitted; ask for more requests")
    check_stored(plan, {*warmup.submitted, *load.submitted}, port)
    print("answers right")


if __name__ == "__main__":
    main()
