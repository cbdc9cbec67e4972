/* Processors, thread exit, and threads of the allocator's own. */
#define _GNU_SOURCE
#include "lines.h"
#include "platform.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- processors ---------------------------------------------------------------------------------- */

/* Linux knows no more than 8192. */
enum { PROCESSOR_WORDS = 8192 / (8 * sizeof(unsigned long)) };

struct processors {
    unsigned long words[PROCESSOR_WORDS]; /* a bit each */
};

/* Those that a thread may use; 0: the calling one. False when the kernel does not say. */
static bool processors_of(pid_t thread, struct processors *its)
{
    *its = (struct processors){{0}};
    return platform_call(SYS_sched_getaffinity, thread, sizeof its->words, its->words) > 0;
}

unsigned platform_processors(void)
{
    /* Of the first thread and of this one: either may have bound itself to some, the process is bound to all of these. */
    const pid_t threads[] = {platform_process_number(), 0};
    unsigned long processors[PROCESSOR_WORDS] = {0};
    int saved = errno;
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        struct processors its;
        if (!processors_of(threads[i], &its)) continue;
        for (size_t word = 0; word < PROCESSOR_WORDS; word++) processors[word] |= its.words[word];
    }
    errno = saved;
    unsigned count = 0;
    for (size_t word = 0; word < PROCESSOR_WORDS; word++) count += (unsigned)__builtin_popcountl(processors[word]);
    return count == 0 ? 1 : count;
}

/* ---- thread exit ---------------------------------------------------------------------------------- */

static pthread_key_t exit_key;
static bool exit_key_made;

void platform_thread_exit_hook(void (*hook)(void *))
{
    exit_key_made = pthread_key_create(&exit_key, hook) == 0;
}

bool platform_thread_exit_arm(void *argument)
{
    if (!exit_key_made) return false;
    int saved = errno;
    bool armed = pthread_setspecific(exit_key, argument) == 0;
    errno = saved;
    return armed;
}

/* ---- threads of the allocator's own ------------------------------------------------------------------ */

/* On top of what the C library needs, thread-local storage of all libraries included. Enough for exit handlers too:
 * they run here when this is the last thread of a process. */
#define STACK_SIZE ((size_t)256 << 10)

/* Lies on the starter's stack until `copied`. */
struct start {
    const char *name;
    void (*run)(void *);
    void *argument;
    bool low_priority;
    bool created;
    _Atomic(uint32_t) copied;
};

static int policy_of(pid_t thread)
{
    return (int)platform_call(SYS_sched_getscheduler, thread) & ~SCHED_RESET_ON_FORK;
}

static bool policy_set(int policy)
{
    const struct sched_param none = {0};
    return platform_call(SYS_sched_setscheduler, 0, policy, &none) == 0;
}

static bool is_real_time(int policy)
{
    enum { DEADLINE = 6 }; /* SCHED_DEADLINE, of linux/sched.h */
    return policy == SCHED_FIFO || policy == SCHED_RR || policy == DEADLINE;
}

bool platform_thread_is_real_time(int32_t thread)
{
    int saved = errno;
    bool is = is_real_time(policy_of(thread));
    errno = saved;
    return is;
}

/* What it has of the thread that started it, which may be bound to a processor and come before all others there, is not for this
 * one: it runs where the first thread may, as what has no deadline. Where the kernel refuses, it stays as it is. */
static void leave_to_others(void)
{
    struct processors of_the_first;
    if (is_real_time(policy_of(0))) policy_set(SCHED_OTHER);
    if (processors_of(platform_process_number(), &of_the_first))
        platform_call(SYS_sched_setaffinity, 0, sizeof of_the_first.words, of_the_first.words);
}

static bool is_idle(pid_t thread)
{
    return policy_of(thread) == SCHED_IDLE;
}

/* 0 where the kernel does not say, which has it as 20 less the value. */
static long nice_value(pid_t thread)
{
    long answer = platform_call(SYS_getpriority, PRIO_PROCESS, thread);
    return answer > 0 ? 20 - answer : 0;
}

bool platform_thread_ranks_below_first(void)
{
    int saved = errno;
    pid_t first = platform_process_number();
    bool below = (is_idle(0) && !is_idle(first)) || nice_value(0) > nice_value(first);
    errno = saved;
    return below;
}

/* Both apply to the calling thread alone, on Linux. A nice value where a sandbox forbids the better one. */
static void lower_priority(void)
{
    if (!policy_set(SCHED_IDLE)) platform_call(SYS_setpriority, PRIO_PROCESS, 0, 19);
}

/* Exit handlers are about to run here, and what would end the program meanwhile is to end it. */
static void let_signals_in(void)
{
    sigset_t none;
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, NULL);
}

static void *thread_begin(void *argument)
{
    struct start *shared = argument;
    struct start start = {.run = shared->run, .argument = shared->argument, .low_priority = shared->low_priority};
    const char *name = shared->name;
    /* Release: we have read all. The starter's stack may be gone before the wake, which then wakes nobody. Before any other
     * system call, which a sandbox may answer by ending the thread: the starter waits for this one. */
    atomic_store_explicit(&shared->copied, 1, memory_order_release);
    platform_wake(&shared->copied);
    platform_call(SYS_prctl, PR_SET_NAME, name, 0, 0, 0);
    leave_to_others(); /* not before: the starter, which may have a deadline, would wait for a thread that has none */
    if (start.low_priority) lower_priority();
    start.run(start.argument);
    if (platform_thread_is_last()) let_signals_in();
    return NULL;
}

typedef int create_function(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

/* The C library's own. */
static create_function *create_thread = pthread_create;

void platform_undisturbed(void (*act)(void *), void *argument)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    act(argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static bool create(struct start *start, size_t stack_size)
{
    pthread_t thread;
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0) return false;
    bool created = pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0 &&
                   (stack_size == 0 || pthread_attr_setstacksize(&attributes, stack_size) == 0) &&
                   create_thread(&thread, &attributes, thread_begin, start) == 0;
    pthread_attr_destroy(&attributes);
    return created;
}

/* To look again after so long; it is woken before. */
enum { START_WAIT_US = 1000000 };

/* Undisturbed: the new thread inherits that signals are blocked; and in the child of a handler that forks during the wait there
 * would be nobody to end it. */
static void create_and_await(void *argument)
{
    struct start *start = argument;
    /* Much thread-local storage may not leave room in a small stack: then one of the usual size. */
    size_t minimum = (size_t)sysconf(_SC_THREAD_STACK_MIN);
    start->created = create(start, minimum + STACK_SIZE) || create(start, 0);
    /* Acquire: pairs with the release in thread_begin. */
    while (start->created && atomic_load_explicit(&start->copied, memory_order_acquire) == 0)
        platform_wait(&start->copied, 0, START_WAIT_US);
}

bool platform_thread_start(const char *name, void (*run)(void *), void *argument, bool low_priority)
{
    struct start start = {.name = name, .run = run, .argument = argument, .low_priority = low_priority};
    int saved = errno;
    platform_undisturbed(create_and_await, &start);
    errno = saved;
    return start.created;
}

/* Numbers of Linux 4.14, in linux/membarrier.h. */
enum { BARRIER_PRIVATE_EXPEDITED = 1 << 3, BARRIER_REGISTER = 1 << 4 };

static bool membarrier(int command)
{
    int saved = errno;
    bool done = platform_call(SYS_membarrier, command, 0) == 0;
    errno = saved;
    return done;
}

/* ThreadSanitizer knows no order but that of each thread's own fences, and would report what the kernel orders. */
#if defined(__SANITIZE_THREAD__)
#define SEES_BARRIER 0
#elif defined(__has_feature)
#define SEES_BARRIER (!__has_feature(thread_sanitizer))
#else
#define SEES_BARRIER 1
#endif

bool platform_barrier_prepare(void)
{
    return SEES_BARRIER && membarrier(BARRIER_REGISTER);
}

bool platform_barrier_everywhere(void)
{
    return membarrier(BARRIER_PRIVATE_EXPEDITED);
}

/* The state of the first thread: the letter behind the name, which stands in parentheses and may contain some. */
static char first_thread_state(void)
{
    char text[256];
    /* By bare system calls, which are no points at which a thread can be cancelled. */
    long file = platform_call(SYS_openat, AT_FDCWD, "/proc/self/stat", O_RDONLY | O_CLOEXEC);
    long size = file < 0 ? -1 : platform_call(SYS_read, file, text, sizeof text - 1);
    if (file >= 0) platform_call(SYS_close, file);
    while (size > 0 && text[size - 1] != ')') size--;
    return size > 0 && (size_t)size + 1 < sizeof text ? text[size + 1] : '?';
}

bool platform_first_thread_leaves(void)
{
    int saved = errno;
    bool leaves = platform_thread_number() == platform_process_number() || first_thread_state() == 'Z';
    errno = saved;
    return leaves;
}

bool platform_thread_is_last(void)
{
    /* Links of the folder: itself, the one above, and one for each thread, the dead first one too. */
    enum { LINKS = 2, FIRST_AND_OWN = 2 };
    struct stat tasks;
    int saved = errno;
    bool two = stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink <= LINKS + FIRST_AND_OWN;
    bool last = two && first_thread_state() == 'Z';
    errno = saved;
    return last;
}

/* ---- signals ------------------------------------------------------------------------------------------------- */

/* The kernel's set of signals, of which its files write the digits. */
static uint64_t signals_in(const char *line, const char *name)
{
    size_t length = strlen(name);
    return strncmp(line, name, length) == 0 ? strtoul(line + length, NULL, 16) : 0;
}

/* Those that somebody has sent to this very thread, and that the program handles. */
static uint64_t signals_due(void)
{
    struct lines lines;
    uint64_t sent = 0, handled = 0;
    if (!lines_open(&lines, "/proc/thread-self/status")) return 0;
    while (lines_next(&lines)) {
        sent |= signals_in(lines.line, "SigPnd:\t");
        handled |= signals_in(lines.line, "SigCgt:\t");
    }
    lines_close(&lines);
    return sent & handled;
}

void platform_answer_signals(void)
{
    int saved = errno;
    uint64_t pending = 0; /* also for the process: those are for other threads */
    if (platform_call(SYS_rt_sigpending, &pending, sizeof pending) == 0 && pending != 0) {
        uint64_t due = signals_due();
        if (due != 0) {
            platform_call(SYS_rt_sigprocmask, SIG_UNBLOCK, &due, NULL, sizeof due);
            platform_call(SYS_rt_sigprocmask, SIG_BLOCK, &due, NULL, sizeof due);
        }
    }
    errno = saved;
}

/* ---- whose code it is ------------------------------------------------------------------------------------ */

static bool is_in_parts(const ElfW(Phdr) * parts, unsigned count, uintptr_t base, uintptr_t address)
{
    for (unsigned i = 0; i < count; i++)
        if (parts[i].p_type == PT_LOAD && address - base - parts[i].p_vaddr < parts[i].p_memsz) return true;
    return false;
}

bool platform_is_in_linker(const void *address)
{
    uintptr_t base = getauxval(AT_BASE); /* 0: there is none, or it was told to start the program */
    if (base == 0) return true;
    const ElfW(Ehdr) *header = (const ElfW(Ehdr) *)base;
    return is_in_parts((const ElfW(Phdr) *)(base + header->e_phoff), header->e_phnum, base, (uintptr_t)address);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#define SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define SANITIZED 0
#endif

#if !SANITIZED
/* Where the C library has pthread_create: in the second before glibc 2.34. To musl either name, of a library that is to be
 * loaded, is its own; dl_iterate_phdr has another. */
static const char *const thread_libraries[] = {"libc.so.6", "libpthread.so.0"};
enum { THREAD_LIBRARIES = sizeof thread_libraries / sizeof *thread_libraries };

/* For dl_iterate_phdr: whether pthread_create, as this library is bound to it, is the C library's. */
static int is_create_in(struct dl_phdr_info *object, size_t size, void *is_own)
{
    (void)size;
    if (!is_in_parts(object->dlpi_phdr, object->dlpi_phnum, object->dlpi_addr, (uintptr_t)pthread_create)) return 0;
    const char *slash = strrchr(object->dlpi_name, '/');
    for (unsigned i = 0; i < THREAD_LIBRARIES; i++)
        if (strcmp(slash == NULL ? object->dlpi_name : slash + 1, thread_libraries[i]) == 0) *(bool *)is_own = true;
    return 1;
}

/* Weak, and dlopen found by it: see cxx.c. */
#pragma weak dlsym

static create_function *find_create(void)
{
    void *(*open)(const char *, int) = NULL;
    create_function *found = NULL;
    if (dlsym != NULL) *(void **)&open = dlsym(RTLD_DEFAULT, "dlopen");
    for (unsigned i = 0; open != NULL && found == NULL && i < THREAD_LIBRARIES; i++) {
        void *library = open(thread_libraries[i], RTLD_LAZY | RTLD_NOLOAD);
        if (library != NULL) *(void **)&found = dlsym(library, "pthread_create");
    }
    return found;
}
#endif

void platform_thread_prepare(void)
{
#if !SANITIZED /* whose run-time library wants to know of each thread */
    bool is_own = false;
    int saved = errno;
    dl_iterate_phdr(is_create_in, &is_own);
    create_function *found = is_own ? NULL : find_create();
    if (found != NULL) create_thread = found;
    errno = saved;
#endif
}

int32_t platform_thread_number(void)
{
    return (int32_t)platform_call(SYS_gettid); /* the C library has a function for it only since 2.30 */
}

int32_t platform_process_number(void)
{
    return (int32_t)platform_call(SYS_getpid);
}

/* The number of a namespace of processes is below 2^32, and 0 where /proc does not say. */
uint64_t platform_process_identity(void)
{
    int32_t number = platform_process_number();
    if (number != 1) return (uint64_t)number;
    char name[64];
    int saved = errno;
    link_says("/proc/self/ns/pid", name, sizeof name);
    errno = saved;
    const char *digits = strchr(name, '[');
    uint64_t space = digits == NULL ? SIZE_MAX : number_at(digits + 1);
    return space == SIZE_MAX ? 1 : space << 32 | 1;
}

bool platform_thread_exists(int32_t number)
{
    int saved = errno;
    bool exists = platform_call(SYS_tgkill, platform_process_number(), number, 0) == 0 ||
                  errno != ESRCH; /* a sandbox may forbid to ask */
    errno = saved;
    return exists;
}
