// With cache_line_align no two objects share a cache line, whatever their sizes and whichever call made them.
#include "heap_internals.h"
#include "heap_isolated.h"
#include "space_walker.h"

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

} // namespace
