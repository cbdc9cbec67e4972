// A process whose main thread has a heap and nothing else.
#ifndef HEAPFIT_TESTS_NEW_HEAP_H
#define HEAPFIT_TESTS_NEW_HEAP_H

#include "figures.h"
#include "heap_isolated.h"
#include "space_walker.h"

// `body` runs there, and leaves the space sound.
template <typename Body> void in_new_heap(Body body)
{
    isolated::expect_passes([&] {
        heap_free(heap_malloc(1));
        heap_trim();
        ASSERT_EQ(0u, figures::in_use());
        body();
        space_walker::check();
    });
}

#endif
