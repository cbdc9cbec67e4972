"""Look at heapfit's heap from gdb, in a live process or in a core file.

    (gdb) source heapfit.py
    (gdb) heapfit stats             # what is live and what is free, by block size
    (gdb) heapfit heaps             # one line for each thread heap
    (gdb) heapfit block ADDRESS     # which object an address belongs to, and whether it is live

Needs no debug information of the library, which describes itself (hf_debug_layout). Only reads;
nothing is called in the process, which may have been stopped anywhere: a figure may be off by what
was in motion then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import gdb  # type: ignore[import-not-found]  # exists inside gdb alone

MIB = 1 << 20
NAME_BYTES = 24
ENTRY_BYTES = NAME_BYTES + 8
ENTRIES_MAX = 1000
LIST_MAX = 1 << 16  # blocks of a span: a longer list is a damaged one
HEAPS_MAX = 1 << 20


def read(address: int, size: int) -> bytes:
    return bytes(gdb.selected_inferior().read_memory(address, size))


def number_at(address: int, size: int = 8) -> int:
    return int.from_bytes(read(address, size), "little")


class Layout:
    """Where things are, as the library in the process says."""

    def __init__(self) -> None:
        try:
            start = int(gdb.parse_and_eval("(unsigned long)&hf_debug_layout"))
            entries = read(start, ENTRY_BYTES)
        except gdb.error as error:
            raise gdb.GdbError(
                "This process does not use heapfit, or a version that gdb cannot read "
                "(no symbol hf_debug_layout)."
            ) from error
        self.values: dict[str, int] = {}
        for _ in range(ENTRIES_MAX):
            name = entries[:NAME_BYTES].rstrip(b"\0").decode()
            if not name:
                break
            self.values[name] = int.from_bytes(entries[NAME_BYTES:], "little")
            start += ENTRY_BYTES
            entries = read(start, ENTRY_BYTES)

    def __getitem__(self, name: str) -> int:
        return self.values[name]

    def field(self, structure: str, member: str, address: int, size: int = 8) -> int:
        return number_at(address + self[f"{structure}.{member}"], size)


@dataclass(frozen=True)
class Span:
    """A span of the address space, or the first of a run."""

    index: int
    descriptor: int
    start: int
    kind: int
    bin: int
    block_size: int
    carved: int
    uncarved: int
    live: int
    use: int  # of what is no object's
    owner: int
    free: int
    run_spans: int


class Heap:
    """The heap of the stopped process."""

    def __init__(self) -> None:
        self.layout = layout = Layout()
        self.base = layout.field("space", "base", layout["space"])
        self.size = layout.field("space", "size", layout["space"])
        self.key = layout.field("space", "link_key", layout["space"])
        if self.base == 0:
            raise gdb.GdbError("Nothing has been allocated yet.")

    # ---- spans

    def span(self, index: int) -> Span:
        layout = self.layout
        descriptor = self.base - (index + 1) * layout["span"]
        raw = read(descriptor, layout["span"])

        def get(member: str, size: int) -> int:
            offset = layout[f"span.{member}"]
            return int.from_bytes(raw[offset : offset + size], "little")

        return Span(
            index=index,
            descriptor=descriptor,
            start=self.base + (index << layout["SPAN_SHIFT"]),
            kind=get("kind", 1),
            bin=get("bin", 1),
            block_size=get("block_size", 4),
            carved=get("carved", 2),
            uncarved=get("uncarved", 2),
            live=get("countdown", 4) + get("held_back", 2),
            use=get("countdown", 4),
            owner=get("owner", 8),
            free=get("free", 8),
            run_spans=get("run_spans", 4),
        )

    def runs(self) -> Iterator[Span]:
        """Yield the first spans of all runs that were ever used: behind them all reads as zeros."""
        index = 0
        while index < self.size >> self.layout["SPAN_SHIFT"]:
            try:
                span = self.span(index)
            except gdb.MemoryError:  # no core file has what was never used
                return
            if span.run_spans == 0:
                return
            yield span
            index += span.run_spans

    def is_freed(self, span: Span) -> bool:
        """Whether a run that is no object's was one, and is kept or on its way back."""
        tables = self.layout.values.get("RUN_OF_TABLES")
        return span.kind == self.layout["SPAN_METADATA"] and tables not in {None, span.use}

    def large_object(self, span: Span) -> tuple[int, int]:
        """Return the address of a large object and the bytes that the program may use."""
        if self.layout.values.get("HARDENED"):
            return span.start + span.block_size, span.free
        behind = span.carved * self.layout.values.get("LARGE_SPARE", 0)
        return span.start, (span.run_spans << self.layout["SPAN_SHIFT"]) - behind

    def is_mixed(self, span: Span) -> bool:
        """Whether the span holds objects of many sizes, as a pool may."""
        pool = span.bin - self.layout["BIN_COUNT"]
        classes = self.layout.values.get("pool_classes")
        if pool < 0 or classes is None:
            return False
        return number_at(classes + pool, 1) == self.layout["CLASS_MIXED"]

    # ---- heaps

    def heaps(self) -> Iterator[int]:
        """Yield the addresses of all heaps, that of dead threads' spans first."""
        yield self.layout["orphans"]
        heap = number_at(number_at(self.layout["youngest"]))
        for _ in range(HEAPS_MAX):
            if heap == 0:
                return
            yield heap
            heap = self.layout.field("heap", "made_before", heap)

    def thread_of(self, heap: int) -> int:
        """Return the kernel's number of a heap's thread; 0: none; -1: several share it."""
        number = self.layout.field("heap", "thread", heap, 4)
        return number - (1 << 32) if number >> 31 else number

    def name_of(self, heap: int) -> str:
        if heap == 0:
            return "no heap"
        if heap == self.layout["orphans"]:
            return "the heap of threads that are gone"
        number = self.layout.field("heap", "number", heap, 4)
        thread = self.thread_of(heap)
        if thread == 0:
            return f"heap {number}, which no thread has"
        return f"heap {number}, of " + ("several threads" if thread < 0 else f"thread {thread}")

    def keeper_of(self, run: Span) -> str:
        """Say who has a freed run."""
        for heap in self.heaps():
            if self.layout.field("heap", "number", heap, 4) + 1 == run.use:
                return f"is kept by {self.name_of(heap)}"
        return "is on its way back"

    # ---- lists of free blocks

    def blocks_of_list(self, head: int, span: Span) -> set[int]:
        """Return the addresses of a list, as far as it is whole."""
        blocks: set[int] = set()
        end = span.start + (1 << self.layout["SPAN_SHIFT"])
        while not head & self.layout["LIST_END"] and len(blocks) < LIST_MAX:
            if head in blocks or not span.start <= head < end:
                break
            blocks.add(head)
            head ^= number_at(head) ^ self.key
        return blocks

    def blocks_at_hand(self, span: Span) -> set[int]:
        """Return what the heap keeps beside a bin's list, of all spans: blocks above 4 KiB."""
        layout = self.layout
        hand = span.bin - layout.values.get("HAND_BIN_MIN", span.bin + 1)
        if not 0 <= hand < layout["HAND_BINS"]:
            return set()
        at = span.owner + layout["heap.hands"] + hand * layout["hand"]
        count = min(layout.field("hand", "count", at, 4), layout["HAND_BLOCKS"])
        return {number_at(at + layout["hand.blocks"] + 8 * place) for place in range(count)}

    def free_blocks(self, span: Span) -> set[int]:
        """Return the free blocks of a span that its own list and its heap's bin hold."""
        blocks = self.blocks_of_list(span.free, span)
        if span.owner != 0:
            ready = number_at(span.owner + self.layout["heap.free"] + 8 * span.bin)
            blocks |= self.blocks_of_list(ready, span) | self.blocks_at_hand(span)
        return blocks

    def looks_free(self, block: int) -> bool:
        """Whether a block's first word is a link, as of one that lies in another thread's list."""
        return number_at(block) ^ self.key <= self.layout["LINK_MAX"]


def mib(size: int) -> str:
    return f"{size / MIB:.3f}"


class Commands(gdb.Command):
    """Look at heapfit's heap: heapfit stats, heapfit heaps, heapfit block ADDRESS."""

    def __init__(self) -> None:
        super().__init__("heapfit", gdb.COMMAND_DATA, prefix=True)

    def invoke(self, argument: str, _from_tty: bool) -> None:
        if argument:
            raise gdb.GdbError(f'There is no "heapfit {argument}": see "help heapfit".')
        gdb.execute("help heapfit")


class Stats(gdb.Command):
    """Print what is live and what is free, by block size."""

    def __init__(self) -> None:
        super().__init__("heapfit stats", gdb.COMMAND_DATA)

    def invoke(self, _argument: str, _from_tty: bool) -> None:
        heap = Heap()
        layout = heap.layout
        span_size = 1 << layout["SPAN_SHIFT"]
        sizes: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])  # spans, live, free blocks
        runs: dict[int, int] = defaultdict(int)
        large = large_bytes = mixed = kept = 0
        for span in heap.runs():
            runs[span.kind] += span.run_spans
            if span.kind == layout["SPAN_LARGE"]:
                large += 1
                large_bytes += heap.large_object(span)[1]
            elif heap.is_freed(span):
                kept += span.run_spans
            elif span.kind == layout["SPAN_BLOCKS"] and heap.is_mixed(span):
                mixed += 1
            elif span.kind == layout["SPAN_BLOCKS"]:
                figures = sizes[span.block_size]
                figures[0] += 1
                figures[1] += min(span.live, span.carved)
                figures[2] += max(span.carved - span.live, 0)
        print(f"heapfit {gdb_string(layout['version'])}")
        print("  block size      spans           live           free       live MiB")
        for size, (spans, live, free) in sorted(sizes.items()):
            print(f"  {size:10} {spans:10} {live:14} {free:14} {mib(size * live):>14}")
        print("  live: what the program has, and what its threads keep for their next malloc")
        if mixed:
            print(f"  {mib(mixed * span_size)} MiB in spans of objects of many sizes")
        print(f"  {mib(large_bytes)} MiB in large objects: {large}")
        print(f"  {mib(runs[layout['SPAN_FREE']] * span_size)} MiB of address space in free spans")
        if kept:
            print(f"  {mib(kept * span_size)} MiB of freed spans that threads keep")
        print(f"  {mib((runs[layout['SPAN_METADATA']] - kept) * span_size)} MiB heapfit's own")
        if runs[layout["SPAN_GUEST"]]:
            print(f"  {mib(runs[layout['SPAN_GUEST']] * span_size)} MiB in contexts")
        if runs[layout["SPAN_GUARD"]]:
            print(f"  {mib(runs[layout['SPAN_GUARD']] * span_size)} MiB for guarded objects")


class Heaps(gdb.Command):
    """Print one line for each thread heap that holds something."""

    def __init__(self) -> None:
        super().__init__("heapfit heaps", gdb.COMMAND_DATA)

    def invoke(self, _argument: str, _from_tty: bool) -> None:
        heap = Heap()
        figures: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])  # spans, bytes live, free
        for span in heap.runs():
            if span.kind != heap.layout["SPAN_BLOCKS"]:
                continue
            of_heap = figures[span.owner]
            of_heap[0] += 1
            if not heap.is_mixed(span):
                live = min(span.live, span.carved)
                of_heap[1] += live * span.block_size
                of_heap[2] += (span.carved - live) * span.block_size
        print("        heap     thread      spans       live MiB       free MiB")
        for address in heap.heaps():
            spans, live, free = figures[address]
            number = heap.layout.field("heap", "number", address, 4)
            thread = heap.thread_of(address)
            if spans or thread:
                print(f"  {number:10} {thread:10} {spans:10} {mib(live):>14} {mib(free):>14}")


class Block(gdb.Command):
    """Say which object an address belongs to, and whether it is live: heapfit block ADDRESS."""

    def __init__(self) -> None:
        super().__init__("heapfit block", gdb.COMMAND_DATA, gdb.COMPLETE_EXPRESSION)

    def invoke(self, argument: str, _from_tty: bool) -> None:
        if not argument:
            raise gdb.GdbError("Give an address: heapfit block ADDRESS.")
        address = int(gdb.parse_and_eval(f"(unsigned long)({argument})"))
        print(describe(Heap(), address))


def describe(heap: Heap, address: int) -> str:
    """Return what is known of an address, in a sentence or two."""
    layout = heap.layout
    if not 0 <= address - heap.base < heap.size:
        return f"{address:#x} is not heapfit's."
    place = (address - heap.base) >> layout["SPAN_SHIFT"]
    span = next(
        (run for run in heap.runs() if run.index <= place < run.index + run.run_spans), None
    )
    if span is None or span.kind == layout["SPAN_FREE"]:
        return f"{address:#x} is in free memory, of which nothing is in use."
    if span.kind == layout["SPAN_LARGE"]:
        start, size = heap.large_object(span)
        into = f"{address - start} bytes into a live large object of {size} bytes"
        return f"{address:#x} is {into} at {start:#x}."
    if span.kind == layout["SPAN_GUEST"]:
        return f"{address:#x} is in a context."
    if span.kind == layout["SPAN_GUARD"]:
        return describe_guarded(layout, address)
    if heap.is_freed(span):
        return f"{address:#x} is in freed memory, which {heap.keeper_of(span)}."
    if span.kind != layout["SPAN_BLOCKS"]:
        return f"{address:#x} is in memory of heapfit's own."
    owner = heap.name_of(span.owner)
    if heap.is_mixed(span):
        return f"{address:#x} is in a pool of objects of many sizes, in {owner}."
    block = address - (address - span.start) % span.block_size
    what = (
        f"{address - block} bytes into a block of {span.block_size} bytes at {block:#x}, in {owner}"
    )
    return f"{address:#x} is {what}. {state_of(heap, span, block)}"


def describe_guarded(layout: Layout, address: int) -> str:
    """Return what is known of an address among guarded objects, and the pages between them."""
    guard = layout["guard"]
    page = layout.field("guard", "page", guard)
    number, is_slot = divmod((address - layout.field("guard", "start", guard)) // page, 2)
    if not is_slot or number >= layout.field("guard", "slots", guard, 4):
        return f"{address:#x} is in an inaccessible page beside guarded objects."
    slot = layout.field("guard", "records", guard) + number * layout["guard_slot"]
    state = number_at(slot + layout["guard_slot.state"], 4)
    states = {layout["GUARD_LIVE"]: "It is live.", layout["GUARD_FREED"]: "It was freed."}
    if state not in states:
        return f"{address:#x} is in a slot for a guarded object, which nobody has."
    start, size = (layout.field("guard_slot", name, slot) for name in ("object", "size"))
    into = f"{address - start} bytes into a guarded object of {size} bytes at {start:#x}"
    return f"{address:#x} is {into}. {states[state]}"


def state_of(heap: Heap, span: Span, block: int) -> str:
    """Return whether a block is in use, in a sentence."""
    unit = (block - span.start) >> heap.layout["CARVE_UNIT_LOG2"]
    if span.uncarved >> unit & 1:
        return "It was never handed out, or its page has been given back since."
    if block in heap.free_blocks(span):
        return "It is free."
    if heap.looks_free(block):
        return "It has been freed, by a thread that has not handed it over yet."
    return "It is live."


def gdb_string(address: int) -> str:
    return bytes(gdb.selected_inferior().read_memory(address, 64)).split(b"\0")[0].decode()


Commands()
Stats()
Heaps()
Block()
