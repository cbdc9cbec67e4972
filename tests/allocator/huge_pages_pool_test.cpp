// huge_pages:hugetlb with a pool of the kernel's. Only root can set one aside; the tests put it back as it was.
#include "guardian.h"
#include "heap_isolated.h"
#include "model.h"
#include "space_walker.h"

#include <sys/mman.h>

#include <fstream>
#include <memory>
#include <string>

namespace
{

constexpr size_t MIB = model::MIB;

long pool_figure(const std::string &name)
{
    std::ifstream file("/sys/kernel/mm/hugepages/hugepages-2048kB/" + name);
    long value = -1;
    file >> value;
    return value;
}

void set_pool(long pages)
{
    std::ofstream("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages") << pages << std::flush;
}

class KernelsPool : public testing::Test
{
  protected:
    void SetUp() override
    {
        before_ = pool_figure("nr_hugepages");
        if (before_ < 0) GTEST_SKIP() << "this kernel has no pool of 2 MiB pages";
        if (before_ > 0) GTEST_SKIP() << "others use the pool";
        guardian_ = std::make_unique<Guardian>([] { set_pool(0); });
    }

    // In a process of its own, with this many pages; all come back when it ends.
    template <typename Body> void with_pages(long pages, Body body)
    {
        set_pool(pages);
        if (pool_figure("free_hugepages") < pages)
            GTEST_SKIP() << "a pool of " << pages << " pages needs root, and so much memory in one piece each";
        isolated::expect_passes([&] {
            space_settings.huge_pages = HUGE_PAGES_HUGETLB;
            space_settings.reservation = 1024 * MIB;
            space_settings.decay_ms = 1u << 30;
            body();
            space_walker::check();
        });
        EXPECT_EQ(pages, pool_figure("free_hugepages")) << "of the process that has ended";
        EXPECT_EQ(0, pool_figure("resv_hugepages"));
    }

  private:
    long before_ = -1;
    std::unique_ptr<Guardian> guardian_;
};

model::Block block_of(size_t size)
{
    model::Block block{static_cast<unsigned char *>(heap_malloc(size)), size, size, size};
    EXPECT_NE(nullptr, block.start);
    model::fill(block);
    return block;
}

void silence()
{
    ASSERT_NE(nullptr, std::freopen("/dev/null", "w", stderr));
}

TEST_F(KernelsPool, ARandomWalkOverItsEndKeepsContents)
{
    uint64_t seed = stress::seed();
    SCOPED_TRACE(stress::how_to_repeat());
    with_pages(30, [seed] {
        silence();
        model::Blocks blocks(seed, 128 * MIB);
        for (int step = 0; step < 3000; step++) {
            space_settings.decay_ms = step % 64 == 0 ? 0 : 1u << 30;
            blocks.step(60);
            if (step % 500 == 499) heap_trim();
        }
        blocks.check_all();
        blocks.release_all();
    });
}

// The kernel's rule for private pages of the pool: the parent's are safe, and it takes them from the child if there
// is no other to copy to.
TEST_F(KernelsPool, KeepsTheParentOfAForkSafe)
{
    with_pages(16, [] {
        silence();
        model::Block block = block_of(40 * MIB);
        ASSERT_EQ(0, pool_figure("free_hugepages"));
        int status = isolated::run_child([&] { model::expect_intact(block); });
        EXPECT_TRUE(WIFEXITED(status)) << "a child may read";
        int ends[2];
        ASSERT_EQ(0, pipe(ends));
        pid_t child = fork();
        if (child == 0) {
            char word;
            _exit(read(ends[0], &word, 1) == 1 ? 0 : 1);
        }
        block.tag++;
        model::fill(block); // while the child has the same pages
        model::expect_intact(block);
        ASSERT_EQ(1, write(ends[1], "", 1));
        ASSERT_EQ(child, waitpid(child, &status, 0));
        EXPECT_TRUE(WIFEXITED(status)) << "a child that does not touch the heap goes on";
    });
}

} // namespace
