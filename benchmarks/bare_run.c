/* bare_run: starts one program with nothing but fork, execvp and wait4, and prints how long it ran.
 *
 *   bare_run CPU COMMAND [ARGUMENT...]      prints: WALL_NS USER_US SYSTEM_US
 *
 * What a trial costs beyond this is the overhead of measuring; see trial_overhead.py. The clock runs over the same
 * span as the lab's: from just before fork until the kernel says that the program ended. The program prints nothing.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_USAGE = 2, EXIT_NOT_STARTED = 127 };

static long long nanoseconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000000000 + now.tv_nsec;
}

static long long microseconds(struct timeval time)
{
    return (long long)time.tv_sec * 1000000 + time.tv_usec;
}

static void become_program(int cpu, char **command)
{
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET((size_t)cpu, &cpus);
    if (sched_setaffinity(0, sizeof cpus, &cpus) == 0) {
        execvp(command[0], command);
    }
    _exit(EXIT_NOT_STARTED);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fputs("usage: bare_run CPU COMMAND [ARGUMENT...]\n", stderr);
        return EXIT_USAGE;
    }
    long long start = nanoseconds_now();
    pid_t program = fork();
    if (program == 0) {
        become_program(atoi(argv[1]), argv + 2);
    }
    int status;
    struct rusage used;
    if (program < 0 || wait4(program, &status, 0, &used) != program || status != 0) {
        fputs("bare_run: the program could not be run\n", stderr);
        return EXIT_FAILURE;
    }
    long long wall_ns = nanoseconds_now() - start;
    printf("%lld %lld %lld\n", wall_ns, microseconds(used.ru_utime), microseconds(used.ru_stime));
    return EXIT_SUCCESS;
}
