// The malloc family and C++'s operators while a thread has switched to a context.
#include "context_subject.h"
#include "system.h"

using namespace contexts;

namespace
{

struct alignas(256) Aligned {
    char bytes[300];
};

struct Way {
    const char *name;
    std::function<void *()> allocate;
    std::function<void(void *)> free;
    size_t alignment;
};

void *by_posix_memalign()
{
    void *object = nullptr;
    return posix_memalign(&object, 512, 100) == 0 ? object : nullptr;
}

const std::vector<Way> &ways()
{
    static const std::vector<Way> all{
        {"malloc", [] { return malloc(24); }, free, 16},
        {"malloc of much", [] { return malloc(3000000); }, free, 16},
        {"calloc", [] { return calloc(10, 30); }, free, 16},
        {"realloc", [] { return realloc(nullptr, 40); }, free, 16},
        {"reallocarray", [] { return reallocarray(nullptr, 10, 40); }, free, 16},
        {"aligned_alloc", [] { return aligned_alloc(128, 256); }, free, 128},
        {"posix_memalign", by_posix_memalign, free, 512},
        {"memalign", [] { return memalign(1 << 20, 10); }, free, 1 << 20},
        {"valloc", [] { return valloc(10); }, free, 4096},
        {"new", [] { return operator new(24); }, [](void *object) { operator delete(object); }, 16},
        {"new of much", [] { return operator new(300000); }, [](void *object) { operator delete(object, 300000); }, 16},
        {"new[]", [] { return operator new[](24); }, [](void *object) { operator delete[](object); }, 16},
        {"new, not throwing", [] { return operator new(24, std::nothrow); },
         [](void *object) { operator delete(object); }, 16},
        {"new of what is aligned", [] { return static_cast<void *>(new Aligned); },
         [](void *object) { delete static_cast<Aligned *>(object); }, 256},
    };
    return all;
}

} // namespace

TEST(ContextMalloc, EveryFunctionTakesFromTheContext)
{
    hf_context_config eight{};
    eight.alignment = 8;
    for (const Context &context : {make(), make(eight), make_region()})
        for (const Way &way : ways()) {
            hf_context_switch(context.get());
            void *object = way.allocate();
            hf_context_switch(nullptr);
            ASSERT_TRUE(hf_context_owns(context.get(), object)) << way.name;
            EXPECT_TRUE(is_aligned(object, way.alignment)) << way.name;
            way.free(object);
        }
}

TEST(ContextMalloc, NewThrowsAtTheContextsLimit)
{
    hf_context_config config{};
    config.limit = CHUNK;
    Context context = make(config);
    bool thrown = false;
    hf_context_switch(context.get());
    try {
        free(operator new(2 * CHUNK));
    } catch (const std::bad_alloc &) {
        thrown = true;
    }
    void *refused = operator new(2 * CHUNK, std::nothrow);
    hf_context_switch(nullptr);
    EXPECT_TRUE(thrown) << "though the exception itself is allocated there";
    EXPECT_EQ(nullptr, refused);
}
