// Checks everything that must hold of the span table between two calls into space/, from the descriptors alone.
#ifndef HEAPFIT_TESTS_SPACE_WALKER_H
#define HEAPFIT_TESTS_SPACE_WALKER_H

#include "heap_internals.h"
#include "system.h"

namespace space_walker
{

constexpr uint8_t CLEAN_POOL = 0; // the dirty ones follow, one for each node, then as many of cleared runs

// Dirty pools alone have a list by age.
inline bool is_dirty(uint8_t pool)
{
    struct space_figures figures;
    space_figures(&figures);
    return pool > CLEAN_POOL && pool <= CLEAN_POOL + figures.nodes;
}

struct Tally {
    size_t spans[UINT8_MAX + 1] = {}; // free, by pool
    size_t handed_out = 0;
    uint32_t youngest_runs[UINT8_MAX + 1] = {}, oldest_runs[UINT8_MAX + 1] = {}; // ends of a pool's list by age
};

inline void check_links(uint32_t index, const struct span *run)
{
    if (run->next != SPAN_NONE) {
        EXPECT_EQ(index, span_at(run->next)->prev) << "list of run lengths, run " << index;
        EXPECT_EQ(run->pool, span_at(run->next)->pool);
        EXPECT_EQ(SPAN_FREE, span_at(run->next)->kind);
    }
    if (run->prev != SPAN_NONE) {
        EXPECT_EQ(index, span_at(run->prev)->next);
    }
}

inline void check_age(uint32_t index, const struct span *run, Tally &tally)
{
    tally.youngest_runs[run->pool] += run->owned_prev == SPAN_NONE;
    tally.oldest_runs[run->pool] += run->owned_next == SPAN_NONE;
    if (run->owned_next == SPAN_NONE) return;
    const struct span *older = span_at(run->owned_next);
    EXPECT_EQ(index, older->owned_prev) << "list by age, run " << index;
    EXPECT_EQ(run->pool, older->pool);
    EXPECT_GE(span_since(run), span_since(older)) << "not in the order of age";
}

inline void check_free_run(uint32_t index, const struct span *run, Tally &tally)
{
    const struct span *last = span_at(index + run->run_spans - 1);
    EXPECT_EQ(SPAN_FREE, last->kind) << "run " << index;
    EXPECT_EQ(run->run_spans, last->run_spans) << "boundary tags of run " << index;
    EXPECT_EQ(run->pool, last->pool) << "boundary tags of run " << index;
    tally.spans[run->pool] += run->run_spans;
    check_links(index, run);
    if (is_dirty(run->pool)) check_age(index, run, tally);
}

inline void check_run_in_use(uint32_t index, const struct span *run, Tally &tally)
{
    if (run->run_spans > 1) {
        EXPECT_EQ(SPAN_TAIL, span_at(index + run->run_spans - 1)->kind) << "end of run " << index;
    }
    tally.handed_out += run->run_spans;
}

inline void check_pools(const struct space_figures &figures, const Tally &tally)
{
    std::vector<struct space_node_figures> nodes(figures.nodes);
    EXPECT_EQ(nodes.size(), space_node_figures(nodes.data(), nodes.size()));
    size_t dirty = 0, zeroed = 0, first_zeroed = CLEAN_POOL + 1 + nodes.size();
    for (size_t pool = first_zeroed; pool <= UINT8_MAX; pool++) {
        size_t node = pool - first_zeroed;
        EXPECT_EQ(node < nodes.size() ? nodes[node].zeroed : 0, tally.spans[pool] * SPAN_SIZE) << "node " << node;
        zeroed += tally.spans[pool];
    }
    EXPECT_EQ(figures.zeroed, zeroed * SPAN_SIZE);
    for (size_t pool = CLEAN_POOL + 1; pool < first_zeroed; pool++) {
        size_t node = pool - CLEAN_POOL - 1;
        EXPECT_EQ(nodes[node].dirty, tally.spans[pool] * SPAN_SIZE) << "node " << node;
        uint32_t ends = tally.spans[pool] == 0 ? 0 : 1;
        EXPECT_EQ(ends, tally.youngest_runs[pool]) << "runs at the young end of the list by age, node " << node;
        EXPECT_EQ(ends, tally.oldest_runs[pool]) << "runs at the old end of the list by age, node " << node;
        dirty += tally.spans[pool];
    }
    EXPECT_EQ(figures.clean, tally.spans[CLEAN_POOL] * SPAN_SIZE);
    EXPECT_EQ(figures.dirty, dirty * SPAN_SIZE);
}

// No other thread may be inside the layer.
inline void check()
{
    struct space_figures figures;
    space_figures(&figures);
    size_t frontier = (figures.handed_out + figures.dirty + figures.clean + figures.zeroed) / SPAN_SIZE;
    Tally tally;
    const struct span *before = nullptr;
    for (uint32_t index = 0; index < frontier;) {
        const struct span *run = span_at(index);
        ASSERT_GT(run->run_spans, 0u) << "run " << index;
        ASSERT_LE(index + run->run_spans, frontier) << "run " << index;
        for (uint32_t inner = 1; inner + 1 < run->run_spans; inner++) {
            ASSERT_EQ(SPAN_FREE, span_at(index + inner)->kind)
                << "a pointer into span " << index + inner << ", inside run " << index
                << ", would be taken for an object";
            ASSERT_EQ(nullptr, span_at(index + inner)->owner.load());
        }
        if (run->kind == SPAN_FREE) {
            check_free_run(index, run, tally);
            if (before != nullptr && before->kind == SPAN_FREE) {
                EXPECT_NE(before->pool, run->pool) << "neighbours not merged at " << index;
            }
        } else {
            check_run_in_use(index, run, tally);
        }
        before = run;
        index += run->run_spans;
    }
    check_pools(figures, tally);
    EXPECT_EQ(figures.handed_out, tally.handed_out * SPAN_SIZE);
    EXPECT_LE(figures.metadata, figures.handed_out);
    EXPECT_LE(frontier * SPAN_SIZE, figures.committed);
    EXPECT_LE(figures.committed, figures.reserved);
}

} // namespace space_walker

#endif
