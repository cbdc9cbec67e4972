// Threads that free when their destructors have run, as the C library itself does for them, leave no heap behind. These programs
// call malloc, and so does the C library.
#include "figures.h"
#include "heap_isolated.h"
#include "heapfit/heapfit.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace
{

constexpr int THREADS_BORN = 300;

// The main thread's heap, that of the thread that works, and that of one which is on its way out meanwhile.
constexpr size_t HEAPS = 4;

void expect_few_heaps()
{
    EXPECT_LE(figures::of_heaps().made, HEAPS);
}

template <typename Body> void one_after_the_other(Body body)
{
    for (int i = 0; i < THREADS_BORN; i++) std::thread(body).join();
}

void free_a_string_of_the_c_library()
{
    EXPECT_NE(nullptr, strerror(123456)); // the text is allocated, and freed behind all destructors
}

TEST(LateThreads, WhoseErrorTextsAreFreedForThemLeaveNoHeap)
{
    isolated::expect_passes([] {
        one_after_the_other(free_a_string_of_the_c_library);
        expect_few_heaps();
    });
}

std::vector<pthread_key_t> many_keys()
{
    std::vector<pthread_key_t> keys(60); // those beyond the 31st have their values in memory of their own
    for (auto &key : keys) pthread_key_create(&key, nullptr);
    return keys;
}

TEST(LateThreads, WithManyThreadSpecificValuesLeaveNoHeap)
{
    isolated::expect_passes([] {
        auto keys = many_keys();
        one_after_the_other([&keys] {
            for (auto key : keys) pthread_setspecific(key, &keys);
        });
        expect_few_heaps();
    });
}

size_t threads_now()
{
    size_t count = 0;
    DIR *tasks = opendir("/proc/self/task");
    while (const struct dirent *task = readdir(tasks)) count += task->d_name[0] != '.';
    closedir(tasks);
    return count;
}

void *meet_the_others(void *barrier)
{
    pthread_barrier_wait(static_cast<pthread_barrier_t *>(barrier));
    return nullptr;
}

// Of threads that never allocated: they are told of no end.
TEST(LateThreads, ThatAreDetachedWithLargeStacksLeaveNoHeap)
{
    isolated::expect_passes([] {
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        pthread_attr_setstacksize(&attributes, size_t{48} << 20); // more than the C library keeps for the next thread
        for (int i = 0; i < THREADS_BORN; i++) {
            constexpr unsigned AT_ONCE = 3;
            pthread_barrier_t barrier;
            pthread_barrier_init(&barrier, nullptr, AT_ONCE);
            for (unsigned k = 0; k < AT_ONCE; k++) {
                pthread_t thread;
                ASSERT_EQ(0, pthread_create(&thread, &attributes, meet_the_others, &barrier));
            }
            while (threads_now() != 1) std::this_thread::yield();
        }
        EXPECT_LE(figures::of_heaps().made, 4 * HEAPS) << "several end at once";
    });
}

// A thread that the C library never sees end.
void *end_without_a_word(void *argument)
{
    *static_cast<void **>(argument) = std::malloc(1000);
    syscall(SYS_exit, 0);
    return nullptr;
}

TEST(LateThreads, ThatEndByASystemCallLeaveTheirHeapToTheNext)
{
    isolated::expect_passes([] {
        for (int i = 0; i < THREADS_BORN; i++) {
            pthread_t thread;
            void *block = nullptr;
            ASSERT_EQ(0, pthread_create(&thread, nullptr, end_without_a_word, &block));
            while (threads_now() != 1) std::this_thread::yield();
            std::free(block);
        }
        expect_few_heaps();
    });
}

TEST(LateThreads, GiveUpTheirPlaceAmongThoseWithAHeapOfTheirOwn)
{
    isolated::expect_passes([] {
        ASSERT_EQ(0, hf_option_set("lockless_threads", "4"));
        one_after_the_other(free_a_string_of_the_c_library);
        std::thread([] {
            std::free(std::malloc(100));
            EXPECT_EQ(0u, figures::of_heaps().sharing);
        }).join();
    });
}

pthread_key_t key_of_a_destructor;
int rounds;

// As a destructor of another library's that allocates, in each of its rounds.
void allocate_again(void *argument)
{
    std::free(std::malloc(5000));
    rounds++;
    pthread_setspecific(key_of_a_destructor, argument);
}

TEST(LateThreads, WhoseDestructorsAllocateInEveryRoundLeaveNoHeap)
{
    isolated::expect_passes([] {
        std::free(std::malloc(1));
        pthread_key_create(&key_of_a_destructor, allocate_again);
        one_after_the_other([] {
            std::free(std::malloc(100));
            pthread_setspecific(key_of_a_destructor, &rounds);
        });
        EXPECT_GE(rounds, 4 * THREADS_BORN);
        expect_few_heaps();
    });
}

} // namespace
