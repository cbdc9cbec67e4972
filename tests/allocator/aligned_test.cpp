// Aligned blocks cost what they hold: what is skipped to reach an aligned address serves others.
#include "figures.h"
#include "heap_isolated.h"
#include "model.h"
#include "space_walker.h"

namespace
{

constexpr size_t MIB = model::MIB;
constexpr size_t GIB = 1024 * MIB;

using figures::in_use;

// In a process whose heap is empty.
template <typename Body> void in_new_heap(Body body)
{
    isolated::expect_passes([&] {
        heap_settings.thread_spans_cached = 0; // what a heap keeps would count as in use
        heap_free(heap_malloc(1));
        heap_trim();
        body();
        heap_trim();
        EXPECT_EQ(0u, in_use());
        space_walker::check();
    });
}

bool is_aligned(const void *pointer, size_t alignment)
{
    return reinterpret_cast<uintptr_t>(pointer) % alignment == 0;
}

TEST(Aligned, HugeAlignmentsTakeNoMoreThanTheSize)
{
    in_new_heap([] {
        for (size_t alignment = 2 * model::SPAN; alignment <= GIB / 2; alignment *= 2) {
            for (size_t size : {size_t{1}, model::SPAN, 3 * model::SPAN + 1, 2 * MIB}) {
                size_t before = in_use();
                void *block = heap_malloc_aligned(size, alignment);
                ASSERT_NE(nullptr, block) << alignment;
                EXPECT_TRUE(is_aligned(block, alignment)) << alignment;
                EXPECT_EQ((size + model::SPAN - 1) / model::SPAN * model::SPAN, in_use() - before)
                    << size << " bytes at a multiple of " << alignment;
                heap_free(block);
                EXPECT_EQ(before, in_use());
            }
        }
    });
}

} // namespace
