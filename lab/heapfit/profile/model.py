"""A profile: all that is said of one trace or of many, for the terminal, the page and JSON.

It is made by finish.py from a tally (tally.py), which is what merges: a profile of many files is
that of the sum of their tallies. Sizes are bytes, times are nanoseconds since a recording's start.
A share is a part of one, and None where there is nothing to take a part of.
"""

from pydantic import Field

from heapfit.profile.flames.tree import Tree
from heapfit.records import Record


class Amount(Record):
    """How many objects, and their bytes. In a sampled trace both are estimates, and the errors
    are their standard errors; 0 where every allocation was recorded."""

    objects: int = 0
    bytes: int = 0
    objects_error: float = 0.0
    bytes_error: float = 0.0


# ----------------------------------------------------------------- what was recorded


class Course(Record):
    """The course of one recording in steps of one length, the last maybe unfinished. All lists
    have an element for each."""

    step_ns: int
    allocations: list[int]  # in the step
    allocated_bytes: list[int]
    frees: list[int]
    live_bytes: list[int]  # at the step's end
    live_objects: list[int]
    resident: list[int | None]  # the most seen in the step; None: not looked at
    resident_anonymous: list[int | None]


class Recording(Record):
    """One trace file."""

    name: str  # the file's
    program: str  # path of the executable
    arguments: list[str]
    pid: int
    allocator: str  # path of the library that served the program; "" when not known
    arch: str
    cores: int
    page_size: int
    started_unix_ns: int
    environment: dict[str, str]  # the variables that an interpreter's own allocator heeds
    duration_ns: int
    processor_ns: int | None = None  # of the program's threads meanwhile; None: not known
    sample: int  # mean bytes between noted allocations; 0: each is there
    sites: int  # return addresses that were followed; 0: none
    threads: int
    events: int
    allocations: Amount
    peak: Amount  # live when most bytes were ...
    peak_ns: int  # ... which was then
    rival_ns: int | None = None  # of a sample: when as much may have been live, for all it tells
    end: Amount  # live at the end
    resident_most: int | None
    problems: list[str]  # a sentence each, for a person: damage, loss, a recording cut short
    whole: bool = True  # the file has all that the recorder noted, as `heapfit trace info` sees it
    ended_early: bool = False  # before its program: what was live then need not have been left
    began_late: bool = False  # in the middle of its process: what was live before is in no figure
    course: Course
    eighths_ns: tuple[int, ...] = ()  # when the last allocation of each eighth of all was


class Calls(Record):
    """Calls by what they were: `malloc`, `calloc`, `realloc`, `aligned`, `new`, `new_aligned`."""

    kind: str
    amount: Amount
    share: float  # of the objects


class Totals(Record):
    """Sums over all recordings."""

    events: int
    duration_ns: int  # of the recordings one after the other
    allocations: Amount
    frees: Amount
    failed: int  # allocations that got no memory
    unmatched_frees: int  # of blocks from before the recording
    unmatched_late: int  # of these, in the second half of all allocations
    lost_events: int
    mean_size: float | None
    per_second: float | None  # allocations, while recorded
    # In the busiest step of a recording's course; a sample has too few in a step to tell.
    per_second_most: float | None
    calls: list[Calls]
    calloc: Amount
    calloc_share: float | None  # of the objects
    calloc_pages: Amount  # of calloc, those of PAGE_BYTES and more
    aligned: Amount  # that asked for an alignment
    large: Amount  # objects of more than LARGE_BYTES ...
    large_local: Amount  # ... that were freed by the thread that had allocated them


PAGE_BYTES = 4 << 10  # the kernel clears whole pages, so an allocator may spare itself that
LARGE_BYTES = 32 << 10  # heapfit's largest size class; above, a span of its own


# ----------------------------------------------------------------- sizes


class Point(Record):
    """The share of objects, and of bytes, that are in objects of `size` or less."""

    size: int
    objects: float
    bytes: float


class FrequentSize(Record):
    size: int
    amount: Amount
    share: float  # of the objects
    cumulative: float  # of this size and the more frequent ones


class Distribution(Record):
    """The sizes that a program, or one thread, asks for."""

    name: str
    threads: int  # that it stands for
    amount: Amount
    mean: float
    median: int
    p90: int
    p99: int
    largest: int
    points: list[Point]  # at 8, 10, 12, 14, 16, 20, 24, 28, 32, ... up to the largest
    frequent: list[FrequentSize]  # most frequent first; empty for threads
    distinct: int  # different sizes; 0 for threads


class Sizes(Record):
    """Above 64 KiB, sizes that differ by less than a hundredth count as one."""

    programs: list[Distribution]  # most allocations first
    threads: list[Distribution]


# ----------------------------------------------------------------- lifetimes


class Quantiles(Record):
    """The lifetime that this share of objects does not outlive, estimated from all of them: those
    that live at the end count until then (Kaplan and Meier). None: the trace is too short."""

    p50: float | None
    p90: float | None
    p99: float | None


class LifetimeRow(Record):
    size: int  # of this size, and more than half of it; the first row: of 16 and less
    amount: Amount
    ns: Quantiles
    bytes: Quantiles  # on the clock of bytes that the program asks for
    living: Amount  # at the end


class LifetimeCell(Record):
    size: int
    lifetime: int  # less than that, and no less than half of it
    amount: Amount


class Lifetimes(Record):
    rows: list[LifetimeRow]
    by_time: list[LifetimeCell]  # of objects that died; lifetime in ns
    by_bytes: list[LifetimeCell]  # likewise; lifetime in bytes
    all: LifetimeRow  # of all sizes; its `size` is the largest row's
    young_share: float | None  # of the objects, those that die within YOUNG_BYTES of their birth


YOUNG_BYTES = 1 << 16  # a thread cache's worth


# ----------------------------------------------------------------- threads


class Flow(Record):
    born: int  # index in Sharing.threads
    died: int
    amount: Amount


class Sharing(Record):
    """Who frees what whom has allocated."""

    threads: list[str]  # names; the last may be "others"
    flow: list[Flow]  # most objects first; the diagonal too
    freed: Amount
    remote: Amount  # of it, by another thread than allocated
    remote_share: float | None  # of the freed objects
    remote_bytes_share: float | None


# ----------------------------------------------------------------- realloc


class Growth(Record):
    ratio: float | None  # new size to old, at most; None: beyond the one before
    calls: int


class Reallocs(Record):
    """What reallocations do, of those whose old block was recorded too (`known`)."""

    calls: Amount  # that got a new size, by the new block
    share: float | None  # of all allocating calls
    known: int
    in_place: int  # of the known: the address stays
    in_place_share: float | None
    copied_bytes: int  # that moving had to copy, as far as the allocator copies
    copied_huge_bytes: int  # of them, in blocks of HUGE_BYTES and more
    largest: int  # new size
    grown: int
    shrunk: int
    growth: list[Growth]
    blocks: int  # blocks that were reallocated at all, however often
    per_block: float | None  # calls for each of them


HUGE_BYTES = 4 << 20  # heapfit moves such blocks by mremap, which copies nothing


# ----------------------------------------------------------------- the peak


class Part(Record):
    """A part of a whole that is given beside it."""

    name: str
    amount: Amount
    share: float  # of the whole's bytes
    chain: tuple[str, ...] = ()  # of a call site: its calls, innermost first; `name` has a few


class SizePart(Record):
    size: int  # of this size, and more than half of it; the first row: of 16 and less
    amount: Amount
    share: float  # of the whole's bytes


EIGHTHS = 8
HELD_AFTER = (4, 5, 6, 7)  # eighths of all allocations


class Holder(Record):
    """Whose blocks are live at a moment: a call site, or a function with all its sites."""

    name: str
    amount: Amount
    share: float  # of all bytes that are live then
    late_share: float  # of its bytes, those of the second half of all allocations
    recent_share: float  # likewise, of the last quarter
    young_share: float  # likewise, of the last tenth
    held_before: list[int]  # bytes, after so many eighths (HELD_AFTER) of all allocations
    highest: list[int]  # bytes, the most within each eighth; of a function, the sum of its sites'
    lowest: list[int]  # likewise, the least
    freed_share: float = 1.0  # of all its blocks, those that are not live then
    chain: tuple[str, ...] = ()  # of a call site, as in Part

    def gained_since(self, eighths: int) -> float:
        """Return the share of its bytes by which it holds more than after so many eighths."""
        held = self.amount.bytes
        before = self.held_before[HELD_AFTER.index(eighths)]
        return max(held - before, 0) / held if held else 0.0


class Peak(Record):
    """What was live when most bytes were; of several recordings, the sum of each at its own."""

    amount: Amount
    usable_bytes: int  # what the recorded allocator gave for them
    sizes: list[SizePart]  # by size
    threads: list[Part]  # that allocated it, most bytes first
    sites: list[Part]  # likewise; empty without call sites
    functions: list[Holder]  # likewise, the sites of each function in one
    rival: Part | None  # who held most more then, where a sample's peak may have been elsewhere
    ages: list[Part]  # by age as a share of the recording until then: "10 %" the youngest tenth


# ----------------------------------------------------------------- pinned memory


class PinningSite(Record):
    """A call site, and the free memory that its blocks hold."""

    name: str
    bytes: int  # held: free, on pages of its blocks, as far as it falls to them
    share: float  # of what all blocks hold
    amount: Amount  # its live blocks
    mean_age_ns: float  # of these, at that moment
    chain: tuple[str, ...] = ()  # as in Part


class Pinned(Record):
    """Free memory on pages with live blocks, at the moment when most was so of those looked at; of
    several recordings, the sum of each at its own."""

    known: bool  # else no recording has all blocks of its process
    bytes: int
    amount: Amount  # live at that moment
    at_ns: int | None  # None: of several recordings
    sites: list[PinningSite]  # most bytes first


# ----------------------------------------------------------------- bursts


class Bursts(Record):
    """A thread's bursts: periods in which it allocates, and at whose end at least nine tenths of
    that is free again. They are what a transaction heap (context) can free at once."""

    thread: str
    bursts: int
    share: float | None  # of the thread's allocations, those within bursts
    allocations: float  # mean per burst, as all that follow
    bytes: float
    frees: float  # before the burst ends
    reallocs: float
    most_live_bytes: float  # over what was live before
    duration_ns: float
    duration_median_ns: float
    duration_most_ns: int
    survivors: float  # objects that live on at the burst's end
    survivor_share: float | None  # of the objects
    remote_share: float | None  # of the frees in bursts, those by another thread


class Burst(Record):
    """One of them, to draw."""

    thread: int  # index in Transactions.threads
    recording: int  # index in Profile.recordings
    start_ns: int
    end_ns: int


class Transactions(Record):
    threads: list[Bursts]  # that have bursts, most allocations first
    examples: list[Burst]  # the first of each recording, at most EXAMPLES
    share: float | None  # of all allocations, those within bursts


EXAMPLES = 500


# ----------------------------------------------------------------- call sites


class Site(Record):
    """A call, and the calls that led to it, innermost first."""

    chain: list[str]  # "function (file:line)", or "module+0xoffset"
    module: str  # that the innermost is in, without folders; "" when not known
    amount: Amount
    share: float  # of all bytes
    smallest: int
    largest: int
    small_share: float  # of its objects, those of SMALL_BYTES and less
    interleaving: float | None  # how often the allocation before, of like size, was another site's
    remote_share: float | None  # of its freed objects, by another thread
    median_ns: float | None  # lifetime
    peak: Amount  # at the recording's peak
    end: Amount  # live at the end


UNKNOWN = "elsewhere"  # the name of the site of blocks whose call site is not known
SMALL_BYTES = 128  # pools are for objects up to this, unless told otherwise


class Sites(Record):
    recorded: bool  # without call sites all else is empty
    distinct: int
    by_bytes: list[Site]
    by_interleaving: list[Site]  # most foreign neighbours first: interleaving times allocations
    interleaving: float | None  # of all
    without_lines: dict[str, float]  # by module: share of all bytes whose first call has no line


# ----------------------------------------------------------------- rounding


class Rounding(Record):
    """What an allocator's size classes add, as malloc_usable_size tells it: without headers."""

    allocator: str
    title: str
    version: str
    recorded: bool  # it is the one that the program ran under
    waste: float  # usable bytes beyond those asked for, as a share of these: over all allocations
    peak_waste: float | None  # likewise, of what was live at the peak
    peak_bytes: int  # the rounding at the peak, in bytes


class Waste(Record):
    allocators: list[Rounding]  # least peak_waste first
    unknown: list[str]  # why one is not there, a line each


# ----------------------------------------------------------------- the end


class Leaks(Record):
    """What lives at the end."""

    amount: Amount
    share: float | None  # of all bytes that were asked for
    sizes: list[SizePart]
    sites: list[Holder]
    functions: list[Holder]  # the sites of each function in one
    every: Holder | None  # all sites in one; None without call sites
    born: list[Amount]  # by the tenth of all allocations that it is of


class Profile(Record):
    """All of it."""

    heapfit: str  # version that made it
    recordings: list[Recording]
    totals: Totals
    sizes: Sizes
    lifetimes: Lifetimes
    sharing: Sharing
    reallocs: Reallocs
    peak: Peak
    pinned: Pinned
    transactions: Transactions
    sites: Sites
    waste: Waste
    leaks: Leaks
    # For the page alone: --json would be of many megabytes, and exported files have more of it.
    flames: Tree = Field(default=Tree(), exclude=True)
