// Under strict overcommit the kernel counts what is accessible as used. What has been purged is taken off its account, and
// put there again before it is used. The kernel's policy is pretended: to set it would be felt by all of the machine.
#include "heap_isolated.h"
#include "heapfit/heapfit.h"
#include "model.h"
#include "space_walker.h"
#include "system.h"

static bool commits_fail;

extern "C" {
bool __real_platform_commit(void *start, size_t size);
bool __wrap_platform_commit(void *start, size_t size)
{
    return !commits_fail && __real_platform_commit(start, size);
}
bool __wrap_platform_overcommit_is_strict(void)
{
    return true;
}
}

namespace
{

constexpr size_t MIB = model::MIB;

struct Account {
    size_t bytes = 0; // of the spans, writable: that the kernel counts under such a policy
    size_t mappings = 0; // of the spans
};

Account account()
{
    Account account;
    std::ifstream smaps("/proc/self/smaps");
    uintptr_t start = 0, end = 0;
    bool within = false;
    for (std::string line; std::getline(smaps, line);) {
        char dash = 0;
        std::istringstream words(line);
        uintptr_t first, second;
        if (words >> std::hex >> first >> dash >> second && dash == '-') {
            start = first;
            end = second;
            within = end > space.base && start < space.base + space.size; // the first with some of the table
            account.mappings += within;
        } else if (within && line.rfind("VmFlags:", 0) == 0 && line.find(" wr") != std::string::npos) {
            account.bytes += end - start;
        }
    }
    return account;
}

std::vector<char *> allocate(size_t size, size_t count)
{
    std::vector<char *> objects;
    for (size_t i = 0; i < count; i++) {
        objects.push_back(static_cast<char *>(heap_malloc(size)));
        std::memset(objects.back(), 1, size);
    }
    return objects;
}

void free_all(const std::vector<char *> &objects)
{
    for (char *object : objects) heap_free(object);
}

TEST(Uncommit, WhatHasBeenPurgedIsNoLongerCounted)
{
    isolated::expect_passes([] {
        char *live = static_cast<char *>(heap_malloc(MIB));
        std::memset(live, 7, MIB);
        for (int round = 0; round < 3; round++) {
            for (size_t size : {3 * MIB, size_t{1000}, size_t{20'000}}) {
                std::vector<char *> objects = allocate(size, 150 * MIB / size);
                EXPECT_GE(account().bytes, 150 * MIB - 2 * size);
                free_all(objects);
                heap_trim();
                EXPECT_LE(account().bytes, 40 * MIB) << size << ": what was made accessible in advance stays";
                space_walker::check();
            }
        }
        for (size_t i = 0; i < MIB; i++) ASSERT_EQ(7, live[i]);
        auto *zeros = static_cast<unsigned char *>(heap_calloc(50 * MIB));
        model::expect_zeroed(zeros, 50 * MIB);
        std::memset(zeros, 1, 50 * MIB);
    });
}

TEST(Uncommit, WhereTheKernelGivesItBackToNobodyThatIsAnError)
{
    isolated::expect_passes([] {
        std::vector<char *> objects = allocate(5 * MIB, 10);
        for (size_t i = 1; i < 9; i++) heap_free(objects[i]);
        heap_trim();
        commits_fail = true;
        errno = 0;
        EXPECT_EQ(nullptr, heap_malloc(10 * MIB));
        EXPECT_EQ(ENOMEM, errno);
        EXPECT_EQ(nullptr, heap_realloc(objects[0], 30 * MIB));
        EXPECT_EQ(1, objects[0][5 * MIB - 1]);
        space_walker::check();
        commits_fail = false;
        std::memset(heap_malloc(10 * MIB), 1, 10 * MIB);
        char *grown = static_cast<char *>(heap_realloc(objects[0], 20 * MIB));
        ASSERT_NE(nullptr, grown);
        std::memset(grown, 2, 20 * MIB);
        space_walker::check();
    });
}

} // namespace
