// realloc of very large blocks when the kernel cannot move their pages. The program is linked with a wrapped mremap, which counts.
#include "heap_isolated.h"
#include "model.h"
#include "pages.h"
#include "system.h"

#include <cinttypes>

namespace
{

constexpr size_t MIB = model::MIB;

int moves_done;

} // namespace

extern "C" void *__real_mremap(void *from, size_t old_size, size_t size, int flags, ...);

extern "C" void *__wrap_mremap(void *from, size_t old_size, size_t size, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    void *to = (flags & MREMAP_FIXED) != 0 ? va_arg(arguments, void *) : nullptr;
    va_end(arguments);
    void *moved = __real_mremap(from, old_size, size, flags, to);
    if (to != nullptr && moved == to) moves_done++;
    return moved;
}

namespace
{

model::Block block_of(size_t size)
{
    model::Block block{static_cast<unsigned char *>(heap_malloc(size)), size, size, size};
    EXPECT_NE(nullptr, block.start);
    model::fill(block);
    return block;
}

void expect_kept(model::Block block, void *moved)
{
    ASSERT_NE(nullptr, moved);
    block.start = static_cast<unsigned char *>(moved);
    EXPECT_EQ(block.size, model::first_difference(block, block.size));
}

// Of the mapping that holds `address`: pages of zeros that were read alone are not dirty.
size_t dirty_kib(const void *address)
{
    FILE *maps = std::fopen("/proc/self/smaps", "r");
    uintptr_t low, high;
    size_t kib = 0;
    bool here = false;
    char line[512];
    while (std::fgets(line, sizeof line, maps) != nullptr) {
        if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &low, &high) == 2)
            here = low <= reinterpret_cast<uintptr_t>(address) && reinterpret_cast<uintptr_t>(address) < high;
        else if (here && std::sscanf(line, "Private_Dirty: %zu", &kib) == 1) break;
    }
    std::fclose(maps);
    return kib;
}

// What cannot be moved at once is moved in parts, and where that is not possible either, copied, without existing twice.
TEST(MovePages, OfABlockInSeveralMappingsLeavesNothingBehind)
{
    isolated::expect_passes([] {
        model::Block block = block_of(64 * MIB);
        model::Block fence = block_of(MIB);
        for (size_t part : {10, 40}) ASSERT_EQ(0, madvise(block.start + part * MIB, MIB, MADV_DONTFORK));
        void *moved = heap_realloc(block.start, 80 * MIB);
        ASSERT_NE(block.start, moved);
        expect_kept(block, moved);
        EXPECT_GT(moves_done, HEAPFIT_TEST_EMULATED ? -1 : 1);
        EXPECT_EQ(0u, pages::resident(block.start, 64 * MIB));
        (void)fence;
    });
}

TEST(MovePages, WhatIsCopiedTakesNoMemoryWhereItHoldsNone)
{
    for (size_t size : {MIB, 3 * MIB}) {
        isolated::expect_passes([size] {
            auto *start = static_cast<unsigned char *>(heap_malloc(size));
            for (size_t i = 0; i < size; i += 64 * 4096) start[i] = 1;
            model::Block fence = block_of(MIB);
            auto *moved = static_cast<unsigned char *>(heap_realloc(start, size + MIB));
            ASSERT_NE(start, moved);
            size_t before = dirty_kib(moved);
            EXPECT_LE(before, 2 * size / (64 * 4096) * 4 + fence.size / 1024 + 64)
                << "both copies, the fence, other objects";
            for (size_t i = 0; i < size; i++) ASSERT_EQ(i % (64 * 4096) == 0, moved[i]) << i;
        });
    }
}

// With less address space allowed than is in use, the kernel unmaps the target of a move, then refuses.
TEST(MovePages, ALimitBelowWhatIsInUseIsAnOrdinaryFailure)
{
    isolated::expect_passes([] {
        model::Block block = block_of(8 * MIB);
        model::Block fence = block_of(MIB);
        heap_free(block_of(40 * MIB).start);
        struct rlimit unlimited;
        ASSERT_EQ(0, getrlimit(RLIMIT_AS, &unlimited));
        struct rlimit limit = unlimited;
        limit.rlim_cur = MIB;
        ASSERT_EQ(0, setrlimit(RLIMIT_AS, &limit));
        errno = 0;
        void *moved = heap_realloc(block.start, 20 * MIB);
        if (moved == nullptr) {
            EXPECT_EQ(ENOMEM, errno);
            EXPECT_EQ(block.size, model::first_difference(block, block.size));
        } else {
            expect_kept(block, moved);
        }
        ASSERT_EQ(0, setrlimit(RLIMIT_AS, &unlimited));
        for (size_t size = 4 * MIB; size < 64 * MIB; size *= 2) block_of(size); // touches all it gets
        (void)fence;
    });
}

} // namespace
