// Live blocks whose first word is a link that an earlier use of the memory left behind and the program has copied there:
// they look as free blocks do, and are freed as any other.
#include "figures.h"
#include "heap_isolated.h"
#include "space_walker.h"
#include "system.h"

namespace
{

using figures::in_use;

constexpr size_t SIZES[] = {16, 48, 64, 1000, 4096, 20'000};

// Looks free: its first word says that the next block is `distance` away.
void make_look_free(void *block, uintptr_t distance)
{
    *block_words(reinterpret_cast<uintptr_t>(block)) = distance ^ space.link_key;
    ASSERT_TRUE(block_looks_free(reinterpret_cast<uintptr_t>(block)));
}

// As many as some spans have, each with a link to another of its neighbours, or to the end of its list.
std::vector<void *> lookalikes(size_t size)
{
    std::vector<void *> blocks;
    for (size_t i = 0; i < 3 * SPAN_SIZE / size; i++) {
        void *block = heap_malloc(size);
        auto address = reinterpret_cast<uintptr_t>(block);
        uintptr_t neighbour = address + i % 7 * heap_good_size(size);
        uintptr_t next = i % 3 == 0 || (neighbour ^ address) > NEXT_MAX
                             ? span_list_end(span_of_offset(address - space.base))
                             : neighbour;
        make_look_free(block, next ^ address);
        blocks.push_back(block);
    }
    return blocks;
}

void free_all(const std::vector<void *> &blocks)
{
    for (void *block : blocks) heap_free(block);
}

void expect_nothing_lost()
{
    heap_trim();
    EXPECT_EQ(0u, in_use());
    space_walker::check();
}

// In a child each, for each size: nothing of what `body` has allocated is there at the end.
template <typename Body> void expect_all_is_freed(Body body)
{
    for (size_t size : SIZES) {
        SCOPED_TRACE(size);
        isolated::expect_passes([&] {
            heap_settings.thread_spans_cached = 0;
            body(size);
            expect_nothing_lost();
        });
    }
}

TEST(Lookalike, FreedByItsOwner)
{
    expect_all_is_freed([](size_t size) { free_all(lookalikes(size)); });
}

TEST(Lookalike, FreedByAnotherThread)
{
    expect_all_is_freed([](size_t size) {
        std::vector<void *> blocks = lookalikes(size);
        std::thread([&] {
            heap_free(heap_malloc(1));
            free_all(blocks);
        }).join();
        remote_inbox_take(thread_heap);
    });
}

} // namespace
