// Memory goes back while the program sleeps, by a thread that comes when there is much to do and leaves when there is none.
// Programs as they are: each runs in a process of its own, and calls nothing of malloc's while it waits.
#include "heap_isolated.h"
#include "heapfit/heapfit.h"
#include "sleepers.h"
#include "system.h"

#include <linux/filter.h>
#include <linux/seccomp.h>

static std::atomic<int> threads_started;
static std::atomic<bool> signal_comes_at_start; // of the next thread: SIGUSR1, to whoever starts it
static std::atomic<uint64_t> clock_ahead_ms;
static std::atomic<int> threads_asked_about; // whether they sleep
static std::atomic<bool> threads_are_real_time;

extern "C" {
uint64_t __real_platform_clock_ms(void);
uint64_t __wrap_platform_clock_ms(void)
{
    return __real_platform_clock_ms() + clock_ahead_ms;
}
bool __real_platform_thread_start(const char *name, void (*run)(void *), void *argument, bool low_priority);
bool __wrap_platform_thread_start(const char *name, void (*run)(void *), void *argument, bool low_priority)
{
    if (signal_comes_at_start.exchange(false)) raise(SIGUSR1);
    threads_started++;
    return __real_platform_thread_start(name, run, argument, low_priority);
}
int __real_platform_thread_sleep(int32_t number, const void *local);
int __wrap_platform_thread_sleep(int32_t number, const void *local)
{
    threads_asked_about++;
    return __real_platform_thread_sleep(number, local);
}
bool __real_platform_thread_is_real_time(int32_t number);
bool __wrap_platform_thread_is_real_time(int32_t number)
{
    return threads_are_real_time || __real_platform_thread_is_real_time(number);
}
}

// From the start of the program, as HEAPFIT_OPTIONS would.
static const bool is_on = hf_option_set("background", "on") == 0;
static const bool have_heaps_of_their_own =
    hf_option_set("share_first", "0") == 0; // of which there is more to give back

namespace
{

constexpr size_t MIB = size_t{1} << 20;
constexpr int PATIENCE_MS = 60'000, TICK_MS = 20;

// Without malloc.
size_t resident()
{
    char text[128] = {};
    int file = open("/proc/self/statm", O_RDONLY);
    ssize_t size = read(file, text, sizeof text - 1);
    close(file);
    if (size <= 0) return 0;
    const char *second = std::strchr(text, ' ');
    return std::strtoul(second, nullptr, 10) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

size_t threads_now()
{
    struct stat tasks = {};
    stat("/proc/self/task", &tasks);
    return tasks.st_nlink - 2;
}

// Until it is so, or for so long that it never will be.
template <typename Condition> bool comes_true(Condition condition, int patience_ms = PATIENCE_MS)
{
    for (int waited = 0; waited < patience_ms; waited += TICK_MS) {
        if (condition()) return true;
        usleep(TICK_MS * 1000);
    }
    return false;
}

// The list of blocks is in themselves, so that nothing else is allocated.
void *allocate(size_t bytes, size_t block)
{
    void **list = nullptr;
    for (size_t done = 0; done < bytes; done += block) {
        auto **next = static_cast<void **>(std::malloc(block));
        std::memset(next, 1, block);
        *next = list;
        list = next;
    }
    return list;
}

void release(void *list)
{
    while (list != nullptr) {
        void *next = *static_cast<void **>(list);
        std::free(list);
        list = next;
    }
}

void expect_goes_back(size_t before)
{
    EXPECT_TRUE(comes_true([before] { return resident() <= before + 16 * MIB; })) << resident() - before;
}

TEST(Background, GivesBackAPeakOfSmallBlocksWhileTheProgramSleeps)
{
    isolated::expect_passes([] {
        size_t before = resident();
        release(allocate(200 * MIB, 200));
        expect_goes_back(before);
    });
}

// No span becomes empty, so that nothing but their free pages waits to go back.
TEST(Background, GivesBackPagesBetweenLiveBlocksWhileAProgramOfOneThreadSleeps)
{
    isolated::expect_passes([] {
        constexpr size_t BLOCK = 700, BLOCKS = 200 * MIB / BLOCK;
        static void *blocks[BLOCKS];
        for (void *&block : blocks) block = std::memset(std::malloc(BLOCK), 1, BLOCK);
        size_t most = resident();
        for (size_t i = 0; i < BLOCKS; i++)
            if (i % 16 != 0) std::free(blocks[i]);
        EXPECT_TRUE(comes_true([most] { return resident() <= most - 80 * MIB; })) << most - resident();
        EXPECT_TRUE(comes_true([] { return threads_now() == 1; }));
    });
}

TEST(Background, ComesByItselfWhereThereAreThreadsOnly)
{
    EXPECT_TRUE(is_on);
    size_t found = 0;
    for (size_t i = 0; i < hf_option_count(); i++) {
        if (std::strcmp(hf_option_at(i)->name, "background") != 0) continue;
        EXPECT_STREQ("auto", hf_option_at(i)->choices[hf_option_at(i)->initial]);
        found++;
    }
    EXPECT_EQ(1U, found);
    isolated::expect_passes([] {
        ASSERT_EQ(0, hf_option_set("background", "auto"));
        // A thread that has ended leaves a program of one thread.
        std::thread([] { release(allocate(MIB, 1000)); }).join();
        release(allocate(100 * MIB, MIB));
        release(allocate(100 * MIB, 1000));
        EXPECT_EQ(1u, threads_now());
        Sleepers other(1, [] { release(allocate(MIB, 1000)); });
        release(allocate(100 * MIB, MIB));
        EXPECT_TRUE(comes_true([] { return threads_now() == 3; }));
    });
}

TEST(Background, DoesNotComeWhenItIsOff)
{
    isolated::expect_passes([] {
        hf_option_set("background", "off");
        release(allocate(100 * MIB, MIB));
        EXPECT_FALSE(comes_true([] { return threads_now() != 1; }, 500));
    });
}

// As fork, but for all that the C library does around it.
template <typename Body> int run_in_copy(Body body)
{
    auto child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
    if (child == 0) {
        alarm(isolated::TIMEOUT_SECONDS);
        body();
        _exit(::testing::Test::HasFailure() ? isolated::FAILED : isolated::PASSED);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return status;
}

// The number of the other thread of a process of two.
pid_t other_thread()
{
    pid_t found = 0;
    DIR *tasks = opendir("/proc/self/task");
    while (const dirent *task = readdir(tasks)) {
        auto number = static_cast<pid_t>(std::strtol(task->d_name, nullptr, 10));
        if (number != 0 && number != getpid()) found = number;
    }
    closedir(tasks);
    return found;
}

// What does not go back soon: so it stays to be looked at.
void release_and_wait()
{
    size_t before = threads_now();
    hf_option_set("decay_ms", "1000000000");
    release(allocate(100 * MIB, MIB));
    EXPECT_TRUE(comes_true([before] { return threads_now() > before; }));
}

TEST(Background, EndsBeforeTheProgramAsksForWhatTakesAProcessOfOneThread)
{
    isolated::expect_passes([] {
        std::thread(release_and_wait).join();
        EXPECT_TRUE(comes_true([] { return threads_now() == 2; })); // /proc has a joined one for a moment more
        EXPECT_EQ(0, unshare(CLONE_THREAD)) << errno;
        EXPECT_EQ(1u, threads_now());
    });
    for (int type : {0, CLONE_NEWUSER, CLONE_NEWNS}) {
        isolated::expect_passes([type] {
            std::thread(release_and_wait).join();
            EXPECT_EQ(-1, setns(-1, type));
            EXPECT_EQ(EBADF, errno);
            EXPECT_EQ(1u, threads_now());
            clock_ahead_ms = 2000;
            release(allocate(100 * MIB, 1000));
            EXPECT_TRUE(comes_true([] { return threads_now() == 2; })) << "its coming again";
        });
    }
}

TEST(Background, TakesNoSignals)
{
    isolated::expect_passes([] {
        sigset_t before, after;
        pthread_sigmask(SIG_BLOCK, nullptr, &before);
        release_and_wait();
        pthread_sigmask(SIG_BLOCK, nullptr, &after);
        char path[64], text[2048] = {};
        std::snprintf(path, sizeof path, "/proc/self/task/%d/status", other_thread());
        int file = open(path, O_RDONLY);
        EXPECT_GT(read(file, text, sizeof text - 1), 0);
        close(file);
        const char *blocked = std::strstr(text, "SigBlk:");
        ASSERT_NE(nullptr, blocked);
        unsigned long mask = std::strtoul(blocked + std::strlen("SigBlk:"), nullptr, 16);
        for (int signal : {SIGINT, SIGTERM, SIGCHLD, SIGALRM, SIGPROF, SIGUSR1})
            EXPECT_EQ(1u, mask >> (signal - 1) & 1) << signal;
        for (int signal = 1; signal < SIGRTMAX; signal++)
            EXPECT_EQ(sigismember(&before, signal), sigismember(&after, signal)) << "the starter's";
    });
}

// As tools do that ask each thread of a process for its stack. What is sent to the process is for others.
TEST(Background, AnswersSignalsThatAreSentToIt)
{
    isolated::expect_passes([] {
        static std::atomic<pid_t> answered;
        struct sigaction action = {};
        action.sa_handler = [](int) { answered = static_cast<pid_t>(syscall(SYS_gettid)); };
        sigaction(SIGUSR1, &action, nullptr);
        release_and_wait();
        pid_t thread = other_thread();
        EXPECT_EQ(0, syscall(SYS_tgkill, getpid(), thread, SIGUSR2)) << "ignored, since nobody handles it";
        EXPECT_EQ(0, syscall(SYS_tgkill, getpid(), thread, SIGUSR1));
        EXPECT_TRUE(comes_true([thread] { return answered == thread; }));
        sigset_t one;
        sigemptyset(&one);
        sigaddset(&one, SIGUSR1);
        sigprocmask(SIG_BLOCK, &one, nullptr);
        answered = 0;
        kill(getpid(), SIGUSR1);
        EXPECT_EQ(0, syscall(SYS_tgkill, getpid(), thread, SIGUSR2));
        sigprocmask(SIG_UNBLOCK, &one, nullptr);
        EXPECT_EQ(getpid(), answered);
    });
}

void *end_after_main(void *)
{
    while (threads_now() > 3) usleep(1000); // main, which is dead, this one, and ours
    usleep(50'000);
    return nullptr;
}

TEST(Background, DoesNotKeepAProcessWhoseThreadsHaveEnded)
{
    int status = isolated::run_child([] {
        hf_option_set("decay_ms", "1000000000"); // it waits for that
        release(allocate(100 * MIB, MIB));
        comes_true([] { return threads_now() == 2; });
        pthread_t other;
        pthread_create(&other, nullptr, end_after_main, nullptr);
        syscall(SYS_exit, 0); // as pthread_exit does at last, but that would unwind the test's stack
    });
    EXPECT_TRUE(WIFEXITED(status)) << "it hung";
}

// What all threads of a program get that makes a thread from now on, or asks for a barrier; `files`: or opens a file.
void forbid_threads(uint32_t answer, bool files = false)
{
#if defined(__x86_64__)
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(files ? SYS_openat : SYS_clone), 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, answer),
    };
    struct sock_fprog program = {7, code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    EXPECT_EQ(0, syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program));
#else
    (void)answer, (void)files;
#endif
}

// It makes its threads, then forbids by death what it will not need.
TEST(Background, KeepsOutOfASandboxThatTheProgramHasEnteredItself)
{
    isolated::expect_passes([] {
        ASSERT_EQ(0, hf_option_set("background", "auto"));
        Sleepers others(2, [] { release(allocate(4 * MIB, 1000)); });
        void *list = allocate(100 * MIB, MIB);
        forbid_threads(SECCOMP_RET_KILL_PROCESS);
        release(list);
        release(allocate(100 * MIB, 1000));
        EXPECT_EQ(3u, threads_now());
    });
}

// Whether there is a sandbox is asked of a file, where one may be opened.
TEST(Background, AsksForNoSandboxWhereNoFileMayBeOpened)
{
    isolated::expect_passes([] {
        ASSERT_EQ(0, hf_option_set("background", "auto"));
        ASSERT_EQ(0, hf_option_set("memory_limit", "none"));
        Sleepers others(2, [] { release(allocate(4 * MIB, 1000)); });
        void *list = allocate(100 * MIB, MIB);
        forbid_threads(SECCOMP_RET_KILL_PROCESS, true);
        release(list);
        release(allocate(100 * MIB, 1000));
        hf_trim();
        EXPECT_EQ(3u, threads_now());
    });
}

// Of a thread that may less than the first one, or has other namespaces, it would be one more for good.
TEST(Background, EndsWhereAThreadUnlikeTheFirstHasStartedIt)
{
    isolated::expect_passes([] {
        hf_option_set("decay_ms", "1000000000");
        Sleepers other(1, [] { release(allocate(MIB, 1000)); });
        std::thread([] {
            prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            threads_started = 0;
            release(allocate(100 * MIB, MIB));
            EXPECT_EQ(1, threads_started);
            EXPECT_TRUE(comes_true([] { return threads_now() == 3; }));
        }).join();
        clock_ahead_ms = 2000;
        release(allocate(100 * MIB, MIB));
        EXPECT_EQ(2, threads_started);
        EXPECT_TRUE(comes_true([] { return threads_now() == 3; })) << "one that was started by the first stays";
    });
}

// A thread of a pool that has had its burst: many sizes, all freed but for a few.
struct Burst {
    static constexpr size_t BLOCKS = 4000;
    void *kept[BLOCKS / 400];

    void run()
    {
        void *blocks[BLOCKS];
        for (size_t i = 0; i < BLOCKS; i++) {
            size_t size = 16 + i * 7919 % 1000;
            blocks[i] = std::malloc(size);
            std::memset(blocks[i], 1, size);
        }
        for (size_t i = 0; i < BLOCKS; i++) {
            if (i % 400 == 0) kept[i / 400] = blocks[i];
            else std::free(blocks[i]);
        }
    }
};

// Whether a thread sleeps can be told of all programs but a few strange ones: so only who says "on" has it asked.
TEST(Background, LeavesThreadsThatSleepTheirHeapsUnlessItIsOn)
{
    for (bool is_asked : {false, true})
        isolated::expect_passes([is_asked] {
            hf_option_set("background", is_asked ? "on" : "auto");
            constexpr size_t THREADS = 100;
            Sleepers sleepers(THREADS, [] {
                static thread_local Burst burst;
                burst.run();
            });
            if (is_asked) {
                EXPECT_TRUE(comes_true([] { return threads_asked_about != 0; }));
                return;
            }
            size_t before = resident();
            EXPECT_TRUE(comes_true([before] { return resident() + THREADS * MIB / 2 <= before; }));
            usleep(2'000'000); // what is done besides is done by then
            EXPECT_EQ(0, threads_asked_about);
        });
}

// One that woke in the midst of it would wait for a thread that is not let run.
TEST(Background, LeavesRealTimeThreadsTheirHeaps)
{
    for (bool is_real_time : {false, true})
        isolated::expect_passes([is_real_time] {
            threads_are_real_time = is_real_time;
            hf_option_set("background", "off"); // so that malloc_trim alone sees to them
            constexpr size_t THREADS = 30;
            Sleepers sleepers(THREADS, [] {
                static thread_local Burst burst;
                burst.run();
            });
            size_t before = resident();
            malloc_trim(0);
            EXPECT_EQ(resident() + THREADS * MIB / 2 > before, is_real_time) << before;
        });
}

TEST(Background, GivesBackWhatWasFreedForThreadsThatSleep)
{
    isolated::expect_passes([] {
        constexpr size_t THREADS = 9, EACH = 20 * MIB;
        static void *lists[THREADS];
        static std::atomic<size_t> next;
        size_t before = resident();
        Sleepers sleepers(THREADS, [] { lists[next++] = allocate(EACH, 300); });
        EXPECT_GE(resident(), before + THREADS * EACH);
        for (void *list : lists) release(list);
        expect_goes_back(before);
    });
}

// And whatever else it is doing. What these copies do needs nothing of the C library, whose locks it may have had, too.
void use_all_sizes()
{
    for (size_t size : {16, 100, 1000, 10'000, 100'000}) release(allocate(4 * MIB, size));
}

TEST(Background, MayBeInTheMidstOfAnythingWhenTheProcessIsCopied)
{
    isolated::expect_passes([] {
        hf_option_set("decay_ms", "1");
        Sleepers others(3, [] {
            static thread_local Burst burst;
            burst.run();
        });
        for (int i = 0; i < 100; i++) {
            release(allocate(20 * MIB, i % 2 == 0 ? 1000 : MIB));
            EXPECT_EQ(0, run_in_copy(use_all_sizes));
        }
    });
}

// A handler that forks: in the child, too, it returns to what it has interrupted.
volatile sig_atomic_t is_child, child_failed, forks;

void fork_in_handler(int /*number*/)
{
    if (is_child != 0 || child_failed != 0) return;
    int saved = errno, status = -1;
    forks = forks + 1;
    pid_t child = fork();
    if (child == 0) {
        is_child = 1;
        alarm(isolated::TIMEOUT_SECONDS);
    } else if (waitpid(child, &status, 0) != child || status != 0) {
        child_failed = 1;
    }
    errno = saved;
}

TEST(Background, IsAsItSaysInTheChildOfAHandlerThatForkedWhileItStarted)
{
    isolated::expect_passes([] {
        std::signal(SIGUSR1, fork_in_handler);
        signal_comes_at_start = true;
        release(allocate(100 * MIB, MIB));
        EXPECT_FALSE(signal_comes_at_start);
        if (is_child != 0) release(allocate(100 * MIB, MIB));
        EXPECT_TRUE(comes_true([] { return threads_now() == 2; })) << "its coming";
        EXPECT_TRUE(comes_true([] { return threads_now() == 1; })) << "its end";
        if (is_child != 0) _exit(::testing::Test::HasFailure() ? isolated::FAILED : isolated::PASSED);
        EXPECT_EQ(0, child_failed);
    });
}

TEST(Background, IsNotWaitedForInTheChildOfAHandlerThatForkedMeanwhile)
{
    isolated::expect_passes([] {
        constexpr int FORKS = 1000;
        static std::atomic<bool> ends;
        pthread_t self = pthread_self();
        std::signal(SIGUSR1, fork_in_handler);
        cpu_set_t one; // so that the thread begins only when its starter waits for it
        CPU_ZERO(&one);
        CPU_SET(sched_getcpu(), &one);
        std::thread disturber([self] {
            while (!ends) {
                pthread_kill(self, SIGUSR1);
                sched_yield();
            }
        });
        EXPECT_EQ(0, sched_setaffinity(0, sizeof one, &one));
        while (forks < FORKS && is_child == 0 && child_failed == 0)
            EXPECT_TRUE(__real_platform_thread_start("started", [](void *) {}, nullptr, false));
        if (is_child != 0) _exit(::testing::Test::HasFailure() ? isolated::FAILED : isolated::PASSED);
        ends = true;
        disturber.join();
        EXPECT_EQ(0, child_failed);
    });
}

} // namespace
