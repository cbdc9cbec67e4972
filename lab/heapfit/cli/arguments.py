"""What the commands' arguments share: the common options, lists, and the user's own program."""

import re
from pathlib import Path
from typing import Annotated, get_args

import typer

from heapfit.errors import UsageError, unknown
from heapfit.files import check_named
from heapfit.host.proc import named
from heapfit.records import Weighed, WorkloadRun
from heapfit.text import shell_words

_NUMBER = re.compile(r"[0-9]{1,15}([.][0-9]{1,15})?")
_TIME = re.compile(rf"({_NUMBER.pattern}) *(ns|us|ms|s|m|h)")
_LONGEST_S = 366 * 24 * 3600
_UNITS_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_PID_MAX = 1 << 22  # The kernel gives out none beyond.

# Return addresses that commands follow of each allocation unless told otherwise: past the usual
# wrappers. A profile without them names no line.
CALLS_FOLLOWED = 8


def seconds(param: typer.CallbackParam, value: float | None) -> float | None:
    """Return the value of an option that takes seconds; UsageError where no clock counts as many,
    or it is no number (nan)."""
    if value is not None and not value <= _LONGEST_S:
        raise UsageError(f"{param.opts[0]} takes seconds, of at most a year, not {value:g}")
    return value


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Subject = Annotated[
    str | None,
    typer.Argument(metavar="WORKLOAD | -- CMD", help="A workload, a TOML file, or a command."),
]
Allocators = Annotated[
    str | None,
    typer.Option(
        metavar="A,B",
        help="Names, heapfit:decay_ms=100, mine=./lib.so, or `installed`. Default: all that are "
        "installed.",
    ),
]
Cores = Annotated[
    str | None, typer.Option(metavar="N,M", help="Numbers of cores to run on. Default: all.")
]
Replicates = Annotated[
    int, typer.Option(metavar="N", help="Measured runs of each allocator, at each setting.")
]
Precision = Annotated[
    str | None,
    typer.Option(
        metavar="2%",
        help="Add replicates until the confidence intervals of the metric and of peak memory are "
        "within ± this.",
    ),
]
MaxTime = Annotated[
    str | None,
    typer.Option(
        metavar="10m", help="Add replicates until this much time has passed: 90s, 10m, 2h."
    ),
]
Warmups = Annotated[
    int,
    typer.Option(metavar="N", help="Warm-up runs, not measured."),
]
Baseline = Annotated[
    str, typer.Option(metavar="NAME", help="The allocator that the others are compared with.")
]
Timeout = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        callback=seconds,
        help="Time limit per run, in seconds. Default: the workload's, or "
        f"{WorkloadRun.model_fields['timeout_s'].default:g}.",
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(
        "--weights",
        metavar="time=1,memory=2",
        help="Weights of the recommendation: time, memory, fragmentation, mean-memory. "
        "Unnamed weights are 0. Default: the first three are 1.",
    ),
]
OutputCheck = Annotated[
    str | None,
    typer.Option(
        metavar="same|ignore",
        help="Whether output must match across allocators. Default: the workload's, or same.",
    ),
]
Seed = Annotated[int, typer.Option(metavar="N", help="Seed for the run order.")]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", metavar="DIR", help="Folder for the results. Default: heapfit-results/NAME."
    ),
]
On = Annotated[
    str | None,
    typer.Option(
        "--on", metavar="ADDRESS", help="Run on the machines of the Dask scheduler at tcp://…:8786."
    ),
]
Mix = Annotated[
    bool,
    typer.Option(
        "--mix",
        help="Continue a study even if the program, a library or the machine has changed since.",
    ),
]
Install = Annotated[
    bool, typer.Option("--install", help="Install allocators and workloads that are missing.")
]


def share(text: str, option: str) -> float:
    """Return what a number of per cent is of the whole; UsageError names `option`.

    >>> share("2%", "--precision"), share("0.5 %", "--precision")
    (0.02, 0.005)
    """
    number = text.strip().removesuffix("%").strip()
    if not text.strip().endswith("%") or not _NUMBER.fullmatch(number):
        raise UsageError(f"{option} takes a number of per cent, such as 2%, not {text!r}")
    value = float(number) / 100
    if not 0 < value < 1:
        raise UsageError(f"{option} takes more than 0 % and less than 100 %, not {text!r}")
    return value


def weights(text: str) -> dict[str, float]:
    """Return what `NAME=NUMBER,...` says that each goal weighs.

    >>> weights("time=1, memory=2.5")
    {'time': 1.0, 'memory': 2.5}
    """
    found = {}
    for name, _, number in (each.partition("=") for each in split_list(text)):
        if name.strip() not in get_args(Weighed):
            raise unknown("weight", name.strip(), get_args(Weighed))
        if name.strip() in found:
            raise UsageError(f"--weights names {name.strip()} twice")
        if not _NUMBER.fullmatch(number.strip()):
            raise UsageError(f"--weights takes time=1,memory=2, not {text!r}")
        found[name.strip()] = float(number)
    if not any(found.values()):
        raise UsageError("--weights needs a weight above 0, such as time=1,memory=2")
    return found


def time_ns(text: str, option: str) -> int:
    """Return a time in nanoseconds; UsageError names `option`.

    >>> time_ns("250ms", "--from"), time_ns("0s", "--from")
    (250000000, 0)
    """
    written = _TIME.fullmatch(text.strip())
    if written is None:
        raise UsageError(
            f"{option} takes a time with its unit, such as 250ms, 90s, 10m or 1.5h, not {text!r}"
        )
    return round(float(written[1]) * _UNITS_NS[written[3]])


def time_span(text: str, option: str) -> float:
    """Return a time in seconds, which is not nothing; UsageError names `option`.

    >>> time_span("90s", "--max-time"), time_span("1.5h", "--for")
    (90.0, 5400.0)
    """
    span_s = time_ns(text, option) / 1e9
    if not 0 < span_s <= _LONGEST_S:
        raise UsageError(f"{option} takes a time above 0 and of at most a year, not {text!r}")
    return span_s


def process_number(
    word: str, where: str = "heapfit top shows the processes that can be watched"
) -> int:
    """Return the number of a process, which may be given by a name that no other has; UsageError
    says where to find it.

    >>> process_number("4711")
    4711
    """
    several = word.split()
    if not several:
        raise UsageError(f"the process's ID or name is empty: is it running? {where}")
    if len(several) > 1 and all(each.isdecimal() for each in several):
        raise UsageError(f"{len(several)} processes ({', '.join(several)}); name one of them")
    if word.isdecimal() and 0 < int(word) <= _PID_MAX:
        return int(word)
    numbers = [] if word.isdecimal() else [each.pid for each in named(word)]
    if len(numbers) > 1:
        listed = ", ".join(map(str, numbers))
        raise UsageError(f"{len(numbers)} processes are named {word!r} ({listed}); name one by ID")
    if not numbers:
        raise UsageError(
            f"{word!r} is not a process ID, nor the name of a running process; {where}"
        )
    return numbers[0]


def program_of(context: typer.Context, example: str) -> list[str]:
    """Return the user's command line; UsageError says by the `example` how to give one."""
    command: list[str] = context.obj
    if not command:
        raise UsageError(f"which program? write: heapfit {example}")
    return command


def split_program(arguments: list[str]) -> tuple[list[str], list[str] | None]:
    """Split heapfit's own arguments from the user's program, which follows the first `--`.

    >>> split_program(["run", "--set", "verbose=1", "--", "make", "--", "all"])
    (['run', '--set', 'verbose=1'], ['make', '--', 'all'])
    >>> split_program(["doctor"])
    (['doctor'], None)
    """
    if "--" not in arguments:
        return arguments, None
    divider = arguments.index("--")
    return arguments[:divider], arguments[divider + 1 :]


def command_line(*words: str, program: list[str] | None = None, **options: object) -> str:
    """Return a command line of heapfit's. An option is left out where it is None, False or empty;
    True stands for one without a value, a list or tuple for one that repeats. Raises UsageError for
    a word that results cannot hold.

    >>> command_line("compare", "cpu", cores=[1], fail_if=None, aa=True, program=["a b", "c"])
    "heapfit compare cpu --cores 1 --aa -- 'a b' c"
    """
    line = ["heapfit", *words]
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            line.append(option)
        elif isinstance(value, list | tuple):
            line += [word for each in value for word in (option, str(each))]
        elif value is not None and value is not False and value != "":
            line += [option, str(value)]
    line += ["--", *program] if program else []
    for each in line:
        check_named(each)
    return shell_words(line)


def split_list(text: str) -> list[str]:
    """Return the items of a comma-separated list.

    >>> split_list("glibc, heapfit")
    ['glibc', 'heapfit']
    """
    return [item.strip() for item in text.split(",") if item.strip()]


def split_numbers(text: str, option: str) -> list[int]:
    """Return the whole numbers of a comma-separated list; UsageError names `option`.

    >>> split_numbers("1,2", "--cores")
    [1, 2]
    """
    items = split_list(text)
    wrong = next((item for item in items if not item.isdecimal()), None)
    if wrong is not None or not items:
        raise UsageError(f"{option} takes whole numbers with commas between them, not {text!r}")
    return [int(item) for item in items]
