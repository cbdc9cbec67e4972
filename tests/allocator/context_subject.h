// What the tests of contexts share: contexts that end with the test, their figures, and patterns in objects.
#ifndef HEAPFIT_TESTS_CONTEXT_SUBJECT_H
#define HEAPFIT_TESTS_CONTEXT_SUBJECT_H

#include "heapfit/heapfit.h"
#include "system.h"

namespace contexts
{

constexpr size_t KIB = 1024, MIB = 1024 * KIB;
constexpr size_t CHUNK = 2 * MIB, SEGMENT = 32 * KIB; // defaults

struct Destroy {
    void operator()(hf_context *context) const
    {
        hf_context_destroy(context);
    }
};
using Context = std::unique_ptr<hf_context, Destroy>;

inline Context make(const hf_context_config &config = {})
{
    Context context(hf_context_create(&config));
    EXPECT_NE(nullptr, context);
    return context;
}

inline Context make_region(size_t chunk_size = 0)
{
    hf_context_config config{};
    config.kind = HF_REGION;
    config.chunk_size = chunk_size;
    return make(config);
}

inline hf_context_stats figures(const Context &context)
{
    hf_context_stats stats;
    EXPECT_EQ(0, hf_context_stats_get(context.get(), &stats, sizeof stats));
    return stats;
}

inline void fill(void *object, size_t size, unsigned char pattern)
{
    std::memset(object, pattern, size);
}

inline bool holds(const void *object, size_t size, unsigned char pattern)
{
    const auto *bytes = static_cast<const unsigned char *>(object);
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != pattern) return false;
    return true;
}

inline bool is_aligned(const void *object, size_t alignment)
{
    return reinterpret_cast<uintptr_t>(object) % alignment == 0;
}

} // namespace contexts

#endif
