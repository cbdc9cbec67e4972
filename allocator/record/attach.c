/* The recorder in a program that was not started with it: `heapfit record --pid` has a thread of the program load this library and
 * call heapfit_record_attach.
 *
 *     nothing ──heapfit_record_attach──► recording ──R ends the file──► K: slots back, R ends, K ends ──► nothing
 *
 * K is a thread of ours that lives as long as a recording: it has the calls of modules redirected that the program loads
 * meanwhile, and all given back at the end. It may be the last thread of a process, which runs the exit handlers, and so has
 * the program's descriptors; the looks are done by a thread that opens files in a table of its own, and ends. The library
 * itself stays, idle: a thread may be in it, and addresses of its functions may have been kept. It is used again by the next
 * recording.
 *
 * What a preloaded recorder has beside that is missing: handlers of signals are not the program's to be changed so late, so that a
 * file has no end when a signal ends the program.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "attach.h"
#include "next.h"
#include "writer.h"

#include <link.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

/* ---- late, or not ------------------------------------------------------------------------------------------------------- */

struct order {
    bool has_libc, is_late;
};

/* For dl_iterate_phdr, which goes from the first to the last that was loaded: what is preloaded stands before the C library. */
static int find_place(struct dl_phdr_info *info, size_t size, void *argument)
{
    static const char libc[] = "libc.so.";
    struct order *order = argument;
    (void)size;
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *name = slash == NULL ? info->dlpi_name : slash + 1;
    if (strncmp(name, libc, sizeof libc - 1) == 0) order->has_libc = true;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + part->p_vaddr;
        if (part->p_type != PT_LOAD || (uintptr_t)find_place - start >= part->p_memsz) continue;
        order->is_late = order->has_libc;
        return 1;
    }
    return 0;
}

bool attach_is_late(void)
{
    static enum { UNKNOWN, NO, YES } is_late; /* the constructor asks first, before there is anybody else */
    struct order order = {false, false};
    if (is_late == UNKNOWN) {
        dl_iterate_phdr(find_place, &order);
        is_late = order.is_late ? YES : NO;
    }
    return is_late == YES;
}

/* ---- looks and forks ----------------------------------------------------------------------------------------------------- */

/* Who looks at modules has a lock of the dynamic linker's, which a fork's child would never get: so nobody looks while the program
 * forks. Sequentially consistent, both: of a look and a fork that begin at the same time, one at least sees the other. */
static _Atomic(uint32_t) looking; /* 1: somebody does */
static _Atomic(uint32_t) forks; /* that are being made */

static void look_end(void)
{
    atomic_store_explicit(&looking, 0, memory_order_seq_cst);
    platform_wake(&looking);
}

static void look_begin(void)
{
    for (;;) {
        atomic_store_explicit(&looking, 1, memory_order_seq_cst);
        uint32_t now = atomic_load_explicit(&forks, memory_order_seq_cst);
        if (now == 0) return;
        look_end();
        platform_wait(&forks, now, LOOK_MS * 1000);
    }
}

/* A look takes milliseconds. Who forks in a callback of dl_iterate_phdr has the lock that it waits for: so not for ever. */
void attach_fork_prepare(void)
{
    enum { PATIENCE_MS = 1000 };
    atomic_fetch_add_explicit(&forks, 1, memory_order_seq_cst);
    struct patience patience = patience_of(PATIENCE_MS);
    while (atomic_load_explicit(&looking, memory_order_seq_cst) != 0 && !is_over(&patience))
        platform_wait(&looking, 1, LOOK_MS * 1000);
}

void attach_fork_parent(void)
{
    atomic_fetch_sub_explicit(&forks, 1, memory_order_seq_cst);
    platform_wake(&forks);
}

/* ---- K -------------------------------------------------------------------------------------------------------------------- */

/*     idle ──heapfit_record_attach──► STARTING ──K──► KEEPING ──K──► ENDING ──K──► idle
 */
enum { IDLE, STARTING, KEEPING, ENDING };
static _Atomic(uint32_t) state;

enum { NEW_MODULES_MS = 20, ENDING_MS = 3000 };

static void set_state(uint32_t to)
{
    atomic_store_explicit(&state, to, memory_order_release); /* pairs with who waits: what was done before is seen */
    platform_wake(&state);
}

static void pause_ms(int milliseconds)
{
    poll(NULL, 0, milliseconds);
}

static _Atomic(int32_t) looker; /* its number; 0: there is none. Relaxed: the kernel is asked about it */
static _Atomic(uint32_t) looked; /* 1: it has */

/* Descriptors of its own: the program neither sees what is opened here, nor closes it. */
static void look(void *back)
{
    record_ignore_thread();
    atomic_store_explicit(&looker, platform_thread_number(), memory_order_relaxed);
    if (platform_descriptors_own()) close(STDERR_FILENO);
    look_begin();
    if (back != NULL) slots_give_back();
    else slots_take();
    look_end();
    atomic_store_explicit(&looked, 1, memory_order_release); /* what it has found goes to the next */
}

/* Waits until it has ended, lest it be the last thread. */
static void have_looked(bool back)
{
    static const char backwards;
    atomic_store_explicit(&looked, 0, memory_order_relaxed);
    if (!platform_thread_start("heapfit-look", look, back ? (void *)&backwards : NULL, false)) return;
    while (atomic_load_explicit(&looked, memory_order_acquire) == 0) pause_ms(1);
    while (platform_thread_exists(atomic_load_explicit(&looker, memory_order_relaxed))) pause_ms(1);
}

static bool are_new(void)
{
    look_begin();
    bool new = slots_are_new();
    look_end();
    return new;
}

static void keep(void *unused)
{
    (void)unused;
    record_ignore_thread();
    bool redirects = attach_is_late();
    if (redirects) have_looked(false);
    set_state(KEEPING);
    while (recording_is_busy() && writer_thread_exists()) {
        pause_ms(NEW_MODULES_MS);
        if (redirects && are_new()) have_looked(false);
    }
    set_state(ENDING);
    if (redirects) have_looked(true);
    if (writer_end("stop")) set_state(IDLE);
}

void attach_fork_child(void)
{
    atomic_store_explicit(&looking, 0, memory_order_relaxed);
    atomic_store_explicit(&forks, 0, memory_order_relaxed);
    atomic_store_explicit(&state, IDLE, memory_order_relaxed); /* nobody else is there */
}

/* ---- called from outside ---------------------------------------------------------------------------------------------------- */

static const char *begin(void)
{
    static bool prepared; /* by one at a time: `state` */
    if (!prepared && attach_is_late() && !slots_start()) return "the recorder does not find its own functions";
    if (!prepared) process_prepare();
    prepared = true;
    writer_start(true);
    if (!record_file.open) return record_file.error != NULL ? record_file.error : "the recorder cannot be started";
    if (attach_is_late() && !writer_listens() && record_settings.seconds == 0)
        return "its socket cannot be made, which another process may have made, so that it could not be told to stop: "
               "record "
               "for a time, with --for";
    if (platform_thread_start("heapfit-keep", keep, NULL, false)) return NULL;
    return "a thread for it cannot be started";
}

/* `path` is absolute, `options` as in HEAPFIT_RECORD_OPTIONS. Returns NULL when it records, or why it does not: a text that stays. */
EXPORT const char *heapfit_record_attach(const char *options, const char *path);

EXPORT const char *heapfit_record_attach(const char *options, const char *path)
{
    uint32_t idle = IDLE;
    record_ignore_thread(); /* it is one of heapfit's, and ends soon */
    for (struct patience patience = patience_of(ENDING_MS);
         atomic_load_explicit(&state, memory_order_relaxed) == ENDING && !is_over(&patience);)
        pause_ms(1);
    if (!atomic_compare_exchange_strong_explicit(&state, &idle, STARTING, memory_order_acquire, memory_order_relaxed))
        return "a recording of it is being made, or being ended; try again when it has ended";
    const char *wrong = NULL;
    if (writer_is_ours() && writer_thread_exists()) wrong = "a recorder is in it already; see heapfit ctl PID record";
    else if (!record_settings_give(options, path)) wrong = "the path or the options are too long";
    else wrong = begin();
    if (wrong != NULL) {
        if (writer_is_ours()) writer_end("stop");
        set_state(IDLE);
        return wrong;
    }
    struct patience patience = patience_of(FINISH_MS);
    while (atomic_load_explicit(&state, memory_order_acquire) == STARTING && !is_over(&patience))
        platform_wait(&state, STARTING, LOOK_MS * 1000);
    return NULL;
}
