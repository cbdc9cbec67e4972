"""The files that put a choice into use: for a shell, systemd, Docker, Compose and Kubernetes, and
how to see that it is in force and to take it back."""

from __future__ import annotations

import json
import math
import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from heapfit import options
from heapfit.catalogue import entry_of, treatment_word
from heapfit.fit.answer import TIMES, Answer
from heapfit.fit.goal import parse
from heapfit.host import elf
from heapfit.meaning import RESIDENT_MEAN, RESIDENT_PEAK
from heapfit.records import InstalledAllocator, Summary, Verdict, Workload
from heapfit.study.journal import cannot_write, set_aside
from heapfit.text import bytes_text, join_words, percent, shell_word, with_variables
from heapfit.trial.preload import VARIABLE, environment_changes, takes_options

# A library that no package has put in its place goes here, on the machine and into the image.
_LOCAL = Path("/usr/local/lib")
# What glibc installs: it is wherever a program is that loads its libraries.
_OF_LIBC = re.compile(r"(ld-linux.*|lib(c|dl|m|pthread|rt|resolv))\.so\.\d+$")
# What other programs of the system load as well: a copy might stand in its place for these.
_OF_SYSTEM = re.compile(r"lib(stdc\+\+|gcc_s|gomp|atomic)\.so\.\d+$")

ALERTS = "alerts.yaml"
# systemd reads drop-ins by name, and the last one that sets a variable counts: `systemctl edit`
# writes override.conf.
DROP_IN = "zz-heapfit.conf"
# What a service's processor time may be beside that of a week ago without anybody's doing.
_WEEKLY = 1.1


@dataclass(frozen=True)
class Memory:
    """What resident memory may reach, by the interval and by each trial, and was with today's."""

    is_mean: bool  # over time; else its peak
    most: float
    before: float

    @property
    def is_less(self) -> bool:
        """Whether today's is above what it may reach, so that being above it tells something."""
        return self.most < self.before


@dataclass(frozen=True)
class Promise:
    """What is deployed in place of what, and how far the evidence reaches."""

    evidence: str
    today: InstalledAllocator
    memory: Memory | None = None
    time: str = ""  # a sentence on the program's time beside today's
    preloaded: str = ""  # what the workload preloads itself, the C library

    @property
    def replaces(self) -> bool:
        """Whether the service's own LD_PRELOAD is known, so that its new value stands for it."""
        return bool(self.preloaded or self.today.library)


def promise(answer: Answer, summary: Summary, workload: Workload, evidence: str) -> Promise:
    """Return what `answer`, which has a choice, promises by the study that is summed up."""
    chosen = next(each for each in answer.standings if each.name == answer.choice)
    today = {e.metric: e.median for e in summary.estimates if e.allocator == answer.baseline}
    reached = {e.metric: e.maximum for e in summary.estimates if e.allocator == answer.choice}
    is_mean = parse(answer.goal).is_of_mean
    memory, time = _of_process(chosen.mean if is_mean else chosen.memory), _of_process(chosen.time)
    found = f"{time.estimate:.3g} times the {TIMES[time.metric]}" if time else ""
    return Promise(
        evidence=evidence,
        today=summary.study.allocator(answer.baseline),
        memory=Memory(
            is_mean,
            max(memory.high * today[memory.metric], reached[memory.metric]),
            today[memory.metric],
        )
        if memory and memory.high
        else None,
        time=f" heapfit fit found {found} before." if found else "",
        preloaded=workload.run.environment.get(VARIABLE, ""),
    )


def _of_process(verdict: Verdict | None) -> Verdict | None:
    """The verdict, if it is on a figure of the whole process: a replay's are of its heap."""
    is_such = verdict and verdict.metric in (RESIDENT_PEAK, RESIDENT_MEAN, *TIMES)
    return verdict if verdict and is_such and verdict.subject == "ratio" else None


def write(
    chosen: InstalledAllocator, of: Promise, folder: Path, *, is_new: bool = True
) -> list[Path]:
    """Write the files that put `chosen` in place of what there is into `folder`; return them. They
    stay as they are if all are there and the choice is not `is_new`. What is replaced is kept; it
    is moved away first, so that where no new files can be written none are taken for them."""
    variables = deployed(chosen, of.preloaded)
    if of.today.library and not chosen.library:
        variables.setdefault(VARIABLE, "")
    files = {
        "heapfit.env": _environment_file(variables, chosen),
        DROP_IN: _systemd(variables),
        "install.sh": _script(_INSTALL, variables, chosen, of),
        "remove.sh": _script(_REMOVE, variables, chosen, of),
        "Dockerfile.part": _docker(variables, chosen),
        "compose.part.yaml": _compose(variables),
        "kubernetes.part.yaml": _kubernetes(variables),
        ALERTS: _alerts(chosen, of),
        "README.txt": _readme(variables, chosen, of),
    }
    written = [folder / name for name in files]
    libraries = _copied(chosen)
    names = [*files, *(each.name for each in libraries)]
    if not is_new and all((folder / each).exists() for each in names):
        return written
    unfinished = folder.with_name(f"{folder.name}.part")
    move_away(folder)
    try:
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        for name, text in files.items():
            (unfinished / name).write_text(text, encoding="utf-8")
        for name in ("install.sh", "remove.sh"):
            (unfinished / name).chmod(0o755)
        for library in libraries:
            shutil.copyfile(library, unfinished / library.name)
        unfinished.rename(folder)
    except OSError as error:
        raise cannot_write(folder.parent, error) from error
    return written


def installation(folder: Path) -> list[str]:
    """Return the command that puts the library of `folder` where the variables name it; none where
    it is there already."""
    lines = [
        shlex.join(["sudo", "install", "-D", "-m", "755", str(each), str(_LOCAL / each.name)])
        for each in sorted(folder.glob("*.so*"))
    ]
    return [*lines, *["sudo ldconfig"] * (len(lines) > 1)]


def shell_line(environment: Path) -> str:
    """Return the line that runs a program with the choice, by the file `heapfit.env`."""
    lines = environment.read_text(encoding="utf-8").splitlines()
    set_ones = (each for each in lines if "=" in each and not each.startswith("#"))
    variables = dict(each.split("=", 1) for each in set_ones)
    return with_variables(variables, "PROGRAM")


def move_away(folder: Path) -> None:
    """Move what an earlier answer has written, and a user may have edited, out of the way."""
    if folder.exists():
        set_aside([folder], folder.parent)


def deployed(chosen: InstalledAllocator, preloaded: str = "") -> dict[str, str]:
    """Return the variables that put `chosen` in force, the library where it will be, before what is
    `preloaded` anyway."""
    place = _place(chosen)
    there = chosen.model_copy(update={"library": place})
    wanted = {options.VARIABLE: "", VARIABLE: preloaded}
    # Its own options alone: those that this shell has are not part of the choice.
    return {k: v for k, v in environment_changes(there, wanted).items() if v}


def _place(chosen: InstalledAllocator) -> Path | None:
    library = chosen.library
    if library is None or _package(chosen) or library.resolve().is_relative_to("/usr"):
        return library
    return _LOCAL / library.name


def _copied(chosen: InstalledAllocator) -> list[Path]:
    """Return the files of this machine that go along: the library, and what it loads from beside
    it. None where a package has it, or where it lies in /usr."""
    library = chosen.library
    if library is None or _place(chosen) == library:
        return []
    found = [library]
    for each in found:  # which grows by what each of them loads
        beside = (each.parent / name for name in _loaded(each) if not _OF_SYSTEM.match(name))
        found += [other for other in beside if other.is_file() and other not in found]
    return found


def _loaded(library: Path) -> list[str]:
    """Return the libraries that it loads, but for the C library's own."""
    file = elf.read_or_none(library)
    return [each for each in (file.needed if file else ()) if not _OF_LIBC.match(each)]


def _to_be_there(chosen: InstalledAllocator) -> list[str]:
    """Return the libraries that the choice loads and nothing here installs."""
    copied = _copied(chosen)
    names = {each.name for each in copied}
    loaded = dict.fromkeys(name for each in copied for name in _loaded(each))
    return [each for each in loaded if each not in names]


def _package(chosen: InstalledAllocator) -> str | None:
    """The Debian package that has the library, if one has."""
    entry = entry_of(chosen)
    return entry.source.package if entry and entry.source.kind == "debian" else None


def _environment_file(variables: Mapping[str, str], chosen: InstalledAllocator) -> str:
    """For `EnvironmentFile=` of systemd, `docker run --env-file`, and `set -a; . FILE`."""
    lines = [f"{name}={value}\n" for name, value in variables.items()]
    if takes_options(chosen):
        controlled = options.merge(variables.get(options.VARIABLE, ""), {"control": "on"})
        lines += [
            "# For heapfit ctl, export and top:\n",
            f"# {options.VARIABLE}={controlled}\n",
        ]
    return "".join(lines)


def _systemd(variables: Mapping[str, str]) -> str:
    words = [_quoted(f"{name}={value}".replace("%", "%%")) for name, value in variables.items()]
    lines = [f"Environment={word}" for word in words]
    return "\n".join(
        [f"# /etc/systemd/system/SERVICE.service.d/{DROP_IN}", "[Service]", *lines, ""]
    )


def _docker(variables: Mapping[str, str], chosen: InstalledAllocator) -> str:
    lines = []
    if package := _package(chosen):
        lines.append(
            f"RUN apt-get update && apt-get install -y --no-install-recommends {package} "
            "&& rm -rf /var/lib/apt/lists/*"
        )
    else:
        copied = _copied(chosen)
        lines += [f"COPY {each.name} {_LOCAL / each.name}" for each in copied]
        lines += ["RUN ldconfig"] * (len(copied) > 1)
    for name, value in variables.items():
        lines.append(f"ENV {name}={_quoted(value).replace('$', chr(92) + '$')}")
    return "\n".join([*lines, ""])


def _compose(variables: Mapping[str, str]) -> str:
    """A `$` is doubled: Compose would fill in a variable."""
    lines = [
        f"      {name}: {_quoted(value.replace('$', '$$'))}" for name, value in variables.items()
    ]
    return "\n".join(["services:", "  SERVICE:", "    environment:", *lines, ""])


def _kubernetes(variables: Mapping[str, str]) -> str:
    indent = " " * 12
    entries = [f"{indent}- name: {name}\n{indent}  value: {_quoted(value)}"
               for name, value in variables.items()]  # fmt: skip
    head = ["spec:", "  template:", "    spec:", "      containers:", "        - name: SERVICE",
            "          env:"]  # fmt: skip
    return "\n".join([*head, *entries, ""])


def _quoted(value: str) -> str:
    """In double quotes with backslashes, as YAML, systemd and Docker all read it."""
    return json.dumps(value, ensure_ascii=False)


def _readme(variables: Mapping[str, str], chosen: InstalledAllocator, of: Promise) -> str:
    if chosen.library or chosen.variant_of is None:
        title = f"{chosen.title}, version {chosen.version}"
    else:
        title = f"The setting {' '.join(f'{k}={v}' for k, v in variables.items())}"
    names = join_words([each.name for each in _copied(chosen)])
    return _README.format(
        title=title,
        evidence=of.evidence,
        needs=_needs(chosen),
        line=with_variables(variables, "PROGRAM"),
        image="; an image must contain the library, too" if chosen.library else "",
        placed=f"puts the library and {DROP_IN} in their places"
        if _copied(chosen)
        else f"puts {DROP_IN} in its place",
        context=f"copy {names} into the build context, and " if names else "",
        kubernetes=shlex.join(each + "-" for each in variables)
        + ("    (or what they were)" if of.today.library else ""),
        in_force="\n  ".join(_in_force(variables, chosen, of.today)),
        watch="\n  ".join(_watched(chosen, of)),
        unset=shlex.join(["unset", *_variables(variables, chosen)])
        + ("    (and set what was set before)" if of.today.library else ""),
        stays=_stays(chosen),
        run=f"heapfit run --allocator {shlex.quote(treatment_word(chosen))} -- PROGRAM",
    )


def _script(
    text: str, variables: Mapping[str, str], chosen: InstalledAllocator, of: Promise
) -> str:
    copied = _copied(chosen)
    return text.format(
        for_service=_FOR_SERVICE,
        drop_in=DROP_IN,
        package=shlex.quote(_package(chosen) or ""),
        libraries=shlex.join(each.name for each in copied),
        folder=_LOCAL,
        library=shlex.quote(copied[0].name if copied else ""),
        variables=" ".join(variables),
        replaced=" ".join(each for each in variables if each != VARIABLE or not of.replaces),
    )


_FOR_SERVICE = """\
set -eu
if [ -z "${1:-}" ]; then
    echo "usage: sh $0 SERVICE" >&2
    exit 2
fi
service=${1%.service}
drop_in=${DESTDIR:-}/etc/systemd/system/$service.service.d"""

_INSTALL = """\
#!/bin/sh
# Puts the choice into use for a systemd service: sudo sh install.sh SERVICE
# DESTDIR=DIR puts the files below DIR, and restarts nothing.
{for_service}
if [ -z "${{DESTDIR:-}}" ] && ! systemctl cat "$service.service" >/dev/null 2>&1; then
    echo "$0: systemd has no service $service" >&2
    exit 1
fi
here=$(dirname "$0")
# What the service sets itself would be lost, and what a file sets counts more than a drop-in.
if [ -z "${{DESTDIR:-}}" ] && [ ! -e "$drop_in/{drop_in}" ]; then
    for name in {replaced}; do
        if systemctl show --property=Environment --value "$service.service" |
            grep -Eq '(^|[ "])'"$name="; then
            echo "$0: $service sets $name itself, so it is left as it is: remove that first." >&2
            exit 1
        fi
    done
    for name in {variables}; do
        systemctl show --property=EnvironmentFiles --value "$service.service" |
            sed 's/ (ignore_errors=[a-z]*)$//' |
            while read -r file; do
                if grep -qs "^ *$name=" "$file"; then
                    echo "$0: $file sets $name and would override {drop_in}: remove it." >&2
                    exit 1
                fi
            done
    done
fi
package={package}
if [ -n "$package" ] && [ -z "${{DESTDIR:-}}" ]; then
    apt-get install --yes "$package"
fi
for library in {libraries}; do
    install -D -m 755 "$here/$library" "${{DESTDIR:-}}{folder}/$library"
done
preloaded={library}
if [ -n "$preloaded" ] && [ -z "${{DESTDIR:-}}" ]; then
    ldconfig
    # A program of its own: the dynamic linker says what is wrong, and may go on without.
    if ! said=$(env LD_PRELOAD="{folder}/$preloaded" env true 2>&1) || [ -n "$said" ]; then
        echo "$0: {folder}/$preloaded cannot be preloaded, so $service is left as it is: $said" >&2
        exit 1
    fi
fi
install -D -m 644 "$here/{drop_in}" "$drop_in/{drop_in}"
[ -n "${{DESTDIR:-}}" ] && exit 0
systemctl daemon-reload
systemctl restart "$service.service"
systemctl --no-pager --lines 0 status "$service.service"
"""

# The library stays: other services may have been given it, too, and it does nothing by itself.
_REMOVE = """\
#!/bin/sh
# Undoes it: sudo sh remove.sh SERVICE
{for_service}
if [ ! -e "$drop_in/{drop_in}" ]; then
    echo "$0: there is no $drop_in/{drop_in}" >&2
    exit 1
fi
rm -f "$drop_in/{drop_in}"
rmdir --ignore-fail-on-non-empty "$drop_in" 2>/dev/null || true
[ -n "${{DESTDIR:-}}" ] && exit 0
systemctl daemon-reload
systemctl restart "$service.service"
"""


def _alerts(chosen: InstalledAllocator, of: Promise) -> str:
    """Rules for Prometheus. Resident memory and processor time are what client libraries of every
    language export of their process."""
    rules = []
    if takes_options(chosen):
        rule = _rule(
            "AllocatorNotInForce", 'absent(heapfit_up{command="PROGRAM"} == 1)', "10m",
            "heapfit export reaches no process of PROGRAM. Check that PROGRAM runs, and that "
            "HEAPFIT_OPTIONS and LD_PRELOAD are set for it.",
        )  # fmt: skip
        note = "      # With control:on in HEAPFIT_OPTIONS, and heapfit export beside PROGRAM:"
        rules.append("\n".join([note, *(f"      # {each[6:]}" for each in rule.splitlines())]))
    if of.memory:
        rules.append(_memory_rule(of.memory))
    usage = 'process_cpu_seconds_total{job="SERVICE"}[1d]'
    now, before = (f"sum by (job) (rate({usage}{past}))" for past in ("", " offset 1w"))
    rules.append(
        _rule("TimeAboveLastWeek", f"{now} > {_WEEKLY:.3g} * {before}", "1h",
              f"SERVICE uses over {percent(_WEEKLY - 1)} more processor time than a week ago. In "
              "the first week after the allocator was changed, this compares it with the old "
              "allocator. Look for other load or a new version; if there is none, run remove.sh."
              f"{of.time}")
    )  # fmt: skip
    trial = "# The figure of memory is of the trials: replace it if SERVICE works on more data."
    head = [*([trial] if of.memory and of.memory.is_less else []),
            "# A file of Prometheus's rule_files. SERVICE is the job that it scrapes.", "groups:",
            "  - name: heapfit-fit", "    rules:"]  # fmt: skip
    return "\n".join([*head, *rules, ""])


def _memory_rule(memory: Memory) -> str:
    """The rule on resident memory; in its place a comment where today's allocator would keep it."""
    what, function = ("mean", "avg") if memory.is_mean else ("peak", "max")
    most = bytes_text(round(memory.most))
    if not memory.is_less:
        return (
            f"      # No rule on memory: the {what} may be {most} with the new allocator and was\n"
            f"      # {bytes_text(round(memory.before))} with the old one: no limit separates them."
        )
    note = (
        f"      # {most}: the {what} of all processes of the program together, as in the trials.\n"
        "      # process_resident_memory_bytes is of one: lower the figure if there are more.\n"
    )
    return note + _rule(
        "MemoryAbovePromise",
        f'{function}_over_time(process_resident_memory_bytes{{job="SERVICE"}}[1h])'
        f" > {math.ceil(memory.most)}",
        "1h",
        f"The {what} of SERVICE's resident memory in an hour is above {most}, the most that "
        "heapfit fit expects. If SERVICE works on more data than the trials did, raise the figure; "
        "if not, heapfit why PID says what holds the memory.",
    )


def _rule(name: str, expression: str, lasting: str, summary: str) -> str:
    lines = [
        f"- alert: {name}",
        f"  expr: {_quoted(expression)}",
        f"  for: {lasting}",
        "  labels: {severity: warning}",
        "  annotations:",
        f"    summary: {_quoted(summary)}",
    ]
    return "\n".join(f"      {line}" for line in lines)


_README = """\
{title}, chosen by heapfit fit.

{evidence}

What it needs
  {needs}

Use it (SERVICE and PROGRAM stand for yours{image})
  a shell      {line}
  systemd      sudo sh install.sh SERVICE
               ({placed}, and restarts SERVICE)
  Docker       {context}add the lines of Dockerfile.part to the
               Dockerfile's last stage, before its last USER
               (or, if the image has the library: docker run --env-file heapfit.env)
  Compose      docker compose -f compose.yaml -f compose.part.yaml up -d
  Kubernetes   kubectl patch deployment SERVICE --patch-file kubernetes.part.yaml
  here         {run}

Check that it is in force
  {in_force}

Watch it
  {watch}

Undo it: remove what was added, and restart the program.
  a shell      {unset}
  systemd      sudo sh remove.sh SERVICE
  Docker       remove the lines from the Dockerfile
  Compose      docker compose -f compose.yaml up -d
  Kubernetes   kubectl set env deployment/SERVICE -c SERVICE {kubernetes}
{stays}"""


def _watched(chosen: InstalledAllocator, of: Promise) -> list[str]:
    lines = [
        "alerts.yaml goes into Prometheus's rule_files. It fires when processor time is more than",
        f"{percent(_WEEKLY - 1)} above that of the week before.",
    ]
    if of.memory and of.memory.is_less:
        what = "mean" if of.memory.is_mean else "peak"
        lines += [
            f"It also fires when the {what} of memory in an hour is above that of the trials: put",
            "in your service's own figure if it does other work.",
        ]
    if takes_options(chosen):
        lines += [
            "For what the heap holds, with control:on in HEAPFIT_OPTIONS:",
            "heapfit export --prometheus    (serves http://127.0.0.1:9464/metrics)",
            "heapfit top PID",
        ]
    return lines


def _needs(chosen: InstalledAllocator) -> str:
    place = _place(chosen)
    if chosen.library is None or place is None:
        return "Nothing: no library is preloaded."
    if package := _package(chosen):
        return f"The Debian package {package}: apt-get install {package}"
    if place == chosen.library:
        return f"The library {place}, as it is on the machine that chose it."
    names = " ".join(shell_word(each.name) for each in _copied(chosen))
    line = f"The library: sudo install -D -m 755 -t {shell_word(place.parent)} {names}"
    if others := _to_be_there(chosen):
        line += f"\n  What it loads, or no program starts with it: {', '.join(others)}"
    return line


def _variables(variables: Mapping[str, str], chosen: InstalledAllocator) -> list[str]:
    """Return the variables that may be set, its options for control among them."""
    own = [options.VARIABLE] if takes_options(chosen) else []
    return list(dict.fromkeys([*variables, *own]))


def _stays(chosen: InstalledAllocator) -> str:
    """What undoing leaves, and how to remove that as well."""
    if package := _package(chosen):
        what, command = "package", f"sudo apt-get remove {package}"
    elif copied := _copied(chosen):
        what = "library"
        command = shlex.join(["sudo", "rm", *(str(_LOCAL / each.name) for each in copied)])
    else:
        return ""
    return f"The {what} stays, since other programs may use it. If none does: {command}\n"


def _in_force(
    variables: Mapping[str, str], chosen: InstalledAllocator, today: InstalledAllocator
) -> list[str]:
    lines = []
    if today.library and not chosen.library:
        lines.append(f"grep -c {shell_word(today.library.name)} /proc/PID/maps    (0)")
    if chosen.library:
        lines += [
            f"grep -c {shell_word(chosen.library.name)} /proc/PID/maps    (more than 0)",
            "ERROR: ld.so: object ... cannot be preloaded    (the program runs without the",
            "library, which is not in its place or is for another architecture or C library)",
        ]
    if own := [name for name in variables if name != VARIABLE]:
        lines.append(rf"tr '\0' '\n' < /proc/PID/environ | grep -E '{'|'.join(own)}'")
    if takes_options(chosen):
        lines.append(
            "heapfit ctl PID stats    (with control:on in HEAPFIT_OPTIONS: see heapfit.env)"
        )
    return lines
