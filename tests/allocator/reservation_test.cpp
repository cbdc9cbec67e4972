// space/reservation.c: the address space grows with the heap, is ours alone, and ends in an error where it cannot grow.
#include "heap_internals.h"
#include "heap_isolated.h"
#include "space_runs.h"
#include "space_walker.h"

#define _Atomic(type) std::atomic<type>
#define _Static_assert static_assert
extern "C" {
#include "space/state.h"
}
#undef _Atomic
#undef _Static_assert

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>
#include <thread>
#include <vector>

namespace
{

constexpr size_t MIB = space_runs::MIB;
constexpr size_t GIB = 1024 * MIB;

// Whether the window was found far away. Emulators and sanitizers have ideas of their own of where things may lie; then all is
// reserved at once, and there is nothing to be tested here.
bool grows()
{
    heap_free(heap_malloc(1));
    return space.size < space.window;
}

std::vector<char *> allocate(size_t size, size_t bytes)
{
    std::vector<char *> objects;
    for (size_t had = 0; had < bytes; had += size) {
        objects.push_back(static_cast<char *>(heap_malloc(size)));
        if (objects.back() != nullptr) objects.back()[0] = objects.back()[size - 1] = 1;
    }
    return objects;
}

void free_all(const std::vector<char *> &objects)
{
    for (char *object : objects) heap_free(object);
}

} // namespace

#if !HEAPFIT_TEST_EMULATED // where growing by much may be refused

TEST(Reservation, IsSmallAtFirstAndFollowsTheHeap)
{
    isolated::expect_passes([] {
        if (!grows()) return;
        EXPECT_EQ(2 * MIB, space.size);
        std::vector<char *> all;
        for (size_t bytes : {3 * MIB, 20 * MIB, 100 * MIB, 300 * MIB}) {
            for (char *object : allocate(100'000, bytes)) all.push_back(object);
            struct space_figures figures = space_runs::figures_now();
            EXPECT_GE(figures.reserved, figures.committed);
            EXPECT_LE(figures.reserved, 2 * figures.handed_out + 4 * MIB);
            EXPECT_EQ(figures.reserved, space.size);
            EXPECT_EQ(0u, figures.reserved & (figures.reserved - 1))
                << "it is doubled, not extended by a little each time";
        }
        free_all(all);
        space_walker::check();
        void *large = heap_malloc(GIB);
        EXPECT_EQ(space.window, space.size) << "from 1 GiB on all of the window is ours";
        heap_free(large);
        space_walker::check();
    });
}

#endif

// A heap's copy of the size may be behind: what lies beyond it is freed all the same, on the fast path from then on.
TEST(Reservation, HasGrownForThreadsThatDidNotSeeIt)
{
    isolated::expect_passes([] {
        void *early = heap_malloc(100); // this thread's heap has a copy of the size from now on
        std::vector<char *> others;
        std::thread([&] { others = allocate(1000, 40 * MIB); }).join();
        std::vector<char *> own = allocate(1000, 40 * MIB);
        free_all(others);
        free_all(own);
        EXPECT_EQ(space.size, thread_heap->size);
        heap_free(early);
        space_walker::check();
    });
}

// An address beyond what is reserved is not ours, although it is in the window.
TEST(ReservationDeathTest, EndsWhereNothingIsReserved)
{
    EXPECT_DEATH(
        {
            heap_free(heap_malloc(1));
            heap_free(reinterpret_cast<void *>(space.base + space.size + 100 * SPAN_SIZE));
        },
        "free.*not");
}

// Whatever comes to lie in the window is left alone.
TEST(Reservation, EndsBeforeSomethingElse)
{
    isolated::expect_passes([] {
        if (!grows()) return;
        auto *other = static_cast<unsigned char *>(mmap(reinterpret_cast<void *>(space.base + 24 * MIB), 4096,
                                                        PROT_READ | PROT_WRITE,
                                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
        ASSERT_NE(MAP_FAILED, static_cast<void *>(other));
        other[0] = 77;
        std::vector<char *> objects = allocate(100'000, 40 * MIB);
        EXPECT_EQ(nullptr, objects.back());
        EXPECT_EQ(ENOMEM, errno);
        EXPECT_LE(space.size, 24 * MIB);
        size_t had = 0;
        for (char *object : objects) had += object != nullptr ? 100'000 : 0;
        EXPECT_GE(had, 16 * MIB) << "what lies before it is used";
        free_all(objects);
        EXPECT_EQ(77, other[0]);
        munmap(other, 4096);
        objects = allocate(100'000, 40 * MIB);
        EXPECT_NE(nullptr, objects.back());
        free_all(objects);
        space_walker::check();
    });
}

// A child may be made while another thread has reserved more and has not said so yet.
TEST(Reservation, GrowsInAForksChildThatFoundItHalfDone)
{
    isolated::expect_passes([] {
        if (!grows()) return;
        std::vector<char *> before = allocate(1000, MIB);
        // The other thread's half of the work.
        uint32_t target = 64 * space_state.reserved;
        space_state.growing = target;
        size_t data = (target - space_state.reserved) * SPAN_SIZE;
        size_t table = target * sizeof(struct span) - space_state.table_reserved;
        char *base = reinterpret_cast<char *>(space.base);
        ASSERT_TRUE(platform_reserve_at(base - target * sizeof(struct span), table));
        ASSERT_TRUE(platform_reserve_at(base + space.size, data));
        reservation_fork_child();
        EXPECT_EQ(0u, space_state.growing);
        std::vector<char *> after = allocate(1000, 100 * MIB);
        EXPECT_NE(nullptr, after.back());
        free_all(after);
        free_all(before);
        space_walker::check();
    });
}

// Or has said one half of it: that spans are reserved, and not yet that their addresses are ours.
TEST(Reservation, IsKnownInAForksChildThatFoundItHalfNoted)
{
    isolated::expect_passes([] {
        if (!grows()) return;
        size_t before = space.size;
        ASSERT_TRUE(reservation_reach(space_state.reserved + 1));
        space.size = before;
        space_state.growing = space_state.reserved;
        reservation_fork_child();
        EXPECT_EQ(space_state.reserved * SPAN_SIZE, space.size);
        EXPECT_EQ(0u, space_state.growing);
        std::vector<char *> objects = allocate(1000, 2 * before);
        EXPECT_NE(nullptr, objects.back());
        free_all(objects);
        space_walker::check();
    });
}

#if !HEAPFIT_TEST_SANITIZED && !HEAPFIT_TEST_EMULATED

// A program that lowers its own limit later must still get memory and threads.
TEST(Reservation, LeavesRoomUnderALimitThatComesLater)
{
    isolated::expect_passes([] {
        if (!grows()) return;
        free_all(allocate(1000, 8 * MIB));
        size_t limit = 0;
        {
            FILE *status = std::fopen("/proc/self/statm", "r");
            ASSERT_EQ(1, std::fscanf(status, "%zu", &limit));
            std::fclose(status);
        }
        limit = limit * platform_page_size() + 64 * MIB;
        struct rlimit as = {limit, limit};
        ASSERT_EQ(0, setrlimit(RLIMIT_AS, &as));
        std::vector<char *> objects = allocate(100'000, 30 * MIB);
        EXPECT_NE(nullptr, objects.back());
        pthread_t thread;
        ASSERT_EQ(0, pthread_create(
                         &thread, nullptr, [](void *) { return heap_malloc(100); }, nullptr))
            << "address space that nobody uses is left to others";
        void *of_thread = nullptr;
        pthread_join(thread, &of_thread);
        EXPECT_NE(nullptr, of_thread);
        heap_free(of_thread);
        for (char *more : allocate(MIB, 100 * MIB)) objects.push_back(more);
        EXPECT_EQ(nullptr, objects.back()) << "the limit was none";
        free_all(objects);
        space_walker::check();
    });
}

#endif
