// Size classes: the table, the arithmetic and the sizes themselves say the same.
#include <gtest/gtest.h>

#include "heap_internals.h"

namespace
{

TEST(SizeClass, IsTheSmallestWhoseBlocksHoldTheRequest)
{
    for (size_t size = 0; size <= SMALL_MAX; size++) {
        unsigned bin = size_class(size);
        ASSERT_LT(bin, static_cast<unsigned>(BIN_COUNT)) << size;
        ASSERT_GE(size_class_bytes(bin), size);
        if (bin > 0) {
            ASSERT_LT(size_class_bytes(bin - 1), size) << "a smaller block would do";
        }
    }
}

TEST(SizeClass, TableAndArithmeticAgree)
{
    for (size_t size = LINEAR_MAX + 1; size <= FAST_MAX; size++)
        ASSERT_EQ(size_class_computed(size), size_class_fast(size)) << size;
}

TEST(SizeClass, BlocksGrowStrictlyAndKeepMallocsAlignment)
{
    for (unsigned bin = 0; bin < BIN_COUNT; bin++) {
        EXPECT_EQ(0u, size_class_bytes(bin) % MALLOC_ALIGNMENT) << bin;
        if (bin > 0) {
            EXPECT_GT(size_class_bytes(bin), size_class_bytes(bin - 1));
        }
    }
    EXPECT_EQ(static_cast<uint32_t>(SMALL_MAX), size_class_bytes(BIN_COUNT - 1));
}

TEST(SizeClass, RoundingWastesAtMostANinth)
{
    for (size_t size = LINEAR_MAX + 1; size <= SMALL_MAX; size++) {
        size_t block = size_class_bytes(size_class(size));
        ASSERT_LE((block - size) * 9, block) << size;
    }
}

// fast.h divides by multiplying: it must be right for every block size and every offset.
TEST(SizeClass, TheReciprocalRecognisesEveryStartOfABlockAndNothingElse)
{
    for (unsigned bin = 0; bin < BIN_COUNT; bin++) {
        uint32_t bytes = size_class_bytes(bin);
        uint32_t reciprocal = UINT32_MAX / bytes + 1;
        struct span span = {};
        span.reciprocal = reciprocal;
        for (uint32_t offset = 0; offset < 65536; offset++)
            ASSERT_EQ(offset % bytes == 0, block_is_at_start(&span, offset)) << offset << " of " << bytes;
    }
}

} // namespace
