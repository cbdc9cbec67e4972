// Medium pages of the kernel's, where huge ones cost too much. Only root can enable them; the test puts the setting back as it was.
#include "guardian.h"
#include "heap_isolated.h"
#include "model.h"
#include "space_walker.h"

#include <sys/mman.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

namespace
{

constexpr size_t MIB = model::MIB;

std::string setting_path(const std::string &size)
{
    return "/sys/kernel/mm/transparent_hugepage/" + size + "enabled";
}

// The word in brackets.
std::string setting(const std::string &size)
{
    std::ifstream file(setting_path(size));
    std::string words{std::istreambuf_iterator<char>(file), {}};
    size_t from = words.find('['), to = words.find(']');
    return to == std::string::npos ? "" : words.substr(from + 1, to - from - 1);
}

bool set(const std::string &size, const std::string &word)
{
    std::ofstream file(setting_path(size));
    file << word << std::flush;
    return file.good();
}

size_t resident_pages(const char *start, size_t size)
{
    std::vector<unsigned char> resident(size / static_cast<size_t>(getpagesize()));
    EXPECT_EQ(0, mincore(const_cast<char *>(start), size, resident.data()));
    size_t count = 0;
    for (unsigned char page : resident) count += page & 1;
    return count;
}

// Touches a byte in each 64 KiB of 64 MiB behind a heap of that size, and returns the share that is then resident, in per cent.
size_t share_resident()
{
    space_settings.huge_pages = HUGE_PAGES_AUTO;
    space_settings.huge_page_price = 0; // a huge page costs too much, whatever it costs
    constexpr size_t BLOCK = 2 * MIB, BLOCKS = 32;
    for (size_t i = 0; i < BLOCKS; i++) EXPECT_NE(nullptr, heap_malloc(BLOCK));
    size_t resident = 0;
    for (size_t i = 0; i < BLOCKS; i++) {
        char *block = static_cast<char *>(heap_malloc(BLOCK));
        for (size_t at = 0; at < BLOCK; at += SPAN_SIZE) block[at] = 1;
        auto page = reinterpret_cast<uintptr_t>(block) & ~(static_cast<uintptr_t>(getpagesize()) - 1);
        resident += resident_pages(reinterpret_cast<char *>(page), BLOCK);
    }
    space_walker::check();
    return resident * static_cast<size_t>(getpagesize()) * 100 / (BLOCK * BLOCKS);
}

TEST(MediumPages, ComeSixteenAtATimeWhereTheyAreEnabled)
{
    std::string before = setting("hugepages-64kB/");
    if (before.empty()) GTEST_SKIP() << "this kernel has no medium pages";
    if (setting("") == "never") GTEST_SKIP() << "this machine has no huge pages";
    Guardian guardian([before] { set("hugepages-64kB/", before); });
    if (!set("hugepages-64kB/", "madvise")) GTEST_SKIP() << "only root outside of a container may enable medium pages";
    isolated::expect_passes([] { EXPECT_GE(share_resident(), 50u) << "of what was touched once in 64 KiB"; });
    ASSERT_TRUE(set("hugepages-64kB/", "never"));
    isolated::expect_passes([] { EXPECT_LE(share_resident(), 25u); });
}

} // namespace
