// What the program does wrong is named in one line on stderr, and the program ends.

#include "heapfit/heapfit.h"
#include "system.h"

extern "C" void free_sized(void *, size_t);
extern "C" void free_aligned_sized(void *, size_t, size_t);

// Nothing follows the one line; an emulator adds what it has to say. Where lines are counted, writing the counts allocates, and
// that may find the mistake again.
#if HEAPFIT_TEST_COUNTED
#define LINE_END "\n(heapfit: [^\n]*\n)?$"
#else
#define LINE_END "\n(qemu: [^\n]*\n)?$"
#endif

namespace
{

// Hides where a pointer comes from: compilers warn of what these tests do.
template <typename Pointer> Pointer *hidden(Pointer *pointer)
{
    Pointer *volatile copy = pointer;
    return copy;
}

void in_another_thread(void (*act)(void *), void *argument)
{
    std::thread(act, argument).join();
}

constexpr const char *one_line_double_free = "^heapfit: double free of 0x[0-9a-f]+" LINE_END;
constexpr const char *one_line_not_allocated =
    "^heapfit: (free|realloc|malloc_usable_size) of 0x[0-9a-f]+, which is not allocated \\(freed before\\?\\)" LINE_END;

} // namespace

TEST(DoubleFree, IsNoticedAtOnce)
{
    void *object = malloc(100);
    EXPECT_DEATH(
        {
            free(object);
            free(hidden(object));
        },
        one_line_double_free);
    free(object);
}

TEST(DoubleFree, IsNoticedWhenAnotherThreadDoesTheSecond)
{
    // By the thread that allocates next: either it receives the block, or it takes it from its own list.
    EXPECT_DEATH(
        {
            std::vector<void *> objects;
            for (int i = 0; i < 2000; i++) objects.push_back(malloc(100));
            free(objects[1000]);
            in_another_thread([](void *shared) { free(hidden(shared)); }, objects[1000]);
            for (int i = 0; i < 2000; i++) objects.push_back(malloc(100));
        },
        "^heapfit: (double free of|corrupted free list: the free block at) 0x[0-9a-f]+[^\n]*" LINE_END);
}

TEST(DoubleFree, IsNoticedOfALargeObject)
{
    EXPECT_DEATH(
        {
            void *object = malloc(1000000);
            free(object);
            free(hidden(object));
        },
        one_line_not_allocated);
}

TEST(ForeignPointer, OnTheStackIsNoticed)
{
    int on_the_stack[16] = {};
    EXPECT_DEATH(free(hidden(on_the_stack)),
                 "^heapfit: free of a foreign pointer: 0x[0-9a-f]+ was not allocated by heapfit" LINE_END);
    EXPECT_DEATH(free(realloc(hidden(on_the_stack), 10)),
                 "^heapfit: realloc of a foreign pointer: 0x[0-9a-f]+ was not allocated by heapfit" LINE_END);
    EXPECT_DEATH(hf_usable_size(hidden(on_the_stack)),
                 "^heapfit: malloc_usable_size of a foreign pointer: 0x[0-9a-f]+ .*" LINE_END);
}

TEST(InteriorPointer, OfASmallObjectIsNamedWithItsBlock)
{
    auto object = static_cast<char *>(malloc(96));
    EXPECT_DEATH(free(hidden(object + 16)),
                 "^heapfit: free of an interior pointer: 0x[0-9a-f]+ points 16 bytes into the block at 0x[0-9a-f]+ of "
                 "[0-9]+ bytes" LINE_END);
    EXPECT_DEATH(free(realloc(hidden(object + 32), 10)), "^heapfit: realloc of an interior pointer: .*" LINE_END);
    free(object);
}

TEST(InteriorPointer, OfALargeObjectIsNamedWithItsStart)
{
    auto object = static_cast<char *>(malloc(1000000));
    EXPECT_DEATH(
        free(hidden(object + 500000)),
        "^heapfit: free of an interior pointer: 0x[0-9a-f]+ points 500000 bytes into the object at 0x[0-9a-f]+ of "
        "[0-9]+ bytes" LINE_END);
    free(object);
}

TEST(UnallocatedPointer, BeyondAllThatWasEverUsedIsNoticed)
{
    // Larger than any gap that earlier tests have left, so nothing in use lies behind it.
    constexpr size_t SIZE = size_t{64} << 20;
    auto last = static_cast<char *>(malloc(SIZE));
    EXPECT_DEATH(free(hidden(last + SIZE + (size_t{1} << 20))),
                 "^heapfit: free of (0x[0-9a-f]+, which is not allocated|a foreign pointer: ).*" LINE_END);
    // And beyond what is reserved.
    EXPECT_DEATH(free(hidden(last + (size_t{1} << 35))), "^heapfit: free of a foreign pointer: .*" LINE_END);
    free(last);
}

TEST(UseAfterFree, ThatOverwritesTheLinkIsNoticed)
{
    EXPECT_DEATH(
        {
            std::vector<void *> objects;
            for (int i = 0; i < 200; i++) objects.push_back(malloc(100));
            for (void *object : objects) {
                free(object);
                memset(hidden(object), 0x41, 8);
            }
            for (int i = 0; i < 2000; i++) objects.push_back(malloc(100));
        },
        "^heapfit: corrupted free list: the free block at 0x[0-9a-f]+ was written to after it was freed" LINE_END);
}

TEST(SizeMismatch, OfFreeSizedIsNoticed)
{
    void *small = malloc(100);
    EXPECT_DEATH(free_sized(small, 100000),
                 "^heapfit: free of 0x[0-9a-f]+ with size 100000, but only [0-9]+ bytes were allocated" LINE_END);
    free(small);
    void *large = malloc(100000);
    EXPECT_DEATH(free_sized(large, 1000000), "with size 1000000, but only 102400 bytes were allocated" LINE_END);
    free(large);
}

TEST(SizeMismatch, OfSizedDeleteIsNoticed)
{
    void *object = operator new(100);
    EXPECT_DEATH(operator delete(object, size_t{5000}),
                 "with size 5000, but only [0-9]+ bytes were allocated" LINE_END);
    operator delete(object);
}

TEST(AlignmentMismatch, IsNoticed)
{
    auto *object = static_cast<char *>(aligned_alloc(64, 128));
    size_t larger = 64;
    while (reinterpret_cast<uintptr_t>(object) % larger == 0) larger *= 2;
    const char *said = "^heapfit: free of 0x[0-9a-f]+ with alignment [0-9]+, which it does not have" LINE_END;
    EXPECT_DEATH(free_aligned_sized(object, larger, 128), said);
    EXPECT_DEATH(operator delete(object, std::align_val_t{larger}), said);
    EXPECT_DEATH(operator delete(object, size_t{128}, std::align_val_t{larger}), said);
    EXPECT_DEATH(operator delete[](object, std::align_val_t{larger}), said);
    EXPECT_DEATH(operator delete[](object, size_t{128}, std::align_val_t{larger}), said);
    free_aligned_sized(object, 64, 128);
    free_aligned_sized(nullptr, 64, 0);
}
