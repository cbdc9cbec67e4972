// Rings: every event of every thread is there once and in its thread's order, whatever becomes of the thread, and the rings of
// threads that are no more serve others.
#include "heap_isolated.h"
#include "record_subject.h"
#include "stress_seed.h"

#include <gtest/gtest.h>

#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <thread>
#include <vector>

namespace
{

constexpr size_t MANY = SUBJECT_RING_EVENTS * 5 + 17;

void note_address(uint64_t address)
{
    subject_note(SUBJECT_MALLOC, address, 100, 12, 0, 7);
}

std::vector<subject_event> taken()
{
    std::vector<subject_event> events(size_t{1} << 20);
    events.resize(subject_take(events.data(), events.size()));
    return events;
}

class RecordRing : public ::testing::Test
{
  protected:
    static void SetUpTestSuite()
    {
        subject_begin();
    }
    void SetUp() override
    {
        subject_start(0, 0);
    }
};

TEST_F(RecordRing, ThreadsNoteAtOnceAndLoseNothing)
{
    constexpr unsigned THREADS = 8;
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < THREADS; t++)
        threads.emplace_back([t] {
            for (uint64_t i = 0; i < MANY; i++) note_address(t << 32 | i);
        });
    for (auto &thread : threads) thread.join();
    std::map<uint64_t, uint64_t> next; // of each thread
    auto events = taken();
    EXPECT_EQ(MANY * THREADS, events.size());
    for (const auto &event : events) ASSERT_EQ(next[event.address >> 32]++, event.address & UINT32_MAX);
    EXPECT_EQ(size_t{THREADS}, next.size());
}

// Those that the C library calls after ours, or that arm themselves anew.
TEST_F(RecordRing, EventsOfLateDestructorsAreKept)
{
    static pthread_key_t early, late;
    auto again = [](void *left) {
        note_address(reinterpret_cast<uintptr_t>(left));
        uintptr_t next = reinterpret_cast<uintptr_t>(left) - 1;
        if (next != 0) pthread_setspecific(late, reinterpret_cast<void *>(next));
    };
    ASSERT_EQ(0, pthread_key_create(&early, [](void *) { note_address(1000); }));
    ASSERT_EQ(0, pthread_key_create(&late, again));
    std::thread([] {
        pthread_setspecific(early, &early);
        pthread_setspecific(late, reinterpret_cast<void *>(3));
        note_address(2000);
    }).join();
    auto events = taken();
    ASSERT_EQ(5U, events.size());
    EXPECT_EQ(1U, events.back().address);
    for (const auto &event : events) EXPECT_EQ(events[0].ring, event.ring);
    pthread_key_delete(early);
    pthread_key_delete(late);
}

TEST_F(RecordRing, AForksChildBeginsWithNothing)
{
    if (HEAPFIT_TEST_EMULATED) GTEST_SKIP() << "the emulator does not survive it";
    note_address(1);
    isolated::expect_passes([] {
        subject_fork_child();
        subject_start(0, 0);
        note_address(2);
        auto events = taken();
        ASSERT_EQ(1U, events.size());
        EXPECT_EQ(2U, events[0].address);
        EXPECT_EQ(static_cast<int32_t>(getpid()), events[0].tid);
    });
    EXPECT_EQ(1U, taken().size());
}

} // namespace
