// What the model and stress tests call. With HEAPFIT_TEST_LAYERS the layers' internal functions, so that the same test
// runs under sanitizers, which want malloc for themselves; otherwise the malloc family that programs call.
#ifndef HEAPFIT_TESTS_HEAP_SUBJECT_H
#define HEAPFIT_TESTS_HEAP_SUBJECT_H

#include "system.h"

#ifdef HEAPFIT_TEST_LAYERS

#include "figures.h"
#include "heap_internals.h"

#ifdef HEAPFIT_TEST_POOLS
#include "pools_subject.h"
#endif

namespace subject
{

// Bytes of a block that the object has not.
constexpr size_t TAIL = OBJECT_TAIL;

inline void *allocate(size_t size)
{
#ifdef HEAPFIT_TEST_POOLS
    return pools_subject::allocate(size);
#else
    return heap_malloc(size);
#endif
}
inline void *allocate_zeroed(size_t size)
{
    return heap_calloc(size);
}
inline void *allocate_aligned(size_t size, size_t alignment)
{
    return heap_malloc_aligned(size, alignment);
}
inline void *resize(void *pointer, size_t size)
{
    return heap_realloc(pointer, size);
}
inline void release(void *pointer)
{
    heap_free(pointer);
}
inline size_t usable_size(void *pointer)
{
    return heap_usable_size(pointer);
}
inline void trim()
{
    heap_trim();
}
inline void set_decay_ms(unsigned milliseconds)
{
    space_settings.decay_ms = milliseconds;
}
inline void set_remote_free_batch(unsigned blocks)
{
    heap_settings.remote_free_batch = blocks;
}
inline void set_thread_spans(unsigned spans)
{
    heap_settings.thread_spans_cached = spans;
}
inline void set_free_page_threshold(unsigned bytes)
{
    heap_settings.free_page_threshold = bytes;
}
// Of all threads' heaps.
inline void trim_everywhere()
{
    heap_trim_everywhere();
}
// A measure of what lives: bytes of the spans that anything lives in.
// Addresses of empty objects are set apart for ever.
constexpr size_t LIVING_TOLERATED = HARDENED ? size_t{4} * SPAN_SIZE : 0;
inline size_t living()
{
    heap_trim();
    if (HARDENED) hardened_large_release(); // which trimming leaves: it takes no memory
    size_t slots = (2 * size_t{guard.slots} + 1) * guard.page; // set apart for ever
    return figures::in_use() - (slots + SPAN_SIZE - 1) / SPAN_SIZE * SPAN_SIZE;
}

} // namespace subject

#else

extern "C" {
#include "heap/size_class.h"
}
#include "heapfit/heapfit.h"

namespace subject
{

constexpr size_t TAIL = 0;

inline void *allocate(size_t size)
{
    return std::malloc(size);
}
inline void *allocate_zeroed(size_t size)
{
    return std::calloc(1, size);
}
inline void *allocate_aligned(size_t size, size_t alignment)
{
    return memalign(alignment, size);
}
inline void *resize(void *pointer, size_t size)
{
    return std::realloc(pointer, size);
}
inline void release(void *pointer)
{
    std::free(pointer);
}
inline size_t usable_size(void *pointer)
{
    return malloc_usable_size(pointer);
}
inline void trim()
{
    malloc_trim(0);
}
inline void set_option(const char *name, unsigned value)
{
    if (hf_option_set(name, std::to_string(value).c_str()) != 0) std::abort();
}
inline void set_decay_ms(unsigned milliseconds)
{
    set_option("decay_ms", milliseconds);
}
inline void set_remote_free_batch(unsigned blocks)
{
    set_option("remote_free_batch", blocks);
}
inline void set_thread_spans(unsigned spans)
{
    set_option("thread_span_threshold", spans * 65536);
}
inline void set_free_page_threshold(unsigned bytes)
{
    set_option("free_page_threshold", bytes);
}
inline void trim_everywhere()
{
    hf_footprint_shrink();
    hf_footprint_restore();
}
// A measure of what lives: objects. The C library keeps some of each thread whose stack it keeps.
constexpr size_t LIVING_TOLERATED = 64;
inline size_t living()
{
    malloc_trim(0);
    hf_stats stats;
    if (hf_stats_get(&stats, sizeof stats) != 0) std::abort();
    return stats.live_objects;
}

} // namespace subject

#endif

namespace subject
{

// The defaults, as api/options_table.c has them.
inline void reset_options()
{
    set_decay_ms(500);
    set_remote_free_batch(64);
    set_thread_spans(4);
    set_free_page_threshold(UINT32_MAX);
}

} // namespace subject

#endif
