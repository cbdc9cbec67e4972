// A program that is started by vfork, which makes the child the parent's thread for a while.

#include "system.h"

namespace
{

// Allocates, fills, checks and frees objects of many sizes; false when one does not hold what was written.
bool churn(int rounds, unsigned seed = 1)
{
    struct Live {
        unsigned char *start;
        size_t size;
    };
    std::vector<Live> live;
    for (int i = 0; i < rounds; i++) {
        seed = seed * 1103515245 + 12345;
        size_t size = 1 + (seed >> 16) % (i % 64 == 0 ? 150000 : 600);
        auto start = static_cast<unsigned char *>(malloc(size));
        if (start == nullptr) return false;
        start[0] = start[size - 1] = static_cast<unsigned char>(size);
        live.push_back({start, size});
        if (live.size() < 300) continue;
        Live victim = live[seed % live.size()];
        live[seed % live.size()] = live.back();
        live.pop_back();
        if (victim.start[0] != static_cast<unsigned char>(victim.size)) return false;
        if (victim.start[victim.size - 1] != static_cast<unsigned char>(victim.size)) return false;
        free(victim.start);
    }
    for (const Live &each : live) free(each.start);
    return true;
}

constexpr int child_is_well = 0, child_is_not = 1;

void expect_well(pid_t child)
{
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << "killed by signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), child_is_well);
}

// Threads that allocate without a pause for as long as it lives.
class BusyThreads
{
  public:
    explicit BusyThreads(int count)
    {
        for (int i = 0; i < count; i++)
            threads_.emplace_back([this, i] {
                while (!stop_) well_ = churn(1000, static_cast<unsigned>(i)) && well_;
            });
    }
    ~BusyThreads()
    {
        stop_ = true;
        for (std::thread &each : threads_) each.join();
        EXPECT_TRUE(well_);
    }
    BusyThreads(const BusyThreads &) = delete;
    BusyThreads &operator=(const BusyThreads &) = delete;

  private:
    std::atomic<bool> stop_{false}, well_{true};
    std::vector<std::thread> threads_;
};

} // namespace

// POSIX forbids it, programs do it: the child is the parent's thread for a while, on its heap.
TEST(Vfork, ChildThatAllocatesLeavesTheParentAsItWas)
{
    BusyThreads busy(2);
    for (int i = 0; i < 20; i++) {
        void *volatile of_the_child = nullptr;
        void *volatile of_the_parent = malloc(100);
        pid_t child = vfork();
        if (child == 0) {
            free(of_the_parent);
            of_the_child = malloc(1000);
            bool well = churn(300);
            execl(well ? "/bin/true" : "/bin/false", "true", static_cast<char *>(nullptr));
            _exit(child_is_not);
        }
        free(of_the_child);
        expect_well(child);
        ASSERT_TRUE(churn(200));
    }
}
