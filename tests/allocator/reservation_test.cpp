// space/reservation.c: the address space grows with the heap, is ours alone, and ends in an error where it cannot grow.
#include "heap_isolated.h"
#include "space_runs.h"
#include "space_state.h"
#include "space_walker.h"
#include "system.h"

namespace
{

constexpr size_t MIB = space_runs::MIB;

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
