// A fork's child finds the space as it was in the midst of what another thread did beside the fork.
#include "space_runs.h"
#include "space_state.h"
#include "system.h"

namespace
{

using namespace space_runs;

// From the first span to the frontier, run by run, and the ends of each free one agree.
void expect_whole()
{
    for (uint32_t index = 0; index < space_spans();) {
        const struct span *run = span_at(index);
        ASSERT_NE(0u, run->run_spans) << "run " << index;
        index += run->run_spans;
        ASSERT_LE(index, space_spans());
        const struct span *last = span_at(index - 1);
        if (run->kind != SPAN_FREE) continue;
        EXPECT_EQ(SPAN_FREE, last->kind);
        EXPECT_EQ(run->run_spans, last->run_spans);
        EXPECT_EQ(run->pool, last->pool);
    }
}

struct span *released_in_wait;
bool is_armed;
int moments;

// In a child of this moment, which has another thread's fork behind it, the space can be walked and used.
void look_in_a_child()
{
    if (!is_armed) return;
    moments++;
    isolated::expect_passes([] {
        is_armed = false;
        platform_lock_release(&space_state.beside); // whose thread is not here
        space_fork_child();
        expect_whole();
        std::vector<struct span *> runs;
        for (uint32_t spans = 1; spans < 30; spans++) runs.push_back(acquire(spans));
        for (auto *run : runs) space_release(run);
        expect_whole();
    });
}

} // namespace

extern "C" void __real_platform_wait(std::atomic<uint32_t> *word, uint32_t expected, uint32_t timeout_us);

extern "C" void __wrap_platform_wait(std::atomic<uint32_t> *word, uint32_t expected, uint32_t timeout_us)
{
    if (released_in_wait != nullptr) space_release(std::exchange(released_in_wait, nullptr));
    __real_platform_wait(word, expected, timeout_us);
}

extern "C" struct span *__real_run_hand_out(uint32_t index, uint32_t spans, enum span_kind kind, unsigned pool);

extern "C" struct span *__wrap_run_hand_out(uint32_t index, uint32_t spans, enum span_kind kind, unsigned pool)
{
    look_in_a_child();
    struct span *first = __real_run_hand_out(index, spans, kind, pool);
    look_in_a_child();
    return first;
}

namespace
{

// So that inside the free run stand the ends of those that it has merged from.
void leave_traces()
{
    std::vector<struct span *> runs;
    for (uint32_t i = 0; i < 60; i++) runs.push_back(acquire(1 + i % 3));
    for (size_t i = 0; i < runs.size(); i += 2) space_release(runs[i]);
    for (size_t i = 1; i < runs.size(); i += 2) space_release(runs[i]);
}

// One is cut into three: what lies before an aligned run goes back, and what lies behind it.
TEST(SpaceFork, AChildFindsARunThatAnotherThreadIsCuttingWhole)
{
    for (bool is_clean : {false, true})
        in_new_space([=] {
            struct span *before = acquire(1); // what follows is not aligned
            space_fork_begin();
            struct span *lacked = acquire(100);
            space_fork_end(); // from now on a fork puts some aside
            space_release(lacked);
            leave_traces();
            if (is_clean) space_purge_all();
            space_fork_begin();
            ASSERT_TRUE(space_state.any_deferred);
            is_armed = true;
            struct span *run = space_acquire(5, 16, SPAN_LARGE, nullptr);
            is_armed = false;
            ASSERT_NE(nullptr, run);
            EXPECT_EQ(6, moments) << "three parts";
            space_fork_end();
            space_release(run);
            space_release(before);
        });
}

// All of the reservation has been handed out, and most of it is free. A fork that has put nothing aside has it for a moment.
TEST(SpaceFork, WhoFindsNoMemoryBesideAForkWaitsForItsEnd)
{
    in_new_space([] {
        struct span *all = acquire(1000);
        while (acquire(1) != nullptr) continue;
        space_release(all);
        struct span *run = nullptr;
        for (int i = 0; i < 100 && run == nullptr; i++) { // a thread that is not woken in time gets nothing
            space_state.beside_new = space_state.stock = 0; // nor has any been lacked
            space_fork_begin();
            std::atomic<bool> begun{false};
            std::thread other([&] {
                begun = true;
                run = acquire(500);
            });
            while (!begun) std::this_thread::yield();
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
            space_fork_end();
            other.join();
        }
        EXPECT_NE(nullptr, run);
    });
}

// Who waits beside a fork gets what others release meanwhile: here in the midst of the wait, in case that it comes to one at all.
TEST(SpaceFork, WhoFindsNoMemoryBesideAForkGetsWhatOthersRelease)
{
    in_new_space([] {
        struct span *all = acquire(1000), *run = nullptr;
        while (acquire(1) != nullptr) continue;
        released_in_wait = all;
        for (int i = 0; i < 100 && released_in_wait != nullptr; i++) { // a thread that is late does not wait
            space_fork_begin();
            std::thread([&] { run = acquire(500); }).join();
            space_fork_end();
        }
        EXPECT_EQ(nullptr, released_in_wait);
        EXPECT_NE(nullptr, run);
    });
}

// What no free run has is not put aside for the next fork; or all that is free would be, and count as young again each time.
TEST(SpaceFork, OnlyWhatIsThereIsPutAside)
{
    in_new_space([] {
        struct span *all = acquire(300);
        while (acquire(1) != nullptr) continue;
        space_release(all);
        for (uint32_t spans : {500u, 200u}) {
            space_fork_begin();
            EXPECT_EQ(nullptr, acquire(spans));
            space_fork_end();
            space_fork_begin();
            EXPECT_EQ(spans > 300 ? 0 : spans, space_state.stock);
            space_fork_end();
        }
    });
}

} // namespace
