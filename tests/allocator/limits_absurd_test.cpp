// Requests that no memory could ever hold, such as a length that came from a network: they fail at once, and the process
// keeps all that it has kept for its next requests.
#include "figures.h"
#include "heap_isolated.h"
#include "heapfit/heapfit.h"
#include "model.h"
#include "space_walker.h"
#include "system.h"

namespace
{

constexpr size_t MIB = model::MIB;
constexpr size_t GIB = 1024 * MIB;

// What the kernel counts as this process's data: what is accessible of the spans and of their table. In an emulated
// process it also counts what the emulator allocates for itself, at any time.
size_t data_bytes()
{
    if (HEAPFIT_TEST_EMULATED) return 0;
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
        if (line.rfind("VmData:", 0) == 0) return std::strtoull(line.c_str() + 7, nullptr, 10) * 1024;
    ADD_FAILURE() << "no VmData";
    return 0;
}

struct Kept {
    size_t committed, dirty, cached, purged, data;
    static Kept now()
    {
        struct space_figures space;
        ::space_figures(&space);
        return {space.committed, space.dirty, figures::of_heaps().cached, space.purge_calls, data_bytes()};
    }
};

// Free memory of all kinds: runs that all share, spans that this heap keeps, blocks in its bins.
void keep_much()
{
    space_settings.decay_ms = DECAY_NEVER;
    std::vector<void *> objects;
    for (size_t size : {100 * 1024, 3 << 20, 5000, 300, 64})
        for (int i = 0; i < 40; i++) objects.push_back(heap_malloc(size));
    for (void *object : objects) heap_free(object);
    ASSERT_GT(Kept::now().dirty, 50 * MIB);
    ASSERT_GT(Kept::now().cached, 0u);
}

// The requests that `refused` makes, all in vain, leave everything as it was.
template <typename Refused> void expect_nothing_given_up(Refused refused)
{
    isolated::expect_passes([&] {
        keep_much();
        Kept before = Kept::now();
        ASSERT_FALSE(list_is_empty(thread_heap->free[size_class(300)]));
        refused();
        Kept after = Kept::now();
        EXPECT_EQ(before.committed, after.committed);
        EXPECT_EQ(before.dirty, after.dirty);
        EXPECT_EQ(before.cached, after.cached);
        EXPECT_EQ(before.purged, after.purged);
        EXPECT_EQ(before.data, after.data) << "not even for descriptors";
        EXPECT_FALSE(list_is_empty(thread_heap->free[size_class(300)]));
        space_walker::check();
    });
}

void expect_refused(size_t size)
{
    errno = 0;
    EXPECT_EQ(nullptr, heap_malloc(size)) << size;
    EXPECT_EQ(ENOMEM, errno);
    EXPECT_EQ(nullptr, heap_calloc(size)) << size;
    EXPECT_EQ(nullptr, heap_malloc_aligned(size, 4096)) << size;
    for (size_t had : {size_t{100}, 2 * MIB}) {
        void *object = heap_malloc(had);
        errno = 0;
        EXPECT_EQ(nullptr, heap_realloc(object, size)) << size;
        EXPECT_EQ(ENOMEM, errno);
        heap_free(object);
    }
}

TEST(LimitsAbsurd, MoreThanTheReservation)
{
    expect_nothing_given_up([] {
        for (int shift : {46, 47, 50, 62}) expect_refused(size_t{1} << shift);
    });
}

#ifdef HEAPFIT_TEST_FULL
// Under its usual rule the kernel refuses at once what is more than all memory and swap.
TEST(LimitsAbsurd, WithinTheReservationButMoreThanTheKernelGives)
{
    std::string rule;
    std::ifstream("/proc/sys/vm/overcommit_memory") >> rule;
    if (rule == "1") GTEST_SKIP() << "this kernel gives whatever is asked for (vm.overcommit_memory)";
    platform_overcommit_learn();
    expect_nothing_given_up([] { expect_refused(8 * platform_physical_memory()); });
}
#endif

// What can fit is given room as before: here all of the reservation, in pieces and then at once.
TEST(LimitsAbsurd, ARequestThatFitsOnceAllIsGivenBackIsServed)
{
    isolated::expect_passes([] {
        space_settings.reservation = GIB;
        space_settings.decay_ms = DECAY_NEVER;
        heap_settings.thread_spans_cached = UINT32_MAX;
        std::vector<void *> objects;
        while (void *object = heap_malloc(10 * MIB)) objects.push_back(object);
        EXPECT_GT(objects.size(), 90u);
        for (void *object : objects) heap_free(object);
        void *most = heap_malloc(900 * MIB);
        EXPECT_NE(nullptr, most);
        heap_free(most);
        space_walker::check();
    });
}

} // namespace
