/* Objects: from the items, in the order of their time, to blocks with a birth and a death, and what is counted on the
 * way.
 */
#include "reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    LIVES = 255, /* died_kind of an object that lives at the end */
    SLOTS_AHEAD = 16, /* items between the look at a block and the wish that its slot ... */
    RECORDS_AHEAD = 8, /* ... and then its record come into the cache: a cache miss takes as long as some items */
};

static bool objects_start(struct trace_reader *reader)
{
    struct objects *objects = &reader->objects;
    if (objects->started) return true;
    objects->started = course_start(&objects->course) && flow_start(reader, objects->live.secret);
    if (!objects->started) reader_stop(reader, ENOMEM);
    return objects->started;
}

void objects_close(struct objects *objects)
{
    live_close(&objects->live);
    flow_close(&objects->flow);
    free(objects->course.points);
    free(objects->sites);
    free(objects->survivors);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* When, by whom and how an object died. */
struct death {
    uint64_t ns, bytes;
    uint32_t thread;
    uint8_t kind;
};

static void put_birth(const struct trace_objects *columns, size_t row, const struct record *record)
{
    if (columns->id != NULL) columns->id[row] = record->id;
    if (columns->previous != NULL) columns->previous[row] = record->previous;
    if (columns->address != NULL) columns->address[row] = record->address;
    if (columns->size != NULL) columns->size[row] = record->size;
    if (columns->usable != NULL) columns->usable[row] = record->size + record->slack;
    if (columns->born_ns != NULL) columns->born_ns[row] = record->born_ns;
    if (columns->born_bytes != NULL) columns->born_bytes[row] = record->born_bytes;
    if (columns->born_thread != NULL) columns->born_thread[row] = record->thread;
    if (columns->site != NULL) columns->site[row] = record->site;
    if (columns->born_kind != NULL) columns->born_kind[row] = record->kind;
    if (columns->alignment != NULL) columns->alignment[row] = record->alignment;
}

static void put_death(const struct trace_objects *columns, size_t row, const struct death *death)
{
    if (columns->died_ns != NULL) columns->died_ns[row] = death->ns;
    if (columns->died_bytes != NULL) columns->died_bytes[row] = death->bytes;
    if (columns->died_thread != NULL) columns->died_thread[row] = death->thread;
    if (columns->died_kind != NULL) columns->died_kind[row] = death->kind;
}

/* ---- sites ------------------------------------------------------------------------------------------------------- */

/* There is room for all sites that are known (run_begin). */
static void count_at_site(struct trace_reader *reader, const struct item *item)
{
    struct trace_site_totals *totals = &reader->objects.sites[item->site];
    struct thread *thread = &reader->tables.states[reader->order.run.thread];
    unsigned context = trace_context(item->size);
    uint64_t bit = UINT64_C(1) << context;
    totals->switches += (thread->contexts & bit) != 0 && thread->sites[context] != item->site;
    thread->contexts |= bit;
    thread->sites[context] = item->site;
    totals->allocations++;
    totals->bytes += item->size;
    totals->live_objects++;
    totals->live_bytes += item->size;
    if (totals->live_bytes > totals->peak_live_bytes) totals->peak_live_bytes = totals->live_bytes;
}

/* ---- deaths and births ------------------------------------------------------------------------------------------- */

static uint8_t born_kind(const struct item *item)
{
    return item->kind == ITEM_RESULT ? TRACE_REALLOC : item->kind;
}

/* A block dies: a row. */
static void die(struct trace_reader *reader, const struct record *record, uint64_t ns, uint8_t kind,
                const struct trace_objects *columns, size_t row)
{
    struct objects *objects = &reader->objects;
    struct trace_site_totals *site = &objects->sites[record->site];
    struct death death = {.ns = ns, .bytes = objects->totals.bytes, .thread = reader->order.run.thread, .kind = kind};
    put_birth(columns, row, record);
    put_death(columns, row, &death);
    site->live_objects--;
    site->live_bytes -= record->size;
    objects->totals.end_objects--;
    objects->totals.end_bytes -= record->size;
}

/* The old block of a free or a realloc. That of a realloc lives until the call returns, but no longer at its address, which another
 * thread may get meanwhile. How many rows. */
static size_t end_block(struct trace_reader *reader, const struct item *item, const struct trace_objects *columns,
                        size_t row)
{
    struct objects *objects = &reader->objects;
    uint32_t thread = reader->order.run.thread;
    struct slot *slot = live_slot(&objects->live, item->address);
    const struct record *record = &objects->live.records[slot->record];
    bool is_known = slot->record != LIVE_NONE, is_realloc = item->kind == TRACE_REALLOC;
    if (is_realloc) reader->tables.states[thread].reallocated = is_known ? *record : (struct record){0};
    if (!is_known) {
        objects->totals.unmatched_frees++;
        return 0;
    }
    if (!flow_add(reader, record->thread, thread, record->size)) reader_stop(reader, ENOMEM);
    if (!is_realloc) die(reader, record, item->time, item->kind, columns, row);
    live_remove(&objects->live, slot);
    return !is_realloc;
}

static void count_birth(struct trace_totals *totals, const struct item *item)
{
    totals->allocations++;
    totals->bytes += item->size;
    totals->end_objects++;
    totals->end_bytes += item->size;
    if (totals->end_bytes <= totals->peak_bytes) return;
    totals->peak_bytes = totals->end_bytes;
    totals->peak_objects = totals->end_objects;
    totals->peak_ns = item->time;
}

/* A block lives where another one begins: its free is lost. */
static __attribute__((cold)) void replace(struct trace_reader *reader, const struct item *item, struct slot *slot,
                                          const struct trace_objects *columns, size_t row)
{
    struct objects *objects = &reader->objects;
    objects->totals.replaced++;
    die(reader, &objects->live.records[slot->record], item->time, born_kind(item), columns, row);
    live_remove(&objects->live, slot);
}

static void put_record(struct trace_reader *reader, struct record *record, const struct item *item)
{
    const struct trace_totals *totals = &reader->objects.totals;
    uint32_t thread = reader->order.run.thread;
    uint64_t slack = item->usable - item->size;
    record->id = totals->allocations;
    record->previous = item->kind == ITEM_RESULT ? reader->tables.states[thread].reallocated.id : 0;
    record->size = item->size;
    record->born_ns = item->time;
    record->born_bytes = totals->bytes;
    record->slack = slack < UINT32_MAX ? (uint32_t)slack : UINT32_MAX;
    record->thread = thread;
    record->site = item->site;
    record->kind = born_kind(item);
    record->alignment = item->alignment;
}

enum { ROWS_MAX = 2 };

/* The new block of an allocation or a realloc. How many rows: those of the old one, and of one in whose place it is. */
static size_t begin_block(struct trace_reader *reader, const struct item *item, const struct trace_objects *columns,
                          size_t row)
{
    struct objects *objects = &reader->objects;
    if (!live_make_room(reader)) {
        reader_stop(reader, ENOMEM);
        return 0;
    }
    size_t rows = 0;
    const struct record *old = &reader->tables.states[reader->order.run.thread].reallocated;
    if (item->kind == ITEM_RESULT && old->id != 0) die(reader, old, item->time, TRACE_REALLOC, columns, row + rows++);
    struct slot *slot = live_slot(&objects->live, item->address);
    if (slot->record != LIVE_NONE) {
        replace(reader, item, slot, columns, row + rows++);
        slot = live_slot(&objects->live, item->address);
    }
    count_birth(&objects->totals, item);
    count_at_site(reader, item);
    put_record(reader, live_add(&objects->live, slot, item->address), item);
    return rows;
}

/* ---- items ------------------------------------------------------------------------------------------------------- */

static size_t take(struct trace_reader *reader, const struct item *item, const struct trace_objects *columns,
                   size_t row)
{
    struct trace_totals *totals = &reader->objects.totals;
    if (item->time >= reader->objects.course.next) course_advance(reader, item->time);
    if (item->kind == ITEM_RESULT) return begin_block(reader, item, columns, row);
    totals->events++;
    switch (item->kind) {
    case TRACE_FREE:
    case TRACE_DELETE:
        totals->frees++;
        return end_block(reader, item, columns, row);
    case TRACE_REALLOC:
        totals->reallocs++;
        totals->reallocs_in_place += item[1].address == item->address;
        return end_block(reader, item, columns, row);
    case TRACE_MALLOC:
    case TRACE_CALLOC:
    case TRACE_ALIGNED:
    case TRACE_NEW:
    case TRACE_NEW_ALIGNED:
        return begin_block(reader, item, columns, row);
    default:
        totals->failed++;
        return 0;
    }
}

/* What items that are to come will look at. Always inline: a compiler that sees a function with nothing but
 * prefetches in it takes calls of it for useless (gcc 12 does). */
static inline __attribute__((always_inline)) void fetch(const struct live *live, const struct run *run)
{
    if (run->at + SLOTS_AHEAD < run->ahead) {
        uint32_t hash = live_hash(live, run->items[run->at + SLOTS_AHEAD].address);
        __builtin_prefetch(&live->slots[live_home(live, hash)]);
    }
    if (run->at + RECORDS_AHEAD < run->ahead) {
        uint32_t hash = live_hash(live, run->items[run->at + RECORDS_AHEAD].address);
        __builtin_prefetch(&live->records[live->slots[live_home(live, hash)].record]);
    }
}

/* A run with items left; reading it may have brought sites and marks. false: there is none. */
static bool run_begin(struct trace_reader *reader)
{
    struct objects *objects = &reader->objects;
    if (!objects_start(reader)) return false;
    bool more = order_next(reader);
    if (!room_for(reader, &objects->sites, &objects->sites_capacity, reader->tables.site_count, sizeof *objects->sites))
        return false;
    course_look(reader);
    return more;
}

/* Those that live at the end. */
static size_t put_survivors(struct trace_reader *reader, const struct trace_objects *columns, size_t row)
{
    static const struct death none = {.ns = UINT64_MAX, .bytes = UINT64_MAX, .thread = UINT32_MAX, .kind = LIVES};
    struct objects *objects = &reader->objects;
    if (!objects->started) return row;
    if (objects->survivors == NULL) {
        course_finish(reader, reader->order.now_ns);
        objects->survivors = live_sorted(&objects->live);
        if (objects->survivors == NULL) reader_stop(reader, ENOMEM);
    }
    if (objects->survivors == NULL) return row;
    for (; row < columns->capacity && objects->survivors_given < objects->live.count; row++) {
        put_birth(columns, row, &objects->live.records[objects->survivors[objects->survivors_given++]]);
        put_death(columns, row, &none);
    }
    return row;
}

TRACE_API size_t trace_next_objects(struct trace_reader *reader, const struct trace_objects *columns)
{
    size_t row = 0;
    struct run *run = &reader->order.run;
    while (row + ROWS_MAX <= columns->capacity) {
        if (!run_begin(reader)) return put_survivors(reader, columns, row);
        for (; row + ROWS_MAX <= columns->capacity && run->at < run->count; run->at++) {
            fetch(&reader->objects.live, run);
            row += take(reader, &run->items[run->at], columns, row);
        }
    }
    return row;
}

TRACE_API struct trace_totals trace_totals(const struct trace_reader *reader)
{
    return reader->objects.totals;
}

TRACE_API size_t trace_site_totals(const struct trace_reader *reader, const struct trace_site_totals **totals)
{
    *totals = reader->objects.sites;
    size_t sites = reader->tables.site_count, room = reader->objects.sites_capacity;
    return sites < room ? sites : room;
}
