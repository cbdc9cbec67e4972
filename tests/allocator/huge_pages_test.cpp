// Huge pages: which units get them, and what becomes of the kernel's pool. The pool is played by the test, since no
// machine has one unless it was set aside: pages that it gives are ordinary ones, but what the kernel cannot do with
// those of the pool must not be asked of it.
#include "figures.h"
#include "heap_isolated.h"
#include "model.h"
#include "pages.h"
#include "space_state.h"
#include "space_walker.h"
#include "system.h"

extern "C" {
bool __real_platform_purge(void *start, size_t size);
void __real_platform_advise_huge_pages(void *start, size_t size, bool wanted);
enum platform_move __real_platform_move_pages(void *from, void *to, size_t size);
enum platform_move __real_platform_take_huge_pages(void *start, size_t size);
uint64_t __real_platform_small_pages_cost_us();
void __real_platform_split_huge_pages(void *start, size_t size);
}

namespace
{

constexpr size_t MIB = model::MIB;
constexpr size_t UNIT = PLATFORM_HUGE_PAGE;
constexpr uint32_t UNIT_SPANS = PLATFORM_HUGE_PAGE / SPAN_SIZE;

struct Pool {
    bool is_played = true;
    size_t free = 0; // units
    std::map<uintptr_t, size_t> ranges; // that were taken
    size_t asked = 0;
} kernels_pool;

size_t advised = 0;

bool touches_pool(const void *start, size_t size)
{
    auto low = reinterpret_cast<uintptr_t>(start);
    for (auto [from, length] : kernels_pool.ranges)
        if (low < from + length && from < low + size) return true;
    return false;
}

enum platform_move play_pool(void *start, size_t size)
{
    size_t units = size / UNIT;
    EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(start) % UNIT);
    EXPECT_EQ(0u, size % UNIT);
    EXPECT_FALSE(touches_pool(start, size)) << "taken twice";
    if (units > kernels_pool.free) return MOVE_REFUSED;
    kernels_pool.free -= units;
    kernels_pool.ranges[reinterpret_cast<uintptr_t>(start)] = size;
    return MOVE_DONE;
}

} // namespace

extern "C" {
enum platform_move __wrap_platform_take_huge_pages(void *start, size_t size)
{
    kernels_pool.asked++;
    return kernels_pool.is_played ? play_pool(start, size) : __real_platform_take_huge_pages(start, size);
}
bool __wrap_platform_purge(void *start, size_t size)
{
    EXPECT_FALSE(touches_pool(start, size)) << "a purge that the kernel would refuse, or claim to have done";
    return __real_platform_purge(start, size);
}
void __wrap_platform_advise_huge_pages(void *start, size_t size, bool wanted)
{
    EXPECT_FALSE(touches_pool(start, size)) << "advice on pages of the pool";
    advised += wanted ? size : 0;
    __real_platform_advise_huge_pages(start, size, wanted);
}
enum platform_move __wrap_platform_move_pages(void *from, void *to, size_t size)
{
    EXPECT_FALSE(touches_pool(from, size) || touches_pool(to, size)) << "the kernel would leave a hole";
    return __real_platform_move_pages(from, to, size);
}
uint64_t __wrap_platform_small_pages_cost_us()
{
    EXPECT_FALSE(platform_lock_is_own(&space_state.lock)) << "others would wait for hundreds of page faults";
    return 1000;
}
void __wrap_platform_split_huge_pages(void *start, size_t size)
{
    EXPECT_FALSE(platform_lock_is_own(&space_state.lock)) << "others would wait while the kernel copies a table";
    __real_platform_split_huge_pages(start, size);
}
}

namespace
{

constexpr uint32_t NEVER_MS = 1u << 30;

template <typename Body> void in_new_heap(enum huge_pages mode, Body body)
{
    isolated::expect_passes([&] {
        space_settings.huge_pages = mode;
        space_settings.reservation = 1024 * MIB;
        space_settings.decay_ms = NEVER_MS;
        body();
        if (space.base != 0) space_walker::check();
    });
}

struct span *acquire(uint32_t spans)
{
    struct span *run = space_acquire(spans, 1, SPAN_METADATA, nullptr);
    EXPECT_NE(nullptr, run);
    return run;
}

model::Block block_of(size_t size)
{
    model::Block block{static_cast<unsigned char *>(heap_malloc(size)), size, size, size};
    EXPECT_NE(nullptr, block.start);
    model::fill(block);
    return block;
}

// What `body` makes the library write to stderr.
template <typename Body> std::string words_of(Body body)
{
    int ends[2];
    EXPECT_EQ(0, pipe(ends));
    int kept = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    body();
    dup2(kept, STDERR_FILENO);
    close(kept);
    close(ends[1]);
    std::string words;
    char text[512];
    for (ssize_t length; (length = read(ends[0], text, sizeof text)) > 0;)
        words.append(text, static_cast<size_t>(length));
    close(ends[0]);
    return words;
}

TEST(Pool, ThatIsEmptyIsToldOnceAndTransparentHugePagesTakeItsPlace)
{
    in_new_heap(HUGE_PAGES_HUGETLB, [] {
        ASSERT_TRUE(space_start());
        std::string words = words_of([] {
            for (int i = 0; i < 100; i++) acquire(UNIT_SPANS);
        });
        EXPECT_EQ(0u, words.find("heapfit: huge_pages:hugetlb: "));
        EXPECT_EQ(1, std::count(words.begin(), words.end(), '\n')) << words;
        EXPECT_EQ(figures_now().committed, advised);
        EXPECT_EQ(figures_now().committed, figures_now().huge);
        EXPECT_LT(kernels_pool.asked, 10u) << "it is asked again only after a time";
    });
}

TEST(Pool, ARandomWalkOverItsEndKeepsContents)
{
    uint64_t seed = stress::seed();
    SCOPED_TRACE(stress::how_to_repeat());
    for (size_t units : {0, 5, 40, 400}) {
        in_new_heap(HUGE_PAGES_HUGETLB, [seed, units] {
            kernels_pool.free = units;
            words_of([&] {
                model::Blocks blocks(seed + units, 128 * MIB);
                for (int step = 0; step < (HEAPFIT_TEST_SANITIZED ? 300 : 3000); step++) {
                    space_settings.decay_ms = step % 64 == 0 ? 0 : NEVER_MS;
                    blocks.step(60);
                    if (step % 500 == 499) heap_trim();
                }
                blocks.check_all();
                blocks.release_all();
            });
        });
    }
}

// On a machine without a pool, as most are; with one, the same holds until it is used up.
TEST(Pool, OfThisKernelIsUsedOrForgoneWithoutHarm)
{
    in_new_heap(HUGE_PAGES_HUGETLB, [] {
        kernels_pool.is_played = false;
        std::vector<model::Block> blocks;
        std::string words = words_of([&] {
            for (size_t size : {1, 5, 20, 40}) blocks.push_back(block_of(size * MIB));
        });
        EXPECT_LE(std::count(words.begin(), words.end(), '\n'), 1) << words;
        for (const model::Block &block : blocks) {
            model::expect_intact(block);
            heap_free(block.start);
        }
        heap_trim();
        EXPECT_EQ(0u, figures_now().dirty);
    });
}

constexpr size_t LARGE = 320 * MIB;

// One byte of each page: as good as all of them.
void touch_pages(char *start, size_t size)
{
    for (size_t i = 0; i < size; i += 4096) start[i] = 1;
}

char *block(size_t size)
{
    char *start = static_cast<char *>(heap_malloc(size));
    EXPECT_NE(nullptr, start);
    return start;
}

// The program has filled two such blocks, and freed them.
void show_filled(size_t size)
{
    for (int i = 0; i < 2; i++) {
        char *start = block(size);
        touch_pages(start, size);
        heap_free(start);
    }
}

TEST(Advice, IsNotGivenForABlockOfWhichNothingIsKnown)
{
    in_new_heap(HUGE_PAGES_AUTO, [] {
        for (size_t size : {LARGE, 16 * MIB, MIB}) {
            char *start = block(size);
            for (size_t i = 0; i < size; i += 64 * 4096) start[i] = 1;
            EXPECT_EQ((size + 64 * 4096 - 1) / (64 * 4096), pages::resident(start, size));
        }
        EXPECT_EQ(0u, figures_now().huge);
    });
}

TEST(Advice, IsGivenForABlockOnceTwoWereFilledAndNoMoreOnceOneWasNot)
{
    in_new_heap(HUGE_PAGES_AUTO, [] {
        space_settings.huge_page_price = UINT32_MAX;
        show_filled(32 * MIB);
        heap_free(block(LARGE)); // which shows that blocks are not filled any more
        EXPECT_GE(figures_now().huge, LARGE - 2 * UNIT);
        space_purge_all();
        char *sparse = block(LARGE);
        EXPECT_LE(figures_now().huge, 32 * MIB + 2 * UNIT) << "what was said for the last one is taken back";
        sparse[LARGE / 2] = 1;
        EXPECT_EQ(1u, pages::resident(sparse + UNIT, LARGE - 2 * UNIT));
    });
}

// What follows begins at a huge page of its own, so that nothing would be in the rest of the last one.
TEST(Advice, IsNotGivenBehindABlockThatIsAlignedToHugePages)
{
    in_new_heap(HUGE_PAGES_AUTO, [] {
        space_settings.huge_page_price = UINT32_MAX;
        show_filled(32 * MIB);
        space_purge_all();
        size_t before = figures_now().huge;
        constexpr size_t BLOCKS = 40;
        for (size_t i = 0; i < BLOCKS; i++) ASSERT_NE(nullptr, heap_malloc_aligned(UNIT + UNIT / 2, UNIT));
        EXPECT_LE(figures_now().huge - before, BLOCKS * UNIT);
    });
}

TEST(Advice, IsGivenForWhatABlockGrowsByWhenItIsFilledSoFar)
{
    for (bool filled : {false, true}) {
        in_new_heap(HUGE_PAGES_AUTO, [filled] {
            space_settings.huge_page_price = UINT32_MAX;
            char *start = block(16 * MIB);
            if (filled) touch_pages(start, 16 * MIB);
            ASSERT_EQ(start, heap_realloc(start, LARGE));
            if (filled) EXPECT_GE(figures_now().huge, LARGE - 16 * MIB - 2 * UNIT);
            else EXPECT_EQ(0u, figures_now().huge);
        });
    }
}

TEST(Advice, OneBlockThatMovesCountsOnce)
{
    in_new_heap(HUGE_PAGES_AUTO, [] {
        space_settings.huge_page_price = UINT32_MAX;
        char *start = block(MIB);
        touch_pages(start, MIB);
        block(1000); // behind it
        ASSERT_NE(start, heap_realloc(start, 3 * MIB));
        block(LARGE);
        EXPECT_EQ(0u, figures_now().huge);
    });
}

// What becomes accessible for the allocator's own tables is nobody's, and says nothing of a run far below it.
TEST(Advice, ForWhatBecameAccessibleOtherwiseIsNotGivenToAllThatLiesBefore)
{
    in_new_heap(HUGE_PAGES_AUTO, [] {
        space_settings.huge_page_price = UINT32_MAX;
        ASSERT_TRUE(space_start());
        struct span *low = acquire(1);
        acquire(1);
        space_acquire(100 * UNIT_SPANS, 1, SPAN_LARGE, nullptr); // a sparse table
        space_block_spans_add(100 * UNIT_SPANS);
        space_dense_spans_add(1000);
        size_t committed = figures_now().committed, huge = figures_now().huge;
        while (figures_now().committed == committed) ASSERT_NE(nullptr, space_metadata(SPAN_SIZE));
        space_release(low);
        ASSERT_EQ(low, acquire(1));
        EXPECT_LE(figures_now().huge, huge + (figures_now().committed - committed));
    });
}

TEST(Advice, ABlockWhosePagesAForkHasLeftOutIsFreedInTheChild)
{
    in_new_heap(HUGE_PAGES_AUTO, [] {
        char *start = block(16 * MIB);
        touch_pages(start, 16 * MIB);
        ASSERT_EQ(0, madvise(start, 16 * MIB, MADV_DONTFORK));
        heap_fork_begin();
        isolated::expect_passes([start] {
            heap_fork_end_in_child();
            heap_free(start);
        });
        heap_fork_end();
    });
}

TEST(Advice, ABlockThatIsPartlyInaccessibleIsFreed)
{
    in_new_heap(HUGE_PAGES_AUTO, [] {
        char *closed = block(16 * MIB), *hole = block(16 * MIB);
        touch_pages(closed, 16 * MIB);
        touch_pages(hole, 16 * MIB);
        ASSERT_EQ(0, mprotect(closed + 4 * MIB, 8 * MIB, PROT_NONE));
        ASSERT_EQ(0, munmap(hole + 4 * MIB, 8 * MIB));
        heap_free(closed);
        heap_free(hole);
    });
}

} // namespace
