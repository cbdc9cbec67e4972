/* heapfit-replay: plays a plan (plan.h), and says what it took.
 *
 *   heapfit-replay [--speed max|real] [--touch page|line|none] [--age TIMES] [--course FILE] PLAN
 *
 * Whichever allocator this program runs under makes the calls. First a child plays the plan without calls, at full speed:
 * what that takes is the replayer's own, and subtracted. Then the plan is played. What is measured goes to standard output,
 * a line `name value` each; the course of memory, with `--course`, to a file: nanoseconds, resident and live bytes.
 *
 * Blocks that live at the recording's end are left: a program does not free them either. Exit code 1: it could not be
 * played as it was recorded, 2: the plan or the arguments are none. */
#include "replay.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EXIT_USAGE = 2, OUTPUT = 4096, AGE_MAX = 1000 };
static const double NS = 1e-9;

struct request {
    bool real_speed;
    enum touch touch;
    double age; /* the heap is aged to so many times the recording's peak; 0: it is not */
    const char *course; /* NULL: none is wanted */
    const char *plan;
};

static bool parse_option(struct request *request, const char *option, const char *value)
{
    bool real = strcmp(value, "real") == 0;
    if (strcmp(option, "--speed") == 0 && (real || strcmp(value, "max") == 0)) {
        request->real_speed = real;
        return true;
    }
    static const char *const touches[] = {"none", "page", "line"};
    for (int i = 0; strcmp(option, "--touch") == 0 && i < 3; i++) {
        request->touch = (enum touch)i;
        if (strcmp(value, touches[i]) == 0) return true;
    }
    if (strcmp(option, "--age") == 0) {
        char *end;
        request->age = strtod(value, &end);
        return end != value && *end == '\0' && request->age >= 0 && request->age <= AGE_MAX;
    }
    if (strcmp(option, "--course") != 0) return false;
    request->course = value;
    return true;
}

static bool parse(int argc, char **argv, struct request *request)
{
    *request = (struct request){.touch = TOUCH_PAGE};
    int at = 1;
    for (; at + 2 < argc; at += 2) {
        if (!parse_option(request, argv[at], argv[at + 1])) return false;
    }
    request->plan = argv[at];
    return at + 1 == argc;
}

static _Noreturn void fail(int code, const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(code);
}

/* ---- the plan ----------------------------------------------------------------------------------------------------------- */

static bool is_whole(const struct plan_header *plan, size_t size)
{
    if (size < sizeof *plan || memcmp(plan->magic, PLAN_MAGIC, sizeof plan->magic) != 0) return false;
    if (plan->version != PLAN_VERSION || plan->file_size != size || plan->streams == 0) return false;
    return plan_checksum(0, plan + 1, size - sizeof *plan) == plan->checksum;
}

/* Maps the plan, all of it if it fits, so that no page of it is first met on the way. To check it does that too. */
static const struct plan_header *map_plan(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat status;
    if (fd < 0 || fstat(fd, &status) != 0) fail(EXIT_USAGE, path, strerror(errno));
    size_t size = (size_t)status.st_size;
    void *plan = size > 0 ? mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    close(fd);
    if (plan == MAP_FAILED || !is_whole(plan, size)) fail(EXIT_USAGE, path, "no plan that this version can play");
    return plan;
}

/* Zeroed memory that is no anonymous memory to those who count: a file's without a name. There from now on. */
static void *shared_memory(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) fail(EXIT_FAILURE, "no memory for the replay's tables", strerror(errno));
    return memory;
}

static bool has_processors(void)
{
    cpu_set_t cpus;
    return sched_getaffinity(0, sizeof cpus, &cpus) != 0 || CPU_COUNT(&cpus) > 1;
}

static uint64_t drift_of(const struct plan_header *plan)
{
    uint64_t share = plan->events / PLAN_DRIFT_SHARE;
    return share < PLAN_DRIFT_MIN ? PLAN_DRIFT_MIN : share > PLAN_DRIFT_MAX ? PLAN_DRIFT_MAX : share;
}

/* A replay that nothing has been played of yet, with tables of its own. */
static void prepare(struct replay *replay, const struct plan_header *plan, const struct request *request)
{
    const char *file = (const char *)plan;
    *replay = (struct replay){
        .plan = plan,
        .ops = (const struct plan_op *)(plan + 1),
        .course = (const uint64_t *)(file + plan->course),
        .streams = (const struct plan_stream *)(file + plan->streams_at),
        .touch = request->touch,
        .real_speed = request->real_speed,
        .spins = has_processors(),
        .drift = drift_of(plan),
        .slots = shared_memory((plan->slots + 1) * sizeof *replay->slots),
        .players = shared_memory(plan->streams * sizeof *replay->players),
    };
    sem_init(&replay->ends, 0, 0);
    for (uint32_t i = 0; i < plan->streams; i++) {
        struct player *player = &replay->players[i];
        atomic_init(&player->progress, PLAYER_AWAY);
        player->stream = &replay->streams[i];
        player->replay = replay;
    }
}

/* ---- both runs ------------------------------------------------------------------------------------------------------------ */

/* In a child, so that the allocator of the run that counts has seen no thread come and go. */
static struct used own_cost(const struct plan_header *plan, const struct request *request)
{
    struct used *used = shared_memory(sizeof *used);
    pid_t child = fork();
    if (child < 0) fail(EXIT_FAILURE, "cannot fork", strerror(errno));
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        madvise((void *)plan, plan->file_size, MADV_POPULATE_READ); /* without it: a fault for each 64 KiB */
        struct replay replay;
        prepare(&replay, plan, request);
        replay.null = true;
        replay.real_speed = false;
        replay_run(&replay, used);
        _exit(EXIT_SUCCESS);
    }
    int status;
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) fail(EXIT_FAILURE, "the run without calls", strerror(errno));
    }
    if (status != 0) fail(EXIT_FAILURE, "the run without calls", "it was killed");
    struct used cost = *used;
    munmap(used, sizeof *used);
    return cost;
}

static void write_course(const char *path, const struct looks *looks)
{
    FILE *file = fopen(path, "w");
    if (file == NULL) fail(EXIT_FAILURE, path, strerror(errno));
    for (uint32_t i = 0; i < looks->count; i++) {
        const struct look *look = &looks->looks[i];
        fprintf(file, "%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\n", look->ns, look->resident, look->live);
    }
    if (fclose(file) != 0) fail(EXIT_FAILURE, path, strerror(errno));
}

static double busy(const struct used *used)
{
    return (double)(used->cpu_ns - used->waited_cpu_ns) * NS;
}

/* A recording may be of nothing but empty blocks. */
static double at_least_one(double bytes)
{
    return bytes > 1 ? bytes : 1;
}

static void print(const struct plan_header *plan, const struct used *own, const struct used *used,
                  const struct memory_course *memory, uint64_t aged_bytes)
{
    printf("plan %016" PRIx64 "\n", plan->checksum);
    printf("events %" PRIu64 "\nthreads %" PRIu32 "\n", plan->events, plan->streams);
    printf("allocator_s %.9f\n", busy(used) - busy(own));
    printf("allocator_ns_per_event %.3f\n", (busy(used) - busy(own)) / NS / (double)plan->events);
    printf("own_s %.9f\n", busy(own));
    printf("own_ns_per_event %.3f\n", busy(own) / NS / (double)plan->events);
    printf("replay_s %.9f\n", (double)used->wall_ns * NS);
    printf("waited_s %.9f\n", (double)used->waited_ns * NS);
    printf("replay_faults %" PRIu64 "\n", used->faults);
    printf("replay_peak_bytes %" PRIu64 "\n", memory->peak);
    printf("replay_mean_bytes %.0f\n", memory->mean);
    printf("peak_live_bytes %" PRIu64 "\n", plan->peak_bytes + aged_bytes);
    printf("aged_bytes %" PRIu64 "\n", aged_bytes);
    printf("heap_fragmentation %.6f\n", (double)memory->peak / at_least_one((double)(plan->peak_bytes + aged_bytes)));
    printf("mean_heap_fragmentation %.6f\n", memory->mean / at_least_one(memory->mean_live));
}

int main(int argc, char **argv)
{
    static char output[OUTPUT]; /* else libc would allocate it */
    setvbuf(stdout, output, _IOFBF, sizeof output);
    struct request request;
    if (!parse(argc, argv, &request)) {
        fail(EXIT_USAGE, "usage",
             "heapfit-replay [--speed max|real] [--touch page|line|none] [--age TIMES] [--course FILE] PLAN");
    }
    prctl(PR_SET_TIMERSLACK, 1); /* else a nap lasts 50 us longer */
    const struct plan_header *plan = map_plan(request.plan);
    struct used own = own_cost(plan, &request), used;

    struct replay replay;
    prepare(&replay, plan, &request);
    replay.looks = shared_memory(sizeof *replay.looks);
    replay.statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    replay.status = open_status();
    if (replay.statm < 0 || !watch_begin(&replay)) fail(EXIT_FAILURE, "cannot watch the memory", strerror(errno));
    struct ageing ageing = age_heap(&replay, request.age);
    watch_go(&replay, ageing.left_bytes);
    replay_run(&replay, &used);
    if (!watch_end(&replay)) fail(EXIT_FAILURE, "the process that watched the memory", "it was killed");

    struct memory_course memory = memory_course(replay.looks);
    print(plan, &own, &used, &memory, ageing.left_bytes);
    if (request.course != NULL) write_course(request.course, replay.looks);
    if (used.failures + ageing.failures > 0) {
        fprintf(stderr, "%" PRIu64 " allocations failed that succeeded when they were recorded\n",
                used.failures + ageing.failures);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
