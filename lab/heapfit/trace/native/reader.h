/* What the files of the reader share; trace.h says what it is for. From the file to objects:
 *
 *     reader.c   bytes ─► whole blocks ─┬─► tables.c  threads, sites, modules, what the recorder says of itself
 *                                       ├─► clock.c   marks: ticks ─► nanoseconds
 *                                       └─► order.c   a stream of payloads per thread
 *     decode.c   payload ─► items
 *     order.c    the streams' items ─► runs of items, in the order of their time
 *     limits.c   what all of this may cost
 *     objects.c  items ─► objects, by live.c (which blocks live), course.c (memory over time), flow.c (thread to thread)
 *
 * Each part is a struct in struct trace_reader, which all functions may read; only the part's own file writes it. Sizes,
 * counts and ticks come from the file and may be anything: sums of them wrap, what indexes or allocates is checked
 * against a limit.
 */
#ifndef HEAPFIT_TRACE_READER_H
#define HEAPFIT_TRACE_READER_H

#include "trace.h"

/* Ends the reading as at the file's end; `error` is an errno. */
void reader_stop(struct trace_reader *reader, int error);

/* ---- limits (limits.c) ------------------------------------------------------------------------------------------- *
 *
 * What a file may cost is bounded by what it holds, and by what the user allows, in the environment:
 *
 * - HEAPFIT_TRACE_MEMORY, bytes for all tables that grow with the file, and for the blocks that live; half of the
 *   machine's memory. What order.c holds back has a limit of its own.
 * - HEAPFIT_TRACE_EXPANSION, how many times the bytes of the file so far may have been unpacked, beyond EXPANSION_FREE.
 *   Recordings are below 10; what is made to be small, and to keep a reader busy, may be 10,000.
 *
 * Where one is met the reading stops, and trace_stopped says what to do.
 */
enum { EXPANSION = 100, EXPANSION_FREE = 8 << 20 /* bytes */ };

struct limits {
    uint64_t memory, memory_max; /* bytes */
    uint64_t unpacked, expansion; /* bytes; times */
};

void limits_start(struct limits *limits);
/* false: so many bytes more are too many, and the reading is stopped. */
bool memory_take(struct trace_reader *reader, uint64_t bytes);
void memory_give(struct trace_reader *reader, uint64_t bytes);
/* A block of `raw` bytes is to be unpacked, which ends at `position` in the file. */
bool unpack_take(struct trace_reader *reader, uint32_t raw, uint64_t position);

/* Makes room for `needed` elements of `size` bytes, all zero that were not there before. false: no memory, or not so much; the
 * reading is stopped, and nothing has changed. */
bool room_for(struct trace_reader *reader, void *array, size_t *capacity, size_t needed, size_t size);

/* ---- blocks (reader.c) ------------------------------------------------------------------------------------------- */

struct source {
    int descriptor;
    bool at_end; /* of the file; what the buffer holds is left */
    uint8_t *buffer; /* room for two blocks of the largest size */
    size_t start, end; /* what has been read of the file and not been used */
    uint64_t position; /* in the file, of `start` */
    uint64_t vain; /* bytes whose checksum was computed and was wrong */
    uint32_t sequence; /* that the next block must have */
    uint8_t *payload; /* of a block that is not of events, decoded, with a 0 behind it */
    struct ZSTD_DCtx_s *zstd;
};

/* Reads one block and hands it on. false: there is none any more. */
bool reader_block(struct trace_reader *reader);

/* ---- tables (tables.c) ------------------------------------------------------------------------------------------- */

enum {
    THREADS_SPARE = 4096, /* see tables_thread */
    THREADS_MAX = 1 << 24,
    SITES_SPARE = 1 << 16, /* see may_be_site */
    SITES_A_BYTE = 8, /* of the file up to there, at most */
    SITES_MAX = 1 << 22, /* recorders' limit is below */
    SITES_DEEPEST = 64, /* recorders' limit, in allocator/record/site.c */
    MODULES_MAX = 16 << 20, /* bytes */
};

/* A block of the program, while it lives (live.c). A cache line. */
struct record {
    uint64_t address, id, previous, size, born_ns, born_bytes;
    uint32_t slack; /* usable size less size; its largest value when more */
    uint32_t thread, site; /* of a record that is not used: `thread` is the next such one */
    uint8_t kind, alignment;
};
_Static_assert(sizeof(struct record) == 64, "a look at a block is one cache miss");

/* What other parts know of a thread beside struct trace_thread. */
struct thread {
    struct stream *stream; /* order.c; NULL: it has none now */
    uint64_t now; /* decode.c: the tick of its last event */
    struct record
        reallocated; /* objects.c: the block that its realloc replaces, until its result; id 0: none is known */
    uint64_t contexts; /* objects.c: a bit for each in which it has allocated ... */
    uint32_t sites[TRACE_CONTEXTS]; /* ... and the site of the last allocation there */
};

/* A mapping of code (mapped.c). */
struct mapped_code {
    uint64_t start, end, identity;
    unsigned space;
};

struct mapped {
    struct mapped_code *known, *now; /* all so far; those of the last listing, in order of address */
    size_t known_count, known_capacity, now_count, now_capacity;
    uint32_t *left; /* sites whose code no listing has had yet */
    size_t left_count, left_capacity;
    uint64_t comparisons;
};

struct tables {
    char *info, *end; /* NULL: none so far */
    struct trace_thread *threads;
    struct thread *states; /* of the same threads */
    size_t thread_count, threads_capacity, states_capacity;
    struct trace_site *sites;
    size_t site_count, sites_capacity; /* the first is none */
    char *modules;
    size_t modules_size, modules_capacity;
    uint64_t *lines; /* hashes of the modules' lines, open addressing */
    size_t line_count, lines_capacity;
    struct mapped mapped;
};

/* The thread of this index, which is new perhaps. NULL: `offset` in the file is too early for so many (each takes a
 * block), or there is no memory. */
struct thread *tables_thread(struct trace_reader *reader, uint32_t index, uint64_t offset);

/* Of the block's payload, `text` with a 0 behind it. false: it does not decode. */
bool tables_info(struct trace_reader *reader, const char *text);
bool tables_end(struct trace_reader *reader, const char *text);
bool tables_limit(struct trace_reader *reader, const char *text);
bool tables_name(struct trace_reader *reader, const char *text, uint64_t offset);
bool tables_modules(struct trace_reader *reader, const char *text); /* mapped.c */
/* A line for trace_modules, unless it is there. false: no memory. */
bool tables_line(struct trace_reader *reader, const char *line, size_t length);
/* A site has been added: which code its address means (mapped.c). */
void mapped_site(struct trace_reader *reader, uint32_t number);
/* A varint that ends before `end`, which `at` goes behind. false: there is none of 64 bits. */
bool number_take(const uint8_t **at, const uint8_t *end, uint64_t *out);
/* `offset` is where the block ends in the file. */
bool tables_sites(struct trace_reader *reader, uint32_t first, const uint8_t *payload, size_t size, uint64_t offset);

/* The number that a member of a JSON object has; `otherwise` when there is none. */
int64_t json_number(const char *text, const char *member, int64_t otherwise);
/* Its text, as UTF-8, as much of it as fits; false when there is none. */
bool json_text(const char *text, const char *member, char *out, size_t size);

/* ---- the clock (clock.c) ----------------------------------------------------------------------------------------- */

enum { RATE_BITS = 48 };
#define NS_MAX (UINT64_C(1) << 62) /* no clock is later, so that sums of two do not wrap */
#define TICK_MAX (UINT64_C(1) << 62)

__extension__ typedef unsigned __int128 uint128;

/* Of ticks from `from` on, `span` of them: nanoseconds are `base`, and the ticks since then times `rate` /
 * 2^RATE_BITS. */
struct segment {
    uint64_t from, span, base, rate;
};

struct clock {
    uint64_t origin; /* tick of the trace's time 0 */
    uint64_t guess; /* rate, of INFO; until marks tell */
    uint64_t first_ns; /* CLOCK_MONOTONIC at the first mark */
    struct trace_mark *marks; /* `tick` and `complete_tick` in nanoseconds since the origin */
    uint64_t *ticks; /* of the same marks */
    size_t count, marks_capacity, ticks_capacity;
    struct segment segment; /* where clock_ns was last */
};

void clock_start(struct clock *clock, uint64_t origin, const char *info);
/* false: its clock is before one of an earlier mark, and it is left out; or there is no memory. */
bool clock_mark(struct trace_reader *reader, const struct trace_mark *mark);
struct segment clock_segment(const struct clock *clock, uint64_t tick);
uint64_t clock_in_segment(const struct segment *segment, uint64_t tick);

/* To the nearest. */
static inline uint64_t ns_of(uint64_t ticks, uint64_t rate)
{
    return (uint64_t)(((uint128)ticks * rate + (UINT64_C(1) << (RATE_BITS - 1))) >> RATE_BITS);
}

/* For ticks that mostly grow. */
static inline uint64_t clock_ns(struct clock *clock, uint64_t tick)
{
    if (tick - clock->segment.from >= clock->segment.span) {
        clock->segment = clock_segment(clock, tick);
        return clock_in_segment(&clock->segment, tick);
    }
    const struct segment *segment = &clock->segment;
    return segment->base + ns_of(tick - segment->from, segment->rate);
}

/* ---- items (decode.c) -------------------------------------------------------------------------------------------- */

enum {
    ITEM_RESULT = TRACE_KIND_MASK,
    PAYLOAD_PADDING =
        80, /* zeros behind a payload, more than any event takes: where it ends is looked at once an event */
};

/* What happens to a block. Most events are one item. A realloc that succeeds is two that follow each other directly:
 * the old block's end, with the event's kind, and the new block's beginning, ITEM_RESULT. */
struct item {
    /* Twice the tick, and one more when a block begins (order.c); of an item that was given out, nanoseconds. */
    uint64_t time;
    uint64_t address;
    uint64_t size, usable;
    uint32_t site;
    uint8_t kind; /* enum trace_kind, with TRACE_FAILED perhaps, or ITEM_RESULT */
    uint8_t alignment;
};

struct decoder {
    const uint8_t *at, *end;
    struct trace_coder coder;
    uint64_t now; /* tick of the thread's last item */
    uint64_t backward; /* events whose clock is before that; theirs is `now` */
    uint32_t sites; /* so many are known: others are 0 */
    bool damaged; /* what is left of the payload does not decode */
};

void decode_start(struct decoder *decoder, const uint8_t *payload, size_t size, uint64_t first_tick);
/* How many items, 0 at the payload's end. `capacity` is at least 2. */
size_t decode(struct decoder *decoder, struct item *items, size_t capacity);

/* ---- the order of time (order.c) --------------------------------------------------------------------------------- */

enum {
    STREAM_ITEMS = 128, /* decoded at a time: few enough for the processor's first cache with several threads */
    HELD_MAX = 64 << 20, /* bytes; the recorder's passes are far smaller */
};

struct payload {
    struct payload *next;
    uint64_t first_tick;
    size_t size;
    uint8_t bytes[]; /* and PAYLOAD_PADDING zeros */
};

/* A thread's events that have been read and not been given out. */
struct stream {
    struct stream *next; /* of those that are not used */
    uint32_t thread;
    uint32_t at, count, room; /* of the items */
    struct payload *first, *last; /* the first is being decoded */
    struct decoder decoder;
    struct item *items; /* no more than the payloads so far had, and STREAM_ITEMS at most */
};

/* Items of one thread that follow each other in the order of all. */
struct run {
    struct item *items;
    size_t at, count; /* the first `at` have been used */
    size_t ahead; /* so many are decoded, beyond `count` too, for whoever wants to know what will come */
    uint32_t thread;
};

struct order {
    struct {
        uint64_t time;
        struct stream *stream;
    } *heap; /* streams that have items, the earliest first */
    size_t active, capacity;
    struct stream *unused;
    size_t held, held_max; /* bytes of payloads and streams */
    uint64_t horizon; /* time before which the file has told everything */
    uint64_t now, now_ns; /* the last item's that was given out */
    struct run run;
};

struct payload *payload_make(size_t size); /* NULL: no memory */
/* Takes the payload over. */
void order_add(struct trace_reader *reader, uint32_t thread, struct payload *payload);
void order_complete(struct order *order, uint64_t tick);
/* The run to be used, in reader->order.run, has items left. false: there are none any more. */
bool order_next(struct trace_reader *reader);
void order_close(struct order *order);

/* ---- blocks of the program that live (live.c) -------------------------------------------------------------------- */

/* Open addressing with linear probing. A slot tells its place by itself, so only records that match are looked at. */
struct live {
    struct slot {
        uint32_t hash, record;
    } *slots; /* record 0: empty */
    unsigned bits; /* binary logarithm of the number of slots */
    uint64_t secret; /* odd: what a file would have to know to let all its blocks meet in one place */
    struct record *records; /* the first is none */
    uint32_t count, used, capacity; /* records that live, were ever used, have room */
    uint32_t unused; /* the first of a list; 0: none */
    uint32_t max; /* of `count`: what numbers can tell apart */
};

enum { LIVE_NONE = 0 };

bool live_start(struct live *live);
void live_close(struct live *live);
/* For one block more; slots may change their places. false: no memory. */
bool live_make_room(struct trace_reader *reader);
/* Fills the empty slot in which this block belongs, after live_make_room. Of the record only `address` is set. */
struct record *live_add(struct live *live, struct slot *slot, uint64_t address);
void live_remove(struct live *live, struct slot *slot); /* other slots may change their places */
/* Numbers of all records in order of their ids, to be freed; NULL: no memory. */
uint32_t *live_sorted(const struct live *live);

static inline uint32_t live_hash(const struct live *live, uint64_t address)
{
    return (uint32_t)(address * live->secret >> 32);
}

static inline size_t live_home(const struct live *live, uint32_t hash)
{
    return hash >> (32 - live->bits);
}

/* The block's slot, or the empty one in which it belongs. */
static inline struct slot *live_slot(const struct live *live, uint64_t address)
{
    uint32_t hash = live_hash(live, address);
    size_t mask = ((size_t)1 << live->bits) - 1;
    for (size_t at = live_home(live, hash);; at = (at + 1) & mask) {
        struct slot *slot = &live->slots[at];
        if (slot->record == LIVE_NONE) return slot;
        if (slot->hash == hash && live->records[slot->record].address == address) return slot;
    }
}

/* ---- memory over time (course.c), threads' give and take (flow.c) ------------------------------------------------ */

enum { COURSE_POINTS = 1 << 16 };

struct course {
    struct trace_memory *points;
    size_t count;
    uint64_t step; /* nanoseconds */
    uint64_t boundary; /* the next point's time, unless a mark is before it */
    size_t marks; /* so many have had their point */
    uint64_t next; /* the earlier of both: nothing to do before it */
};

bool course_start(struct course *course);
/* The time goes on to `ns`; what has been counted so far was so until then. */
void course_advance(struct trace_reader *reader, uint64_t ns);
void course_look(struct trace_reader *reader); /* marks have come perhaps */
void course_finish(struct trace_reader *reader, uint64_t ns);

enum { FLOW_PAIRS = 1 << 22 };

struct flow {
    struct trace_flow *pairs; /* open addressing; `blocks` 0: empty */
    struct trace_flow *last; /* the pair that was added to last */
    struct trace_flow *listed; /* for the caller */
    size_t count, capacity; /* the second is a power of two */
    struct trace_flow others;
    uint64_t secret;
};

bool flow_start(struct trace_reader *reader, uint64_t secret);
bool flow_add(struct trace_reader *reader, uint32_t born, uint32_t died, uint64_t bytes); /* false: no memory */
void flow_close(struct flow *flow);

/* ---- objects (objects.c) ----------------------------------------------------------------------------------------- */

struct objects {
    bool started;
    struct live live;
    struct course course;
    struct flow flow;
    struct trace_totals totals; /* `end_...`: of now */
    struct trace_site_totals *sites;
    size_t sites_capacity;
    uint32_t *survivors; /* records that live at the end; NULL: not yet there */
    size_t survivors_given;
};

void objects_close(struct objects *objects);

/* ---- all of it --------------------------------------------------------------------------------------------------- */

struct trace_reader {
    struct limits limits;
    struct source source;
    struct tables tables;
    struct clock clock;
    struct order order;
    struct objects objects;
    struct trace_problems problems;
    bool ended; /* no more blocks are to be read */
};

/* As trace_open, of a descriptor, which the reader closes. */
struct trace_reader *reader_open(int descriptor, char *why);

#endif
