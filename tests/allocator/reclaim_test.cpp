// What nobody uses goes back although nobody who could see to it comes by: what dead threads left, and what others freed of a
// thread that only has large objects. The program is linked with --wrap for the clock, which it shifts.
#include "figures.h"
#include "heap_internals.h"
#include "heap_isolated.h"
#include "space_walker.h"
#include "system.h"

namespace
{

uint64_t clock_shift_ms; // what has passed that nobody waited for

} // namespace

extern "C" {
uint64_t __real_platform_clock_ms(void);
uint64_t __wrap_platform_clock_ms(void)
{
    return __real_platform_clock_ms() + clock_shift_ms;
}
}

namespace
{

constexpr size_t MIB = size_t{1} << 20;
constexpr uint32_t DECAY = 1000;

size_t purged()
{
    struct space_figures now;
    space_figures(&now);
    return now.purged;
}

template <typename Body> void in_new_heap(Body body)
{
    isolated::expect_passes([&] {
        space_settings.decay_ms = DECAY;
        heap_free(heap_malloc(1));
        heap_trim();
        body();
        space_walker::check();
    });
}

constexpr size_t SPANS = 300, BYTES = 512, IN_A_SPAN = SPAN_SIZE / BYTES;

// Of the blocks that fill so many spans all but one in each are freed.
std::vector<void *> blocks_left_over()
{
    std::vector<void *> live, blocks(SPANS * IN_A_SPAN);
    for (auto &block : blocks) block = heap_malloc(BYTES);
    for (size_t i = 0; i < blocks.size(); i++) {
        if (i % IN_A_SPAN == 0) live.push_back(blocks[i]);
        else heap_free(blocks[i]);
    }
    return live;
}

std::vector<void *> blocks_of_a_dead_thread()
{
    std::vector<void *> live;
    std::thread([&live] { live = blocks_left_over(); }).join();
    return live;
}

void expect_live(const std::vector<void *> &blocks)
{
    EXPECT_EQ(SPANS, blocks.size());
    for (void *block : blocks) {
        EXPECT_GE(heap_usable_size(block), BYTES);
        heap_free(block);
    }
}

constexpr size_t MOST = SPANS * SPAN_SIZE * 3 / 4;

TEST(Orphans, DecayWhileThreadsTakeSpans)
{
    in_new_heap([] {
        auto live = blocks_of_a_dead_thread();
        size_t before = purged();
        for (size_t bin = 0; bin < BIN_COUNT; bin++) { // each takes a span, but for the size that the dead thread had
            clock_shift_ms += DECAY;
            if (size_class_bytes(static_cast<unsigned>(bin)) > 2 * BYTES)
                heap_malloc(size_class_bytes(static_cast<unsigned>(bin)));
        }
        EXPECT_GE(purged() - before, MOST);
        expect_live(live);
    });
}

TEST(ANearlyIdleThread, GivesBackWithEachOfItsFewCalls)
{
    in_new_heap([] {
        std::vector<void *> live = blocks_left_over();
        size_t before = purged();
        heap_free(heap_malloc(MIB)); // which looks at the clock, and is no sign of work
        for (int call = 0; call < 25; call++) {
            heap_free(heap_malloc(BYTES));
            clock_shift_ms += 100;
        }
        EXPECT_GT(purged() - before, MOST);
        expect_live(live);
    });
}

TEST(AThreadOfLargeObjectsAlone, TakesInWhatOthersFree)
{
    in_new_heap([] {
        std::vector<void *> blocks(16 * MIB / BYTES);
        for (auto &block : blocks) block = heap_malloc(BYTES);
        std::thread([&blocks] {
            for (void *block : blocks) heap_free(block);
        }).join();
        EXPECT_GE(figures::in_use(), 16 * MIB);
        heap_free(heap_malloc(MIB));
        EXPECT_LE(figures::in_use(), 2 * MIB);
    });
}

// However busy it was just before, and though what it frees finds room in front of the cache.
TEST(AThreadOfLargeObjectsAlone, GivesBackWithItsNextCallsAfterABurst)
{
    in_new_heap([] {
        constexpr size_t COUNT = 100, SIZE = 150'000;
        std::vector<void *> blocks(COUNT);
        for (auto &block : blocks) std::memset(block = heap_malloc(SIZE), 1, SIZE);
        for (void *block : blocks) heap_free(block);
        size_t before = purged();
        for (int call = 0; call < 3; call++) {
            heap_free(heap_malloc(100'000));
            clock_shift_ms += 5;
        }
        for (int call = 0; call < 2; call++) {
            clock_shift_ms += 2 * DECAY;
            heap_free(heap_malloc(100'000));
        }
        EXPECT_GT(purged() - before, COUNT * SIZE / 2);
    });
}

} // namespace
