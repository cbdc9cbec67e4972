/* Runs a command under an allocator and writes what it cost: `launch RESULT LIBRARY COMMAND...`.
 *
 * Linux counts a process's peak resident memory from before exec, when it still shares the memory of
 * the process that started it. bench.py therefore starts programs by way of this one, linked
 * statically, which is smaller than anything it measures. LIBRARY is `-` for the system's own malloc.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static double seconds(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec * 1e-6;
}

int main(int argc, char **argv)
{
    struct rusage used;
    int status;
    if (argc < 4) return EXIT_FAILURE;
    if (strcmp(argv[2], "-") != 0) setenv("LD_PRELOAD", argv[2], 1);
    double start = now();
    pid_t child = vfork();
    if (child == 0) {
        execv(argv[3], argv + 3);
        _exit(127);
    }
    if (child < 0 || wait4(child, &status, 0, &used) != child) return EXIT_FAILURE;
    double wall = now() - start;
    FILE *result = fopen(argv[1], "w");
    if (!result) return EXIT_FAILURE;
    fprintf(result, "{\"wall_s\": %.6f, \"user_s\": %.6f, \"system_s\": %.6f, ", wall, seconds(used.ru_utime),
            seconds(used.ru_stime));
    fprintf(result, "\"peak_rss_bytes\": %ld, \"minor_faults\": %ld, \"status\": %d}\n", used.ru_maxrss * 1024,
            used.ru_minflt, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    return fclose(result) ? EXIT_FAILURE : EXIT_SUCCESS;
}
