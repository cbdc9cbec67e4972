// What the layers say of themselves at this moment, in a form that expectations can hold.
#ifndef HEAPFIT_TESTS_FIGURES_H
#define HEAPFIT_TESTS_FIGURES_H

#include "heap_internals.h"

inline struct space_figures figures_now()
{
    struct space_figures figures;
    space_figures(&figures);
    return figures;
}

namespace figures
{

// Bytes in spans that somebody has, without the allocator's own.
inline size_t in_use()
{
    struct space_figures now = figures_now();
    return now.handed_out - now.metadata;
}

inline struct heap_figures of_heaps()
{
    struct heap_figures now;
    heap_figures(&now);
    return now;
}

} // namespace figures

#endif
