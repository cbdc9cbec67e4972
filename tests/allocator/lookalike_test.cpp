// Live blocks whose first word is a link that an earlier use of the memory left behind and the program has copied there:
// they look as free blocks do, and are freed as any other.
#include "actor.h"
#include "figures.h"
#include "heap_isolated.h"
#include "space_walker.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

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

TEST(Lookalike, OfAMoveWithinRecycledMemory)
{
    isolated::expect_passes([] {
        heap_settings.thread_spans_cached = 0;
        std::vector<void *> blocks;
        for (int i = 0; i < 10'000; i++) blocks.push_back(heap_malloc(16));
        free_all(blocks);
        heap_free(heap_malloc(1)); // spans are given back
        heap_flush(thread_heap);
        size_t found = 0;
        blocks.clear();
        for (int i = 0; i < 20; i++) { // larger blocks in their place
            auto *block = static_cast<char *>(heap_malloc(4096));
            std::memmove(block, block + 16, 4000);
            found += block_looks_free(reinterpret_cast<uintptr_t>(block));
            blocks.push_back(block);
        }
        EXPECT_GT(found, 0u) << "this test tests nothing";
        free_all(blocks);
        expect_nothing_lost();
    });
}

TEST(Lookalike, FreedByItsOwner)
{
    expect_all_is_freed([](size_t size) { free_all(lookalikes(size)); });
}

// free looks at the key's mark alone before it calls for help.
TEST(Lookalike, OfWhichOnlyTheMarkIsTheKeys)
{
    expect_all_is_freed([](size_t size) {
        for (int i = 0; i < 1000; i++) {
            void *block = heap_malloc(size);
            auto address = reinterpret_cast<uintptr_t>(block);
            *block_words(address) = ~space.link_key ^ UINT64_C(0xFFFF) << 48;
            ASSERT_TRUE(block_is_marked(thread_heap, address));
            ASSERT_FALSE(block_looks_free(address));
            ASSERT_EQ(block, heap_realloc(block, size));
            heap_free(block);
        }
    });
}

TEST(LinkKey, HasItsMarkAtBothEnds)
{
    EXPECT_EQ(UINT64_C(0x123456789ABC1234), link_key_of(UINT64_C(0x123456789ABCDEF0)));
    isolated::expect_passes([] {
        void *block = heap_malloc(64);
        heap_free(block);
        EXPECT_EQ(space.link_key >> 48, space.link_key & UINT16_MAX);
        EXPECT_TRUE(block_is_marked(thread_heap, reinterpret_cast<uintptr_t>(block)));
    });
}

// Else each free of an object that begins with a pointer or a small number would be slow, and what reads as zeros would be a link.
TEST(LinkKey, IsNoneWhoseMarkOrdinaryObjectsHave)
{
    EXPECT_EQ(0u, link_key_of(UINT64_C(0x0000FFFFFFFFFFFF)));
    EXPECT_EQ(0u, link_key_of(UINT64_C(0xFFFF123456789ABC)));
}

// The last block of a list is marked otherwise than those that another follows.
TEST(Lists, OfABinEndWithABlockThatIsHandedOutLikeTheOthers)
{
    isolated::expect_passes([] {
        heap_free(heap_malloc(64));
        unsigned bin = size_class(64);
        std::vector<void *> blocks;
        size_t last = 0;
        for (int i = 0; i < 3000; i++) {
            uintptr_t block = thread_heap->free[bin];
            bool is_last = !list_is_empty(block) && list_is_empty(list_next(block));
            blocks.push_back(heap_malloc(64));
            if (!is_last) continue;
            last++;
            EXPECT_EQ(reinterpret_cast<void *>(block), blocks.back());
            EXPECT_FALSE(block_looks_free(block));
            EXPECT_EQ(bin_nothing(thread_heap), thread_heap->free[bin]);
        }
        EXPECT_GT(last, 2u) << "this test tests nothing";
        std::sort(blocks.begin(), blocks.end());
        EXPECT_EQ(blocks.end(), std::adjacent_find(blocks.begin(), blocks.end()));
        free_all(blocks);
    });
}

TEST(Lookalike, ResizedThenFreed)
{
    expect_all_is_freed([](size_t size) {
        for (void *block : lookalikes(size)) {
            void *resized = heap_realloc(block, size - 1);
            EXPECT_EQ(block, resized);
            make_look_free(resized, 0x1230);
            heap_free(heap_realloc(resized, 2 * size));
        }
    });
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

TEST(Lookalike, FreedByAThreadThatNeverAllocated)
{
    expect_all_is_freed([](size_t size) {
        std::vector<void *> blocks = lookalikes(size);
        std::thread([&] { free_all(blocks); }).join();
        remote_inbox_take(thread_heap);
    });
}

TEST(Lookalike, FreedAfterItsOwnerHasGone)
{
    expect_all_is_freed([](size_t size) {
        std::vector<void *> blocks;
        std::thread([&] { blocks = lookalikes(size); }).join();
        free_all(blocks);
    });
}

TEST(Lookalike, FreedWhileItsOwnerIsGoing)
{
    expect_all_is_freed([](size_t size) {
        std::vector<void *> blocks;
        {
            Actor owner;
            owner([&] { blocks = lookalikes(size); });
            free_all(blocks); // accused, and nobody has looked yet
        }
    });
}

TEST(Lookalike, OfThreadsThatShare)
{
    expect_all_is_freed([](size_t size) {
        heap_free(heap_malloc(1));
        heap_settings.lockless_threads = 1;
        std::vector<void *> blocks;
        Actor first, second;
        first([&] { blocks = lookalikes(size); });
        second([&] { free_all(blocks); });
        first([&] { blocks = lookalikes(size); });
        free_all(blocks);
        first([&] { free_all(lookalikes(size)); });
        blocks = lookalikes(size);
        second([&] { free_all(blocks); });
        remote_inbox_take(thread_heap);
    });
}

// A mistake of the program, which must not make it worse: a block that another thread has freed and not handed over yet is
// freed again, by its owner or by a third.
TEST(Lookalike, AFreeBlockThatAnotherThreadHasInHandStaysFreedOnce)
{
    for (bool by_owner : {true, false}) {
        isolated::expect_passes([=] {
            heap_settings.thread_spans_cached = 0;
            heap_settings.remote_free_batch = 1000;
            std::vector<void *> blocks;
            for (int i = 0; i < 400; i++) blocks.push_back(heap_malloc(64));
            Actor other, third;
            other([&] {
                heap_free(heap_malloc(1));
                free_all(blocks);
            });
            void *again = blocks[200];
            if (by_owner) heap_free(again);
            else third([&] { heap_free(again); });
            remote_inbox_take(thread_heap);
            other([] { remote_outbox_flush(thread_heap); });
            remote_inbox_take(thread_heap);
            std::vector<void *> anew;
            for (int i = 0; i < 2000; i++) anew.push_back(heap_malloc(64));
            std::sort(anew.begin(), anew.end());
            EXPECT_EQ(anew.end(), std::adjacent_find(anew.begin(), anew.end())) << "a block was handed out twice";
            free_all(anew);
            other([] { heap_trim(); });
            third([] { heap_trim(); });
            expect_nothing_lost();
        });
    }
}

} // namespace
