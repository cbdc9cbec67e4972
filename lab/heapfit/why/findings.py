"""What the causes mean: a sentence each, its evidence, and what to do next, the largest first."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import quote
from typing import Any

from heapfit.files import free_name
from heapfit.host.contents import Heap
from heapfit.host.interpreters import OBJECTS_FROM_MALLOC
from heapfit.host.maps import Mapping
from heapfit.host.proc import PROC, Process, from_folder, started_as
from heapfit.live import pinners
from heapfit.options import VARIABLE, merge
from heapfit.paths import DEFAULT_VARIANT, libraries
from heapfit.text import capitalised, counted, percent, with_variables
from heapfit.text import size as size_text
from heapfit.why.causes import OF_LIBC, Cause
from heapfit.why.reading import Reading

# Parts of the resident memory: less is no finding of its own; of the huge pages, untouched.
_NOTICED, _OVERSHOOT = 0.1, 0.25
_NEAR_LIMIT = 0.9
_RETAINED = 1.3
_MUCH_FREE = 0.25  # of the arenas; and of that, in whole pages
_WORTH_A_CALL = 1 << 20  # bytes of whole free pages
_MOST_NAMED = 3  # mappings of a cause
_LITTLE = 4 << 20  # bytes: of no more it is not worth while to record who allocates them
_LEAST_GROWN = 64 << 10  # bytes: to be asked takes some


@dataclass(frozen=True)
class Finding:
    """`size` in bytes; `evidence` is what the kernel says, `commands` what to type next."""

    cause: str
    title: str  # what it is, as a row of a table
    size: int
    sentence: str
    likely: bool = False  # by the place of the mappings, not by their names
    evidence: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    of_all: bool = False  # of the whole process: no part of what is resident


def findings(reading: Reading, noticed: float = _NOTICED) -> list[Finding]:
    """Return a finding for each cause, the largest first. Limits that are near come before them,
    what is true of the whole process after them. What cuts across causes is told where it is at
    least such a part of all as `noticed`.

    Those between add up to what is resident and in swap: zeros in huge pages, memory that is free
    and what is given back lazily count for themselves.
    """
    # Of its own heap, the ledger tells what of a huge page was never used.
    part = 0.0 if reading.ledger else reading.huge_untouched or 0.0
    is_overshoot = part >= _OVERSHOOT and _is_noticed(reading.huge, reading, noticed)
    part = part if is_overshoot and noticed else 0.0  # An estimate tells no growth.
    lazily = _is_noticed(reading.lazily_freed, reading, noticed)
    free = reading.glibc.main.free * _is_noticed(reading.glibc.main.free, reading, noticed)
    heap = reading.ledger.heap_resident if reading.ledger else 0
    counted_for, found = Counter[str](), []
    for cause in reading.causes:
        left = cause.resident + cause.swapped
        for name, size in (
            ("heapfit", heap if cause.key in (reading.runtime, "mapped") else 0),
            ("free", free if cause.key == "malloc" else 0),
            ("lazily_freed", lazily * cause.lazily_freed),
            ("huge_pages", int(part * cause.huge)),
        ):
            size = min(size, left)
            counted_for[name] += size
            left -= size
            heap -= size * (name == "heapfit")
        found.append(_of_cause(cause, reading, left))
    if counted_for["heapfit"]:
        found.append(_of_cause(Cause("heapfit", False), reading, counted_for["heapfit"]))
    found += _across(reading, counted_for)
    ranked = sorted(found, key=lambda each: -each.size)
    return [*_of_limits(reading), *ranked, *_of_all(reading)]


@dataclass(frozen=True)
class Growth:
    """What one cause has gained between two looks, in bytes; below zero: lost."""

    key: str
    title: str
    before: int
    after: int

    @property
    def gained(self) -> int:
        return self.after - self.before

    @property
    def matters(self) -> bool:
        """Whether it is told. Free memory comes and goes; of little there is nothing to do."""
        is_little = self.key == "free" and self.after < _LITTLE
        return self.gained >= _LEAST_GROWN and not is_little


def grown(before: Reading, after: Reading) -> list[Growth]:
    """Return what each cause has gained, what gained most first. Where a look did not read all of
    glibc's lists, nobody knows how much of its heap is free: it is compared as a whole."""
    looks, note = [before, after], ""
    if not all(each.glibc.main.whole for each in looks):
        note = ", in use and free together" * any(each.glibc.main.free for each in looks)
        looks = [replace(each, glibc=replace(each.glibc, main=Heap())) for each in looks]
    old, new = ({e.cause: e for e in findings(each, 0) if not e.of_all} for each in looks)
    none = Finding("", "", 0, "")
    found = [
        Growth(
            key,
            each.title + note * (key == "malloc"),
            old.get(key, none).size,
            new.get(key, none).size,
        )
        for key, each in {**old, **new}.items()
    ]
    return sorted(found, key=lambda each: -each.gained)


def _of_cause(cause: Cause, reading: Reading, size: int) -> Finding:
    """Return what a cause means, of which `size` bytes are not counted for another one."""
    key, name = ("named", cause.key[6:]) if cause.key.startswith("named ") else (cause.key, "")
    title, says, *listed = _CAUSES.get(key, (f"{key}'s heap", _allocator))
    is_little = max(size, cause.resident + cause.swapped) < _LITTLE
    advised = replace(reading, obstacle=_FOUND_LITTLE) if is_little else reading
    sentence, commands = (says, listed) if isinstance(says, str) else says(cause, advised)
    if key == reading.runtime and _other_allocator(reading):
        title = f"{title}, or {_other_allocator(reading)}'s heap"
    if key == "malloc" and _is_partly_free(reading):
        title = f"{title}, in use"
    if is_little and not {*_RECORDINGS, *_SAMPLE}.isdisjoint(commands):
        sentence += _FOUND_LITTLE
        commands = [each for each in commands if each not in _SAMPLE]
    elif not reading.recordable and not _INTO_IT.isdisjoint(commands):
        sentence += f" {reading.obstacle}"
    elif _RECORD[0] in commands and not reading.computes:
        if not reading.computed:
            sentence += " The process has been idle, so record it from its start."
        elif not reading.from_start_only:
            sentence += (
                " The process is idle: record it now if it will run within a minute, otherwise "
                "from its start."
            )
    own = size == cause.resident + cause.swapped
    return Finding(
        cause=cause.key,
        title=f"{title} {name}".strip(),
        size=size,
        sentence=sentence,
        likely=cause.likely,
        evidence=[_line(each) for each in cause.largest(_MOST_NAMED)] if own else [],
        commands=_filled(commands, advised),
    )


def _other_allocator(reading: Reading) -> str | None:
    """Return the allocator whose mappings cannot be told from those of the process's runtime."""
    name = reading.allocator.name if reading.allocator else ""
    return None if reading.ledger is not None or name in OF_LIBC else name


def _line(mapping: Mapping) -> str:
    if not mapping.size:  # a figure of the process's status
        return f"{mapping.path}: {size_text(mapping.resident)}"
    name = f" {mapping.path}" if mapping.path else ""
    return (
        f"{mapping.start:x}-{mapping.end:x} {mapping.permissions}{name}: "
        f"{size_text(mapping.resident)} resident of {size_text(mapping.size)}"
    )


Said = tuple[str, list[str]]
_UNREAD = "not all of glibc's lists of free blocks could be read"
_OTHER = "To see whether another allocator needs less, run it under one."
_WHO = "Record the process to see which code allocates memory without freeing it."
_RECORD = [
    "heapfit record --pid {pid} --for 60s --sample 512k -o {growth}",
    "heapfit profile {growth}",
]
_RECORD_WHOLE = [
    "heapfit record -o {whole} -- {command}",
    "heapfit profile {whole}",
]
# With --control `why` can say there what each page is used for.
_RUN = ["heapfit run --control{background} -- {command}", "{deployed}  # to deploy it"]
_RUN_OBJECTS = f"PYTHONMALLOC=malloc {_RUN[0]}"
# A program of one thread gets no second one unasked, and returns memory only while it allocates.
_BACKGROUND = {"background": "on"}
_LEAST_IN_BACKGROUND = 16 << 20  # bytes: heapfit's thread is not there for less
# Causes of a ledger that trim returns.
_GIVEN_BACK = ("kept", "cached", "orphaned", "decaying", "zeroed")
_RECORD_OBJECTS = ["heapfit record --objects -o {whole} -- {command}", _RECORD_WHOLE[1]]
_SAMPLE = ["heapfit ctl {pid} set sample=512k", "heapfit ctl {pid} profile"]
_FOUND_LITTLE = " There is little to find in so little memory."
_RECORDINGS = {*_RECORD, *_RECORD_WHOLE, *_RECORD_OBJECTS}
_INTO_IT = {*_RECORDINGS, *_RUN, _RUN_OBJECTS}  # where nothing can be loaded they are useless
_SEEN_BY_ALL = ("/tmp", "/dev/shm")


def _advice(sentence: str, reading: Reading) -> str:
    """Return a sentence that advises to record the process, or to run it under an allocator, as one
    that follows another; nothing where neither gets into it."""
    return f" {sentence}" if reading.recordable else ""


def _filled(texts: list[str], reading: Reading) -> list[str]:
    """Return texts with the process's number and its command in their places, but for those that
    are of no use."""
    if not reading.recordable:
        texts = [each for each in texts if each not in _INTO_IT]
        texts = [each for each in texts if not (reading.elsewhere and "{command}" in each)]
    elif reading.from_start_only or not (reading.computes or reading.computed):
        from_start = dict(zip(_RECORD, _RECORD_WHOLE, strict=True))
        texts = list(dict.fromkeys(from_start.get(each, each) for each in texts))
    else:
        if not reading.computes and _RECORD[1] in texts:
            behind = texts.index(_RECORD[1]) + 1
            texts = list(dict.fromkeys([*texts[:behind], *_RECORD_WHOLE, *texts[behind:]]))
        if not reading.traceable:
            texts = [f"sudo {each}" if each == _RECORD[0] else each for each in texts]
    pid, command = reading.process.pid, started_as(reading.process) if texts else ""
    options = _BACKGROUND if reading.threads == 1 else {}
    library = libraries().get(DEFAULT_VARIANT)
    if library is None:
        texts = [each for each in texts if "{deployed}" not in each]
    variables = {VARIABLE: merge("", options), "LD_PRELOAD": str(library)}
    deployed = {name: value for name, value in variables.items() if value}
    folder = from_folder(reading.process) if texts else ""
    growth = free_name(_written_by(reading.process) / f"growth-{pid}.hft")
    whole = free_name(Path(f"whole-{pid}.hft"))
    whole = whole.absolute() if folder else whole
    kept = ("MALLOC_", "GLIBC_TUNABLES", *OBJECTS_FROM_MALLOC)
    settings = "".join(
        f"{name}={quote(value)} "
        for name, value in reading.settings.items()
        if name.startswith(kept)
    )
    return [
        (folder if "{command}" in each or "{deployed}" in each else "")
        + (settings if each in _RECORDINGS and "{command}" in each else "")
        + each.format(
            pid=pid,
            command=command,
            growth=growth,
            whole=quote(str(whole)),
            start=reading.start,
            background="".join(f" --set {name}={value}" for name, value in options.items()),
            deployed=with_variables(deployed, command),
        )
        for each in texts
    ]


def _written_by(process: Process) -> Path:
    """Return a folder for what a process writes itself: this one, or for somebody else's one that
    both see, and that everybody may write to."""
    if process.user in (0, os.geteuid()):
        return Path()
    for folder in _SEEN_BY_ALL:
        with suppress(OSError):
            if os.path.samefile(f"{PROC}/{process.pid}/root{folder}", folder):
                return Path(folder)
    return Path("FOLDER")


def _arenas(cause: Cause, reading: Reading) -> Said:
    limit = reading.settings.get("MALLOC_ARENA_MAX")
    if limit is None and "arena_max" in (tunables := reading.settings.get("GLIBC_TUNABLES", "")):
        limit = tunables.partition("arena_max=")[2].partition(":")[0]
    by = f"their number is limited to {limit}" if limit else _unset("MALLOC_ARENA_MAX", reading)
    heaps = f"{counted(cause.arenas, 'heap')} with address space of 64 MiB"
    found = reading.glibc
    what = f"{counted(found.arenas, 'arena')}, in {heaps}" if found.arenas else heaps
    sentence = (
        f"{what}, for {counted(reading.threads, 'thread')} on {counted(reading.cores, 'core')}; "
        f"{by}."
    )
    is_much = found.others.free >= _MUCH_FREE * cause.resident
    if found.arenas and not is_much and found.others.is_rest_used:
        sentence += " Little of it is free."
        sentence += _advice("Record the process to see which code allocates it.", reading)
        return sentence, _RECORD
    if found.others.free:
        sentence += f" At least {size_text(found.others.free)} of it is free."
    if found.arenas and not is_much:
        sentence += f" How much {'more' if found.others.free else 'of it'} is free is not known."
    trimmed = found.others.in_whole_pages
    if trimmed >= max(_MUCH_FREE * found.others.free, _WORTH_A_CALL):
        return f"{sentence} {_trimming(found.others)}{_advice(_OTHER, reading)}", _RUN
    if is_much and found.others.whole:
        advice = f"{_OTHER} To see which live blocks keep it, restart it under the recorder."
        commands = [*_RUN, *_RECORD_WHOLE]
        return f"{sentence} {_trimming(found.others)}{_advice(advice, reading)}", commands
    if limit or found.arenas == 1:  # Two are the main one and another.
        alone = "Free memory in one arena cannot be used by another."
        return f"{sentence} {alone}{_advice(_OTHER, reading)}", _RUN
    sentence += (
        f" Free memory in one arena cannot be used by another.{_advice(_OTHER, reading)} Two "
        "arenas may keep less, except between live blocks, but threads contend more often."
    )
    return sentence, [*_RUN, "MALLOC_ARENA_MAX=2 {command}"]


def _unset(name: str, reading: Reading) -> str:
    """Return that a variable is not set, of one that is not among the settings."""
    return f"{name} is not set" if reading.settings_known else f"whether {name} is set is not known"


def _trimming(heap: Heap) -> str:
    if heap.in_whole_pages >= _WORTH_A_CALL:
        least = "about" if heap.whole else "at least"
        return (
            f"malloc_trim(0) would return {least} {size_text(heap.in_whole_pages)} in whole free "
            "pages: the program can call it when it has freed much."
        )
    if heap.whole:
        return (
            "malloc_trim(0) would return almost nothing more, because the other free memory "
            "shares pages with live blocks."
        )
    return "how much malloc_trim(0) would return is not known."


def _main_heap(cause: Cause, reading: Reading) -> Said:
    known = "Nearly all of it is in use."
    if unknown := _in_use_unknown(reading):
        known = f"How much of it is in use is not known, since {unknown}."
        if unknown == _UNREAD:  # Most may be free: that is no ground to look for a leak.
            return f"{known}{_advice(_OTHER, reading)}", _RUN
    elif _is_partly_free(reading):
        known = "The program has not freed this part."
    return f"{known}{_advice(_WHO, reading)}", _RECORD


def _in_use_unknown(reading: Reading) -> str:
    """Return why nobody knows how much of the main heap is in use; nothing where it is known."""
    # Blocks in caches of threads count as in use; by default there are few.
    if "tcache" in reading.settings.get("GLIBC_TUNABLES", ""):
        return (
            "free blocks in the caches of threads, which GLIBC_TUNABLES sets, look like those in "
            "use"
        )
    if not reading.traceable:
        return "this user may not read its memory"
    if not reading.glibc.main.is_rest_used:
        return _UNREAD
    return ""


def _is_partly_free(reading: Reading) -> bool:
    """Whether free memory of the main heap is a row of its own, and the rest known to be in use."""
    return _is_noticed(reading.glibc.main.free, reading) and not _in_use_unknown(reading)


def _mapped(cause: Cause, reading: Reading) -> Said:
    if reading.ledger is not None:
        return "Mappings that the program makes itself, without malloc.", []
    glibc = reading.allocator is not None and reading.allocator.name == "glibc"
    blocks = "large blocks (128 KiB and more)" if glibc else "memory"
    if glibc and "hugetlb=2" in reading.settings.get("GLIBC_TUNABLES", ""):
        blocks = "arenas and large blocks, which hugetlb=2 in GLIBC_TUNABLES makes look alike"
    sentence = f"Anonymous memory: malloc's {blocks}, or the program's own mappings."
    advice = "Record the program: memory missing from the recording is its own mappings."
    return f"{sentence}{_advice(advice, reading)}", _RECORD


def _allocator(cause: Cause, reading: Reading) -> Said:
    if reading.ledger is not None:
        parts = [each for each in reading.ledger.causes() if each.in_heap]
        largest = sorted(parts, key=lambda each: -each.resident)[:3]
        named = "; ".join(f"{size_text(e.resident)} {e.meaning}" for e in largest)
        sentence, commands = f"{named}.", _asked(largest[0].name, reading)
        if largest[0].name in _GIVEN_BACK and _keeps_asleep(reading, largest[0].resident):
            sentence += (
                " A single-threaded program returns it only when it calls malloc. trim returns it "
                "once; with background:on it is also returned while the program sleeps."
            )
            commands[1:1] = _RUN
        return sentence, commands
    if reading.unasked is not None:
        sentence = f"heapfit could say what each page is used for, but {reading.unasked}."
        start = " The command below starts the program with this enabled." if reading.start else ""
        where = f" {reading.obstacle}" if reading.elsewhere else ""
        return f"{sentence}{start}{where}", ["{start}"] if reading.start else []
    sentence = (
        f"Anonymous memory: {cause.key}'s heap, and anything that the program maps itself. How "
        "much of it is in use cannot be seen from outside. If the program's own figures (Redis: "
        "INFO memory) say that most of it is free, it is fragmentation"
    )
    advice = (
        "`heapfit fit --goal mean` tests whether another allocator keeps less. For a server, first "
        f"run `heapfit workloads new`. Otherwise {_WHO[0].lower()}{_WHO[1:]}"
    )
    return f"{sentence}: {advice}" if reading.recordable else f"{sentence}.", _RECORD


def _asked(largest: str, reading: Reading) -> list[str]:
    """Return what to ask a heap of heapfit's of which most is there for one cause."""
    if largest == "live":
        if "PYTHONMALLOC" in reading.settings or reading.runtime == "python":
            return [*_RECORD]  # which names lines of Python, as a sample of the heap's does not
        is_sampled = reading.profile is not None and reading.profile.mean
        return _SAMPLE[1:] if is_sampled else [*_SAMPLE]
    return [
        *(["heapfit ctl {pid} trim"] if largest in _GIVEN_BACK else []),
        "heapfit ctl {pid} ledger",
    ]


def _keeps_asleep(reading: Reading, free: int) -> bool:
    """Whether so much free memory stays while the program sleeps, but not with background:on."""
    is_on = "background:on" in reading.settings.get(VARIABLE, "").replace(" ", "").split(",")
    is_off = reading.settings_known and not is_on
    return reading.threads == 1 and is_off and free >= _LEAST_IN_BACKGROUND


def _files(cause: Cause, reading: Reading) -> Said:
    clean = cause.resident - cause.anonymous
    return (
        f"{size_text(clean)} is page cache, which other processes may share and which the kernel "
        f"reclaims when it needs memory. {size_text(cause.anonymous)} is the process's own: pages "
        "of private mappings that it has written to.",
        [],
    )


def _python(cause: Cause, reading: Reading) -> Said:
    other = _other_allocator(reading)
    larger = f"larger ones in {other}'s heap" if other else "large blocks"
    advice = (
        "Restart the program under the recorder, which sets PYTHONMALLOC=malloc, to see every "
        "object with its line of Python."
    )
    sentence = (
        f"Small Python objects (up to 512 bytes), or {larger}. Python returns an arena to the "
        "kernel only once all of it is free, so much of this memory may be free."
    )
    other = (
        "If the program has freed what stays resident, running it with PYTHONMALLOC=malloc under "
        "an allocator that returns single pages may need less; if it only grows, it will not."
    )
    advised = f"{_advice(advice, reading)}{_advice(other, reading)}"
    return f"{sentence}{advised}", [*_RECORD_OBJECTS, _RUN_OBJECTS]


def _php(cause: Cause, reading: Reading) -> Said:
    advice = (
        "Restart the program under the recorder, which sets USE_ZEND_ALLOC=0, to see every object "
        "by PHP's internal functions."
    )
    return (
        "2 MiB chunks of the Zend memory manager, bounded by memory_limit."
        f"{_advice(advice, reading)} To find the line of the script, print memory_get_usage() in "
        "it.",
        _RECORD_OBJECTS,
    )


def _node(cause: Cause, reading: Reading) -> Said:
    inspect = "kill -USR1 {pid}  # opens Node's inspector; then chrome://inspect"
    return (
        "JavaScript's objects; it may include large blocks, such as those of Buffers. "
        "--max-old-space-size bounds V8's heap, and a heap snapshot says what is in it.",
        [inspect] if reading.handles_usr1 else [],
    )


def _go(cause: Cause, reading: Reading) -> Said:
    limit = reading.settings.get("GOMEMLIMIT")
    by = f"GOMEMLIMIT is {limit}" if limit else capitalised(_unset("GOMEMLIMIT", reading))
    return (
        f"{by}. With GOGC=100 the heap grows to twice its live size between collections.",
        ["go tool pprof -sample_index=inuse_space http://HOST/debug/pprof/heap"],
    )


# The title, what it means, and what to type next; or what computes the latter two.
_CAUSES: dict[str, tuple[Any, ...]] = {
    "malloc": ("malloc's main heap", _main_heap),
    "arenas": ("glibc's arenas of threads", _arenas),
    "anonymous": (
        "anonymous memory",
        "Memory without a file. Only the process's user, or a user who may trace it (such as root "
        "with CAP_SYS_PTRACE), can see its mappings. Start a container with --cap-add SYS_PTRACE.",
        "sudo heapfit why {pid}",
    ),
    "mapped": ("large blocks and mappings", _mapped),
    "brk": (
        "the program break",
        "It belongs to an allocator that was in use earlier, or to one of the program's own.",
        *_RECORD,
    ),
    "stacks": (
        "stacks of threads",
        "Pages of a stack stay resident once they have been used.",
    ),
    "files": ("programs, libraries, files", _files),
    "variables": ("variables", "Static variables of the program and its libraries (.bss)."),
    "shared": (
        "shared memory",
        "The program created it without malloc: memfd, /dev/shm or another tmpfs, System V shared "
        "memory, shared mappings.",
        "ls -l /dev/shm",
        "ls -l /proc/{pid}/fd | grep -E 'memfd|shm'",
    ),
    "java": (
        "the JVM's heap",
        "Java's heap, metaspace and the collector's tables. -Xmx bounds the heap alone.",
        "jcmd {pid} GC.heap_info",
        "jcmd {pid} VM.native_memory  # of a JVM with -XX:NativeMemoryTracking=summary",
    ),
    "node": (
        "V8's heap",
        _node,
    ),
    "jit": ("generated code", "Machine code that the program has generated (JIT)."),
    "python": ("Python's arenas", _python),
    "ruby": (
        "Ruby's heap",
        "Pages of Ruby's objects, or large blocks. ObjectSpace.memsize_of_all and GC.stat tell "
        "them apart.",
        *_RECORD,
    ),
    "php": ("PHP's heap", _php),
    "go": ("Go's heap", _go),
    "runtime": ("the runtime's own memory", "Memory that the runtime uses outside its heap."),
    "hugetlb": (
        "huge pages of the pool",
        "Taken from the pool of huge pages (MAP_HUGETLB, hugetlbfs). Counted here as resident, "
        "unlike in other tools, since no other process can use them.",
    ),
    "kernel": ("pages of the kernel", "Every process has them."),
    "named": (
        "named by the program:",
        "The program has given it this name (PR_SET_VMA_ANON_NAME).",
    ),
}


# ------------------------------------------- across causes, and of the whole process


def _across(reading: Reading, sizes: Counter[str]) -> Iterator[Finding]:
    """Yield what cuts across the causes: parts of what is resident, if it is not little."""
    if zeros := sizes["huge_pages"]:
        mode = Path("/sys/kernel/mm/transparent_hugepage/enabled")
        enabled = mode.read_text().strip() if mode.exists() else "unknown"
        always = "[always]" in enabled
        by = "The kernel uses them for every program" if always else "The program asks for them"
        yield Finding(
            "huge_pages",
            "zeros in huge pages",
            zeros,
            f"{size_text(reading.huge)} are in transparent huge pages. About "
            f"{percent(reading.huge_untouched or 0.0)} of their contents is zeros: memory that was "
            f"never written, or was cleared. {by}.",
            likely=True,
            evidence=[f"{mode}: {enabled}", f"AnonHugePages: {size_text(reading.huge)}"],
            commands=[f"echo madvise | sudo tee {mode}"] if always else [],
        )
    if lazily := sizes["lazily_freed"]:
        yield Finding(
            "lazily_freed",
            "lazily freed",
            lazily,
            "The allocator has returned this memory (MADV_FREE). It counts as resident until the "
            "kernel needs it for something else.",
            evidence=[f"LazyFree: {size_text(reading.lazily_freed)}"],
        )
    if free := sizes["free"]:
        advice = "To see which live blocks keep the rest, restart the program under the recorder."
        heap = reading.glibc.main
        heap = replace(heap, in_whole_pages=min(heap.in_whole_pages, free))
        is_little = free < _LITTLE
        what_to_do = _FOUND_LITTLE if is_little else _advice(f"{advice} {_OTHER}", reading)
        least = "" if heap.whole else f" This is a lower bound: {_UNREAD}."
        yield Finding(
            "free",
            "free memory in malloc's heap",
            free,
            f"The program has freed these blocks, but glibc still holds their memory.{least} By "
            "itself, glibc returns to the kernel only free memory at the end of the heap; "
            f"{_trimming(heap)}{what_to_do}",
            likely=True,
            evidence=[f"free chunks of [heap]: {size_text(free)}"],
            commands=[] if is_little else _filled([*_RECORD_WHOLE, *_RUN], reading),
        )


def _is_noticed(size: int, reading: Reading, noticed: float = _NOTICED) -> bool:
    return size >= noticed * max(reading.resident, 1)


def _of_all(reading: Reading) -> Iterator[Finding]:
    yield from _pinned(reading)
    if reading.most_resident >= _RETAINED * (reading.resident + reading.swapped):
        yield Finding(
            "peak",
            "earlier peak",
            reading.most_resident,
            "The process once had this much resident. The difference has been returned to the "
            "kernel.",
            evidence=[f"VmHWM: {size_text(reading.most_resident)}"],
            of_all=True,
        )
    if _is_noticed(reading.swapped, reading):
        yield Finding(
            "swap",
            "memory in swap",
            reading.swapped,
            "The kernel reads it back when the process uses it. The table counts it as well.",
            evidence=[f"VmSwap: {size_text(reading.swapped)}"],
            of_all=True,
        )


def _pinned(reading: Reading) -> Iterator[Finding]:
    if reading.ledger is None or reading.profile is None or not reading.ledger.pinned:
        return
    pinned = reading.ledger.pinned
    sentences, commands = pinners.told(reading.profile, pinned), []
    step = pinners.next_step(reading.profile, reading.process.pid)
    if step is not None and pinned < _LITTLE:
        sentences = [*sentences, _FOUND_LITTLE.strip()]
    elif step is not None:
        sentences, commands = [*sentences, step[0]], [step[1]]
    yield Finding(
        cause="pinned",
        title="free memory of the heap on pages with live objects",
        size=pinned,
        sentence=" ".join(["No setting returns it while these objects live.", *sentences]),
        likely=False,
        evidence=[f"heapfit ctl {reading.process.pid} ledger: pinned {size_text(pinned)}"],
        commands=commands,
        of_all=True,
    )


def _of_limits(reading: Reading) -> Iterator[Finding]:
    for near in (each for each in reading.limits if each.used >= _NEAR_LIMIT * each.limit):
        cached = near.cache > reading.resident
        used = f"{size_text(near.used)} of the {size_text(near.limit)}"
        if near.own:
            title = f"use of the limit on {near.own}"
            sentence = f"The process uses {used} that its own limit allows. Beyond it malloc fails."
        else:
            title = "page cache of the container" if cached else "memory of the container"
            beyond = (
                "slows it down" if near.file.endswith(".high") else "kills one of its processes"
            )
            sentence = (
                f"The control group uses {used} that it is allowed. Beyond that, the kernel "
                f"{beyond}. {size_text(near.cache)} of it is page cache, which the kernel reclaims "
                f"first; {size_text(max(near.used - near.cache, 0))} is not."
            )
        yield Finding(
            "cache" if cached else "limit",
            title,
            near.cache if cached else near.used,
            sentence,
            evidence=[f"{near.file}: {near.limit}"],
            of_all=True,
        )
