/* heapfit-launch: starts one program cleanly, waits for it, reports what it used, leaves nothing behind.
 *
 * The lab is a large Python process. A child that it forked would inherit the lab's resident size in
 * ru_maxrss (Linux takes the maximum over the address space that exec replaces), be timed by an
 * interpreter, and outlive a lab that is killed. This small process stands in between: it has next to
 * no memory of its own, it times the program from just before fork until the kernel says that it
 * ended, it adopts orphans of the program, and it ends the whole tree when the program ends, when it
 * is told to (SIGTERM) and when the lab dies.
 *
 *   heapfit-launch REPORT_FD HOLD_FD WITNESS_FD CPU[,CPU...] [NAME=VALUE...] -- COMMAND [ARGUMENT...]
 *
 * Where HOLD_FD is not negative, the program is started when there is a byte to read from it: until then the lab can
 * attach counters to this process, which the program inherits. Where WITNESS_FD is not negative, the whole tree is
 * traced (ptrace), and what each process ran and used is written there when it starts another program or ends: see
 * `witness`. Tracing costs time, so a run that is timed goes without. The program gets this process's standard
 * streams, working directory and environment, changed by NAME=VALUE. Reports are lines on REPORT_FD:
 *
 *   started PID                     the program runs (exec succeeded)
 *   failed STEP ERRNO               it could not be started
 *   ended STATUS WALL_NS USER_US SYSTEM_US MAXRSS_KIB MINFLT MAJFLT NVCSW NIVCSW LEFT
 *
 * STATUS is what waitpid() gives; the resources are RUSAGE_CHILDREN once everything is reaped. LEFT says how many
 * children the program left running, as one does that becomes a daemon.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { FIRST_ENVIRONMENT = 5 /* of the arguments */ };
enum { EXIT_USAGE = 2, EXIT_NOT_STARTED = 127, CHILDREN_LINE_SIZE = 64 * 1024 };

struct request {
    int report_fd;
    int hold_fd;    /* negative: do not wait */
    int witness_fd; /* negative: do not trace */
    cpu_set_t cpus;
    char **environment; /* first NAME=VALUE; `environment_count` of them */
    int environment_count;
    char **command; /* NULL-terminated */
};

/* Which step of starting failed, handed from the child to the launcher through a pipe. */
struct start_failure {
    char step[16];
    int error;
};

static bool parse_cpus(const char *text, cpu_set_t *cpus)
{
    CPU_ZERO(cpus);
    while (*text != '\0') {
        char *end;
        long cpu = strtol(text, &end, 10);
        if (end == text || cpu < 0 || cpu >= CPU_SETSIZE || (*end != ',' && *end != '\0')) {
            return false;
        }
        CPU_SET((size_t)cpu, cpus);
        text = *end == ',' ? end + 1 : end;
    }
    return CPU_COUNT(cpus) > 0;
}

static bool parse_request(int argc, char **argv, struct request *request)
{
    if (argc < FIRST_ENVIRONMENT + 2) {
        return false;
    }
    request->report_fd = atoi(argv[1]);
    request->hold_fd = atoi(argv[2]);
    request->witness_fd = atoi(argv[3]);
    if (!parse_cpus(argv[4], &request->cpus)) {
        return false;
    }
    request->environment = argv + FIRST_ENVIRONMENT;
    int at = FIRST_ENVIRONMENT;
    while (at < argc && strcmp(argv[at], "--") != 0) {
        at++;
    }
    request->environment_count = at - FIRST_ENVIRONMENT;
    request->command = argv + at + 1;
    return at + 1 < argc;
}

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

/* ---------------------------------------------------------------- the child */

static void give_up(int failure_fd, const char *step)
{
    struct start_failure failure = {.error = errno};
    snprintf(failure.step, sizeof failure.step, "%s", step);
    if (write(failure_fd, &failure, sizeof failure) < 0) {
        /* The launcher is gone: nobody is left to tell. */
    }
    _exit(EXIT_NOT_STARTED);
}

/* A program expects default signals and an empty mask, whatever its ancestors did with theirs. */
static void reset_signals(void)
{
    /* By the system call: libc refuses to touch the two that its threads use, and make starts its children with these
     * ignored. All zeros is the kernel's SIG_DFL without flags. It fails for SIGKILL and SIGSTOP, rightly. */
    static const unsigned long as_default[8];
    for (int number = 1; number < NSIG; number++) {
        syscall(SYS_rt_sigaction, number, as_default, NULL, (size_t)(NSIG - 1) / 8);
    }
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void become_program(const struct request *request, int failure_fd, int traced_fd)
{
    char byte;
    if (traced_fd >= 0 && read(traced_fd, &byte, sizeof byte) != sizeof byte) {
        _exit(EXIT_NOT_STARTED); /* the launcher died */
    }
    setsid();
    reset_signals();
    if (sched_setaffinity(0, sizeof request->cpus, &request->cpus) != 0) {
        give_up(failure_fd, "affinity");
    }
    for (int i = 0; i < request->environment_count; i++) {
        if (putenv(request->environment[i]) != 0) {
            give_up(failure_fd, "environment");
        }
    }
    execvp(request->command[0], request->command);
    give_up(failure_fd, "exec");
}

/* -------------------------------------------------------------- the witness
 *
 * A traced process stops when it has become another program (exec) and just before its memory goes (exit). At each such
 * stop a record is appended to the witness: lines, of which the first is `exec PROCESS CPU_NS` or `exit PROCESS CPU_NS`
 * with the processor time of the process so far. `exe PATH` is the program's file. At an exit, `preload LIST` is
 * LD_PRELOAD as the program was given it, and each `code PATH` a file that it had mapped to execute. */

static FILE *witness; /* NULL: nothing is traced */

static FILE *open_of_process(pid_t process, const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)process, name);
    return fopen(path, "re");
}

static void write_exe(pid_t process)
{
    char path[64];
    char target[PATH_MAX];
    snprintf(path, sizeof path, "/proc/%d/exe", (int)process);
    ssize_t size = readlink(path, target, sizeof target);
    if (size > 0) {
        fprintf(witness, "exe %.*s\n", (int)size, target);
    }
}

static void write_preload(pid_t process)
{
    static const char name[] = "LD_PRELOAD=";
    FILE *file = open_of_process(process, "environ");
    char *variable = NULL;
    size_t size = 0;
    while (file != NULL && getdelim(&variable, &size, '\0', file) > 0) {
        if (strncmp(variable, name, sizeof name - 1) == 0) {
            fprintf(witness, "preload %s\n", variable + sizeof name - 1);
            break;
        }
    }
    free(variable);
    if (file != NULL) {
        fclose(file);
    }
}

static void write_code(pid_t process)
{
    FILE *file = open_of_process(process, "maps");
    char *line = NULL;
    size_t size = 0;
    while (file != NULL && getline(&line, &size, file) > 0) {
        const char *rights = strchr(line, ' ');
        const char *path = strchr(line, '/');
        if (rights != NULL && rights[3] == 'x' && path != NULL) {
            fprintf(witness, "code %s", path); /* with its newline */
        }
    }
    free(line);
    if (file != NULL) {
        fclose(file);
    }
}

static void write_record(const char *event, pid_t process)
{
    clockid_t clock;
    struct timespec used = {0};
    if (clock_getcpuclockid(process, &clock) == 0) {
        clock_gettime(clock, &used);
    }
    fprintf(witness, "%s %d %lld\n", event, (int)process, (long long)used.tv_sec * 1000000000 + used.tv_nsec);
    write_exe(process);
    if (strcmp(event, "exit") == 0) {
        write_preload(process);
        write_code(process);
    }
    fflush(witness);
}

/* The process of a thread if that is its first or its only one, which is when its end is worth a record; else 0. */
static pid_t process_ending_with(pid_t thread)
{
    FILE *file = open_of_process(thread, "status");
    char line[256];
    int process = 0;
    int threads = 0;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "Tgid: %d", &process) != 1) {
            sscanf(line, "Threads: %d", &threads);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return process == thread || threads == 1 ? (pid_t)process : 0;
}

static bool stops_its_group(int number)
{
    return number == SIGSTOP || number == SIGTSTP || number == SIGTTIN || number == SIGTTOU;
}

/* Looks at a traced thread that has stopped, and lets it go on. */
static void attend(pid_t thread, int status)
{
    const int number = WSTOPSIG(status);
    const int event = status >> 16;
    if (event == PTRACE_EVENT_STOP && stops_its_group(number)) {
        ptrace(PTRACE_LISTEN, thread, NULL, NULL);
        return;
    }
    if (event == PTRACE_EVENT_EXEC) {
        write_record("exec", thread);
    } else if (event == PTRACE_EVENT_EXIT) {
        const pid_t process = process_ending_with(thread);
        if (process != 0) {
            write_record("exit", process);
        }
    }
    ptrace(PTRACE_CONT, thread, NULL, (void *)(long)(event == 0 ? number : 0));
}

/* Where the kernel refuses (a container's rules), the program runs untraced and the witness stays empty. */
static void start_tracing(pid_t program)
{
    const long options =
        PTRACE_O_TRACEEXEC | PTRACE_O_TRACEEXIT | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE;
    if (ptrace(PTRACE_SEIZE, program, NULL, (void *)options) != 0) {
        fclose(witness);
        witness = NULL;
    }
}

/* ------------------------------------------------------------- the launcher */

/* Calls `act` for each direct child; returns how often it returned true. */
static int for_each_child(bool (*act)(pid_t child, pid_t program), pid_t program)
{
    static char line[CHILDREN_LINE_SIZE];
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0; /* a kernel without CONFIG_PROC_CHILDREN: the program's own group is all we can reach */
    }
    ssize_t size = read(fd, line, sizeof line - 1);
    close(fd);
    line[size > 0 ? size : 0] = '\0';
    int count = 0;
    for (char *at = line, *end; *at != '\0'; at = end) {
        long pid = strtol(at, &end, 10);
        if (end == at) {
            break;
        }
        count += act((pid_t)pid, program);
    }
    return count;
}

/* The children of one that is killed become ours (we are a subreaper), so that repeating this until there is none left
 * ends the whole tree, whatever sessions and groups it made. */
static bool kill_child(pid_t child, pid_t program)
{
    (void)program;
    return kill(child, SIGKILL) == 0;
}

/* Whether the child is another than the program and runs: the program need not have waited for it. */
static bool is_another(pid_t child, pid_t program)
{
    siginfo_t info = {0};
    const int ended = WEXITED | WNOHANG | WNOWAIT | __WALL;
    return child != program && waitid(P_PID, (id_t)child, &info, ended) == 0 && info.si_pid == 0;
}

/* Ends and reaps everything. Returns the program's wait status if it was still to be reaped.
 * The program is a running process or a zombie here, so its id still names its group and no other. */
static int end_tree(pid_t program)
{
    int program_status = 0;
    kill(-program, SIGKILL);
    for (;;) {
        for_each_child(kill_child, program);
        int status;
        pid_t pid = waitpid(-1, &status, __WALL);
        if (pid > 0 && WIFSTOPPED(status)) {
            attend(pid, status);
        } else if (pid == program) {
            program_status = status;
        } else if (pid < 0 && errno != EINTR) {
            return program_status; /* ECHILD: nobody is left */
        }
    }
}

static bool is_end(const siginfo_t *info)
{
    return info->si_code == CLD_EXITED || info->si_code == CLD_KILLED || info->si_code == CLD_DUMPED;
}

static bool program_ended(pid_t program)
{
    siginfo_t info = {0};
    /* WNOWAIT keeps the zombie, and with it the right to signal its group. */
    return waitid(P_PID, (id_t)program, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
}

/* Reaps orphans, and attends to what is traced. */
static void reap_orphans(pid_t program)
{
    for (;;) {
        siginfo_t info = {0};
        const int stops = witness != NULL ? WSTOPPED | __WALL : 0;
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | stops) != 0 || info.si_pid == 0 ||
            (info.si_pid == program && is_end(&info))) {
            return;
        }
        int status;
        if (waitpid(info.si_pid, &status, WNOHANG | __WALL) > 0 && WIFSTOPPED(status)) {
            attend(info.si_pid, status);
        }
    }
}

/* Returns when the program has ended or someone wants it to. */
static void wait_for_end(pid_t program, const sigset_t *signals)
{
    while (reap_orphans(program), !program_ended(program)) {
        int number = sigwaitinfo(signals, NULL);
        if (number > 0 && number != SIGCHLD) {
            return;
        }
    }
}

static bool report_started(int report_fd, int failure_fd, pid_t program)
{
    struct start_failure failure;
    ssize_t size;
    do {
        size = read(failure_fd, &failure, sizeof failure);
    } while (size < 0 && errno == EINTR);
    close(failure_fd);
    if (size == (ssize_t)sizeof failure) {
        dprintf(report_fd, "failed %s %d\n", failure.step, failure.error);
        return false;
    }
    dprintf(report_fd, "started %d\n", (int)program);
    return true;
}

static void report_ended(int report_fd, int status, long long wall_ns, int left)
{
    struct rusage used;
    getrusage(RUSAGE_CHILDREN, &used);
    dprintf(report_fd, "ended %d %lld %lld %lld %ld %ld %ld %ld %ld %d\n", status, wall_ns, microseconds(used.ru_utime),
            microseconds(used.ru_stime), used.ru_maxrss, used.ru_minflt, used.ru_majflt, used.ru_nvcsw, used.ru_nivcsw,
            left);
}

static bool lab_is_gone(int report_fd)
{
    struct pollfd watched = {.fd = report_fd};
    return poll(&watched, 1, 0) == 1 && (watched.revents & POLLERR) != 0;
}

/* Returns whether to go on. Signals are blocked here: a lab that gives up closes its end. */
static bool hold(int fd)
{
    char go;
    ssize_t size;
    do {
        size = read(fd, &go, sizeof go);
    } while (size < 0 && errno == EINTR);
    close(fd);
    return size == (ssize_t)sizeof go;
}

static void block_signals(sigset_t *signals)
{
    const int awaited[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP};
    sigemptyset(signals);
    for (size_t i = 0; i < sizeof awaited / sizeof *awaited; i++) {
        signal(awaited[i], SIG_DFL); /* an inherited SIG_IGN would discard them */
        sigaddset(signals, awaited[i]);
    }
    sigprocmask(SIG_BLOCK, signals, NULL);
    signal(SIGPIPE, SIG_IGN); /* a report to a dead lab must not stop the cleaning up */
}

int main(int argc, char **argv)
{
    struct request request;
    if (!parse_request(argc, argv, &request)) {
        fputs("usage: heapfit-launch REPORT_FD HOLD_FD WITNESS_FD CPU[,CPU...] [NAME=VALUE...] -- COMMAND "
              "[ARGUMENT...]\n",
              stderr);
        return EXIT_USAGE;
    }
    sigset_t signals;
    block_signals(&signals);
    fcntl(request.report_fd, F_SETFD, FD_CLOEXEC);
    if (request.witness_fd >= 0) {
        fcntl(request.witness_fd, F_SETFD, FD_CLOEXEC);
        witness = fdopen(request.witness_fd, "ae");
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (lab_is_gone(request.report_fd)) {
        return EXIT_NOT_STARTED; /* it died before the line above could take effect */
    }

    if (request.hold_fd >= 0 && !hold(request.hold_fd)) {
        return EXIT_NOT_STARTED;
    }

    int failure_pipe[2];
    int traced_pipe[2] = {-1, -1};
    if (pipe2(failure_pipe, O_CLOEXEC) != 0 || (witness != NULL && pipe2(traced_pipe, O_CLOEXEC) != 0)) {
        dprintf(request.report_fd, "failed pipe %d\n", errno);
        return EXIT_NOT_STARTED;
    }
    long long start = nanoseconds_now();
    pid_t program = fork();
    if (program < 0) {
        dprintf(request.report_fd, "failed fork %d\n", errno);
        return EXIT_NOT_STARTED;
    }
    if (program == 0) {
        close(traced_pipe[1]);
        become_program(&request, failure_pipe[1], traced_pipe[0]);
    }
    close(failure_pipe[1]);
    if (witness != NULL) {
        start_tracing(program);
        close(traced_pipe[0]);
        if (write(traced_pipe[1], "", 1) < 0) {
            /* The program was killed: report_started says so. */
        }
        close(traced_pipe[1]);
    }
    if (!report_started(request.report_fd, failure_pipe[0], program)) {
        waitpid(program, NULL, 0);
        return EXIT_NOT_STARTED;
    }
    wait_for_end(program, &signals);
    long long wall_ns = nanoseconds_now() - start;
    reap_orphans(program);
    int left = for_each_child(is_another, program);
    int status = end_tree(program);
    report_ended(request.report_fd, status, wall_ns, left);
    return EXIT_SUCCESS;
}
