"""What the causes mean: a sentence each, its evidence, and what to do next, the largest first."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from heapfit.live import pinners
from heapfit.text import counted, join_words, percent
from heapfit.text import size as size_text
from heapfit.why.causes import Cause
from heapfit.why.maps import Mapping
from heapfit.why.reading import Reading

# Parts of the resident memory: less is no finding of its own; of the huge pages, untouched.
_NOTICED, _OVERSHOOT = 0.1, 0.25
_NEAR_LIMIT = 0.9
_RETAINED = 1.3
_MOST_NAMED = 3  # mappings of a cause


@dataclass(frozen=True)
class Finding:
    """`size` in bytes; `evidence` is what the kernel says, `commands` what to type next."""

    cause: str
    title: str  # what it is, as a row of a table
    size: int
    sentence: str
    likely: bool  # by the place of the mappings, not by their names
    evidence: list[str]
    commands: list[str]
    of_all: bool = False  # of the whole process: no part of what is resident


def findings(reading: Reading) -> list[Finding]:
    """Return a finding for each cause, the largest first; those of the whole process come last.

    The first ones add up to what is resident and in swap: zeros in huge pages count for themselves.
    """
    zeros = reading.huge_untouched or 0.0
    zeros = zeros if zeros >= _OVERSHOOT and reading.huge >= _NOTICED * reading.resident else 0.0
    found = [_of_cause(each, reading, int(zeros * each.huge)) for each in reading.causes]
    found += _huge_pages(reading, int(zeros * reading.huge)) if zeros else []
    return [*sorted(found, key=lambda each: -each.size), *_of_all(reading)]


def _of_cause(cause: Cause, reading: Reading, zeros: int) -> Finding:
    key, _, name = cause.key.partition(" ")
    title, says = _CAUSES.get(key, (f"{key}'s heap", _allocator))
    sentence, commands = (says, []) if isinstance(says, str) else says(cause, reading)
    return Finding(
        cause=cause.key,
        title=f"{title} {name}".strip(),
        size=cause.resident + cause.swapped - zeros,
        sentence=sentence,
        likely=cause.likely,
        evidence=[_line(each) for each in cause.largest(_MOST_NAMED)],
        commands=commands,
    )


def _line(mapping: Mapping) -> str:
    name = f" {mapping.path}" if mapping.path else ""
    return (
        f"{mapping.start:x}-{mapping.end:x} {mapping.permissions}{name}: "
        f"{size_text(mapping.resident)} resident of {size_text(mapping.size)}"
    )


Said = tuple[str, list[str]]


def _record(reading: Reading) -> list[str]:
    pid = reading.process.pid
    return [
        f"heapfit record --pid {pid} --for 60s --sample 512k -o growth.hft",
        "heapfit profile growth.hft",
    ]


def _command(reading: Reading) -> str:
    words = reading.process.command
    return shlex.join(words) if words and len(shlex.join(words)) <= 80 else "CMD"


def _malloc(cause: Cause, reading: Reading) -> Said:
    return (
        "How much of it is live cannot be seen from outside: record who allocates, and what of "
        "that is not freed.",
        _record(reading),
    )


def _arenas(cause: Cause, reading: Reading) -> Said:
    limit = reading.settings.get("MALLOC_ARENA_MAX")
    by = f"MALLOC_ARENA_MAX is {limit}" if limit else "MALLOC_ARENA_MAX is not set"
    return (
        f"{counted(cause.arenas, 'heap')} of 64 MiB of address space each, for "
        f"{counted(reading.threads, 'thread')} on {counted(reading.cores, 'core')}; {by}. Each "
        "arena keeps free memory that no other can use. Two arenas keep less, and threads wait for "
        "each other more often.",
        [
            f"MALLOC_ARENA_MAX=2 {_command(reading)}",
            f"heapfit fit --goal memory -- {_command(reading)}",
        ],
    )


def _mapped(cause: Cause, reading: Reading) -> Said:
    return (
        "Anonymous mappings: malloc's large blocks (128 KiB and more), or what the program maps "
        "itself. Record who allocates; what a recording does not have is the program's own.",
        _record(reading),
    )


def _allocator(cause: Cause, reading: Reading) -> Said:
    name = reading.allocator.text if reading.allocator else cause.key
    if reading.ledger is not None:
        parts = [each for each in reading.ledger.causes() if each.in_heap]
        largest = sorted(parts, key=lambda each: -each.resident)[:3]
        named = join_words([f"{size_text(e.resident)} {e.meaning}" for e in largest])
        return (
            f"{named}.",
            [f"heapfit ctl {reading.process.pid} ledger"],
        )
    if cause.key == "heapfit":
        return (
            "It tells what each page is there for if the program is started with `heapfit run "
            "--control`.",
            [f"heapfit run --control -- {_command(reading)}", *_record(reading)],
        )
    return (
        f"Anonymous mappings: what {name} has for the program, or what the program maps itself. "
        "Record who allocates, and what of that is not freed.",
        _record(reading),
    )


def _stacks(cause: Cause, reading: Reading) -> Said:
    return (
        f"{counted(reading.threads, 'thread')}, whose stacks stay resident as deep as they were "
        "ever used.",
        [f"ls /proc/{reading.process.pid}/task | wc -l"],
    )


def _files(cause: Cause, reading: Reading) -> Said:
    clean = cause.resident - cause.anonymous
    return (
        f"{size_text(clean)} are page cache, which other processes may share and the kernel takes "
        "back when it needs memory.",
        [],
    )


def _shared(cause: Cause, reading: Reading) -> Said:
    return (
        "The program makes it (memfd, /dev/shm, System V, shared mappings); malloc has no part in "
        "it.",
        ["ls -l /dev/shm", f"ls -l /proc/{reading.process.pid}/fd | grep -E 'memfd|shm'"],
    )


def _brk(cause: Cause, reading: Reading) -> Said:
    return (
        "An allocator has it that was in force before, or one of the program's own.",
        _record(reading),
    )


def _java(cause: Cause, reading: Reading) -> Said:
    pid = reading.process.pid
    return (
        "Java's heap, metaspace and the collector's tables. -Xmx bounds the heap alone.",
        [
            f"jcmd {pid} GC.heap_info",
            f"jcmd {pid} VM.native_memory (with -XX:NativeMemoryTracking)",
        ],
    )


def _node(cause: Cause, reading: Reading) -> Said:
    return (
        "JavaScript's objects, and large blocks. --max-old-space-size bounds V8's heap; a heap "
        "snapshot says what is in it.",
        [f"kill -USR1 {reading.process.pid}    (opens the inspector; then chrome://inspect)"],
    )


def _python(cause: Cause, reading: Reading) -> Said:
    if reading.settings.get("PYTHONMALLOC", "").startswith("malloc"):
        return "Large blocks of malloc, of a Python program.", _record(reading)
    return (
        "Objects of at most 512 bytes, or large blocks. With PYTHONMALLOC=malloc a recording has "
        "every object, with its line of Python.",
        [
            f"heapfit record --objects -o growth.hft -- {_command(reading)}",
            "heapfit profile growth.hft",
        ],
    )


def _ruby(cause: Cause, reading: Reading) -> Said:
    return (
        "Pages of Ruby's objects, or large blocks: ObjectSpace.memsize_of_all and GC.stat tell "
        "them apart.",
        _record(reading),
    )


def _php(cause: Cause, reading: Reading) -> Said:
    return (
        "Chunks of 2 MiB of the Zend memory manager. memory_limit bounds them; USE_ZEND_ALLOC=0 "
        "lets a recording see each object.",
        [f"heapfit record --objects -o growth.hft -- {_command(reading)}"],
    )


def _go(cause: Cause, reading: Reading) -> Said:
    limit = reading.settings.get("GOMEMLIMIT")
    by = f"GOMEMLIMIT is {limit}" if limit else "GOMEMLIMIT is not set"
    return (
        f"{by}. With GOGC at 100 the heap grows to twice what is live before it is collected.",
        ["go tool pprof -sample_index=inuse_space http://HOST/debug/pprof/heap"],
    )


_CAUSES: dict[str, tuple[str, str | Callable[[Cause, Reading], Said]]] = {
    "malloc": ("malloc's main heap", _malloc),
    "arenas": ("glibc's arenas of threads", _arenas),
    "mapped": ("large blocks and own mappings", _mapped),
    "brk": ("the program break", _brk),
    "stacks": ("stacks of threads", _stacks),
    "files": ("programs, libraries, files", _files),
    "variables": ("variables", "Static variables of the program and its libraries (.bss)."),
    "shared": ("shared memory", _shared),
    "jit": ("generated code", "The program has generated it (JIT)."),
    "java": ("the JVM's heap", _java),
    "node": ("V8's heap", _node),
    "python": ("Python's arenas", _python),
    "ruby": ("Ruby's heap", _ruby),
    "php": ("PHP's heap", _php),
    "go": ("Go's heap", _go),
    "runtime": ("the runtime's own", "It is outside the runtime's heap."),
    "kernel": ("the kernel's pages", "Every process has them."),
    "named": (
        "named by the program:",
        "The program has given it this name (PR_SET_VMA_ANON_NAME).",
    ),
}


# ------------------------------------------------------------- of the whole process


def _of_all(reading: Reading) -> Iterator[Finding]:
    yield from _pinned(reading)
    yield from _peak(reading)
    yield from _swap(reading)
    yield from _lazily_freed(reading)
    yield from _near_a_limit(reading)


def _whole(cause: str, title: str, size: int, sentence: str, evidence: str) -> Finding:
    return Finding(cause, title, size, sentence, False, [evidence], [], of_all=True)


def _huge_pages(reading: Reading, zeros: int) -> Iterator[Finding]:
    mode = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    enabled = mode.read_text().strip() if mode.exists() else "unknown"
    yield Finding(
        cause="huge_pages",
        title="zeros in huge pages",
        size=zeros,
        sentence=f"{size_text(reading.huge)} lie in transparent huge pages, and about "
        f"{percent(zeros / reading.huge)} of their contents is zeros: pages that came along and "
        "were never written, or were cleared.",
        likely=True,
        evidence=[f"{mode}: {enabled}", f"AnonHugePages: {size_text(reading.huge)}"],
        commands=[f"echo madvise | sudo tee {mode}"],
    )


def _pinned(reading: Reading) -> Iterator[Finding]:
    if reading.ledger is None or reading.profile is None or not reading.ledger.pinned:
        return
    pinned = reading.ledger.pinned
    sentences, commands = pinners.told(reading.profile), []
    step = pinners.next_step(reading.profile, reading.process.pid)
    if step is not None:
        sentences, commands = [*sentences, step[0]], [step[1]]
    yield Finding(
        cause="pinned",
        title="of the heap, free memory on pages with live objects",
        size=pinned,
        sentence=" ".join(["No setting gives it back while these objects live.", *sentences]),
        likely=False,
        evidence=[f"heapfit ctl {reading.process.pid} ledger: pinned {size_text(pinned)}"],
        commands=commands,
        of_all=True,
    )


def _peak(reading: Reading) -> Iterator[Finding]:
    if reading.most_resident < _RETAINED * reading.resident:
        return
    yield _whole(
        "peak",
        "the peak was",
        reading.most_resident,
        "That much was resident once; the rest has been given back.",
        f"VmHWM: {size_text(reading.most_resident)}",
    )


def _swap(reading: Reading) -> Iterator[Finding]:
    if reading.swapped < _NOTICED * max(reading.resident, 1):
        return
    yield _whole(
        "swap",
        "of all, in swap",
        reading.swapped,
        f"{size_text(reading.swapped)} are in swap, and come back when they are touched.",
        f"VmSwap: {size_text(reading.swapped)}",
    )


def _lazily_freed(reading: Reading) -> Iterator[Finding]:
    if reading.lazily_freed < _NOTICED * max(reading.resident, 1):
        return
    yield _whole(
        "lazily_freed",
        "of that, given back lazily",
        reading.lazily_freed,
        f"{size_text(reading.lazily_freed)} have been given back (MADV_FREE) and still count as "
        "resident: the kernel takes them when it needs memory.",
        f"LazyFree: {size_text(reading.lazily_freed)}",
    )


def _near_a_limit(reading: Reading) -> Iterator[Finding]:
    group = reading.group
    if group is None or group.used < _NEAR_LIMIT * group.limit:
        return
    without = max(group.used - group.file, 0)
    yield _whole(
        "limit",
        "of the container's limit",
        group.used,
        f"The control group uses {size_text(group.used)} of the {size_text(group.limit)} that it "
        f"may: {size_text(group.file)} of it is page cache, which goes before anything is killed, "
        f"and {size_text(without)} is not.",
        f"{group.limit_file}: {group.limit}",
    )
