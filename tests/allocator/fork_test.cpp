// fork() while other threads are inside the allocator: the child allocates, frees what it inherited, starts threads and
// forks again, and none of it hangs. What the parent's other threads were doing at that moment is anybody's guess. And the same of
// a process of one thread, which emulators survive, too.
#include "heap_isolated.h"
#include "model.h"
#include "system.h"

namespace
{

constexpr int BUSY_THREADS = 4;
constexpr unsigned CHILD_SECONDS = 400; // then SIGALRM ends it: it hangs

// ---- fork handlers ---------------------------------------------------------------------------------------------------

// Registered before the allocator's and again after them: so they run while the allocator's hold the locks, too.
bool handlers_allocate;

void allocate_in_handler()
{
    if (!handlers_allocate) return;
    for (size_t size : {size_t{24}, size_t{3000}, size_t{200'000}, 5 * model::MIB}) {
        void *block = subject::allocate(size);
        EXPECT_NE(nullptr, block);
        subject::release(block);
    }
    subject::trim();
}

__attribute__((constructor(101))) void register_before_the_allocator()
{
    pthread_atfork(allocate_in_handler, allocate_in_handler, allocate_in_handler);
}

#ifdef HEAPFIT_TEST_LAYERS
// As api/process.c does.
void fork_end_in_child()
{
    heap_fork_end_in_child();
#ifdef HEAPFIT_TEST_POOLS
    pools_fork_child();
#endif
}

__attribute__((constructor(102))) void register_the_allocator()
{
    pthread_atfork(heap_fork_begin, heap_fork_end, fork_end_in_child);
}
#endif

const int registered_after_the_allocator =
    pthread_atfork(allocate_in_handler, allocate_in_handler, allocate_in_handler);

// ---- children ----------------------------------------------------------------------------------------------------------

std::atomic<model::Block *> shared[16]; // blocks of a parent, for a child to inherit and free

void free_inherited()
{
    for (auto &place : shared) {
        model::Block *node = place.exchange(nullptr);
        if (node == nullptr) continue;
        model::expect_intact(*node);
        subject::release(node->start);
        subject::release(node);
    }
}

void live_as_a_child(uint64_t seed)
{
    free_inherited();
    model::Blocks blocks(seed, 8 * model::MIB);
    for (int i = 0; i < 300; i++) blocks.step(60);
    std::thread threads[3];
    for (auto &thread : threads) {
        thread = std::thread([seed] {
            model::Blocks own(seed + 1, model::MIB);
            for (int i = 0; i < 200; i++) own.step(50);
            own.release_all();
        });
    }
    for (auto &thread : threads) thread.join();
    subject::trim();
    subject::trim_everywhere();
    blocks.release_all();
}

template <typename Body> void expect_child(Body body)
{
    pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        alarm(CHILD_SECONDS);
        stress::failure_flag() = false;
        body();
        std::fflush(stdout); // its failures
        _exit(stress::failed() ? isolated::FAILED : isolated::PASSED);
    }
    int status = 0;
    ASSERT_EQ(child, waitpid(child, &status, 0));
    ASSERT_TRUE(WIFEXITED(status)) << "the child was ended by signal " << WTERMSIG(status)
                                   << (WTERMSIG(status) == SIGALRM ? ": it hung" : "");
    ASSERT_EQ(isolated::PASSED, WEXITSTATUS(status));
}

void expect_child_lives(uint64_t seed, int generations)
{
    expect_child([=] {
        live_as_a_child(seed);
        if (generations > 1) expect_child_lives(seed + 1, generations - 1);
    });
}

// ---- a process of one thread -------------------------------------------------------------------------------------------

// Each generation forks before it has other threads.
void expect_child_of_one_thread_lives(uint64_t seed, int generations)
{
    expect_child([=] {
        if (generations > 1) expect_child_of_one_thread_lives(seed + 1, generations - 1);
        live_as_a_child(seed);
    });
}

void leave_blocks(model::Blocks &blocks)
{
    for (auto &place : shared) {
        if (blocks.empty()) return;
        auto *node = static_cast<model::Block *>(subject::allocate(sizeof(model::Block)));
        *node = blocks.give();
        place = node;
    }
}

TEST(Fork, ChildrenOfAProcessOfOneThreadLive)
{
    SCOPED_TRACE(stress::how_to_repeat());
    model::NothingIsLost nothing_is_lost;
    stress::Deadline deadline(4);
    model::Blocks blocks(stress::seed(), 4 * model::MIB);
    uint64_t forks = 0;
    do {
        for (int i = 0; i < 300; i++) blocks.step(60);
        leave_blocks(blocks);
        expect_child_of_one_thread_lives(stress::seed() + 17 * forks++, 3);
        free_inherited(); // what its children have freed is still here
    } while (!deadline.passed() && !stress::failed());
    blocks.release_all();
}

TEST(Fork, HandlersMayAllocateInAProcessOfOneThread)
{
    SCOPED_TRACE(stress::how_to_repeat());
    model::NothingIsLost nothing_is_lost;
    handlers_allocate = true;
    for (uint64_t i = 0; i < 5 && !stress::failed(); i++) expect_child_of_one_thread_lives(stress::seed() + i, 1);
    handlers_allocate = false;
}

// ---- a process of many -------------------------------------------------------------------------------------------------

#if !HEAPFIT_TEST_EMULATED // qemu fails an assertion of its own after a fork among threads

std::atomic<bool> stop;

// Allocates, frees, hands out blocks, and now and then purges, so that all locks are taken often.
void be_busy(uint64_t seed)
{
    model::Blocks blocks(seed, 4 * model::MIB);
    while (!stop && !stress::failed()) {
        for (int i = 0; i < 50; i++) blocks.step(50);
        if (!blocks.empty()) {
            auto *node = static_cast<model::Block *>(subject::allocate(sizeof(model::Block)));
            *node = blocks.give();
            model::Block *old = shared[blocks.random().below(16)].exchange(node);
            if (old != nullptr) {
                model::expect_intact(*old);
                subject::release(old->start);
                subject::release(old);
            }
        }
        if (blocks.random().chance(2)) subject::trim();
        if (blocks.random().chance(1)) subject::trim_everywhere();
    }
    blocks.release_all();
}

// Threads that come and go keep the registry busy.
void be_short_lived(uint64_t seed)
{
    for (uint64_t i = 0; !stop; i++) {
        std::thread([=] {
            model::Blocks blocks(seed + i, model::MIB);
            blocks.allocate();
            blocks.release_all();
        }).join();
    }
}

TEST(Fork, ChildrenOfABusyProcessLive)
{
    SCOPED_TRACE(stress::how_to_repeat());
    model::NothingIsLost nothing_is_lost;
    stress::Deadline deadline(8);
    stop = false;
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < BUSY_THREADS; i++) threads.emplace_back(be_busy, stress::seed() + i);
    threads.emplace_back(be_short_lived, stress::seed());
    uint64_t forks = 0;
    do expect_child_lives(stress::seed() + 17 * forks++, 2);
    while (!deadline.passed() && !stress::failed());
    stop = true;
    for (auto &thread : threads) thread.join();
    free_inherited();
    EXPECT_GT(forks, 0u);
}

TEST(Fork, TwoThreadsMayForkAtOnce)
{
    SCOPED_TRACE(stress::how_to_repeat());
    model::NothingIsLost nothing_is_lost;
    stress::Deadline deadline(4);
    stop = false;
    std::thread busy(be_busy, stress::seed());
    std::vector<std::thread> forkers;
    for (uint64_t i = 0; i < 2; i++) {
        forkers.emplace_back([i, &deadline] {
            do expect_child_lives(stress::seed() + i, 1);
            while (!deadline.passed() && !stress::failed());
        });
    }
    for (auto &thread : forkers) thread.join();
    stop = true;
    busy.join();
    free_inherited();
}

TEST(Fork, HandlersOfOtherLibrariesMayAllocate)
{
    SCOPED_TRACE(stress::how_to_repeat());
    model::NothingIsLost nothing_is_lost;
    stop = false;
    handlers_allocate = true;
    std::thread busy(be_busy, stress::seed());
    for (int i = 0; i < 20 && !stress::failed(); i++) expect_child_lives(stress::seed(), 1);
    handlers_allocate = false;
    stop = true;
    busy.join();
    free_inherited();
}

#endif

} // namespace
