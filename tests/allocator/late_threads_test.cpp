// Threads that free when their destructors have run, as the C library itself does for them, leave no heap behind. These programs
// call malloc, and so does the C library.
#include "figures.h"
#include "heap_isolated.h"
#include "heapfit/heapfit.h"
#include "system.h"

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
