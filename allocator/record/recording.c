/* The file's life: whether anything is noted, and what the file gets beside the events. */
#include "writer.h"

#include <sys/stat.h>
#include <unistd.h>

#define STUCK "the file took nothing for 10 seconds"
#define ENDED "the recorder's thread has been ended, perhaps by a seccomp filter"

/*     recording, busy:
 *
 *         idle ──R: recording_begin──► on ──R: recording_stop_noting──► ending ──R: closed──► idle
 *         0, 0                        1, 1                               0, 1
 *                                      │ ──R: closed, after an error of the file────────────► idle
 *                                      └──P: recording_give_up, sets `stuck`───► ending, on which R ends it
 *
 * `recording` is all that malloc looks at. */
_Atomic(bool) recording;

static struct {
    _Atomic(bool) busy; /* there is a file that is not whole */
    _Atomic(bool) stuck;
    _Atomic(const char *) complaint; /* for P to say. NULL: nothing bad has happened, or it has been said */
} life;

/* R's own, but that P writes the clocks before R is. */
static struct {
    uint64_t start_tick, start_ns; /* the clocks when R was asked for */
    uint64_t begun_ms, flush_ms, marked_ms; /* when the file was begun; is to be flushed; was marked */
    uint64_t modules_ms; /* when they were last read */
    uint64_t marked_events;
    uint32_t modules_checksum;
    char text[TRACE_RAW_MAX];
} own;

/* ---- R: marks and modules --------------------------------------------------------------------------------------------------- */

/* Between an event's stamp and its way into the ring its thread may lose the core: so long, mostly. */
enum { SLACK_US = 10000 };

/* Ticks in SLACK_US, by what has passed so far. */
static uint64_t slack_ticks(uint64_t tick)
{
    uint64_t us = (platform_clock_ns() - own.start_ns) / 1000;
    uint64_t ticks = tick > own.start_tick ? tick - own.start_tick : 0; /* another core's clock may be behind */
    return us <= SLACK_US ? ticks : (uint64_t)((double)ticks / (double)us * SLACK_US);
}

static void mark(uint64_t complete)
{
    struct trace_mark mark = {.tick = record_ticks(), .monotonic_ns = platform_clock_ns(), .complete_tick = complete};
    facts_memory(&mark.resident, &mark.resident_anonymous);
    mark.lost = file_lost();
    file_block(TRACE_MARK, 0, &mark, sizeof mark);
    own.marked_ms = platform_clock_ms();
    own.marked_events = record_file.events;
}

static void modules(void)
{
    size_t size = facts_modules(own.text);
    own.modules_ms = platform_clock_ms();
    uint32_t checksum = trace_crc(0, own.text, size);
    if (size == 0 || checksum == own.modules_checksum) return;
    own.modules_checksum = checksum;
    file_block(TRACE_MODULES, 0, own.text, size);
}

/* How often it was asked for by P, and how often of that it is done. */
static struct {
    _Atomic(uint32_t) asked, done;
} noting;

bool recording_is_called(void)
{
    /* Sequentially consistent: see sleep.c. */
    return atomic_load_explicit(&noting.asked, memory_order_seq_cst) !=
           atomic_load_explicit(&noting.done, memory_order_relaxed);
}

void recording_answer(void)
{
    /* First: what was there before it was asked for is written. */
    uint32_t asked = atomic_load_explicit(&noting.asked, memory_order_seq_cst);
    if (asked == atomic_load_explicit(&noting.done, memory_order_relaxed)) return;
    streams_take();
    streams_flush();
    modules();
    atomic_store_explicit(&noting.done, asked, memory_order_relaxed); /* nothing else is told by it */
    platform_wake(&noting.done); /* another one looks again by itself */
}

void recording_note_modules(void)
{
    enum { WAIT_MS = 200 };
    if (!atomic_load_explicit(&recording, memory_order_relaxed) || !writer_is_ours()) return;
    uint32_t number = atomic_fetch_add_explicit(&noting.asked, 1, memory_order_seq_cst) + 1;
    struct patience patience = patience_of(WAIT_MS);
    for (;;) {
        uint32_t done = atomic_load_explicit(&noting.done, memory_order_relaxed);
        if ((int32_t)(done - number) >= 0 || is_over(&patience) || !writer_works()) return;
        writer_wake();
        platform_wait(&noting.done, done, LOOK_MS * 1000);
    }
}

/* ---- R: one file ------------------------------------------------------------------------------------------------------------ */

uint64_t recording_flush_ms(void)
{
    return own.flush_ms;
}

void recording_stop_noting(void)
{
    atomic_store_explicit(&recording, false, memory_order_relaxed); /* see record.h */
}

/* The file is, by an error or by us. */
static void closed(void)
{
    recording_stop_noting();
    /* Relaxed: a text that never changes. */
    if (record_file.error != NULL) atomic_store_explicit(&life.complaint, record_file.error, memory_order_relaxed);
    record_settings.passed_ms = 0;
    atomic_store_explicit(&life.busy, false, memory_order_release); /* the file is whole: see recording_is_busy */
    streams_wake();
}

void recording_flush(void)
{
    uint64_t now = platform_clock_ms(), tick = record_ticks();
    uint64_t complete = tick - slack_ticks(tick);
    uint64_t until = streams_take();
    streams_flush();
    if (now - own.modules_ms >= IDLE_MS && streams_strange()) modules();
    if (record_file.events != own.marked_events || now - own.marked_ms >= IDLE_MS)
        mark(until < complete ? until : complete);
    file_flush();
    own.flush_ms = now + record_settings.flush_ms;
}

void recording_write_end(const char *why)
{
    uint64_t tick = record_ticks();
    file_reopen();
    streams_take();
    streams_flush();
    modules();
    mark(tick);
    file_end(why);
    if (!record_file.open) closed();
}

const char *recording_begin(void)
{
    if (record_file.open) return NULL;
    if (!sample_begin()) return "there is no memory for it";
    streams_begin();
    uint64_t tick = record_ticks();
    if (!file_open()) return record_file.error;
    size_t size = facts_info(own.text, own.start_tick, own.start_ns);
    file_block(TRACE_INFO, 0, own.text, size);
    own.modules_checksum = 0;
    own.begun_ms = platform_clock_ms();
    own.flush_ms = own.begun_ms + record_settings.flush_ms;
    mark(tick);
    modules();
    if (!file_flush()) return record_file.error;
    /* Relaxed: who reads it is told nothing else by it. */
    atomic_store_explicit(&life.stuck, false, memory_order_relaxed);
    atomic_store_explicit(&life.busy, true, memory_order_release); /* pairs with recording_is_busy: when it was begun */
    /* Release: pairs with is_recording, for the tables of sample.c. */
    atomic_store_explicit(&recording, true, memory_order_release);
    return NULL;
}

void recording_end(const char *why)
{
    if (!record_file.open) return;
    recording_stop_noting();
    recording_write_end(why);
    file_close();
    closed();
}

uint64_t recording_passed_ms(void)
{
    return platform_clock_ms() - own.begun_ms + record_settings.passed_ms;
}

void recording_look(void)
{
    uint64_t lasts_ms = record_settings.lasts_s * UINT64_C(1000);
    if (!record_file.open) closed();
    else if (recording_is_stuck()) recording_end(STUCK);
    else if (lasts_ms != 0 && recording_passed_ms() >= lasts_ms) recording_end("the time is over");
}

/* ---- P ---------------------------------------------------------------------------------------------------------------------- */

static struct stat error_output; /* what stderr was at the start */

void recording_prepare(void)
{
    if (record_settings.quiet || fstat(STDERR_FILENO, &error_output) != 0) error_output.st_ino = 0;
    own.start_tick = record_ticks();
    own.start_ns = platform_clock_ns();
}

bool recording_is_busy(void)
{
    return atomic_load_explicit(&life.busy, memory_order_acquire); /* pairs with `closed` */
}

bool recording_is_stuck(void)
{
    return atomic_load_explicit(&life.stuck, memory_order_relaxed); /* nothing goes with it */
}

/* Relaxed, all: as above. */
void recording_give_up(void)
{
    recording_stop_noting();
    atomic_store_explicit(&life.stuck, true, memory_order_relaxed);
    if (writer_is_ours()) atomic_store_explicit(&life.complaint, writer_works() ? STUCK : ENDED, memory_order_relaxed);
}

/* The program may have closed stderr, and got its number for a file of its own: that one is left alone. */
void recording_complain(void)
{
    struct stat now;
    const char *why = atomic_exchange_explicit(&life.complaint, NULL, memory_order_relaxed);
    if (why == NULL || error_output.st_ino == 0 || fstat(STDERR_FILENO, &now) != 0) return;
    if (now.st_dev == error_output.st_dev && now.st_ino == error_output.st_ino)
        platform_message("the recording ended early: %s", why);
}

void recording_fork_child(void)
{
    atomic_store_explicit(&life.busy, false, memory_order_relaxed);
    atomic_store_explicit(&life.stuck, false, memory_order_relaxed);
    atomic_store_explicit(&life.complaint, NULL, memory_order_relaxed);
    record_file = (struct record_file){0};
    record_settings.first = false;
}
