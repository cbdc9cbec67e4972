"""The PHP applications: right in every mode, each answer checked, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from heapfit import paths
from heapfit.catalogue import load_workloads
from heapfit.records import InstalledAllocator, TrialStatus
from heapfit.study import plan
from heapfit.trial import run_trial
from php_stack import (
    FOLDER,
    MACHINERY,
    PYTHON,
    STOP_TIMEOUT_S,
    beside_the_extension,
    figures,
    serving,
)
from sampling import sampled

pytestmark = pytest.mark.full

APPLICATIONS = sorted(path.parent.name for path in FOLDER.glob("php-*/application.toml"))
MODES = ["zend", "defrag-dodging", "region", "malloc"]
FORMS = ["php-mediawiki", "php-dokuwiki"]


def digest(folder: Path) -> dict[str, tuple[int, int]]:
    """Sizes and times of all files: what has been written to shows."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {
        str(path): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in files
        if "__pycache__" not in path.parts
    }


# ------------------------------------------------------------- an application of two lines


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """An application that adds numbers up, and keeps what is posted to it."""
    folder = tmp_path / "tiny"
    (folder / "www").mkdir(parents=True)
    (folder / "application.toml").write_text(
        'root = "{here}/www"\n'
        'extensions = ["ctype", "mbstring"]\n'
        'environment = { KEPT = "{scratch}/kept" }\n'
    )
    (folder / "www" / "index.php").write_text(
        "<?php $sum = 0; for ($i = 0; $i <= $_GET['n']; $i++) { $sum += $i; }\n"
        "echo 'the sum is ', $sum, ' by ', mb_strtoupper('php');"
    )
    (folder / "www" / "form.php").write_text(
        "<?php if ($_POST) { file_put_contents(getenv('KEPT'), $_POST['text'], FILE_APPEND);\n"
        "header('Location: /'); exit; } ?>\n"
        "<form id='note' action='/form.php'><input type='hidden' name='key' value='&lt;7&gt;'>\n"
        "<textarea name='text'>a &amp; b</textarea></form>"
    )
    (folder / "www" / "kept.php").write_text("<?php readfile(getenv('KEPT'));")
    return folder


def write_pages(folder: Path, pages: list[dict[str, object]]) -> Path:
    data = folder / "data"
    data.mkdir()
    (data / "pages.json").write_text(json.dumps(pages))
    return beside_the_extension(data)


LONG_SUM = {"path": "/?n=200000", "contains": "the sum is 20000100000"}
SUM = {"path": "/?n=4", "contains": "the sum is 10 by PHP"}
NOTE = {
    "path": "/form.php",
    "contains": "textarea",
    "submit": {"form": "note", "textarea": "text", "append": " and more"},
    "stored_at": "/kept.php",
}


@pytest.mark.full
def test_prints_every_metric_that_the_workloads_read(tiny: Path, tmp_path: Path) -> None:
    data = write_pages(tmp_path, [LONG_SUM])
    with serving(tiny, data, tmp_path / "scratch", workers=2) as served:
        done = served.drive(requests=400, workers=2)
    assert done.returncode == 0, done.stderr
    printed = figures(done.stdout)
    for workload in load_workloads([FOLDER / name for name in APPLICATIONS]).values():
        assert {metric.name for metric in workload.metrics} <= set(printed)
    assert printed["latency_p50_s"] <= printed["latency_p99_s"]
    assert 0 < printed["php_pss_bytes"] < printed["php_rss_bytes"]
    # Two workers cannot use more than all the time that there was.
    elapsed_s = 400 / printed["requests_per_s"]
    assert 0 < printed["php_cpu_s_per_request"] * 400 < 2 * elapsed_s + 0.1


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ({"path": "/?n=4", "contains": "the sum is 11"}, "does not hold 'the sum is 11'"),
        ({"path": "/none.php", "contains": ""}, "not the status 200 (status 404)"),
    ],
)
def test_a_wrong_answer_is_told_and_ends_it(
    page: dict[str, object], message: str, tiny: Path, tmp_path: Path
) -> None:
    data = write_pages(tmp_path, [SUM, page])
    with serving(tiny, data, tmp_path / "scratch") as served:
        done = served.drive(requests=50)
    assert done.returncode == 1
    assert message in done.stderr
    assert "answers right" not in done.stdout


def test_a_form_is_sent_back_with_more_and_found_again(tiny: Path, tmp_path: Path) -> None:
    data = write_pages(tmp_path, [SUM, NOTE])
    with serving(tiny, data, tmp_path / "scratch") as served:
        done = served.drive(requests=100, edits=50)
        kept = (tmp_path / "scratch" / "kept").read_text()
    assert done.returncode == 0, done.stderr
    assert set(kept.split("a & b")) == {"", " and more"}
    assert figures(done.stdout)["edits"] >= 25


@pytest.mark.full
def test_a_form_whose_text_is_lost_is_noticed(tiny: Path, tmp_path: Path) -> None:
    data = write_pages(tmp_path, [SUM, {**NOTE, "stored_at": "/?n=1"}])
    with serving(tiny, data, tmp_path / "scratch") as served:
        done = served.drive(requests=40, edits=50)
    assert done.returncode == 1
    assert "what was submitted is not at /?n=1" in done.stderr


def test_the_preloaded_allocator_is_in_php_and_nowhere_else(tiny: Path, tmp_path: Path) -> None:
    data = write_pages(tmp_path, [SUM])
    library = paths.library()
    with serving(tiny, data, tmp_path / "scratch", preload=library, mode="malloc") as served:
        assert served.drive(requests=20).returncode == 0
        holders = {
            name
            for name, group in served.processes().items()
            for process in group
            if str(library) in Path(f"/proc/{process.pid}/maps").read_text()
        }
        assert {"nginx"} <= set(served.processes())
    assert holders == {"php-fpm8.2"}


@pytest.mark.full
def test_listens_on_loopback_only(tiny: Path, tmp_path: Path) -> None:
    data = write_pages(tmp_path, [SUM])
    with serving(tiny, data, tmp_path / "scratch") as served:
        listening = {
            each.laddr.ip
            for group in served.processes().values()
            for process in group
            for each in process.net_connections("inet")
            if each.status == psutil.CONN_LISTEN
        }
    assert listening == {"127.0.0.1"}


@pytest.mark.parametrize("victim", ["php-fpm8.2", "nginx"])
def test_a_server_that_dies_ends_the_others_and_is_named(
    victim: str, tiny: Path, tmp_path: Path
) -> None:
    data = write_pages(tmp_path, [SUM])
    with serving(tiny, data, tmp_path / "scratch") as served:
        first = min(served.processes()[victim], key=lambda process: process.create_time())
        first.send_signal(signal.SIGKILL)
        _, said = served.supervisor.communicate(timeout=STOP_TIMEOUT_S)
        assert served.supervisor.returncode == 1
    assert f"{victim.removesuffix('8.2')} ended with -9" in said


@pytest.mark.full
def test_a_worker_that_dies_spoils_the_measurement(tiny: Path, tmp_path: Path) -> None:
    (tiny / "www" / "index.php").write_text("<?php posix_kill(getmypid(), 9);")
    settings = tiny / "application.toml"
    settings.write_text(settings.read_text().replace('"ctype"', '"ctype", "posix"'))
    data = write_pages(tmp_path, [SUM])
    with serving(tiny, data, tmp_path / "scratch") as served:
        done = served.drive(requests=20)
    assert done.returncode == 1
    assert "not the status 200 (status 502)" in done.stderr


def test_says_what_is_wrong_with_an_application(tiny: Path, tmp_path: Path) -> None:
    settings = tiny / "application.toml"
    settings.write_text(settings.read_text() + 'databse = "sqlite"\n')
    command = [PYTHON, MACHINERY / "stack.py", "--application", tiny, "--data", tmp_path]
    command += ["--scratch", tmp_path, "--port", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=STOP_TIMEOUT_S)
    assert done.returncode == 1
    assert "unknown keys: databse" in done.stderr


def test_huge_pages_of_malloc_are_refused(tiny: Path, tmp_path: Path) -> None:
    command = [PYTHON, MACHINERY / "stack.py", "--application", tiny, "--data", tmp_path]
    command += ["--scratch", tmp_path, "--port", "1", "--mode", "malloc", "--huge-pages", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=STOP_TIMEOUT_S)
    assert done.returncode == 2
    assert "huge pages of malloc" in done.stderr


# --------------------------------------------------------------------- the real ones


@pytest.mark.parametrize("name", APPLICATIONS)
def test_is_called_like_its_folder_and_stands_in_the_readme(name: str) -> None:
    (workload,) = load_workloads([FOLDER / name]).values()
    assert workload.name == name
    assert f"| `{name}` |" in (FOLDER / "README.md").read_text()


@pytest.mark.parametrize("name", sampled(APPLICATIONS, "php-shop"))
def test_is_right_in_every_mode_and_leaves_its_data_alone(
    name: str, prepared: Any, tmp_path: Path
) -> None:
    data = prepared(name)
    before = digest(data)
    for mode in MODES:
        with serving(FOLDER / name, data, tmp_path / mode, mode=mode) as served:
            done = served.drive(requests=24, edits=20 if name in FORMS else 0)
            assert served.stop() == 0
        assert done.returncode == 0, f"{mode}: {done.stderr}"
        assert done.stdout.endswith("answers right\n")
        assert (figures(done.stdout)["edits"] > 0) >= (name in FORMS)
    assert digest(data) == before


@pytest.mark.parametrize("name", sampled(APPLICATIONS))
def test_is_a_trial_under_the_library_as_under_glibc(
    name: str, prepared: Any, tmp_path: Path
) -> None:
    (workload,) = load_workloads([FOLDER / name]).values()
    study = plan(
        workload,
        [
            InstalledAllocator(name="glibc", title="glibc", version="", library=None),
            InstalledAllocator(name="own", title="own", version="", library=paths.library()),
        ],
        baseline="glibc",
        cores=[1],
        replicates=1,
        warmups=0,
        parameters={"requests": "20", "mode": "malloc"},
    )
    for planned in study.plan:
        trial = run_trial(study, planned, tmp_path, None, prepared(name))
        assert trial.status is TrialStatus.OK, f"{trial.reason}\n{trial.stderr_tail}"
        assert {metric.name for metric in workload.metrics} <= set(trial.metrics)


def test_the_extension_lies_where_the_workloads_look_for_it() -> None:
    """They find it by its place beside them, in a checkout and in a wheel."""
    beside = paths.workloads_dir().parent / "integrations"
    assert (beside / "php" / "build").is_file()


# ------------------------------------------------------------------------- articles


ARTICLES = """\
import sys
sys.path.insert(0, sys.argv[1])
import articles
chosen = articles.load(int(sys.argv[2]))
for writer in articles.WikiText(chosen), articles.DokuWiki(chosen), articles.Html(chosen):
    for article in chosen:
        print(article.title, writer.write(article))
"""


@pytest.mark.full
def test_the_articles_are_the_same_every_time() -> None:
    made = [
        subprocess.run(
            [sys.executable, "-c", ARTICLES, MACHINERY, "300"],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2")
    ]
    assert made[0] == made[1]
    assert len(made[0]) > 3_000_000
