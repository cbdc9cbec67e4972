// The allocator in the life of a process: threads that end, forks, programs that are started.

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <malloc.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "heapfit/heapfit.h"

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

// ---- starting programs -------------------------------------------------------------------------------------------------------

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

// ---- the end of threads ----------------------------------------------------------------------------------------------------------

namespace
{

pthread_key_t key;
std::atomic<int> destructor_runs;

// Frees what the thread allocated, allocates anew, and asks to be called again, as long as the C library does.
void allocate_in_destructor(void *object)
{
    destructor_runs++;
    free(object);
    void *other = malloc(5000);
    memset(other, 1, 5000);
    free(other);
    pthread_setspecific(key, malloc(100));
}

} // namespace

TEST(ThreadExit, LetsKeyDestructorsAllocateAndFree)
{
    ASSERT_EQ(pthread_key_create(&key, allocate_in_destructor), 0);
    destructor_runs = 0;
    for (int i = 0; i < 50; i++)
        std::thread([] {
            pthread_setspecific(key, malloc(100));
            EXPECT_TRUE(churn(200));
        }).join();
    EXPECT_GE(destructor_runs, 50 * 4) << "POSIX promises four rounds";
    EXPECT_TRUE(churn(1000));
    pthread_key_delete(key);
}

// malloc and free are no cancellation points: what a thread holds while it is inside would be lost for all others.
TEST(ThreadExit, ByCancellationDoesNotHappenInsideTheAllocator)
{
    for (int i = 0; i < 20; i++) {
        static std::atomic<bool> churned;
        churned = false;
        pthread_t thread;
        auto body = [](void *) -> void * {
            pthread_cancel(pthread_self()); // takes effect at the next cancellation point
            bool well = churn(2000);
            free(malloc(10 << 20));
            malloc_trim(0);
            churned = well;
            pthread_testcancel();
            return nullptr;
        };
        ASSERT_EQ(pthread_create(&thread, nullptr, body, nullptr), 0);
        void *result = nullptr;
        ASSERT_EQ(pthread_join(thread, &result), 0);
        EXPECT_EQ(result, PTHREAD_CANCELED);
        EXPECT_TRUE(churned);
    }
    EXPECT_TRUE(churn(1000)) << "other threads go on";
}
