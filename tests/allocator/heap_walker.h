// Checks everything that must hold of a thread heap between two calls of its owner: what its spans, their lists and their
// counts say of each other.
#ifndef HEAPFIT_TESTS_HEAP_WALKER_H
#define HEAPFIT_TESTS_HEAP_WALKER_H

#include "heap_internals.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace heap_walker
{

// Free blocks of a list, all of which must be blocks of `span`.
inline size_t list_length(const struct span *span, uintptr_t head)
{
    size_t length = 0;
    while (!list_is_empty(head)) {
        EXPECT_EQ(span, span_of_offset(head - space.base)) << "a list leads to another span";
        EXPECT_TRUE(block_is_at_start(span, head));
        uintptr_t link = *block_words(head) ^ space.link_key;
        EXPECT_LE(link, static_cast<uintptr_t>(LINK_MAX));
        if (++length > SPAN_SIZE / MALLOC_ALIGNMENT || testing::Test::HasFailure()) break;
        head ^= link;
    }
    return length;
}

inline void check_span(const struct heap *heap, const struct span *span)
{
    EXPECT_EQ(heap, span->owner.load());
    EXPECT_EQ(SPAN_BLOCKS, span->kind);
    EXPECT_EQ(bin_block_size(span->bin), span->block_size);
    ASSERT_LE(span_live(span), span->carved);
    EXPECT_EQ(span->carved - span_live(span), list_length(span, span->free))
        << "live: " << span->countdown << " + " << span->held_back << ", blocks of " << span->block_size;
    if (span->uncarved != 0) {
        EXPECT_TRUE(span->listed) << "has blocks to carve that nobody will find";
    }
}

inline std::set<uint32_t> listed_spans(const struct heap *heap, unsigned bin)
{
    std::set<uint32_t> listed;
    uint32_t previous = SPAN_NONE;
    for (uint32_t index = heap->bins[bin].listed; index != SPAN_NONE; index = span_at(index)->next) {
        EXPECT_TRUE(listed.insert(index).second) << "a list runs in a circle";
        EXPECT_EQ(previous, span_at(index)->prev);
        EXPECT_EQ(bin, span_at(index)->bin);
        EXPECT_TRUE(span_at(index)->listed);
        previous = index;
        if (testing::Test::HasFailure()) break;
    }
    return listed;
}

// What a heap's spans come to, by bin.
struct Tally {
    size_t in_bins[HEAP_BINS] = {}, listed[HEAP_BINS] = {}, bytes = 0;
};

inline void check_chain(const struct heap *heap, const struct span_chain &chain, bool sparse, Tally &tally)
{
    size_t spans = 0;
    uint32_t previous = SPAN_NONE;
    for (uint32_t index = chain.first; index != SPAN_NONE; index = span_at(index)->owned_next) {
        const struct span *span = span_at(index);
        EXPECT_EQ(previous, span->owned_prev);
        EXPECT_EQ(sparse, span->since != 0);
        check_span(heap, span);
        spans++;
        tally.in_bins[span->bin]++;
        tally.listed[span->bin] += span->listed;
        if (sparse) tally.bytes += size_t{span->carved} * span->block_size;
        previous = index;
        if (testing::Test::HasFailure()) return;
    }
    EXPECT_EQ(chain.spans, spans);
    EXPECT_EQ(chain.last, previous);
}

// The runs that the heap keeps. Returns how many of their spans count as dense.
inline size_t check_cache(const struct heap *heap)
{
    const struct span_cache &cache = heap->cache;
    size_t spans = 0, dense = 0, in_lists = 0;
    uint32_t younger = SPAN_NONE;
    for (uint32_t index = cache.youngest; index != SPAN_NONE; index = span_at(index)->owned_next) {
        const struct span *run = span_at(index);
        EXPECT_EQ(SPAN_METADATA, run->kind) << "a kept run looks like an object";
        EXPECT_EQ(nullptr, run->owner.load());
        EXPECT_EQ(younger, run->owned_prev);
        if (younger != SPAN_NONE) {
            EXPECT_GE(span_since(span_at(younger)), span_since(run)) << "not in the order of age";
        }
        spans += run->run_spans;
        dense += static_cast<size_t>(run_dense_spans(run));
        younger = index;
        if (testing::Test::HasFailure()) return dense;
    }
    EXPECT_EQ(cache.oldest, younger);
    for (unsigned list = 0; list < CACHE_LISTS; list++) {
        uint32_t previous = SPAN_NONE;
        for (uint32_t index = cache.lists[list]; index != SPAN_NONE; index = span_at(index)->next) {
            uint32_t length = span_at(index)->run_spans;
            EXPECT_EQ(list, std::min(length - 1, uint32_t{CACHE_EXACT}));
            EXPECT_EQ(previous, span_at(index)->prev);
            in_lists += length;
            previous = index;
            if (testing::Test::HasFailure()) return dense;
        }
    }
    EXPECT_EQ(cache.spans.load(), spans);
    EXPECT_EQ(cache.spans.load(), in_lists);
    return dense;
}

// By the owner, or while nobody owns the heap.
inline void check(const struct heap *heap)
{
    Tally tally;
    check_chain(heap, heap->owned, false, tally);
    check_chain(heap, heap->sparse, true, tally);
    EXPECT_EQ(heap->sparse_bytes, tally.bytes);
    check_cache(heap);
    if (testing::Test::HasFailure()) return;
    for (unsigned bin = 0; bin < HEAP_BINS; bin++) {
        EXPECT_EQ(heap->bins[bin].spans, tally.in_bins[bin]) << "bin " << bin;
        EXPECT_EQ(tally.listed[bin], listed_spans(heap, bin).size()) << "bin " << bin;
        if (!list_is_empty(heap->free[bin])) list_length(span_of_offset(heap->free[bin] - space.base), heap->free[bin]);
    }
}

} // namespace heap_walker

#endif
