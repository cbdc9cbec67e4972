/* heapfit-plan: makes a plan (plan.h) of a trace.
 *
 *   heapfit-plan [--one-thread] TRACE PLAN
 *
 * Lines on standard output: `read BYTES` now and then, for progress, and at the end what the plan holds, one JSON object.
 * A trace that cannot be replayed is refused with one line on standard error and exit code 2; other failures are 1. */
#include "plan.h"

#include "../../trace/native/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCH = 16 * 1024, AHEAD = 16 /* events */, WHY = 256, FAILED = 1, REFUSED = 2 };
static const double PROGRESS_S = 0.2;

struct batch {
    uint64_t ns[BATCH], lasted_ns[BATCH], address[BATCH], old[BATCH], size[BATCH];
    uint32_t thread[BATCH];
    uint8_t kind[BATCH], alignment[BATCH];
};

/* The whole number that a JSON object has under a key, as TRACE_INFO has it; `otherwise` where there is none. A text cannot
 * hold the key with its quotation marks: they are escaped there. */
static uint64_t number_in(const char *json, const char *key, uint64_t otherwise)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\"", key);
    const char *at = strstr(json, quoted);
    if (at == NULL) return otherwise;
    at += strlen(quoted);
    at += strspn(at, " \t\n:");
    return *at >= '0' && *at <= '9' ? strtoull(at, NULL, 10) : otherwise;
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static bool add_batch(struct plan_maker *maker, const struct batch *batch, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (i + AHEAD < count) plan_foresee(maker, batch->address[i + AHEAD]);
        struct plan_event event = {
            .ns = batch->ns[i],
            .lasted_ns = batch->lasted_ns[i],
            .address = batch->address[i],
            .old = batch->old[i],
            .size = batch->size[i],
            .thread = batch->thread[i],
            .kind = batch->kind[i],
            .alignment = batch->alignment[i],
        };
        if (!plan_add(maker, &event)) return false;
    }
    return true;
}

static bool add_all(struct plan_maker *maker, struct trace_reader *reader, struct batch *batch)
{
    struct trace_events columns = {
        .capacity = BATCH,
        .ns = batch->ns,
        .lasted_ns = batch->lasted_ns,
        .address = batch->address,
        .old = batch->old,
        .size = batch->size,
        .thread = batch->thread,
        .kind = batch->kind,
        .alignment = batch->alignment,
    };
    double told = seconds_now();
    for (size_t count; (count = trace_next_events(reader, &columns)) > 0;) {
        if (!add_batch(maker, batch, count)) return false;
        if (seconds_now() - told < PROGRESS_S) continue;
        told = seconds_now();
        printf("read %" PRIu64 "\n", trace_position(reader));
        fflush(stdout);
    }
    return true;
}

/* The index of the process's first thread, whose number is the process's; 0 where it is not in the trace. */
static uint32_t main_thread(const struct trace_reader *reader)
{
    uint64_t pid = number_in(trace_info(reader), "pid", 0);
    const struct trace_thread *threads;
    size_t count = trace_threads(reader, &threads);
    for (size_t i = 0; i < count; i++) {
        if (threads[i].tid > 0 && (uint64_t)threads[i].tid == pid) return threads[i].index;
    }
    return 0;
}

static void print_header(const struct plan_header *header, const struct trace_problems *problems)
{
    printf("{\"checksum\": \"%016" PRIx64 "\"", header->checksum);
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {
        {"threads", header->streams},
        {"events", header->events},
        {"allocations", header->allocations},
        {"frees", header->frees},
        {"reallocs", header->reallocs},
        {"bytes", header->bytes},
        {"duration_ns", header->duration_ns},
        {"peak_bytes", header->peak_bytes},
        {"peak_blocks", header->peak_blocks},
        {"left_blocks", header->left_blocks},
        {"left_bytes", header->left_bytes},
        {"unmatched_frees", header->unmatched_frees},
        {"unmatched_reallocs", header->unmatched_reallocs},
        {"lost_frees", header->lost_frees},
        {"failed", header->failed},
        {"lost_events", problems->lost_events},
        {"damaged_bytes", problems->damaged_bytes},
        {"cut_short", problems->cut_short},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        printf(", \"%s\": %" PRIu64, numbers[i].name, numbers[i].value);
    }
    puts("}");
}

static int refuse(const char *path, const char *why)
{
    fprintf(stderr, "%s: %s\n", path, why);
    return REFUSED;
}

static int make_plan(struct trace_reader *reader, const char *trace, const char *path, bool one_thread)
{
    struct plan_header header;
    struct batch *batch = malloc(sizeof *batch);
    struct plan_maker *maker = plan_create(path, one_thread);
    bool good = batch != NULL && maker != NULL && add_all(maker, reader, batch) &&
                plan_finish(maker, main_thread(reader), &header);
    free(batch);
    char why[WHY];
    if (trace_stopped(reader, why)) return refuse(trace, why);
    if (!good) {
        fprintf(stderr, "cannot make a plan in %s: %s\n", path, strerror(errno));
        return FAILED;
    }
    if (header.events == 0) return refuse(trace, "there is no allocation in it; nothing can be replayed");
    struct trace_problems problems = trace_problems(reader);
    print_header(&header, &problems);
    return 0;
}

int main(int argc, char **argv)
{
    bool one_thread = argc == 4 && strcmp(argv[1], "--one-thread") == 0;
    if (argc != 3 + one_thread) {
        fputs("usage: heapfit-plan [--one-thread] TRACE PLAN\n", stderr);
        return REFUSED;
    }
    const char *trace = argv[argc - 2], *path = argv[argc - 1];
    char why[WHY] = "";
    struct trace_reader *reader = trace_open(trace, why);
    if (reader == NULL) return refuse(trace, why);
    int code = number_in(trace_info(reader), "sample", 0) == 0
                   ? make_plan(reader, trace, path, one_thread)
                   : refuse(trace, "a sample of the allocations cannot be replayed; record it without --sample");
    trace_close(reader);
    return code;
}
