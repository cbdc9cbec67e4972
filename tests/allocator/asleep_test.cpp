// What is known of another thread: whether it sleeps in a system call that it made itself, or in that of a signal's handler, which
// may have interrupted anything.
#include "heap_internals.h"
#include "patience.h"
#include "sleepers.h"
#include "stress_seed.h"

#include <gtest/gtest.h>

#include <csignal>
#include <ctime>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace
{

void (*while_stack_is_read)() = nullptr;
bool clock_stands_still = false;

} // namespace

// What the look asks of the kernel, through the C library.
extern "C" {
ssize_t __wrap_process_vm_readv(pid_t process, const struct iovec *here, unsigned long here_count,
                                const struct iovec *there, unsigned long there_count, unsigned long flags)
{
    ssize_t size = syscall(SYS_process_vm_readv, process, here, here_count, there, there_count, flags);
    if (while_stack_is_read != nullptr) while_stack_is_read();
    return size;
}

int __real_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
    int failed = __real_clock_gettime(clock, time);
    if (clock_stands_still && clock < 0) *time = {1, 0};
    return failed;
}
}

namespace
{

thread_local int local;
std::atomic<bool> is_in_handler{false}, may_leave_handler{false};

void handler_that_sleeps(int)
{
    is_in_handler = true;
    while (!may_leave_handler) usleep(1000);
}

// Another thread, as its allocator's heap knows it.
struct Subject {
    std::atomic<int32_t> number{0};
    const void *address = nullptr;
    pthread_t handle{};

    void introduce()
    {
        address = &local;
        handle = pthread_self();
        number = platform_thread_number();
    }

    enum platform_sleep sleep() const
    {
        return platform_thread_sleep(number, address);
    }
};

// False where the kernel does not tell, or what tells is an emulator.
bool can_be_told()
{
    if (HEAPFIT_TEST_EMULATED || HEAPFIT_TEST_THREAD_SANITIZER) return false; // known without waiting for it
    Subject subject;
    Sleepers sleeper(1, [&] { subject.introduce(); });
    return patience::comes_true([&] { return subject.sleep() == THREAD_SLEEPS; });
}

TEST(AThread, SleepsInASystemCallOfItsOwn)
{
    if (!can_be_told()) GTEST_SKIP() << "the kernel does not tell what threads do";
    Subject subject;
    Sleepers sleeper(1, [&] { subject.introduce(); });
    EXPECT_TRUE(patience::comes_true([&] { return subject.sleep() == THREAD_SLEEPS; }));
    int other = 0;
    EXPECT_EQ(THREAD_IS_ELSEWHERE, platform_thread_sleep(subject.number, &other)) << "on another stack";
}

TEST(AThread, DoesNotSleepWhileItRuns)
{
    if (!can_be_told()) GTEST_SKIP() << "the kernel does not tell what threads do";
    Subject subject;
    std::atomic<bool> done{false};
    std::thread runner([&] {
        subject.introduce();
        while (!done) {
        }
    });
    while (subject.number == 0) usleep(1000);
    for (int i = 0; i < 1000; i++) ASSERT_EQ(THREAD_RUNS, subject.sleep());
    done = true;
    runner.join();
    EXPECT_EQ(THREAD_IS_ELSEWHERE, subject.sleep()) << "it is gone";
}

// On the thread's stack, and on one made for handlers.
TEST(AThread, DoesNotSleepInASignalsHandler)
{
    if (!can_be_told()) GTEST_SKIP() << "the kernel does not tell what threads do";
    for (int flags : {0, SA_ONSTACK}) {
        is_in_handler = may_leave_handler = false;
        struct sigaction action = {};
        action.sa_handler = handler_that_sleeps;
        action.sa_flags = flags | SA_RESTART;
        ASSERT_EQ(0, sigaction(SIGUSR1, &action, nullptr));
        Subject subject;
        static char stack[1 << 16];
        stack_t before = {};
        Sleepers sleeper(
            1,
            [&] {
                stack_t other = {};
                other.ss_sp = stack;
                other.ss_size = sizeof stack;
                sigaltstack(&other, &before);
                subject.introduce();
            },
            [&] { sigaltstack(&before, nullptr); }); // which a sanitizer frees
        pthread_kill(subject.handle, SIGUSR1);
        while (!is_in_handler) usleep(1000);
        for (int i = 0; i < 1000; i++) ASSERT_NE(THREAD_SLEEPS, subject.sleep());
        may_leave_handler = true;
        EXPECT_TRUE(patience::comes_true([&] { return subject.sleep() == THREAD_SLEEPS; })) << "when it has returned";
    }
}

#if defined(__x86_64__)
// Xen's selectors stand in some frames, Linux's in others.
TEST(AThread, DoesNotSleepWhereAFrameOfAKindThatItsKernelMayWriteLies)
{
    if (!can_be_told()) GTEST_SKIP() << "the kernel does not tell what threads do";
    for (uint64_t mark : {UINT64_C(0x002B000000000033), UINT64_C(0xE02B00000000E033)}) {
        Subject subject;
        std::atomic<bool> done{false};
        std::thread thread([&] {
            const volatile uint64_t word = mark;
            subject.introduce();
            while (!done) usleep(20'000);
            EXPECT_EQ(mark, word);
        });
        while (subject.number == 0) usleep(1000);
        for (int i = 0; i < 1000; i++) ASSERT_NE(THREAD_SLEEPS, subject.sleep());
        done = true;
        thread.join();
    }
}
#endif

// The child may have been made by clone with CLONE_VM, so that it allocates from the heap of the thread that waits.
TEST(AThread, DoesNotSleepWhileItWaitsForAChild)
{
    if (!can_be_told()) GTEST_SKIP() << "the kernel does not tell what threads do";
    Subject subject;
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    std::thread thread([&] {
        subject.introduce();
        waitpid(child, nullptr, 0);
    });
    while (subject.number == 0) usleep(1000);
    for (int i = 0; i < 1000; i++) ASSERT_NE(THREAD_SLEEPS, subject.sleep());
    kill(child, SIGKILL);
    thread.join();
}

// The clock does not count each moment: see asleep.c.
TEST(AThread, HasNotSleptIfItIsInAnotherCallAfterwards)
{
    if (!can_be_told()) GTEST_SKIP() << "the kernel does not tell what threads do";
    Subject subject;
    static int first[2], second[2];
    ASSERT_EQ(0, pipe(first));
    ASSERT_EQ(0, pipe(second));
    std::thread thread([&] {
        char byte;
        subject.introduce();
        if (read(first[0], &byte, 1) != 1 || read(second[0], &byte, 1) != 1) abort();
    });
    while (subject.number == 0) usleep(1000);
    ASSERT_TRUE(patience::comes_true([&] { return subject.sleep() == THREAD_SLEEPS; }));
    clock_stands_still = true;
    while_stack_is_read = [] {
        while_stack_is_read = nullptr;
        if (write(first[1], "", 1) != 1) abort();
        usleep(50'000);
    };
    EXPECT_NE(THREAD_SLEEPS, subject.sleep());
    clock_stands_still = false;
    ASSERT_EQ(1, write(second[1], "", 1));
    thread.join();
    for (int end : {first[0], first[1], second[0], second[1]}) close(end);
}

} // namespace
