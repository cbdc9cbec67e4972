/* See attach.h. */
#include "attach.h"
#include "stub.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static pid_t known; /* the process that was there; 0: none so far */

void process_is_there(pid_t pid)
{
    known = pid;
}

/* One that ends meanwhile lacks this and that, which is not why. */
_Noreturn void refuse(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (known != 0 && process_state(known, known) == 0) fprintf(stderr, "process %d has ended", (int)known);
    else vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(EXIT_FAILURE);
}

uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void pause_us(unsigned microseconds)
{
    nanosleep(&(struct timespec){.tv_nsec = microseconds * 1000L}, NULL);
}

/* Only one of us at a time: the room is there once. Held until the end. Who may not trace the process cannot hold it against us: it is
 * a lock on a file that others may not open. */
static void take_turn(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", (int)pid);
    int held = open(path, O_RDONLY | O_CLOEXEC);
    if (held < 0) process_refuses_trace(pid, errno);
    if (flock(held, LOCK_EX | LOCK_NB) != 0)
        refuse("process %d is being attached to by another heapfit; try again", (int)pid);
}

enum { TRY_MS = 5000, ANSWER_MS = 10000, CLONE_MS = 5000, FIND_MS = 50, LEAVE_MS = 2000 };

/* Between two tries: from some milliseconds on more and more. In all of them together the process stands still no longer than this. */
enum { BETWEEN_LEAST_US = 1000, BETWEEN_MOST_US = 50000, STILL_MS = 100 };

/* While a thread waits for us, nobody else shall have the core, as far as we may say so: we sleep most of the time. */
static void come_first(void)
{
    struct sched_param first = {.sched_priority = 1};
    sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &first);
}

struct attaching {
    pid_t pid;
    struct image image;
    struct local local;
    struct sending sending;
    struct shared shared;
    pid_t cloned; /* B, as we know it; 0: we do not */
};

static bool is_over(uint64_t since, uint64_t ms)
{
    return clock_ns() - since > ms * 1000000;
}

/* ---- the mapping ------------------------------------------------------------------------------------------------------ */

static uint64_t whole_pages(uint64_t size)
{
    return (size + 4095) & ~(uint64_t)4095;
}

static void plan(struct attaching *all)
{
    if (!local_measure(&all->image, &all->local))
        refuse("process %d has a C library that this heapfit does not know its way about in", (int)all->pid);
    uint64_t size = whole_pages(STACK_TOP + all->local.below + all->local.above);
    uint64_t at = image_find_gap(&all->image, size);
    if (at == 0) refuse("process %d has no address space left", (int)all->pid);
    all->sending.mapping = at;
    all->sending.mapping_size = size;
    all->sending.stack = at + STACK_TOP - 64;
    all->sending.thread_pointer = at + STACK_TOP + all->local.below;
    all->sending.number_at = all->sending.thread_pointer + all->local.number_at;
}

static void copy_text(char *to, size_t room, const char *text)
{
    if (strlen(text) >= room) refuse("this is too long: %s", text);
    strcpy(to, text);
}

/* All but what the process writes itself. Another allocator may keep addresses of what it has in each thread: that stays. */
static bool fill(struct attaching *all, const char *library, const char *options, const char *file)
{
    struct shared *shared = &all->shared;
    const struct image *image = &all->image;
    *shared = (struct shared){.dlopen = image->dlopen,
                              .dlsym = image->dlsym,
                              .dlerror = image->dlerror,
                              .pthread_create = image->pthread_create,
                              .pthread_detach = image->pthread_detach,
                              .unmapped = image->own_malloc ? 0 : STACK_TOP};
    copy_text(shared->name, sizeof shared->name, "heapfit_record_attach");
    copy_text(shared->options, sizeof shared->options, options);
    copy_text(shared->library, sizeof shared->library, library);
    copy_text(shared->path, sizeof shared->path, file);
    size_t ours = offsetof(struct shared, dlopen);
    return memory_write(image, all->sending.mapping + ours, (char *)shared + ours, sizeof *shared - ours) &&
           (!all->sending.is_alone || local_tell(image, all->sending.like)) &&
           local_write(image, &all->local, all->sending.thread_pointer, all->sending.like);
}

static void tell(const struct attaching *all, size_t offset, uint32_t value)
{
    memory_write(&all->image, all->sending.mapping + offset, &value, sizeof value);
}

static uint32_t told(const struct attaching *all, size_t offset)
{
    uint32_t value = 0;
    return memory_read(&all->image, all->sending.mapping + offset, &value, sizeof value) ? value : 0;
}

/* ---- the steps -------------------------------------------------------------------------------------------------------- */

/* When S has gone on: a call that it sleeps in is not to be interrupted. */
static _Noreturn void refuse_failed(struct attaching *all)
{
    for (uint64_t since = clock_ns();
         thread_has_failed(all->pid, &all->image, &all->sending) && !is_over(since, LEAVE_MS);)
        pause_us(1000);
    thread_take_back(all->pid, &all->image, &all->sending);
    const char *why = strerror((int)all->sending.error);
    if (all->sending.failed == SYS_mmap)
        refuse("process %d may not have %d KiB more of memory: %s", (int)all->pid,
               (int)(all->sending.mapping_size >> 10), why);
    refuse("process %d may not start another thread: %s", (int)all->pid, why);
}

static void start_thread(struct attaching *all)
{
    uint64_t since = clock_ns();
    unsigned between_us = BETWEEN_LEAST_US;
    while (!thread_send(all->pid, &all->image, &all->sending)) {
        if (is_over(since, TRY_MS) || all->sending.still_ns > STILL_MS * UINT64_C(1000000))
            refuse(
                "process %d was at no moment at which it can be attached to, of %d: its only thread is in malloc or a "
                "signal's handler nearly all the time, or sleeps in the kernel; try again",
                (int)all->pid, (int)all->sending.stops);
        pause_us(between_us);
        if (between_us < BETWEEN_MOST_US) between_us += between_us / 8;
        free(all->image.mappings.all);
        close(all->image.memory);
        image_open(&all->image, all->pid);
    }
    for (since = clock_ns(); told(all, offsetof(struct shared, cloned)) == 0; pause_us(100)) {
        if (process_state(all->pid, all->pid) == 0) refuse("process %d has ended", (int)all->pid);
        if (thread_has_failed(all->pid, &all->image, &all->sending)) refuse_failed(all);
        if (is_over(since, CLONE_MS)) refuse("process %d has not run for %d s", (int)all->pid, CLONE_MS / 1000);
    }
    pid_t cloned = (pid_t)told(all, offsetof(struct shared, cloned));
    /* It waits for us, so that it is there. */
    for (since = clock_ns(); (all->cloned = process_find_thread(all->pid, cloned)) == 0 && !is_over(since, FIND_MS);)
        pause_us(100);
}

static void text_of(const struct attaching *all, char *text, size_t room)
{
    uint64_t at = 0;
    text[0] = '\0';
    memory_read(&all->image, all->sending.mapping + offsetof(struct shared, answer), &at, sizeof at);
    for (size_t i = 0; at != 0 && i + 1 < room; i++) {
        if (!memory_read(&all->image, at + i, &text[i], 1)) text[i] = '\0';
        text[i + 1] = '\0';
        if (text[i] == '\0') return;
    }
}

/* B ends last: then none but S can be in the code. Where that is not certain, the code stays, for one of us to find. */
static void leave(struct attaching *all)
{
    tell(all, offsetof(struct shared, go), GO_END);
    if (all->cloned == 0) return;
    for (uint64_t since = clock_ns(); process_state(all->pid, all->cloned) != 0; pause_us(200))
        if (is_over(since, LEAVE_MS)) return;
    thread_take_back(all->pid, &all->image, &all->sending);
}

/* Returns what went wrong in `text`; "": nothing. */
static void load(struct attaching *all, char *text, size_t room)
{
    uint64_t since = clock_ns();
    uint32_t finished, result = 0;
    bool created = false;
    tell(all, offsetof(struct shared, go), GO_ON);
    while ((finished = told(all, offsetof(struct shared, finished))) == 0) {
        if (!created && told(all, offsetof(struct shared, created)) != 0) {
            created = true;
            if (all->sending.is_alone) all->sending.still_ns += clock_ns() - all->sending.sent_ns;
            result = told(all, offsetof(struct shared, result));
        }
        if (result != 0 || is_over(since, ANSWER_MS)) break;
        if (process_state(all->pid, all->pid) == 0) refuse("process %d has ended", (int)all->pid);
        pause_us(100);
    }
    if (finished == 0 && result == 0) {
        tell(all, offsetof(struct shared, cancelled), 1);
        tell(all, offsetof(struct shared, go), GO_END);
        refuse("process %d has not let the recorder in for %d s: a thread of it has a lock that loading takes",
               (int)all->pid, ANSWER_MS / 1000);
    }
    if (result != 0) snprintf(text, room, "it may not start another thread: %s", strerror((int)result));
    else text_of(all, text, room);
    if (finished == FINISHED_NOT_LOADED && text[0] == '\0') snprintf(text, room, "the recorder cannot be loaded");
}

static const char usage[] = "usage: heapfit-attach PID LIBRARY OPTIONS FILE\n";

int main(int count, char **arguments)
{
    static struct attaching all;
    char wrong[1024], *end;
    uint64_t began = clock_ns();
    if (count != 5) {
        fputs(usage, stderr);
        return 2;
    }
    all.pid = (pid_t)strtol(arguments[1], &end, 10);
    if (*end != '\0' || all.pid <= 0) refuse("%s is not the number of a process", arguments[1]);
    process_check(all.pid, arguments[2], arguments[4]);
    take_turn(all.pid);
    come_first();
    image_open(&all.image, all.pid);
    plan(&all);
    start_thread(&all);
    if (!fill(&all, arguments[2], arguments[3], arguments[4])) {
        leave(&all);
        refuse("process %d has ended, or its memory cannot be written", (int)all.pid);
    }
    load(&all, wrong, sizeof wrong);
    leave(&all);
    if (wrong[0] != '\0') refuse("process %d: %s", (int)all.pid, wrong);
    printf("{\"still_ms\":%.3f,\"stops\":%" PRIu64 ",\"took_ms\":%.3f}\n", (double)all.sending.still_ns / 1e6,
           all.sending.stops, (double)(clock_ns() - began) / 1e6);
    return EXIT_SUCCESS;
}
