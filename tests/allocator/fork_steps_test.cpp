// fork() while another thread stands between any two instructions of malloc or free: the processor's trap flag stops it after each,
// and it waits there until a child has looked at what it got. So this shows what a preempted thread would, and in which order the
// compiler has put the stores.
#include "heap_isolated.h"

#include <csignal>
#include <malloc.h>
#include <ucontext.h>

namespace
{

enum : int { RUNS, STANDS, IS_BEING_LOOKED_AT, MAY_GO_ON, HAS_ENDED };
std::atomic<int> stepped{RUNS};
std::atomic<int> forks;

// The thread that forks may be waiting for a lock of the one that stands: then this one goes on until the fork is done. How long
// the child then takes does not matter.
constexpr int PATIENCE = 100; // ms

extern "C" const char __executable_start, etext; // the linker's

constexpr greg_t TRAP_FLAG = 0x100;
// Beyond so many a thread is on its slowest paths, such as to start another.
constexpr int MOST_FORKS = 400;

// In the kernel's code for clocks it would never come to an end: that begins anew when the clock has gone on.
bool is_ours(const greg_t *registers)
{
    auto at = reinterpret_cast<const char *>(registers[REG_RIP]);
    return at >= &__executable_start && at < &etext;
}

void on_trap(int /*signal*/, siginfo_t * /*info*/, void *context)
{
    int saved = errno;
    int state = stepped;
    greg_t *registers = static_cast<ucontext_t *>(context)->uc_mcontext.gregs;
    if (forks >= MOST_FORKS) registers[REG_EFL] &= ~TRAP_FLAG;
    else if (state == RUNS && is_ours(registers)) {
        stepped = STANDS;
        for (int ms = 0; (ms < PATIENCE || stepped == IS_BEING_LOOKED_AT) && stepped != MAY_GO_ON; ms++) usleep(1000);
        state = stepped;
    }
    if (state == MAY_GO_ON) stepped = RUNS;
    errno = saved;
}

__attribute__((always_inline)) inline void trap(bool on)
{
    greg_t flags;
    __asm__ volatile("pushfq; pop %0" : "=r"(flags));
    flags = on ? flags | TRAP_FLAG : flags & ~TRAP_FLAG;
    __asm__ volatile("push %0; popfq" ::"r"(flags) : "cc", "memory");
}

// ---- what stands in memory ---------------------------------------------------------------------------------------------

constexpr size_t BLOCKS = 64, NEW_BLOCKS = 150, NEW_BYTES = 4'000'000;
void *blocks[BLOCKS]; // of the thread that is stopped; some are free
void *fresh[NEW_BLOCKS]; // the child's own

void mark(void *const *all, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (all[i] != nullptr) memset(all[i], static_cast<int>(i), 16), *static_cast<void *const **>(all[i]) = &all[i];
}

// Whether each still has what was written to it: two that lie in one place do not.
bool are_intact(void *const *all, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (all[i] != nullptr && *static_cast<void *const **>(all[i]) != &all[i]) return false;
    return true;
}

// Nothing but malloc is used here.
bool child_is_whole(size_t size)
{
    size_t count = std::min(NEW_BLOCKS, NEW_BYTES / size), first = 0;
    for (size_t end : {count / 2, count}) {
        for (size_t i = first; i < end; i++) fresh[i] = malloc(size);
        mark(fresh, end);
        if (!are_intact(fresh, end) || !are_intact(blocks, BLOCKS)) return false;
        if (first == 0) malloc_trim(0); // what was on its way to other heaps arrives
        if (!are_intact(fresh, end) || !are_intact(blocks, BLOCKS)) return false;
        first = end;
    }
    for (size_t i = 0; i < count; i++) free(fresh[i]);
    for (void *block : blocks) free(block);
    return true;
}

void fork_and_look(size_t size)
{
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        _exit(child_is_whole(size) ? isolated::PASSED : isolated::FAILED);
    }
    int state = STANDS;
    stepped.compare_exchange_strong(state, IS_BEING_LOOKED_AT); // likewise
    int status = 0;
    ASSERT_EQ(child, waitpid(child, &status, 0));
    EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status) << " in fork " << forks;
    EXPECT_EQ(isolated::PASSED, WEXITSTATUS(status)) << "in fork " << forks;
    forks++;
}

// ---- the thread that is stopped ------------------------------------------------------------------------------------------

enum : int { FREE, FREE_THE_LAST_OF_SEVERAL, MALLOC, FREE_OF_ANOTHER };

void *taken, *of_another;
std::atomic<bool> is_ready, may_begin;

void take_and_free(size_t size, int what)
{
    for (void *&block : blocks) block = malloc(size);
    // One that was free, and is not any more: what has led to it may still be written down somewhere.
    void *wanted = blocks[11];
    free(wanted);
    for (int i = 0; i < 400 && taken != wanted; i++) taken = malloc(size);
    blocks[11] = nullptr;
    mark(blocks, BLOCKS);
    is_ready = true;
    while (!may_begin) usleep(100);
    void *block = blocks[27];
    blocks[27] = nullptr;
    if (what == FREE_OF_ANOTHER) block = of_another;
    if (what == MALLOC) free(block);
    for (size_t i = 1; what == FREE_THE_LAST_OF_SEVERAL && i < 27; i += 5) free(blocks[i]), blocks[i] = nullptr;
    if (what == MALLOC) {
        trap(true);
        block = malloc(size);
        trap(false);
    } else {
        trap(true);
        free(block);
        trap(false);
    }
    stepped = HAS_ENDED;
}

class ForkSteps : public testing::TestWithParam<std::tuple<size_t, int>>
{
};

TEST_P(ForkSteps, AChildIsWholeWhereverAnotherThreadStands)
{
    isolated::expect_passes([] {
        auto [size, what] = GetParam();
        of_another = malloc(size);
        struct sigaction action = {};
        action.sa_sigaction = on_trap;
        action.sa_flags = SA_SIGINFO;
        sigaction(SIGTRAP, &action, nullptr);
        std::thread thread([size = size, what = what] { take_and_free(size, what); });
        while (!is_ready) usleep(100);
        free(taken); // and lies with what this thread has freed for the other
        may_begin = true;
        for (int state; (state = stepped) != HAS_ENDED;) {
            if (state != STANDS) {
                usleep(20);
                continue;
            }
            fork_and_look(size);
            state = IS_BEING_LOOKED_AT;
            stepped.compare_exchange_strong(state, MAY_GO_ON); // unless it has ended
        }
        thread.join();
        EXPECT_GE(forks, 10);
        EXPECT_TRUE(are_intact(blocks, BLOCKS));
    });
}

INSTANTIATE_TEST_SUITE_P(Sizes, ForkSteps,
                         testing::Combine(testing::Values(size_t{100}, size_t{8192}, size_t{100'000}),
                                          testing::Values(FREE, FREE_THE_LAST_OF_SEVERAL, MALLOC, FREE_OF_ANOTHER)));

} // namespace
