"""`heapfit fit`: from a program to the lines that deploy, or to the advice to stay."""

from __future__ import annotations

import configparser
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import Heapfit, assert_one_line, heapfit_command
from heapfit import catalogue
from heapfit.errors import HeapfitError, UsageError
from heapfit.fit import goal, look, search
from heapfit.fit.candidates import candidates
from heapfit.fit.facts import Facts
from study_files import trials_in
from trace_data import service

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("library")]

HERE = Path(__file__).parent
TWO = ["--allocators", "glibc,heapfit"]
# Blocks have a most, so that a quiet machine needs a part of it; a busy one has slow trials.
TIME = "90s"


# Prints its number, and allocates until it is ended.
SERVICE = """
import os, sys, time
print(os.getpid(), flush=True)
kept = []
while True:
    kept = [bytearray(4000) for _ in range(1000)]
    time.sleep(0.05)
"""


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of fit_program.c."""
    made = tmp_path_factory.mktemp("fit") / "program"
    subprocess.run(["cc", "-O2", HERE / "fit_program.c", "-o", made], check=True)
    return made


@pytest.fixture(scope="session")
def wasteful(program: Path) -> str:
    """What the program has today: a library of fit_wasteful_malloc.c, as --baseline names it."""
    made = program.with_name("wasteful.so")
    source = HERE / "fit_wasteful_malloc.c"
    flags = ["-O2", "-fPIC", "-shared", "-fno-builtin-malloc"]
    subprocess.run(["cc", *flags, source, "-o", made], check=True)
    return f"today={made}"


@pytest.fixture(scope="session")
def fitted(
    run_heapfit: Heapfit, program: Path, wasteful: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[str | Path], dict[str, Any]]:
    """A fit that ends in a choice: its command, and what --json says."""
    out = tmp_path_factory.mktemp("fitted") / "results"
    command = ["fit", "--goal", "memory", "--allocators", "heapfit", "--baseline", wasteful,
               "--time", TIME, "--out", out]  # fmt: skip
    result = run_heapfit(*command, "--json", "--", program)
    assert result.returncode == 0, result.stderr
    return [*command, "--", program], json.loads(result.stdout)


def test_a_choice_is_what_the_verdict_on_new_blocks_shows(
    fitted: tuple[list[str | Path], dict[str, Any]],
) -> None:
    found = fitted[1]
    answer, folder = found["answer"], Path(found["folder"])
    assert answer["choice"] == "heapfit"
    [standing] = [each for each in answer["standings"] if each["name"] == "heapfit"]
    assert standing["memory"]["high"] < 1
    assert standing["memory"]["matters"]
    assert any("the peak resident memory of today (-" in s for s in answer["why"])
    confirm = json.loads((folder / "confirm" / "study.json").read_text())
    screened = [json.loads(each.read_text()) for each in folder.glob("screen-*/study.json")]
    assert {each["seed"] for each in screened}.isdisjoint({confirm["seed"]})
    assert confirm["weights"] == {"memory": 1.0}
    assert answer["study"] == str(folder / "confirm")
    known = found["facts"]
    assert known["threads"] == known["allocating_threads"] == 1
    assert known["live_share"] < 0.8
    assert known["peak_rss_bytes"] > 32 << 20


def test_the_same_command_measures_nothing_again(
    run_heapfit: Heapfit, fitted: tuple[list[str | Path], dict[str, Any]]
) -> None:
    command, found = fitted
    folder = Path(found["folder"])
    before = {each: each.read_bytes() for each in folder.glob("*/trials.jsonl")}
    again = run_heapfit(*command)
    assert again.returncode == 0, again.stderr
    assert {each: each.read_bytes() for each in folder.glob("*/trials.jsonl")} == before
    said = " ".join(again.stdout.split())
    assert "Choose heapfit (goal: memory)" in said
    assert "recording one run" not in again.stderr
    report = run_heapfit("report", folder / "confirm")
    assert "Recommended: heapfit" in report.stdout
    other = [word if word != "memory" else "time" for word in command]
    assert_one_line(run_heapfit(*other), 2, ["holds another request", "--goal memory"])


def test_a_program_that_was_built_anew_is_looked_at_and_measured_anew(
    run_heapfit: Heapfit, tmp_path: Path
) -> None:
    """The old build's facts were told of the new one, and another round's survivors ended it."""
    script, out = tmp_path / "program", tmp_path / "out"
    command = ["fit", *TWO, "--time", TIME, "--out", out, "--json", "--", script]
    began = []
    for size in (20, 40):
        loop = f"k = [bytes(100) for _ in range({size} << 10)]"
        script.write_text(f"#!{sys.executable} -S\nfor _ in range(20): {loop}\n")
        script.chmod(0o755)
        result = run_heapfit(*command)
        assert result.returncode in (0, 3), result.stderr
        live = json.loads(result.stdout)["facts"]["peak_rss_bytes"]
        began.append((live, search.began(out / "confirm")))
    assert began[0][0] < began[1][0]
    assert began[0][1] < began[1][1]
    [kept] = (out / "earlier").iterdir()
    assert "confirm" in {each.name for each in kept.iterdir()}
    assert "of before the change: kept in" in result.stderr


def _deployed(deploy: Path) -> dict[str, str]:
    """What all the files set, which must agree."""
    lines = [
        line
        for line in (deploy / "heapfit.env").read_text().splitlines()
        if not line.startswith("#")
    ]
    variables = dict(line.split("=", 1) for line in lines)
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    units = (deploy / "zz-heapfit.conf").read_text()
    parser.read_string(units)
    assert parser.sections() == ["Service"]
    words = [line.partition("=")[2] for line in units.splitlines() if "Environment" in line]
    unquoted = [json.loads(word).replace("%%", "%") for word in words]
    assert dict(word.split("=", 1) for word in unquoted) == variables
    compose = yaml.safe_load((deploy / "compose.part.yaml").read_text())
    environment = compose["services"]["SERVICE"]["environment"]
    assert {k: v.replace("$$", "$") for k, v in environment.items()} == variables
    kubernetes = yaml.safe_load((deploy / "kubernetes.part.yaml").read_text())
    [container] = kubernetes["spec"]["template"]["spec"]["containers"]
    assert {each["name"]: each["value"] for each in container["env"]} == variables
    docker = [line.removeprefix("ENV ") for line in (deploy / "Dockerfile.part").read_text()
              .splitlines() if line.startswith("ENV ")]  # fmt: skip
    said = dict(line.split("=", 1) for line in docker)
    assert {k: json.loads(v.replace("\\$", "$")) for k, v in said.items()} == variables
    return variables


def test_hard_values_reach_every_file_whole(tmp_path: Path) -> None:
    from heapfit.fit import deploy

    plain = catalogue.resolve_allocators(["glibc"])[0]
    values = {"A": 'say "100%" for $5', "B": "back\\slash"}
    chosen = plain.model_copy(update={"variant_of": plain, "environment": values})
    less = deploy.Memory(is_mean=False, most=1e6, before=2e6)
    deploy.write(chosen, deploy.Promise("", plain, memory=less), tmp_path / "deploy")
    assert _deployed(tmp_path / "deploy") == values
    alerts = (tmp_path / "deploy/alerts.yaml").read_text()
    assert alerts.startswith("# The figure of memory is of the trials: replace it if")
    assert "Nothing: no library is preloaded." in (tmp_path / "deploy/README.txt").read_text()


def test_two_commands_put_the_choice_into_use_and_take_it_back(tmp_path: Path) -> None:
    from heapfit.fit import deploy

    glibc, heapfit = catalogue.resolve_allocators(["glibc", "heapfit"])
    deploy.write(heapfit, deploy.Promise("", glibc), tmp_path / "deploy")
    root = tmp_path / "root"
    drop_in = root / "etc/systemd/system/my-service.service.d/zz-heapfit.conf"

    def run(script: str, *words: str) -> subprocess.CompletedProcess[str]:
        command = ["sh", tmp_path / "deploy" / script, *words]
        environment = {**os.environ, "DESTDIR": str(root)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert run("install.sh", "my-service").returncode == 0
    assert drop_in.read_text() == (tmp_path / "deploy/zz-heapfit.conf").read_text()
    library = root / "usr/local/lib/libheapfit.so"
    assert library.read_bytes() == heapfit.library.resolve().read_bytes()
    assert run("remove.sh", "my-service.service").returncode == 0
    assert not drop_in.parent.exists()
    assert library.exists()


def test_scripts_that_are_called_in_vain_say_why(tmp_path: Path) -> None:
    """`remove.sh nosuch` reloaded systemd, and the usage came after `install.sh: 5: 1:`."""
    from heapfit.fit import deploy

    glibc, heapfit = catalogue.resolve_allocators(["glibc", "heapfit"])
    deploy.write(heapfit, deploy.Promise("", glibc), tmp_path / "deploy")
    for name in ("install.sh", "remove.sh"):
        script = tmp_path / "deploy" / name
        subprocess.run(["sh", "-n", script], check=True)
        told = subprocess.run(["sh", script], capture_output=True, text=True, check=False)
        assert (told.returncode, told.stderr) == (2, f"usage: sh {script} SERVICE\n")
        told = subprocess.run(
            ["sh", script, "no-such"], capture_output=True, text=True, check=False
        )
        lacks = {
            "install.sh": "systemd has no service no-such",
            "remove.sh": "there is no /etc/systemd/system/no-such.service.d/zz-heapfit.conf",
        }
        assert (told.returncode, told.stderr) == (1, f"{script}: {lacks[name]}\n")


@pytest.mark.parametrize(
    ("own", "of_file", "said"),
    [
        ("", "", ""),
        ("NOT_MALLOC_ARENA_MAX=4", "# MALLOC_ARENA_MAX=4\nOTHER=1\n", ""),
        ('A=1 "MALLOC_ARENA_MAX=4"', "", "served sets MALLOC_ARENA_MAX itself, so it is left"),
        ("A=1", "MALLOC_ARENA_MAX=4\n", "defaults sets MALLOC_ARENA_MAX and would override"),
    ],
)
def test_a_service_that_sets_the_variable_itself_is_left_as_it_is(
    tmp_path: Path, own: str, of_file: str, said: str
) -> None:
    """Its own LD_PRELOAD was lost, or the drop-in had no effect, without a word."""
    from heapfit.fit import deploy

    [glibc] = catalogue.resolve_allocators(["glibc"])
    update = {"variant_of": glibc, "environment": {"MALLOC_ARENA_MAX": "2"}}
    deploy.write(glibc.model_copy(update=update), deploy.Promise("", glibc), tmp_path / "deploy")
    defaults = tmp_path / "defaults"
    defaults.write_text(of_file)
    tools = tmp_path / "tools"
    tools.mkdir()
    told = f"""case "$*" in
        show*=Environment\\ *) echo '{own}' ;;
        show*=EnvironmentFiles*) echo '{defaults} (ignore_errors=yes)' ;;
    esac
    """
    for name, text in (("systemctl", told), ("install", f"touch '{tmp_path}/installed'")):
        (tools / name).write_text(f"#!/bin/sh\n{text}")
        (tools / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", tmp_path / "deploy/install.sh", "served"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, (tmp_path / "installed").exists()) == (
        (1, False) if said else (0, True)
    )
    assert said in done.stderr
    assert bool(done.stderr) == bool(said)


def test_what_undoing_leaves_is_told_with_how_to_remove_it(tmp_path: Path) -> None:
    """It said that nothing else had changed, and the library stayed."""
    from heapfit.fit import deploy

    glibc, heapfit = catalogue.resolve_allocators(["glibc", "heapfit"])
    options = heapfit.model_copy(update={"variant_of": heapfit, "options": {"decay_ms": "50"}})
    deploy.write(options, deploy.Promise("", glibc), tmp_path / "deploy")
    undo = (tmp_path / "deploy/README.txt").read_text().partition("Undo it")[2]
    [line] = [line for line in undo.splitlines() if "unset" in line]
    assert set(line.split("unset ")[1].split()) == {"HEAPFIT_OPTIONS", "LD_PRELOAD"}
    assert "The library stays" in undo
    assert undo.endswith("sudo rm /usr/local/lib/libheapfit.so\n")
    environment = tmp_path / "deploy/heapfit.env"
    assert "# HEAPFIT_OPTIONS=decay_ms:50,control:on\n" in environment.read_text()
    assert "control" not in deploy.shell_line(environment)
    setting = glibc.model_copy(update={"variant_of": glibc, "environment": {"A": "1"}})
    deploy.write(setting, deploy.Promise("", glibc), tmp_path / "deploy")
    assert (tmp_path / "deploy/heapfit.env").read_text() == "A=1\n"
    undo = (tmp_path / "deploy/README.txt").read_text().partition("Undo it")[2]
    assert "unset A\n" in undo
    assert "stays" not in undo


def test_a_library_of_the_users_with_a_name_of_the_catalogue_is_shipped(tmp_path: Path) -> None:
    """Debian's package was to be installed in its place, and the path preloaded was not there."""
    from heapfit.fit import deploy

    glibc, heapfit = catalogue.resolve_allocators(["glibc", "heapfit"])
    mine = tmp_path / "libjemalloc.so.2"
    mine.symlink_to(heapfit.library)
    [own] = catalogue.resolve_allocators([f"jemalloc={mine}"])
    deploy.write(own, deploy.Promise("", glibc), tmp_path / "deploy")
    assert "libjemalloc.so.2 /usr/local/lib" in " ".join(deploy.installation(tmp_path / "deploy"))
    assert "apt-get install" not in (tmp_path / "deploy/README.txt").read_text()


def test_what_was_edited_stays_as_long_as_the_answer_does(tmp_path: Path) -> None:
    from heapfit.fit import deploy

    glibc, heapfit = catalogue.resolve_allocators(["glibc", "heapfit"])
    alerts = tmp_path / "deploy" / deploy.ALERTS
    for is_new, stays in ((True, False), (False, True), (True, False)):
        deploy.write(heapfit, deploy.Promise("", glibc), alerts.parent, is_new=is_new)
        assert alerts.read_text().endswith("# edited") is stays
        alerts.write_text("# edited")
    # What was replaced is kept, and what lacks is made.
    [kept] = tmp_path.glob("earlier/*/deploy")
    assert (kept / deploy.ALERTS).read_text() == "# edited"
    library = alerts.with_name("libheapfit.so")
    for each in (alerts, library):
        each.unlink()
        deploy.write(heapfit, deploy.Promise("", glibc), alerts.parent, is_new=False)
        assert each.exists()
    environment = alerts.with_name("heapfit.env")
    before = deploy.shell_line(environment)
    environment.write_text(f"{environment.read_text()}\n\nnote\n")
    assert deploy.shell_line(environment) == before


def test_the_files_of_an_earlier_choice_are_not_taken_for_those_that_cannot_be_written(
    tmp_path: Path,
) -> None:
    from heapfit.fit import deploy

    glibc, heapfit = catalogue.resolve_allocators(["glibc", "heapfit"])
    setting = glibc.model_copy(update={"variant_of": glibc, "environment": {"A": "1"}})
    folder = tmp_path / "deploy"
    deploy.write(setting, deploy.Promise("", glibc), folder)
    gone = heapfit.model_copy(update={"library": tmp_path / "gone.so"})
    with pytest.raises(HeapfitError):
        deploy.write(gone, deploy.Promise("", glibc), folder)
    assert not folder.exists()
    [kept] = tmp_path.glob("earlier/*/deploy")
    assert (kept / "heapfit.env").read_text() == "A=1\n"


def test_what_a_library_loads_from_beside_it_is_deployed_with_it(tmp_path: Path) -> None:
    """Without it no program starts: the dynamic linker does not pass over such a library."""
    from heapfit.fit import deploy

    for name in ("inner", "outer"):
        (tmp_path / f"{name}.c").write_text(f"int {name}(void) {{ return 0; }}")
    inner, outer = tmp_path / "libinner.so.4", tmp_path / "libouter.so.2"
    shared = ["cc", "-shared", "-fPIC", "-Wl,--no-as-needed"]
    named = ["-Wl,-soname,libinner.so.4", "-o", f"{inner}", f"{tmp_path}/inner.c"]
    subprocess.run([*shared, *named], check=True)
    beside = ["-Wl,-rpath,$ORIGIN", "-o", f"{outer}", f"{tmp_path}/outer.c", f"{inner}", "-lm"]
    subprocess.run([*shared, *beside], check=True)
    plain = catalogue.resolve_allocators(["glibc"])[0]
    chosen = plain.model_copy(update={"name": "mine", "library": outer})
    folder = tmp_path / "deploy"
    deploy.write(chosen, deploy.Promise("", plain), folder)
    names = {"libouter.so.2", "libinner.so.4"}
    assert names == {each.name for each in folder.glob("lib*")}
    assert len(deploy.installation(folder)) == 3  # two files, and ldconfig
    copies = (folder / "Dockerfile.part").read_text()
    assert all(f"COPY {each} /usr/local/lib/{each}" in copies for each in names)
    root = tmp_path / "root"
    environment = {**os.environ, "DESTDIR": str(root)}
    subprocess.run(["sh", folder / "install.sh", "service"], env=environment, check=True)
    assert names == {each.name for each in (root / "usr/local/lib").iterdir()}
    preloaded = {**os.environ, "LD_PRELOAD": str(root / "usr/local/lib/libouter.so.2")}
    told = subprocess.run(["true"], env=preloaded, capture_output=True, text=True, check=True)
    assert told.stderr == ""


def test_the_plan_is_explained_without_a_run(run_heapfit: Heapfit, tmp_path: Path) -> None:
    words = ["sh", "-c", f"echo ran >> {tmp_path}/ran; exit 1"]
    result = run_heapfit("fit", *TWO, "--explain", "--", *words, folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "In 15 min 0 s" in result.stdout
    assert "screening: at most " in result.stdout
    assert "if threads that allocate > 2" in result.stdout
    assert "Much is resident" not in result.stdout
    assert "ruby" not in result.stdout
    assert list(tmp_path.iterdir()) == []
    as_json = run_heapfit("fit", *TWO, "--explain", "--json", "--", *words, folder=tmp_path)
    considered = {e["name"]: e for e in json.loads(as_json.stdout)["candidates"]}
    assert considered["heapfit"]["tried"]
    assert not considered["heapfit+python"]["tried"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--goal", "memori", "--", "true"], ["unknown goal 'memori'", "'memory'"]),
        (["--goal", "speed", "--", "true"], ["unknown goal 'speed'", "peak<=SIZE"]),
        (["--goal", "peak<2g", "--", "true"], ["'peak<=2g'", "not 'peak<2g'"]),
        (["--keep", "wall_s>1.01", "--", "true"], ["--keep takes a condition", "wall_s<=1.01"]),
        (["--keep", "minor_faults<=1", "--", "true"], ["--keep", "'minor_faults<=+…'"]),
    ],
)
def test_a_senseless_request_is_explained(
    run_heapfit: Heapfit, tmp_path: Path, words: list[str], said: list[str]
) -> None:
    assert_one_line(run_heapfit("fit", *TWO, *words, folder=tmp_path), 2, said)
    assert list(tmp_path.iterdir()) == []


def test_a_program_whose_malloc_cannot_be_replaced_ends_it(
    run_heapfit: Heapfit, tmp_path: Path
) -> None:
    own = "#include <stdlib.h>\nstatic char a[9];\nvoid *malloc(size_t n) { return n ? a : 0; }\n"
    for name, options_, source, said in (
        ("static", ["-static"], "", "link it dynamically"),
        ("own", ["-rdynamic"], own, "build it without its own"),
    ):
        compiler = ["cc", "-xc", "-", *options_, "-o", tmp_path / name]
        subprocess.run(compiler, input=f"{source}int main(void) {{ return 0; }}", check=True,
                       text=True)  # fmt: skip
        result = run_heapfit("fit", *TWO, "--", f"./{name}", folder=tmp_path)
        assert_one_line(result, 4, ["no allocator can be tried", said])


# Computes for a while with 20 MB, in the background if it is told so.
WORKER = """
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int count, char **words)
{
    char *all = malloc(20000000);
    for (int i = 0; i < 200; i++) memset(all, i, 20000000);
    if (count == 1) return all[9] == 0;
    if (daemon(1, 0) == 0) sleep(600);
}
"""


@pytest.mark.parametrize(
    ("options", "call", "said"),
    [
        (["-static"], "./worker", "reaches worker, which does the work: its malloc is built in"),
        ([], "./worker daemon", "leaves a process running in the background"),
    ],
)
def test_a_program_of_which_nothing_can_be_measured_ends_it(
    run_heapfit: Heapfit, tmp_path: Path, options: list[str], call: str, said: str
) -> None:
    compiler = ["cc", "-xc", "-", *options, "-o", tmp_path / "worker"]
    subprocess.run(compiler, input=WORKER, check=True, text=True)
    result = run_heapfit("fit", *TWO, "--", "sh", "-c", f"{call}; true", folder=tmp_path)
    assert result.returncode == 4, result.stdout
    assert said in result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("time_", "words", "said"),
    [
        ("1m", ["sleep", "6"], "allow --time 2m, or give the program less to do"),
        ("1m", ["date", "+%N"], "does not give the same output on every run; if that is as it"),
    ],
)
def test_a_program_that_tells_nothing_is_explained(
    run_heapfit: Heapfit, tmp_path: Path, time_: str, words: list[str], said: str
) -> None:
    result = run_heapfit("fit", *TWO, "--time", time_, "--", *words, folder=tmp_path)
    assert result.returncode == 4
    last = result.stderr.splitlines()[-1]
    assert last.startswith("heapfit: ")
    assert said in last


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return service(requests=400).write(tmp_path_factory.mktemp("trace") / "service.hft")


def test_of_a_recording_the_candidates_are_compared_by_replay(
    run_heapfit: Heapfit, trace: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    command = ["fit", trace, "--allocators", "glibc,heapfit,heapfit-pools", "--goal",
               "peak<=1k", "--time", TIME, "--out", out, "--json"]  # fmt: skip
    result = run_heapfit(*command)
    assert result.returncode == 1, result.stderr
    found = json.loads(result.stdout)
    answer = found["answer"]
    assert answer["is_replay"]
    assert answer["why"][0].startswith("Nothing meets peak<=1k: the lowest is ")
    assert any("rests on a replay of the recorded calls" in each for each in answer["why"])
    considered = {each["name"]: each for each in found["candidates"]}
    assert not considered["heapfit-pools"]["tried"]
    assert "a replay does not have" in considered["heapfit-pools"]["reason"]
    assert not considered["heapfit+python"]["tried"]
    metrics = trials_in(out / "confirm")[-1]["metrics"]
    assert "replay_peak_bytes" in metrics
    assert "peak_rss_bytes" not in metrics


def test_a_running_service_is_recorded_and_fitted(
    run_heapfit: Heapfit, clean_environment: dict[str, str], tmp_path: Path
) -> None:
    served = heapfit_command("record", "--later", "-o", tmp_path / "%p.hft", "--", sys.executable,
                             "-S", "-c", SERVICE)  # fmt: skip
    out = tmp_path / "out"
    with subprocess.Popen(served, env=clean_environment, stdout=subprocess.PIPE, text=True) as top:
        assert top.stdout is not None
        pid = int(top.stdout.readline())
        try:
            options = ["--goal", "peak<=1g", "--time", TIME, "--out", out, "--json"]
            result = run_heapfit("fit", "--pid", str(pid), *TWO, *options, timeout_s=540)
            status = run_heapfit("ctl", str(pid), "record", "status", "--json")
        finally:
            os.kill(pid, signal.SIGTERM)
    again = run_heapfit("fit", "--pid", str(pid), *TWO, *options, timeout_s=540)
    assert "this goes on with the recording of" in again.stderr
    assert again.stdout == result.stdout
    assert result.returncode in (0, 3), result.stderr
    assert json.loads(result.stdout)["answer"]["is_replay"]
    assert (out / "recording.hft").stat().st_size > 0
    assert not json.loads(status.stdout)["recording"]
    assert not list(tmp_path.glob("*.hft*"))  # nothing beside the folder of the fit


def test_a_recording_of_nothing_is_made_again(
    run_heapfit: Heapfit, clean_environment: dict[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    sleeps = "import os, time; print(os.getpid(), flush=True); time.sleep(99)"
    later = ["record", "--later", "-o", tmp_path / "%p.hft"]
    idle = heapfit_command(*later, "--", sys.executable, "-c", sleeps)
    with subprocess.Popen(idle, env=clean_environment, stdout=subprocess.PIPE, text=True) as top:
        assert top.stdout is not None
        pid = int(top.stdout.readline())
        try:
            for _ in range(2):
                told = run_heapfit("fit", "--pid", str(pid), *TWO, "--time", "10s", "--out", out)
                assert told.returncode == 4
                assert f"recording process {pid}" in told.stderr
                assert "is of no use: there is no allocation" in told.stderr
        finally:
            os.kill(pid, signal.SIGTERM)
    assert not (out / "recording.hft").exists()


def test_a_workload_that_puts_the_c_library_first_is_fitted(
    run_heapfit: Heapfit, tmp_path: Path
) -> None:
    result = run_heapfit("fit", "redis", *TWO, "--explain", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    redis = catalogue.resolve_workload("redis")
    [glibc] = catalogue.resolve_allocators(["glibc"])
    said = look.today(redis, glibc)
    assert "redis-server is linked with libjemalloc.so.2, which the workload replaces" in said
    bare = redis.model_copy(update={"run": redis.run.model_copy(update={"environment": {}})})
    assert "that is what glibc stands for below, since it preloads nothing" in look.today(
        bare, glibc
    )
    assert look.today(catalogue.ad_hoc_workload(["true"], None), glibc) is None
    assert look.own_allocator(redis, glibc) is None
    own = look.own_allocator(bare, glibc)
    assert own is not None
    [heapfit] = catalogue.resolve_allocators(["heapfit"])
    jemalloc = heapfit.model_copy(update={"name": "jemalloc", "library": own})
    facts = Facts(cores=2, python=1, huge_pages=0)
    of_memory = goal.parse("memory")
    for given in (None, own):
        found = candidates([glibc, heapfit, jemalloc], "glibc", facts, of_memory, own=given)
        tried = {each.name for each in found if each.tried}
        assert ("jemalloc" in tried) == ("glibc+trim-early" in tried) == (given is None)
        assert {"heapfit", "glibc+python"} <= tried
    mixed = {"LD_PRELOAD": "libc.so.6:/tmp/libmine.so"}
    mixed_run = redis.run.model_copy(update={"environment": mixed})
    with pytest.raises(UsageError, match="the workload sets LD_PRELOAD"):
        look.refuse(redis.model_copy(update={"run": mixed_run}))


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        (None, "if huge pages are on"),
        (0.0, "huge pages: never"),
        (1.0, "Seen: huge pages: on request (madvise)"),
    ],
)
def test_what_is_not_known_of_huge_pages_is_no_reason_against_them(
    mode: float | None, reason: str
) -> None:
    """Where the kernel did not say, it was told that it gives none."""
    [glibc] = catalogue.resolve_allocators(["glibc"])
    facts = Facts(cores=2, python=0, huge_pages=mode, peak_rss_bytes=2**30)
    found = {each.name: each for each in candidates([glibc], "glibc", facts, goal.parse("time"))}
    asks = found["glibc+huge-pages"]
    assert asks.tried == (mode != 0)
    assert reason in asks.reason
