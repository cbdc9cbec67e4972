// fork() in a signal's handler while another thread has each of the allocator's locks in turn, and while the interrupted thread
// has. A thread stops where it has just acquired a lock for the n-th time at a place of the code that it had not yet acquired one
// at; it goes on when the fork is over, or when the thread that forks is about to wait for it, as glibc's fork does, too. Parent
// and child go on with what they were doing, and neither hangs. Nor does any lock stay in the child with a thread that is not
// there: where nobody waits for it either, what it guards would be done without for ever.
//
// Each case runs in a process of its own: what is locked where depends on what has been allocated before.
#include "heap_internals.h"
#include "heap_isolated.h"
#include "heapfit/heapfit.h"
#include "system.h"

namespace
{

constexpr int NOWHERE = -1, PLACES_MAX = 256;

// ---- places --------------------------------------------------------------------------------------------------------------

// Where the calling thread has acquired locks, by return addresses, and at which of them, by their order, it stops.
struct Course {
    int stops_at = NOWHERE;
    int places = 0;
    std::array<const void *, PLACES_MAX> seen = {};
};

thread_local Course course;

// The orphans' cache is locked where threads' own are.
bool stops_here(const platform_lock *lock, const void *place)
{
    if (lock == &heap_orphans.cache.lock) place = static_cast<const char *>(place) + 1;
    if (course.stops_at == NOWHERE) return false;
    for (int i = 0; i < course.places; i++)
        if (course.seen[static_cast<size_t>(i)] == place) return false;
    course.seen[static_cast<size_t>(course.places++)] = place;
    return course.places - 1 == course.stops_at;
}

// ---- locks ---------------------------------------------------------------------------------------------------------------

// All that either thread has asked for. None is ever unmade.
constexpr size_t LOCKS_MAX = 256;
std::array<std::atomic<const platform_lock *>, LOCKS_MAX> locks;

void note(const platform_lock *lock)
{
    for (auto &place : locks) {
        const platform_lock *there = nullptr;
        if (place.compare_exchange_strong(there, lock) || there == lock) return;
    }
    std::fprintf(stderr, "there are more locks than LOCKS_MAX\n");
    std::abort();
}

// By a process's only thread, which has none.
bool all_are_free()
{
    constexpr unsigned OWNER_SHIFT = 16; // as in platform/lock.c
    for (const auto &place : locks) {
        const platform_lock *lock = place;
        if (lock == nullptr || lock->word >> OWNER_SHIFT == 0) continue;
        std::fprintf(stderr, "the lock at %p is that of a thread which the child has not\n",
                     static_cast<const void *>(lock));
        return false;
    }
    return true;
}

// ---- the two threads -------------------------------------------------------------------------------------------------------

// The one that has a lock while the other forks.
std::atomic<bool> other_has_stopped, other_may_go;
// The one that forks; thread-local, so that the other is never taken for it.
thread_local bool is_forker, is_other;
bool has_forked, is_child;
pid_t child_of_handler;

void other_goes_on()
{
    other_may_go = true;
}

// If somebody has it, that may be the other, which may have others beside the lock that it has stopped with.
void about_to_wait(const platform_lock *lock)
{
    if (is_forker && lock->word != 0) other_goes_on();
}

void acquired(const platform_lock *lock, const void *place)
{
    if (is_other && stops_here(lock, place)) {
        other_has_stopped = true;
        while (!other_may_go) usleep(100);
    }
    if (is_forker && !has_forked && stops_here(lock, place)) raise(SIGUSR1);
}

constexpr unsigned CHILD_SECONDS = 400; // then SIGALRM ends it: it hangs

void fork_in_handler(int)
{
    has_forked = true;
    child_of_handler = fork();
    is_child = child_of_handler == 0;
    if (is_child) alarm(CHILD_SECONDS);
    other_goes_on();
}

} // namespace

extern "C" {
void __real_platform_lock_acquire(platform_lock *lock);
void __wrap_platform_lock_acquire(platform_lock *lock)
{
    note(lock);
    about_to_wait(lock);
    __real_platform_lock_acquire(lock);
    acquired(lock, __builtin_return_address(0));
}
bool __real_platform_lock_enter(platform_lock *lock);
bool __wrap_platform_lock_enter(platform_lock *lock)
{
    note(lock);
    about_to_wait(lock);
    bool entered = __real_platform_lock_enter(lock);
    if (entered) acquired(lock, __builtin_return_address(0));
    return entered;
}
bool __real_platform_lock_try(platform_lock *lock);
bool __wrap_platform_lock_try(platform_lock *lock)
{
    note(lock);
    bool got = __real_platform_lock_try(lock);
    if (got) acquired(lock, __builtin_return_address(0));
    return got;
}
void __real_platform_lock_fork_begin(platform_lock *lock);
void __wrap_platform_lock_fork_begin(platform_lock *lock)
{
    about_to_wait(lock);
    __real_platform_lock_fork_begin(lock);
}
}

namespace
{

// ---- what takes locks ------------------------------------------------------------------------------------------------------

constexpr size_t BLOCKS = 64;
using Blocks = std::array<void *, BLOCKS>;

size_t size_of(size_t i)
{
    return i % 16 == 0 ? 200'000 + i * 1000 : i % 4 == 0 ? 3000 * (i / 4 + 1) : 16 + 40 * i;
}

void fill(Blocks &blocks)
{
    for (size_t i = 0; i < BLOCKS; i++) blocks[i] = i % 2 == 0 ? std::malloc(size_of(i)) : std::calloc(1, size_of(i));
}

// Some are there for both threads: each block is freed by one.
void empty(Blocks &blocks)
{
    for (void *&block : blocks) std::free(__atomic_exchange_n(&block, nullptr, __ATOMIC_ACQ_REL));
}

Blocks of_the_dead, of_others;

void *leaves_blocks(void *)
{
    fill(of_the_dead);
    return nullptr;
}

void use_context()
{
    hf_context *context = hf_context_create(nullptr);
    if (context == nullptr) return;
    hf_context *outer = hf_context_switch(context);
    void *block = std::malloc(100);
    std::free(block);
    hf_context_switch(outer);
    hf_context_free_all(context);
    hf_context_destroy(context);
}

// So much that the allocator looks how much memory is left: more than LOOK_FROM of heap/pressure.c.
constexpr size_t MUCH = size_t{17} << 20;

// Everything of the library that takes a lock.
void use_everything()
{
    Blocks own;
    std::free(std::malloc(MUCH));
    fill(own);
    own[0] = std::realloc(own[0], 900'000);
    empty(of_others);
    empty(of_the_dead);
    use_context();
    hf_option_set("decay_ms", "400");
    hf_stats stats;
    hf_stats_get(&stats, sizeof stats);
    empty(own);
    hf_footprint_shrink();
    hf_footprint_restore();
    hf_trim();
    fill(own);
    empty(own);
}

void *runs_as_other(void *places)
{
    is_other = true;
    course.stops_at = *static_cast<int *>(places);
    use_everything();
    course.stops_at = NOWHERE; // its end is somebody else's
    return nullptr;
}

void *runs_in_child(void *)
{
    use_everything();
    return nullptr;
}

void run_to_end(void *(*run)(void *), void *argument = nullptr)
{
    pthread_t thread;
    ASSERT_EQ(0, pthread_create(&thread, nullptr, run, argument));
    pthread_join(thread, nullptr);
}

// ---- a case ----------------------------------------------------------------------------------------------------------------

enum : int { WELL = 0, HUNG_OR_FAILED = 1, NO_SUCH_PLACE = 2 };

int status_of_child()
{
    int status = 0;
    if (waitpid(child_of_handler, &status, 0) != child_of_handler) return HUNG_OR_FAILED;
    return status == 0 ? WELL : HUNG_OR_FAILED;
}

// The other stops at one place, the thread that forks at another one, or outside the library; NOWHERE: not at all. In a process
// that ends here.
void run_case(int other_stops, int forker_stops)
{
    struct sigaction action = {};
    action.sa_handler = fork_in_handler;
    sigaction(SIGUSR1, &action, nullptr);
    hf_option_set("background", "off");
    run_to_end(leaves_blocks);
    fill(of_others);
    // Nobody but these two asks for locks once the other runs.
    std::atomic<bool> ended{false};
    std::thread watches([&] {
        run_to_end(runs_as_other, &other_stops);
        ended = true;
    });
    while (other_stops != NOWHERE && !other_has_stopped && !ended) usleep(100);
    if (other_stops != NOWHERE && !other_has_stopped) _exit(NO_SUCH_PLACE);
    is_forker = true;
    course.stops_at = forker_stops;
    if (forker_stops == NOWHERE) raise(SIGUSR1);
    use_everything();
    if (is_child) {
        // Before: another thread may get the address of the one that is not there, by which a lock knows its owner.
        bool were_free = all_are_free();
        run_to_end(runs_in_child);
        _exit(were_free && all_are_free() ? WELL : HUNG_OR_FAILED);
    }
    other_goes_on();
    watches.join();
    _exit(has_forked ? status_of_child() : NO_SUCH_PLACE);
}

int result_of(int other_stops, int forker_stops)
{
    int status = isolated::run_child([=] { run_case(other_stops, forker_stops); });
    return WIFEXITED(status) ? WEXITSTATUS(status) : HUNG_OR_FAILED;
}

// Cases until there is no further place; how many there were.
template <typename Case> int run_all(Case one)
{
    int place = 0;
    for (; place < PLACES_MAX; place++) {
        int result = one(place);
        if (result == NO_SUCH_PLACE) break;
        EXPECT_EQ(WELL, result) << "place " << place;
        if (result != WELL) break;
    }
    return place;
}

// Fewer would mean that what is run no longer gets to the locks.
constexpr int PLACES_MIN = 15;

TEST(ForkLocks, AnotherThreadHasALock)
{
    EXPECT_GE(run_all([](int place) { return result_of(place, NOWHERE); }), PLACES_MIN);
}

TEST(ForkLocks, TheThreadThatForksWasInterruptedWithALock)
{
    EXPECT_GE(run_all([](int place) { return result_of(NOWHERE, place); }), PLACES_MIN);
}

TEST(ForkLocks, BothHaveALock)
{
    int pairs = 0;
    for (int other = 0; other < PLACES_MAX; other++) {
        // At its first place in any case: at later ones it has waited for most locks of the other's, which then had gone on.
        int result = result_of(other, 0);
        for (int forker = 1 + other % 3; result == WELL; forker += 3, pairs++) result = result_of(other, forker);
        ASSERT_EQ(NO_SUCH_PLACE, result) << "place " << other << ", and one of the forker's";
        if (result_of(other, NOWHERE) == NO_SUCH_PLACE) break;
    }
    EXPECT_GE(pairs, PLACES_MIN * PLACES_MIN / 3);
}

} // namespace
