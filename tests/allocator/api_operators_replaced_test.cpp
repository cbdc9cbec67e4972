// A program that replaces the basic forms of operator new and delete only: the C++ standard has every other form end up in
// them. Ours put a header before each object, so that one which passed them by would be noticed.

#include "system.h"

namespace
{

constexpr size_t header = 64; // keeps the alignment that these tests ask for
constexpr uint64_t marked = 0x1234567890ABCDEF;
int news, deletes;

void *allocate(size_t size)
{
    void *start = aligned_alloc(header, size + header);
    if (start == nullptr) throw std::bad_alloc();
    memcpy(start, &marked, sizeof marked);
    news++;
    void *volatile object = static_cast<char *>(start) + header; // volatile: gcc warns of deleting what has an offset
    return object;
}

void release(void *pointer)
{
    if (pointer == nullptr) return;
    char *start = static_cast<char *>(pointer) - header;
    if (memcmp(start, &marked, sizeof marked) != 0) abort();
    deletes++;
    free(start);
}

volatile size_t too_much = static_cast<size_t>(PTRDIFF_MAX) - 2 * header;
constexpr auto alignment = std::align_val_t{32};

class Replaced : public testing::Test
{
  protected:
    void SetUp() override
    {
        news = deletes = 0;
    }
};

} // namespace

// Leaving out the sized forms, of which gcc warns, is what this is about.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wsized-deallocation"
#endif

void *operator new(size_t size)
{
    return allocate(size);
}

void *operator new(size_t size, std::align_val_t)
{
    return allocate(size);
}

void operator delete(void *pointer) noexcept
{
    release(pointer);
}

void operator delete(void *pointer, std::align_val_t) noexcept
{
    release(pointer);
}

TEST_F(Replaced, IsUsedByAllForms)
{
    void (*const forms[])() = {
        [] { operator delete(operator new(10)); },
        [] { operator delete(operator new(10), size_t{10}); },
        [] { operator delete[](operator new[](10)); },
        [] { operator delete(operator new(10, std::nothrow), std::nothrow); },
        [] { operator delete(operator new(10, alignment), size_t{10}, alignment); },
        [] { operator delete[](operator new[](10, alignment), alignment); },
        [] { operator delete[](operator new[](10, alignment, std::nothrow), alignment, std::nothrow); },
    };
    for (auto form : forms) {
        news = deletes = 0;
        form();
        EXPECT_EQ(news, 1);
        EXPECT_EQ(deletes, 1);
    }
}

TEST_F(Replaced, MayThrowUnderNothrow)
{
    EXPECT_EQ(operator new(too_much, std::nothrow), nullptr);
    EXPECT_EQ(operator new[](too_much, std::nothrow), nullptr);
    EXPECT_EQ(operator new(too_much, alignment, std::nothrow), nullptr);
    EXPECT_EQ(operator new[](too_much, alignment, std::nothrow), nullptr);
    EXPECT_EQ(news, 0);
}
