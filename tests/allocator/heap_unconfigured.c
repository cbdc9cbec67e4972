/* Stands where api/ would be when the layers below it are tested alone: no options but those with which whole programs are run
 * again. */
#include "heap/heap.h"

#include <stdlib.h>

void heap_configure(void)
{
    char text[16];
    if (platform_environment("HEAPFIT_TEST_LOCKLESS_THREADS", text, sizeof text))
        atomic_store_explicit(&heap_settings.lockless_threads, (uint32_t)strtoul(text, NULL, 10), memory_order_relaxed);
    if (platform_environment("HEAPFIT_TEST_CACHE_LINE_ALIGN", text, sizeof text))
        heap_settings.cache_line_align = strtoul(text, NULL, 10) != 0;
    if (platform_environment("HEAPFIT_TEST_GUARD_SAMPLE", text, sizeof text))
        atomic_store_explicit(&guard_mean, strtoul(text, NULL, 10), memory_order_relaxed);
    if (platform_environment("HEAPFIT_TEST_SAMPLE", text, sizeof text))
        atomic_store_explicit(&sample_mean, strtoul(text, NULL, 10), memory_order_relaxed);
    if (guard_mean != 0 || sample_mean != 0) atomic_store_explicit(&pick_wanted, true, memory_order_relaxed);
}

bool heap_settings_bound(enum pressure pressure, size_t kept)
{
    (void)pressure, (void)kept;
    return true;
}
