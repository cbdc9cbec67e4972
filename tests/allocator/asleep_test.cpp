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
#include <thread>
#include <unistd.h>

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

} // namespace
