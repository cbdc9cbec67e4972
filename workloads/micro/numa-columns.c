/* What does memory of another NUMA node cost, and does each thread get memory of its own?
 *
 * Each of n threads, on a processor of its own, allocates n objects and writes to them: a matrix, a column of it
 * each. Then each reads its own column, and after that the row of its number, an object of each thread. With memory
 * near to the thread that allocated it, the columns are near and, with two nodes, half of the rows far: the
 * micro-benchmark of Reddy, Iyer and Chakravarthi, "How to tune malloc to optimize serving side applications",
 * section 4.5, table 6. What a row costs more than a column is the price of far memory; an allocator that hands out
 * far memory shows no difference.
 *
 * On one node all memory is near: the program says that the difference cannot be measured here, and leaves it out.
 */
#include "micro.h"

#include <sched.h>

static uint64_t threads = 2, size = 64u << 20, rounds = 20;

enum { THREADS_MAX = 64 };

static uint64_t *objects[THREADS_MAX][THREADS_MAX]; /* by row, then by the thread that allocated it */
static pthread_barrier_t together;
static double seconds_of_columns, seconds_of_rows;

/* One processor after the other of those that this process may use. A thread that moved would leave its memory
 * behind. */
static void stay(uint64_t index)
{
    cpu_set_t allowed, own;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    uint64_t place = index % (uint64_t)CPU_COUNT(&allowed);
    int processor = 0;
    while (!CPU_ISSET(processor, &allowed) || place-- != 0) processor++;
    CPU_ZERO(&own);
    CPU_SET(processor, &own);
    pthread_setaffinity_np(pthread_self(), sizeof own, &own);
}

/* A word in each cache line. */
static const size_t STEP = MICRO_CACHE_LINE / sizeof(uint64_t);

static void fill_column(uint64_t column)
{
    micro_random random = micro_random_start(column);
    for (uint64_t row = 0; row < threads; row++) {
        uint64_t *object = block_accept(malloc(size), size);
        for (size_t at = 0; at < size / sizeof *object; at += STEP) object[at] = micro_next(&random);
        objects[row][column] = object;
    }
}

static uint64_t sum_of(const uint64_t *object)
{
    uint64_t sum = 0;
    for (size_t at = 0; at < size / sizeof *object; at += STEP) sum += object[at];
    return sum;
}

static uint64_t read_column(uint64_t column)
{
    uint64_t sum = 0;
    for (uint64_t row = 0; row < threads; row++) sum += sum_of(objects[row][column]);
    return sum;
}

static uint64_t read_row(uint64_t row)
{
    uint64_t sum = 0;
    for (uint64_t column = 0; column < threads; column++) sum += sum_of(objects[row][column]);
    return sum;
}

/* Adds up, times all threads together, and keeps a compiler from reading only once. */
static uint64_t timed(uint64_t (*read)(uint64_t), uint64_t index, double *seconds)
{
    uint64_t sum = 0;
    pthread_barrier_wait(&together);
    double start = micro_now();
    for (uint64_t round = 0; round < rounds; round++) {
        sum += read(index);
        __asm__ volatile("" : : : "memory");
    }
    pthread_barrier_wait(&together);
    if (index == 0) *seconds = micro_now() - start;
    return sum;
}

static void *work(void *argument)
{
    micro_worker *worker = argument;
    stay(worker->index);
    fill_column(worker->index);
    worker->digest = timed(read_column, worker->index, &seconds_of_columns);
    uint64_t sum_of_rows = timed(read_row, worker->index, &seconds_of_rows);
    worker->own = (void *)(uintptr_t)sum_of_rows;
    worker->operations = 2 * rounds * threads * (size / MICRO_CACHE_LINE);
    return NULL;
}

/* Nodes that have memory, as the kernel lists them: "0", "0-1", "0,2". More than one has a separator. */
static bool has_several_nodes(void)
{
    char list[64] = "";
    int file = open("/sys/devices/system/node/has_memory", O_RDONLY);
    ssize_t length = file < 0 ? 0 : read(file, list, sizeof list - 1);
    if (file >= 0) close(file);
    return length > 0 && strpbrk(list, "-,") != NULL;
}

static void report_difference(void)
{
    printf("columns_seconds: %.6f\nrows_seconds: %.6f\n", seconds_of_columns, seconds_of_rows);
    if (has_several_nodes()) printf("rows_over_columns: %.4f\n", seconds_of_rows / seconds_of_columns);
    else fputs("not measured: this machine has one NUMA node, where all memory is near\n", stderr);
}

int main(int argc, char **argv)
{
    micro_parse(argc, argv, "what does memory of another NUMA node cost?",
                (micro_option[]){{"threads", &threads, false, "that allocate and read; each as many objects"},
                                 {"size", &size, false, "of each object, in bytes"},
                                 {"rounds", &rounds, true, "of reading them all"},
                                 {0}});
    micro_require(threads >= 1 && threads <= THREADS_MAX && size >= MICRO_CACHE_LINE, "1 to 64 threads, 64 bytes");
    pthread_barrier_init(&together, NULL, (unsigned)threads);
    micro_run(threads, work);
    uint64_t columns = 0, rows = 0;
    for (uint64_t i = 0; i < threads; i++) {
        columns += micro_workers[i].digest;
        rows += (uint64_t)(uintptr_t)micro_workers[i].own;
    }
    if (columns != rows) micro_fail("the rows do not hold what the columns do");
    report_difference();
    return micro_report_workers(threads, seconds_of_columns + seconds_of_rows);
}
