/* How much memory a replay has, over time.
 *
 * Another process looks: a thread beside the recorded ones would make a program of one thread one of several, for which
 * some allocators take locks. The figure is that of /proc/PID/statm: resident less shared, which is anonymous memory;
 * the plan is a file's, the replayer's tables are shared. What is left of the replayer in it are its stacks and libc. Pages of
 * the huge-page pool are not in that figure, and are added. */
#include "replay.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LINE = 256, STATUS = 8192, INTERVAL_NS = 1000 * 1000, NS_PER_S = 1000 * 1000 * 1000 };

static uint64_t resident(int statm)
{
    char line[LINE];
    ssize_t size = pread(statm, line, sizeof line - 1, 0);
    if (size <= 0) return 0;
    line[size] = '\0';
    char *at = line;
    strtoull(at, &at, 10); /* the address space */
    uint64_t all = strtoull(at, &at, 10), shared = strtoull(at, &at, 10);
    return all > shared ? (all - shared) * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

static uint64_t pooled(int status)
{
    static const char name[] = "\nHugetlbPages:";
    char text[STATUS];
    ssize_t size = status >= 0 ? pread(status, text, sizeof text - 1, 0) : 0;
    if (size <= 0) return 0;
    text[size] = '\0';
    const char *at = strstr(text, name);
    return at != NULL ? (uint64_t)strtoull(at + sizeof name - 1, NULL, 10) << 10 : 0;
}

int open_status(void)
{
    static const char *const pools[] = {"/proc/sys/vm/nr_hugepages", "/proc/sys/vm/nr_overcommit_hugepages"};
    for (size_t i = 0; i < sizeof pools / sizeof *pools; i++) {
        char pages = '0';
        int file = open(pools[i], O_RDONLY | O_CLOEXEC);
        if (file < 0) continue;
        if (read(file, &pages, 1) == 1 && pages != '0') {
            close(file);
            return open("/proc/self/status", O_RDONLY | O_CLOEXEC);
        }
        close(file);
    }
    return -1;
}

/* What the recording had in use where the slowest thread is now: no thread is far ahead of it. */
static uint64_t live(const struct replay *replay)
{
    uint64_t point = least_progress(replay) / PLAN_STEP, aged = replay->looks->aged_bytes;
    return aged + (point < replay->plan->course_points ? replay->course[point] : replay->plan->left_bytes);
}

struct look look_at_memory(const struct replay *replay)
{
    return (struct look){
        .ns = clock_ns(CLOCK_MONOTONIC) - replay->began_ns,
        .resident = resident(replay->statm) + pooled(replay->status),
        .live = live(replay),
    };
}

/* When there is no more room, every second look goes, and from now on it is looked half as often. */
static uint32_t thin_out(struct looks *looks, uint32_t count)
{
    for (uint32_t i = 0; i < count / 2; i++) looks->looks[i] = looks->looks[2 * i];
    return count / 2;
}

/* It is ended with the process that it looks at. */
static void wait_for_go(struct replay *replay)
{
    const struct timespec nap = {.tv_nsec = INTERVAL_NS};
    while (!atomic_load_explicit(&replay->looks->go, memory_order_acquire)) nanosleep(&nap, NULL);
    replay->began_ns = replay->looks->began_ns;
}

static void look_on(struct replay *replay)
{
    wait_for_go(replay);
    struct looks *looks = replay->looks;
    uint64_t interval = INTERVAL_NS, next = clock_ns(CLOCK_MONOTONIC);
    uint32_t count = 1; /* the first was there before */
    while (!atomic_load_explicit(&looks->stop, memory_order_relaxed)) {
        next += interval;
        struct timespec then = {.tv_sec = (time_t)(next / NS_PER_S), .tv_nsec = (long)(next % NS_PER_S)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &then, NULL);
        looks->looks[count++] = look_at_memory(replay);
        if (count < LOOKS_MAX - 1) continue; /* one is for the end */
        count = thin_out(looks, count);
        interval *= 2;
    }
    looks->count = count;
}

bool watch_begin(struct replay *replay)
{
    pid_t parent = getpid();
    replay->watcher = fork();
    if (replay->watcher != 0) return replay->watcher > 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent) look_on(replay);
    _exit(EXIT_SUCCESS);
}

void watch_go(struct replay *replay, uint64_t aged_bytes)
{
    struct looks *looks = replay->looks;
    looks->aged_bytes = aged_bytes;
    looks->began_ns = replay->began_ns = clock_ns(CLOCK_MONOTONIC);
    looks->looks[0] = look_at_memory(replay);
    atomic_store_explicit(&looks->go, true, memory_order_release);
}

bool watch_end(struct replay *replay)
{
    struct looks *looks = replay->looks;
    struct look last = look_at_memory(replay);
    last.live = looks->aged_bytes + replay->plan->left_bytes;
    atomic_store_explicit(&looks->stop, true, memory_order_relaxed);
    int status;
    while (waitpid(replay->watcher, &status, 0) < 0) {
        if (errno != EINTR) return false;
    }
    if (status != 0) return false; /* killed: it may have been moving what it saw */
    while (looks->count > 1 && looks->looks[looks->count - 1].ns > last.ns) looks->count--;
    looks->looks[looks->count++] = last;
    return true;
}

/* By the trapezoids under the line through all looks. */
struct memory_course memory_course(const struct looks *looks)
{
    double area = 0, live_area = 0;
    struct memory_course course = {.peak = looks->at_peak.resident};
    for (uint32_t i = 0; i < looks->count; i++) {
        const struct look *look = &looks->looks[i];
        if (look->resident > course.peak) course.peak = look->resident;
        if (i == 0) continue;
        double span = (double)(look->ns - look[-1].ns);
        area += span * ((double)look->resident + (double)look[-1].resident) / 2;
        live_area += span * ((double)look->live + (double)look[-1].live) / 2;
    }
    double whole = (double)(looks->looks[looks->count - 1].ns - looks->looks[0].ns);
    course.mean = whole > 0 ? area / whole : (double)course.peak;
    course.mean_live = whole > 0 ? live_area / whole : 0;
    return course;
}
