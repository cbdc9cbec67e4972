// Huge pages: which units get them, and what becomes of the kernel's pool. The pool is played by the test, since no
// machine has one unless it was set aside: pages that it gives are ordinary ones, but what the kernel cannot do with
// those of the pool must not be asked of it. huge_pages_pool_test.cpp uses a real one.
#include "heap_isolated.h"
#include "model.h"
#include "space_walker.h"

#include <fcntl.h>

#include <atomic>
#include <map>
#include <string>

#define _Atomic(type) std::atomic<type>
#define _Static_assert static_assert
extern "C" {
#include "space/state.h"
}
#undef _Atomic

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

// ---- a pool of the kernel's -----------------------------------------------------------------------------------------

struct Pool {
    bool is_played = true;
    size_t free = 0; // units
    size_t lost_after = SIZE_MAX; // units taken; the next is lost to another thread's mmap
    std::map<uintptr_t, size_t> ranges; // that were taken
    size_t taken = 0, asked = 0;
} kernels_pool;

bool purges_fail = false;
size_t purged = 0, moved = 0, advised = 0, prices_asked = 0, split = 0;

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
    if (kernels_pool.taken + units > kernels_pool.lost_after) return MOVE_TARGET_LOST;
    kernels_pool.free -= units;
    kernels_pool.taken += units;
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
    purged += size;
    return !purges_fail && __real_platform_purge(start, size);
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
    moved++;
    return __real_platform_move_pages(from, to, size);
}
uint64_t __wrap_platform_small_pages_cost_us()
{
    prices_asked++;
    EXPECT_FALSE(platform_lock_is_own(&space_state.lock)) << "others would wait for hundreds of page faults";
    return 1000;
}
void __wrap_platform_split_huge_pages(void *start, size_t size)
{
    split++;
    EXPECT_FALSE(platform_lock_is_own(&space_state.lock)) << "others would wait while the kernel copies a table";
    __real_platform_split_huge_pages(start, size);
}
}

namespace
{

// ---- what the tests share ------------------------------------------------------------------------------

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

struct space_figures figures_now()
{
    struct space_figures figures;
    space_figures(&figures);
    return figures;
}

struct span *acquire(uint32_t spans)
{
    struct span *run = space_acquire(spans, 1, SPAN_LARGE, nullptr);
    EXPECT_NE(nullptr, run);
    return run;
}

unsigned char *bytes_of(struct span *run)
{
    return reinterpret_cast<unsigned char *>(span_start(run));
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

// ---- the pool ------------------------------------------------------------------------------

TEST(Pool, GivesEveryUnitButTheFirst)
{
    in_new_heap(HUGE_PAGES_HUGETLB, [] {
        kernels_pool.free = 100;
        ASSERT_TRUE(space_start());
        acquire(1);
        EXPECT_EQ(0u, kernels_pool.taken) << "a small program leaves the pool to others";
        acquire(20 * UNIT_SPANS);
        size_t committed = figures_now().committed;
        EXPECT_EQ(committed / UNIT - 1, kernels_pool.taken);
        EXPECT_EQ(committed, figures_now().huge);
        EXPECT_EQ("", words_of([] { acquire(UNIT_SPANS); }));
    });
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

TEST(Pool, ThatRunsDryInTheMiddleGivesAllThatItHas)
{
    for (size_t units : {1, 2, 3, 7, 31, 32, 33, 59}) {
        SCOPED_TRACE(units);
        in_new_heap(HUGE_PAGES_HUGETLB, [units] {
            kernels_pool.free = units;
            std::vector<model::Block> blocks;
            std::string words = words_of([&] {
                for (size_t size : {5, 1, 60, 3, 70}) blocks.push_back(block_of(size * MIB));
            });
            EXPECT_EQ(units, kernels_pool.taken);
            EXPECT_EQ(1, std::count(words.begin(), words.end(), '\n')) << words;
            EXPECT_EQ(figures_now().committed, figures_now().huge);
            for (const model::Block &block : blocks) model::expect_intact(block);
        });
    }
}

TEST(Pool, WhoseTargetIsLostEndsTheSpaceThere)
{
    in_new_heap(HUGE_PAGES_HUGETLB, [] {
        kernels_pool.free = 100;
        kernels_pool.lost_after = 10;
        std::vector<model::Block> blocks;
        for (void *start; (start = heap_malloc(MIB)) != nullptr;) {
            blocks.push_back({static_cast<unsigned char *>(start), MIB, MIB, blocks.size()});
            model::fill(blocks.back());
            ASSERT_LT(blocks.size(), 100u) << "the space goes on";
        }
        EXPECT_EQ(ENOMEM, errno);
        EXPECT_GT(blocks.size(), 5u);
        for (const model::Block &block : blocks) model::expect_intact(block);
        heap_free(blocks.back().start);
        EXPECT_EQ(blocks.back().start, heap_malloc(MIB)) << "what is there serves on";
        EXPECT_NE(nullptr, heap_malloc(100));
    });
}

TEST(Pool, PagesAreClearedWhereOthersArePurged)
{
    in_new_heap(HUGE_PAGES_HUGETLB, [] {
        kernels_pool.free = 9;
        ASSERT_TRUE(space_start());
        // From the midst of the first unit, which is the kernel's, over those of the pool to others again.
        acquire(UNIT_SPANS / 2);
        struct span *run = nullptr;
        words_of([&] { run = acquire(12 * UNIT_SPANS); });
        struct span *fence = acquire(1);
        std::memset(bytes_of(run), 1, 12 * UNIT);
        space_release(run);
        space_purge_all();
        EXPECT_EQ(0u, figures_now().dirty);
        EXPECT_EQ(12 * UNIT - 9 * UNIT, purged);
        bool zeroed = false;
        EXPECT_EQ(run, space_acquire(12 * UNIT_SPANS, 1, SPAN_LARGE, &zeroed));
        EXPECT_TRUE(zeroed);
        model::expect_zeroed(bytes_of(run), 12 * UNIT);
        space_release(fence);
    });
}

TEST(Pool, PagesAreNoReasonToStopPurging)
{
    in_new_heap(HUGE_PAGES_HUGETLB, [] {
        kernels_pool.free = 3;
        ASSERT_TRUE(space_start());
        struct span *taken = nullptr, *plain = nullptr;
        words_of([&] {
            acquire(UNIT_SPANS);
            taken = acquire(2 * UNIT_SPANS);
            acquire(UNIT_SPANS + 1);
            plain = acquire(4);
            acquire(1);
        });
        space_release(taken);
        space_release(plain);
        space_purge_all();
        EXPECT_EQ(0u, figures_now().dirty);
        EXPECT_EQ(4 * SPAN_SIZE, purged);
    });
}

TEST(Pool, ARefusedPurgeBesideItsPagesIsNotTakenForOneThatWasDone)
{
    in_new_heap(HUGE_PAGES_HUGETLB, [] {
        kernels_pool.free = 2;
        ASSERT_TRUE(space_start());
        acquire(UNIT_SPANS);
        struct span *run = nullptr;
        words_of([&] { run = acquire(5 * UNIT_SPANS); });
        acquire(1);
        std::memset(bytes_of(run), 1, 5 * UNIT);
        purges_fail = true;
        space_release(run);
        space_purge_all();
        bool zeroed = true;
        EXPECT_EQ(run - 2 * UNIT_SPANS, space_acquire(3 * UNIT_SPANS, 1, SPAN_LARGE, &zeroed)) << "behind the pool's";
        EXPECT_FALSE(zeroed);
    });
}

TEST(Pool, PagesWithinOneOfItsPagesAreLeftAlone)
{
    in_new_heap(HUGE_PAGES_HUGETLB, [] {
        kernels_pool.free = 3;
        ASSERT_TRUE(space_start());
        acquire(UNIT_SPANS);
        struct span *run = acquire(1);
        std::memset(bytes_of(run), 1, SPAN_SIZE);
        space_purge_pages(bytes_of(run) + 4096, 8192);
        EXPECT_EQ(0u, purged);
        EXPECT_EQ(1, bytes_of(run)[4096]);
    });
}

TEST(Pool, LargeBlocksOnItsPagesAreCopied)
{
    in_new_heap(HUGE_PAGES_HUGETLB, [] {
        kernels_pool.free = 30; // the block moves from its pages, over its end, to others
        words_of([] {
            model::Block block = block_of(8 * MIB);
            for (size_t size = 16 * MIB; size <= 128 * MIB; size *= 2) {
                model::Block fence = block_of(MIB);
                block.start = static_cast<unsigned char *>(heap_realloc(block.start, size));
                ASSERT_EQ(block.usable, model::first_difference(block, block.usable));
                block.size = block.usable = size;
                model::fill(block);
                model::expect_intact(fence);
            }
        });
        EXPECT_EQ(30u, kernels_pool.taken);
    });
}

TEST(Pool, LargeBlocksAreCopiedOntoItsPages)
{
    in_new_heap(HUGE_PAGES_HUGETLB, [] {
        kernels_pool.free = 20;
        words_of([] {
            model::Block place = block_of(30 * MIB);
            block_of(MIB); // so that nothing beside the place is free
            block_of(40 * MIB); // the last pages of the pool
            model::Block block = block_of(8 * MIB);
            block_of(MIB);
            ASSERT_FALSE(touches_pool(block.start, block.size));
            heap_free(place.start);
            block.start = static_cast<unsigned char *>(heap_realloc(block.start, 20 * MIB));
            EXPECT_TRUE(touches_pool(block.start, block.size)) << "the best fit is the block just freed";
            EXPECT_EQ(block.usable, model::first_difference(block, block.usable));
        });
    });
}

TEST(Pool, ContextsLieOnItsPagesToo)
{
    in_new_heap(HUGE_PAGES_HUGETLB, [] {
        kernels_pool.free = 4;
        ASSERT_TRUE(space_start());
        int guest;
        struct span *lent[8];
        words_of([&] {
            for (auto &run : lent) run = space_lend(UNIT_SPANS, UNIT_SPANS, &guest, true);
        });
        EXPECT_EQ(4u, kernels_pool.taken);
        for (auto *run : lent) {
            ASSERT_NE(nullptr, run);
            std::memset(bytes_of(run), 1, UNIT);
            space_take_back(run);
        }
        space_purge_all();
        EXPECT_EQ(0u, figures_now().dirty);
        for (auto *run : lent) model::expect_zeroed(bytes_of(run), UNIT);
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

// ---- advice ------------------------------------------------------------------------------

TEST(Advice, ALargeBlockOfASmallProgramGetsHugePagesWhateverTheyCost)
{
    in_new_heap(HUGE_PAGES_AUTO, [] {
        space_settings.huge_page_price = 0;
        heap_free(heap_malloc(100));
        const size_t size = 320 * MIB;
        ASSERT_NE(nullptr, heap_malloc(size));
        EXPECT_GE(figures_now().huge, size - UNIT);
        EXPECT_LE(figures_now().huge, size + UNIT);
    });
}

TEST(Advice, SoDoesOneThatGrowsOrIsUsedAgain)
{
    in_new_heap(HUGE_PAGES_AUTO, [] {
        space_settings.huge_page_price = 0;
        void *block = heap_malloc(20 * MIB);
        EXPECT_EQ(0u, figures_now().huge);
        block = heap_realloc(block, 100 * MIB);
        EXPECT_GE(figures_now().huge, 100 * MIB - 20 * MIB - UNIT);
        heap_free(block);
        heap_trim();
        EXPECT_EQ(block, heap_malloc(100 * MIB));
        EXPECT_GE(figures_now().huge, 100 * MIB - UNIT);
        size_t calls = figures_now().advice_calls;
        heap_free(block);
        EXPECT_EQ(block, heap_malloc(100 * MIB));
        EXPECT_EQ(calls, figures_now().advice_calls) << "nothing new was said";
    });
}

TEST(Advice, IsNotGivenForSmallProgramsOrFewPages)
{
    in_new_heap(HUGE_PAGES_AUTO, [] {
        space_settings.huge_page_price = UINT32_MAX;
        for (size_t size : {size_t{100}, MIB, 6 * MIB, 20 * MIB}) ASSERT_NE(nullptr, heap_malloc(size));
        EXPECT_EQ(0u, figures_now().huge);
    });
}

TEST(Advice, IsGivenToAHeapThatHasGrownIfThePriceIsRight)
{
    in_new_heap(HUGE_PAGES_AUTO, [] {
        space_settings.huge_page_price = UINT32_MAX;
        ASSERT_TRUE(space_start());
        for (uint32_t i = 0; i < 20; i++) acquire(UNIT_SPANS);
        EXPECT_GE(figures_now().huge, 20 * MIB);
    });
    in_new_heap(HUGE_PAGES_AUTO, [] {
        space_settings.huge_page_price = 0;
        ASSERT_TRUE(space_start());
        for (uint32_t i = 0; i < 20; i++) acquire(UNIT_SPANS);
        EXPECT_LE(figures_now().huge, 4 * UNIT) << "those that were tried";
        EXPECT_LE(1u, prices_asked);
    });
}

// The last of twenty units that are advised.
struct span *advised_unit()
{
    space_settings.huge_page_price = UINT32_MAX;
    EXPECT_TRUE(space_start());
    struct span *run = nullptr;
    for (uint32_t i = 0; i < 20; i++) run = acquire(UNIT_SPANS);
    EXPECT_EQ(UNIT_ADVISED, span_at(span_index(run) / UNIT_SPANS * UNIT_SPANS)->huge);
    return run;
}

TEST(Advice, IsWithdrawnAndThePageSplitWithTheFirstPartOfAUnitThatIsPurged)
{
    in_new_heap(HUGE_PAGES_AUTO, [] {
        struct span *run = advised_unit();
        space_purge_pages(bytes_of(run) + SPAN_SIZE, 4096);
        EXPECT_EQ(UNIT_BROKEN, span_at(span_index(run) / UNIT_SPANS * UNIT_SPANS)->huge);
        EXPECT_EQ(1u, split);
        space_purge_pages(bytes_of(run) + 2 * SPAN_SIZE, 4096);
        EXPECT_EQ(1u, split) << "there is none any more";
    });
}

TEST(Advice, ThatStaysForWantOfMappingsDoesNotKeepAPageWhole)
{
    in_new_heap(HUGE_PAGES_AUTO, [] {
        struct span *run = advised_unit();
        space_state.units[UNIT_BROKEN] += 4096;
        size_t calls = figures_now().advice_calls;
        space_purge_pages(bytes_of(run) + SPAN_SIZE, 4096);
        EXPECT_EQ(calls, figures_now().advice_calls);
        EXPECT_EQ(1u, split);
        space_state.units[UNIT_BROKEN] -= 4096;
    });
}

TEST(Advice, IsNeverGivenWithNever)
{
    in_new_heap(HUGE_PAGES_NEVER, [] {
        block_of(320 * MIB);
        EXPECT_EQ(0u, figures_now().huge);
        EXPECT_EQ(0u, figures_now().advice_calls);
    });
}

} // namespace
