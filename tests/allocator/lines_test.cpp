// With cache_line_align no two objects share a cache line, whatever their sizes and whichever call made them.
#include "actor.h"
#include "heap_internals.h"
#include "heap_isolated.h"
#include "model.h"
#include "space_walker.h"

#include <set>
#include <vector>

namespace
{

constexpr size_t LINE = CACHE_LINE;

template <typename Body> void with_lines(Body body)
{
    isolated::expect_passes([&] {
        heap_settings.cache_line_align = true;
        body();
        heap_trim();
        space_walker::check();
    });
}

void expect_whole_lines(const void *block, size_t size)
{
    ASSERT_NE(nullptr, block) << size;
    ASSERT_EQ(0u, reinterpret_cast<uintptr_t>(block) % LINE) << size;
    ASSERT_EQ(0u, heap_usable_size(block) % LINE) << size;
    ASSERT_GE(heap_usable_size(block), size);
}

TEST(Lines, EverySizeStartsOnALineAndFillsIt)
{
    with_lines([] {
        heap_free(heap_malloc(1));
        for (size_t size = 0; size <= SMALL_MAX + SPAN_SIZE; size += size < 2 * FAST_MAX ? 1 : 37) {
            for (void *block : {heap_malloc(size), heap_calloc(size), heap_realloc(heap_malloc(2 * size), size + 1)}) {
                expect_whole_lines(block, size);
                heap_free(block);
            }
        }
    });
}

// A block's lines, from its first byte to its last that may be used.
void claim_lines(std::set<uintptr_t> &lines, const void *block)
{
    uintptr_t first = reinterpret_cast<uintptr_t>(block) / LINE;
    uintptr_t last = (reinterpret_cast<uintptr_t>(block) + heap_usable_size(block) - 1) / LINE;
    for (uintptr_t line = first; line <= last; line++)
        ASSERT_TRUE(lines.insert(line).second) << "two live objects lie on one line";
}

void expect_apart(uint32_t lockless_threads)
{
    SCOPED_TRACE(stress::how_to_repeat());
    with_lines([=] {
        heap_settings.lockless_threads = lockless_threads;
        stress::Random random(stress::seed());
        Actor other;
        std::set<uintptr_t> lines;
        std::vector<void *> blocks;
        auto allocate = [&] {
            size_t size = model::random_size(random, 3000);
            size_t alignment = size_t{1} << (random.chance(10) ? random.between(4, 10) : 4);
            blocks.push_back(heap_malloc_aligned(size, alignment));
        };
        for (int i = 0; i < 4000; i++) {
            if (random.chance(50)) other(allocate);
            else allocate();
            claim_lines(lines, blocks.back());
        }
        for (void *block : blocks) heap_free(block);
    });
}

TEST(Lines, NoTwoLiveObjectsLieOnOne)
{
    expect_apart(UINT32_MAX);
}

TEST(Lines, NoTwoLiveObjectsLieOnOneInSharedHeaps)
{
    expect_apart(0);
}

} // namespace
