// How frames are left, against what the unwinder of the C++ run-time library finds: code of several optimisation levels, of
// shared libraries and of the C library, in exceptions, signal handlers, threads and coroutines. And rules and tables that
// are wrong: a step may then lead anywhere, but nothing is read that cannot be.
#include "pools_internals.h"

#include <gtest/gtest.h>

#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unwind.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <vector>

// Of frame_subject.c, by the options that it was compiled with, and of frame_ending.c.
extern "C" {
void o0_run(void (*probe)(), unsigned seed);
void o2_run(void (*probe)(), unsigned seed);
void o3_run(void (*probe)(), unsigned seed);
void os_run(void (*probe)(), unsigned seed);
void framed_run(void (*probe)(), unsigned seed);
void lto_run(void (*probe)(), unsigned seed);
void library_run(void (*probe)(), unsigned seed);
void untold_run(void (*probe)(), unsigned seed);
void ending_run(void (*probe)());
}

namespace
{

#if defined(__x86_64__)
constexpr int BASE_REGISTER = 6;
#else
constexpr int BASE_REGISTER = 29;
#endif

// Frames from the innermost outwards. Fills without allocating, for signal handlers.
class frame_list
{
  public:
    void clear()
    {
        size_ = 0;
    }
    void add(const frame &each)
    {
        frames_[size_++] = each;
    }
    void remove_last()
    {
        size_--;
    }
    bool is_full() const
    {
        return size_ == frames_.size();
    }
    size_t size() const
    {
        return size_;
    }
    const frame &operator[](size_t i) const
    {
        return frames_[i];
    }
    const frame &back() const
    {
        return frames_[size_ - 1];
    }

  private:
    std::array<frame, 20000> frames_;
    size_t size_ = 0;
};

// ---- what others find ---------------------------------------------------------------------------------------------

frame_list expected;

_Unwind_Reason_Code collect(_Unwind_Context *context, void *)
{
    expected.add({_Unwind_GetIP(context), _Unwind_GetCFA(context), _Unwind_GetGR(context, BASE_REGISTER)});
    return expected.is_full() ? _URC_END_OF_STACK : _URC_NO_REASON;
}

void unwind()
{
    expected.clear();
    _Unwind_Backtrace(collect, nullptr);
    while (expected.back().return_address == 0) expected.remove_last(); // who called the first, so to speak
}

// ---- what we find --------------------------------------------------------------------------------------------------

frame_list found;
int found_end; // what stopped us: FRAME_KNOWN means a step that failed

void walk(frame at)
{
    found.clear();
    while (!found.is_full()) {
        found.add(at);
        uintptr_t start = 0, end = 0;
        frame_rule rule = frame_rule_find(at.return_address, &start, &end);
        found_end = rule.known;
        if (rule.known != FRAME_KNOWN) break;
        EXPECT_LT(start, at.return_address);
        EXPECT_GE(end, at.return_address);
        if (!frame_step(&rule, &at)) break;
    }
}

// The caller's frame of a function that keeps its frame pointer, as one that asks for its address does.
#define CALLER_FRAME()                                                                                                 \
    (frame{reinterpret_cast<uintptr_t>(__builtin_return_address(0)),                                                   \
           reinterpret_cast<uintptr_t>(__builtin_dwarf_cfa()), *static_cast<uintptr_t *>(__builtin_frame_address(0))})

unsigned probes;

// Compares all frames that both have seen; ours must be `least` at least.
void compare(size_t least)
{
    size_t skipped = 0;
    while (skipped < expected.size() && expected[skipped].return_address != found[0].return_address) skipped++;
    ASSERT_LT(skipped, expected.size());
    EXPECT_GE(found.size(), least);
    for (size_t i = 0; i < found.size() && skipped + i < expected.size(); i++) {
        const frame &ours = found[i], &theirs = expected[skipped + i];
        ASSERT_EQ(theirs.return_address, ours.return_address) << "level " << i;
        ASSERT_EQ(theirs.stack, ours.stack) << "level " << i;
        ASSERT_EQ(theirs.base, ours.base) << "level " << i;
    }
}

__attribute__((noinline)) void probe()
{
    frame caller = CALLER_FRAME();
    unwind();
    walk(caller);
    probes++;
    compare(5);
}

void expect_probes(void (*run)(void (*)(), unsigned))
{
    for (unsigned seed : {1U, 17U, 999U}) {
        probes = 0;
        run(probe, seed);
        EXPECT_EQ(2U, probes);
        // To main and beyond: whoever started it was not called.
        EXPECT_EQ(FRAME_OUTERMOST, found_end);
        EXPECT_EQ(expected.back().stack, found.back().stack);
    }
}

// ---- code of all kinds -----------------------------------------------------------------------------------------------

TEST(FramesOfCode, WithoutOptimisation)
{
    expect_probes(o0_run);
}

TEST(FramesOfCode, Optimised)
{
    expect_probes(o2_run);
}

TEST(FramesOfCode, OptimisedWithoutFramePointers)
{
    expect_probes(o3_run);
}

TEST(FramesOfCode, OptimisedForSize)
{
    expect_probes(os_run);
}

TEST(FramesOfCode, WithFramePointers)
{
    expect_probes(framed_run);
}

TEST(FramesOfCode, OptimisedByTheLinker)
{
    expect_probes(lto_run);
}

TEST(FramesOfCode, OfASharedLibraryCalledThroughStubs)
{
    expect_probes(library_run);
}

__attribute__((noinline)) void probe_untold()
{
    frame caller = CALLER_FRAME();
    uintptr_t start = 1, end = 1;
    EXPECT_EQ(FRAME_UNKNOWN, frame_rule_find(caller.return_address, &start, &end).known);
    EXPECT_EQ(0U, start);
    EXPECT_EQ(0U, end);
    probes++;
}

TEST(FramesOfCode, WithoutTablesAreUnknown)
{
    probes = 0;
    untold_run(probe_untold, 1);
    EXPECT_EQ(2U, probes);
}

jmp_buf back;

__attribute__((noinline)) void probe_and_jump()
{
    frame caller = CALLER_FRAME();
    unwind();
    walk(caller);
    probes++;
    compare(4);
    longjmp(back, 1);
}

// The call is the last instruction of its function: what follows belongs to another, with other rules.
TEST(FramesOfCode, OfACallThatNeverReturns)
{
    probes = 0;
    if (setjmp(back) == 0) ending_run(probe_and_jump);
    EXPECT_EQ(1U, probes);
    EXPECT_EQ(FRAME_OUTERMOST, found_end);
}

TEST(FramesOfCode, DeepRecursionIsWalkedToItsEnd)
{
    constexpr unsigned DEPTH = 10000;
    struct recursion {
        __attribute__((noinline)) static unsigned go(unsigned depth)
        {
            unsigned below = 0;
            if (depth == 0) probe();
            else below = go(depth - 1);
            __asm__ volatile("" : "+r"(below)); // no loop instead
            return below + 1;
        }
    };
    probes = 0;
    volatile unsigned result = recursion::go(DEPTH);
    (void)result;
    EXPECT_EQ(1U, probes);
    EXPECT_GT(found.size(), DEPTH);
    EXPECT_EQ(FRAME_OUTERMOST, found_end);
}

// ---- unusual stacks ------------------------------------------------------------------------------------------------------

TEST(FramesOfStacks, WhileAnExceptionIsThrown)
{
    struct guard {
        ~guard()
        {
            probe();
        }
    };
    probes = 0;
    try {
        guard unwinding;
        throw 1;
    } catch (int) {
        probe();
    }
    EXPECT_EQ(2U, probes);
    EXPECT_EQ(FRAME_OUTERMOST, found_end);
}

TEST(FramesOfStacks, OfAThreadEndWhereItBegins)
{
    probes = 0;
    pthread_t thread;
    auto body = [](void *) -> void * {
        o2_run(probe, 3);
        return nullptr;
    };
    ASSERT_EQ(0, pthread_create(&thread, nullptr, body, nullptr));
    ASSERT_EQ(0, pthread_join(thread, nullptr));
    EXPECT_EQ(2U, probes);
    EXPECT_EQ(FRAME_OUTERMOST, found_end);
}

// What was interrupted is restored from memory that the kernel has laid out: no simple rule.
void expect_end_at_signal(int flags)
{
    struct sigaction action = {}, before;
    action.sa_flags = flags;
    action.sa_handler = [](int) { o2_run(probe, 5); };
    probes = 0;
    ASSERT_EQ(0, sigaction(SIGUSR1, &action, &before));
    raise(SIGUSR1);
    sigaction(SIGUSR1, &before, nullptr);
    EXPECT_EQ(2U, probes);
    EXPECT_EQ(FRAME_UNKNOWN, found_end);
    EXPECT_LT(found.size(), expected.size());
}

TEST(FramesOfStacks, OfASignalHandlerEndThere)
{
    expect_end_at_signal(0);
}

TEST(FramesOfStacks, OfASignalHandlerOnAStackOfItsOwn)
{
    std::vector<char> memory(256 * 1024);
    stack_t own = {}, before;
    own.ss_sp = memory.data();
    own.ss_size = memory.size();
    ASSERT_EQ(0, sigaltstack(&own, &before));
    expect_end_at_signal(SA_ONSTACK);
    sigaltstack(&before, nullptr);
}

TEST(FramesOfStacks, OfCoroutinesThatTakeTurns)
{
    constexpr int COROUTINES = 3, TURNS = 20;
    constexpr size_t STACK = 256 * 1024;
    static ucontext_t main_context, contexts[COROUTINES];
    static int turn;
    std::vector<std::vector<char>> stacks(COROUTINES, std::vector<char>(STACK));
    probes = 0;
    for (turn = 0; turn < COROUTINES; turn++) {
        getcontext(&contexts[turn]);
        contexts[turn].uc_stack.ss_sp = stacks[turn].data();
        contexts[turn].uc_stack.ss_size = STACK;
        contexts[turn].uc_link = nullptr;
        makecontext(
            &contexts[turn],
            [] {
                for (;;) {
                    o2_run(probe, 11);
                    swapcontext(&contexts[turn % COROUTINES], &main_context);
                }
            },
            0);
    }
    for (turn = 0; turn < TURNS; turn++) {
        swapcontext(&main_context, &contexts[turn % COROUTINES]);
        ASSERT_NE(FRAME_KNOWN, found_end);
    }
    EXPECT_EQ(2U * TURNS, probes);
}

// ---- wrong rules -----------------------------------------------------------------------------------------------------------

// A stack of some pages between two that cannot be read.
class small_stack
{
  public:
    small_stack()
        : page_(platform_page_size()),
          memory_(
              static_cast<char *>(mmap(nullptr, (PAGES + 2) * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)))
    {
        mprotect(memory_ + page_, PAGES * page_, PROT_READ | PROT_WRITE);
    }
    ~small_stack()
    {
        munmap(memory_, (PAGES + 2) * page_);
    }
    small_stack(const small_stack &) = delete;
    small_stack &operator=(const small_stack &) = delete;

    uintptr_t bottom() const
    {
        return reinterpret_cast<uintptr_t>(memory_) + page_;
    }
    uintptr_t top() const
    {
        return bottom() + PAGES * page_;
    }

  private:
    static constexpr size_t PAGES = 4;
    size_t page_;
    char *memory_;
};

frame_rule by_stack(int32_t cfa_offset)
{
    return {cfa_offset, -8, 0, false, FRAME_KNOWN};
}

void expect_refused(const frame_rule &rule, frame at)
{
    frame before = at;
    EXPECT_FALSE(frame_step(&rule, &at));
    EXPECT_EQ(before.return_address, at.return_address);
    EXPECT_EQ(before.stack, at.stack);
    EXPECT_EQ(before.base, at.base);
}

TEST(WrongRules, StepUpToTheEndOfAStackAndNotBeyond)
{
    small_stack stack;
    for (uintptr_t from = stack.bottom() + 16; from < stack.top(); from += 8) {
        frame at = {1, from, 0};
        frame_rule to_top = by_stack(static_cast<int32_t>(stack.top() - from));
        frame_rule beyond = by_stack(static_cast<int32_t>(stack.top() - from + 8));
        EXPECT_TRUE(frame_step(&to_top, &at));
        expect_refused(beyond, {1, from, 0});
    }
}

TEST(WrongRules, FromFramePointersThatPointAnywhereAreRefused)
{
    small_stack stack;
    frame_rule rule = {16, -8, -16, true, FRAME_KNOWN};
    uintptr_t from = stack.bottom() + 64;
    for (uintptr_t base : {uintptr_t{0}, uintptr_t{1}, from - 8, from - 16, from + 4, stack.top(), stack.top() + 8,
                           UINTPTR_MAX, UINTPTR_MAX - 7, uintptr_t{1} << 63, stack.bottom() - 4096})
        expect_refused(rule, {1, from, base});
    frame at = {1, from, from};
    EXPECT_TRUE(frame_step(&rule, &at));
}

TEST(WrongRules, DownwardsOrNowhereOrUnalignedAreRefused)
{
    small_stack stack;
    frame at = {1, stack.bottom() + 64, 0};
    for (int32_t offset : {0, -8, -4096, 4, 12, INT32_MAX, INT32_MIN}) expect_refused(by_stack(offset), at);
    expect_refused({16, -24, 0, false, FRAME_KNOWN}, at); // the return address is below the frame
    expect_refused({16, -8, -24, false, FRAME_KNOWN}, at);
    expect_refused({16, -8, 0, false, FRAME_UNKNOWN}, at);
    expect_refused({16, -8, 0, false, FRAME_OUTERMOST}, at);
}

TEST(WrongRules, AddressesThatAreNoCodeHaveNone)
{
    static char data[16];
    void *page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(MAP_FAILED, page);
    int local = 0;
    for (uintptr_t address :
         {uintptr_t{0}, uintptr_t{1}, UINTPTR_MAX, uintptr_t{1} << 47, reinterpret_cast<uintptr_t>(data) + 8,
          reinterpret_cast<uintptr_t>(page) + 8, reinterpret_cast<uintptr_t>(&local)})
        EXPECT_EQ(FRAME_UNKNOWN, frame_rule_find(address, nullptr, nullptr).known) << address;
    munmap(page, 4096);
}

// Every byte of some libraries' code: no address may be more than we can stand.
TEST(WrongRules, NoAddressOfAnObjectIsTooMuch)
{
    dl_find_object object;
    ASSERT_EQ(0, _dl_find_object(reinterpret_cast<void *>(&qsort), &object));
    auto start = reinterpret_cast<uintptr_t>(object.dlfo_map_start),
         end = reinterpret_cast<uintptr_t>(object.dlfo_map_end);
    size_t known = 0;
    for (uintptr_t address = start; address < end; address += 61)
        known += frame_rule_find(address, nullptr, nullptr).known == FRAME_KNOWN;
    EXPECT_GT(known, 1000U);
}

// ---- whether memory can be read ------------------------------------------------------------------------------------------------

TEST(Readable, IsWhatIsMappedForReading)
{
    small_stack stack;
    errno = 7;
    EXPECT_TRUE(platform_is_readable(reinterpret_cast<void *>(stack.bottom())));
    EXPECT_TRUE(platform_is_readable(reinterpret_cast<void *>(stack.top() - 8)));
    EXPECT_FALSE(platform_is_readable(reinterpret_cast<void *>(stack.top())));
    EXPECT_FALSE(platform_is_readable(reinterpret_cast<void *>(stack.bottom() - 8)));
    EXPECT_FALSE(platform_is_readable(nullptr));
    EXPECT_FALSE(platform_is_readable(reinterpret_cast<void *>(uintptr_t{1} << 60)));
    EXPECT_TRUE(platform_is_readable(reinterpret_cast<void *>(&qsort)));
    EXPECT_EQ(7, errno);
}

} // namespace
