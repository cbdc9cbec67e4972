// Guarded objects: where they stand, what mistakes with them come to, who gets one, and what becomes of it when the kernel or the
// program stands in the way. Once with objects of the ordinary heap, once with some of them in pools.
#include "heap_isolated.h"
#include "heap_subject.h"
#include "sanitizer_faults.h"
#include "system.h"

#include <csetjmp>

namespace
{
bool refuses_to_seal;
} // namespace

extern "C" {
bool __real_platform_seal(void *start, size_t size);
bool __wrap_platform_seal(void *start, size_t size)
{
    return !refuses_to_seal && __real_platform_seal(start, size);
}
}

namespace
{

const size_t PAGE = platform_page_size();

bool is_guarded(const void *object)
{
    return span_kind_read(span_of_offset(space_offset(object))) == SPAN_GUARD;
}

uintptr_t address_of(const void *object)
{
    return reinterpret_cast<uintptr_t>(object);
}

bool is_at_start(const void *object)
{
    return address_of(object) % PAGE == 0;
}

// As the option does.
void set_mean(size_t mean)
{
    guard_mean = mean;
    pick_wanted = true;
}

// An object that is guarded. What is allocated on the way there stays.
template <typename Allocate> char *guarded_by(Allocate allocate)
{
    size_t before = guard_mean;
    set_mean(1);
    void *object;
    do object = allocate();
    while (object != nullptr && !is_guarded(object));
    set_mean(before);
    return static_cast<char *>(object);
}

char *guarded(size_t size)
{
    return guarded_by([size] { return subject::allocate(size); });
}

enum Side { AT_START, AT_END };

char *guarded_on(Side side, size_t size)
{
    for (;;) {
        char *object = guarded(size);
        if (is_at_start(object) == (side == AT_START)) return object;
        subject::release(object);
    }
}

// Hides where a pointer comes from: compilers warn of what these tests do.
template <typename Pointer> Pointer *hidden(Pointer *pointer)
{
    Pointer *volatile copy = pointer;
    return copy;
}

// A zero: what the rest of an object's page is filled with may be any odd byte, and is not told from one that is written there.
void write_to(char *place)
{
    *const_cast<volatile char *>(hidden(place)) = 0;
}

char read_from(const char *place)
{
    return *const_cast<const volatile char *>(hidden(place));
}

struct guard_figures guards()
{
    struct guard_figures result;
    guard_figures(&result);
    return result;
}

const auto killed_by_segv = testing::KilledBySignal(SIGSEGV);
#define PLACES "(heapfit:     [^\n]+\n)+"
// An emulator adds what it has to say.
#define SAID_ALL "(qemu: [^\n]*\n)*$"
#define FILES "(heapfit:   build ID of /[^\n]+: [0-9a-f]+\n)*"
#define NOTHING_SAID "^" SAID_ALL
#define BY(what) "heapfit:   " what " by thread [0-9]+:\n" PLACES

TEST(Guard, ObjectsAreOrdinaryWhereThereIsNoRoomForSlots)
{
    refuses_to_seal = true;
    set_mean(1);
    for (int i = 0; i < 1000; i++) {
        void *object = subject::allocate(64);
        ASSERT_NE(object, nullptr);
        ASSERT_FALSE(is_guarded(object));
        subject::release(object);
    }
    set_mean(0);
    EXPECT_EQ(guards().slots, 0u);
}

TEST(GuardDeath, AnOverflowIsFoundAtTheFirstByteThatIsOnAnotherPage)
{
    char *object = guarded_on(AT_END, 64);
    EXPECT_EXIT(write_to(object + 64), killed_by_segv,
                "^heapfit: overflow: (write|access) to 0x[0-9a-f]+, byte 1 past the end of the block at 0x[0-9a-f]+ of "
                "64 bytes\n" BY("accessed") BY("allocated") FILES SAID_ALL);
    EXPECT_EXIT(read_from(object + 164), killed_by_segv,
                "^heapfit: overflow: (read of|access to) 0x[0-9a-f]+, byte 101 past the end of");
    char *odd = guarded_on(AT_END, 40);
    EXPECT_EXIT(write_to(odd + 48), killed_by_segv,
                "^heapfit: overflow: (write|access) to 0x[0-9a-f]+, byte 9 past the end of");
}

TEST(GuardDeath, AUseAfterFreeIsFoundForAsLongAsTheSlotIsNotUsedAgain)
{
    char *object = guarded(64);
    subject::release(object);
    for (int i = 0; i < 50; i++) subject::release(guarded(64));
    EXPECT_EXIT(read_from(object + 9), killed_by_segv,
                "^heapfit: use after free: (read of|access to) 0x[0-9a-f]+, byte 10 of the block at 0x[0-9a-f]+ of 64 "
                "bytes\n" BY("accessed") BY("allocated") BY("freed") FILES SAID_ALL);
    EXPECT_EXIT(write_to(object), killed_by_segv,
                "^heapfit: use after free: (write|access) to 0x[0-9a-f]+, byte 1 of the block");
}

TEST(GuardDeath, ADoubleFreeIsFoundThoughOthersHaveBeenFreedSince)
{
    char *object = guarded(64);
    subject::release(object);
    for (int i = 0; i < 50; i++) subject::release(guarded(64));
    EXPECT_EXIT(subject::release(hidden(object)), testing::KilledBySignal(SIGABRT),
                "^heapfit: double free of 0x[0-9a-f]+, a block of 64 bytes\n" BY("free") BY("allocated") BY("freed")
                    FILES SAID_ALL);
}

TEST(GuardDeath, AWrongFreeIsFound)
{
    char *object = guarded_on(AT_END, 64);
    EXPECT_EXIT(
        subject::release(object + 16), testing::KilledBySignal(SIGABRT),
        "^heapfit: free of an interior pointer: 0x[0-9a-f]+ points 16 bytes into the block at 0x[0-9a-f]+ of 64 "
        "bytes\n" BY("free") BY("allocated") FILES SAID_ALL);
    EXPECT_EXIT(subject::release(object - 16), testing::KilledBySignal(SIGABRT),
                "^heapfit: free of 0x[0-9a-f]+, which is 16 bytes before the block at 0x[0-9a-f]+ of 64 bytes\n");
    EXPECT_EXIT(subject::release(object + 64), testing::KilledBySignal(SIGABRT),
                "^heapfit: free of 0x[0-9a-f]+, which is not allocated");
}

TEST(GuardDeath, AWrongSizeIsFoundToTheByte)
{
    heap_free_sized(guarded(64), 64);
    char *object = guarded(64);
    EXPECT_EXIT(heap_free_sized(object, 65), testing::KilledBySignal(SIGABRT),
                "^heapfit: free of 0x[0-9a-f]+ with size 65, but only 64 bytes were allocated\n" BY("free")
                    BY("allocated"));
}

sigjmp_buf program_goes_on;
volatile sig_atomic_t handled_code, handled_kept_out; // of signals: SIGSEGV 1, SIGUSR2 2
void *volatile handled_address;
volatile sig_atomic_t handled;

void program_handler(int, siginfo_t *info, void *)
{
    handled = handled + 1;
    handled_code = info->si_code;
    handled_address = info->si_addr;
    sigset_t kept_out;
    pthread_sigmask(SIG_BLOCK, nullptr, &kept_out);
    handled_kept_out = sigismember(&kept_out, SIGSEGV) + 2 * sigismember(&kept_out, SIGUSR2);
    siglongjmp(program_goes_on, 1);
}

void install(void (*with_information)(int, siginfo_t *, void *), void (*plain)(int), int flags)
{
    struct sigaction action = {};
    action.sa_flags = flags;
    if (with_information != nullptr) {
        action.sa_sigaction = with_information;
        action.sa_flags |= SA_SIGINFO;
    } else {
        action.sa_handler = plain;
    }
    sigaction(SIGSEGV, &action, nullptr);
}

TEST(GuardDeath, AHandlerOfTheProgramsHasTheSignalAfterUs)
{
    auto mistake = [] {
        install(program_handler, nullptr, SA_NODEFER);
        char *object = guarded_on(AT_END, 64);
        for (int i = 0; i < 3; i++)
            if (sigsetjmp(program_goes_on, 1) == 0) write_to(object + 64);
        _exit(handled == 3 && handled_code == SEGV_ACCERR && handled_address == object + 64 ? 42 : 1);
    };
    EXPECT_EXIT(mistake(), testing::ExitedWithCode(42),
                "^(heapfit: overflow: (write|access)[^\n]+\n" BY("accessed") BY("allocated") FILES "){3}" SAID_ALL);
}

#if !defined(__SANITIZE_THREAD__) // whose own handler keeps out all
TEST(GuardDeath, AHandlerHasTheSignalsKeptOutThatItWants)
{
    for (int flags : {0, SA_NODEFER}) {
        auto mistake = [flags] {
            struct sigaction action = {};
            action.sa_sigaction = program_handler;
            action.sa_flags = SA_SIGINFO | flags;
            sigaddset(&action.sa_mask, SIGUSR2);
            sigaction(SIGSEGV, &action, nullptr);
            if (sigsetjmp(program_goes_on, 1) == 0) write_to(guarded_on(AT_END, 64) + 64);
            _exit(handled_kept_out);
        };
        EXPECT_EXIT(mistake(), testing::ExitedWithCode(flags == SA_NODEFER ? 2 : 3), "overflow");
    }
}
#endif

TEST(GuardDeath, AHandlerThatIsInstalledLaterTakesOurPlace)
{
    auto mistake = [] {
        char *object = guarded_on(AT_END, 64);
        install(program_handler, nullptr, SA_NODEFER);
        if (sigsetjmp(program_goes_on, 1) == 0) write_to(object + 64);
        _exit(handled == 1 ? 42 : 1);
    };
    EXPECT_EXIT(mistake(), testing::ExitedWithCode(42), NOTHING_SAID);
}

TEST(GuardDeath, FaultsElsewhereArePassedOnInSilence)
{
    auto wild = [] {
        guarded(64);
        write_to(reinterpret_cast<char *>(uintptr_t{16}));
    };
    EXPECT_EXIT(wild(), killed_by_segv, NOTHING_SAID);
    auto handled_wild = [] {
        install(program_handler, nullptr, SA_NODEFER);
        guarded(64);
        if (sigsetjmp(program_goes_on, 1) == 0) write_to(reinterpret_cast<char *>(uintptr_t{16}));
        _exit(handled_code == SEGV_MAPERR && handled_address == reinterpret_cast<void *>(uintptr_t{16}) ? 42 : 1);
    };
    EXPECT_EXIT(handled_wild(), testing::ExitedWithCode(42), NOTHING_SAID);
    auto unused = [] {
        guarded(64);
        read_from(reinterpret_cast<char *>(guard.start + 31 * guard.page)); // a slot that nobody has had
    };
    EXPECT_EXIT(unused(), killed_by_segv, NOTHING_SAID);
}

TEST(GuardDeath, ASignalThatIsSentDoesWhatItDid)
{
    auto by_default = [] {
        guarded(64);
        raise(SIGSEGV);
        _exit(1);
    };
    EXPECT_EXIT(by_default(), killed_by_segv, NOTHING_SAID);
    auto ignored = [] {
        signal(SIGSEGV, SIG_IGN);
        guarded(64);
        raise(SIGSEGV);
        _exit(42);
    };
    EXPECT_EXIT(ignored(), testing::ExitedWithCode(42), NOTHING_SAID);
    auto ignored_but_real = [] {
        signal(SIGSEGV, SIG_IGN);
        write_to(guarded_on(AT_END, 64) + 64);
    };
    EXPECT_EXIT(ignored_but_real(), killed_by_segv, "overflow");
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
__attribute__((noinline)) int overflow_stack(int depth)
{
    volatile char frame[4096];
    frame[0] = static_cast<char>(depth);
    return depth == INT_MAX ? 0 : overflow_stack(depth + 1) + frame[0];
}
#endif

alignas(64) char second_stack[1 << 16];

void handler_on_second_stack(int, siginfo_t *, void *)
{
    char here;
    char *address = hidden(&here);
    _exit(address >= second_stack && address < second_stack + sizeof second_stack ? 42 : 1);
}

void use_second_stack()
{
    stack_t stack = {};
    stack.ss_sp = second_stack;
    stack.ss_size = sizeof second_stack;
    sigaltstack(&stack, nullptr);
    install(handler_on_second_stack, nullptr, SA_ONSTACK);
}

TEST(GuardDeath, AHandlerRunsOnTheStackThatItWants)
{
    auto mistake = [] {
        use_second_stack();
        write_to(guarded_on(AT_END, 64) + 64);
    };
    EXPECT_EXIT(mistake(), testing::ExitedWithCode(42), "^heapfit: overflow");
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(GuardDeath, AStackThatOverflowsIsTheProgramsOwnAffair)
{
    auto overflow = [] {
        use_second_stack();
        guarded(64);
        overflow_stack(0);
    };
    EXPECT_EXIT(overflow(), testing::ExitedWithCode(42), NOTHING_SAID);
    auto overflow_by_default = [] {
        guarded(64);
        overflow_stack(0);
    };
    EXPECT_EXIT(overflow_by_default(), killed_by_segv, NOTHING_SAID);
}
#endif

#if !HEAPFIT_TEST_EMULATED
TEST(GuardDeath, AChildGoesOnWithTheSlots)
{
    char *object = guarded_on(AT_END, 64);
    std::memset(object, 'x', 64);
    isolated::expect_passes([&] {
        EXPECT_EQ(object[63], 'x');
        subject::release(object);
        for (int i = 0; i < 600; i++) subject::release(guarded(64));
        EXPECT_EQ(guards().live, 0u);
        char *own = guarded_on(AT_END, 64);
        EXPECT_EXIT(write_to(own + 64), killed_by_segv, "overflow");
        subject::release(own);
    });
    EXPECT_EQ(guards().live, 1u); // ours is not the child's
    EXPECT_EQ(object[0], 'x');
    subject::release(object);
}
#endif

#ifndef HEAPFIT_TEST_POOLS // whose test gives some objects other blocks than those of their size
void expect_about(size_t count, double expected)
{
    EXPECT_NEAR(static_cast<double>(count), expected, 5 * std::sqrt(expected) + 1);
}
#else
TEST(GuardSample, ObjectsInPoolsAreGuardedToo)
{
    // In turn ordinary, in a pool of their size, and among others of any size.
    std::vector<size_t> counts(3);
    subject::release(subject::allocate(1));
    set_mean(16384);
    enum { ROUNDS = 300000 };
    for (int i = 0; i < ROUNDS; i++) {
        void *object = subject::allocate(64);
        counts[i % 3] += is_guarded(object);
        subject::release(object);
    }
    set_mean(0);
    for (size_t count : counts) {
        // 390; the first of a thread's in each pool are ordinary, and whoever is left over at the end of a hole is counted twice.
        EXPECT_GT(count, 250u);
        EXPECT_LT(count, 550u);
    }
}
#endif

TEST(GuardSample, OfAMillionMistakesAsManyAreFoundAsThereShouldBe)
{
    static volatile sig_atomic_t found;
    install(
        [](int, siginfo_t *info, void *) {
            // Ordinary objects before the slots are read beyond as well.
            if (address_of(info->si_addr) >= guard.start + PAGE) found = found + 1;
            siglongjmp(program_goes_on, 1);
        },
        nullptr, SA_NODEFER);
    subject::release(subject::allocate(1));
    thread_heap->guard = {};
    thread_heap->guard.random = 20240301;
    enum { MISTAKES = 1000000, SIZE = 48, MEAN = 128 * 1024 };
    set_mean(MEAN);
    ::testing::internal::CaptureStderr(); // a report for each, up to a bound
    for (int i = 0; i < MISTAKES; i++) {
        char *object = static_cast<char *>(subject::allocate(SIZE));
        if (sigsetjmp(program_goes_on, 1) == 0) read_from(object + SIZE); // harms no neighbour
        subject::release(object);
    }
    set_mean(0);
    std::string reports = ::testing::internal::GetCapturedStderr();
    // Half of the guarded stand at the end of their page.
    double expected = 0.5 * MISTAKES * (1 - std::exp(-static_cast<double>(SIZE) / MEAN));
#ifdef HEAPFIT_TEST_POOLS
    EXPECT_NEAR(static_cast<double>(found), expected, 0.5 * expected);
#else
    expect_about(static_cast<size_t>(found), expected);
#endif
    size_t said = 0;
    for (size_t at = reports.find("heapfit: overflow: "); at != std::string::npos;
         at = reports.find("heapfit: overflow: ", at + 1))
        said++;
    EXPECT_EQ(said, std::min<size_t>(static_cast<size_t>(found), 64));
}

#ifndef HEAPFIT_TEST_POOLS
// Blocks that a bin returns unused are counted anew when they come again: were the point behind them kept meanwhile, and that there
// is none not, as it is most often, twice as many would be guarded.
TEST(GuardSample, AHeapThatIsTrimmedOftenHasNoMoreGuardedObjects)
{
    enum { COUNT = 4000, SIZE = 2000, BLOCK = 2048, MEAN = 32 * 1024 };
    std::vector<void *> objects(COUNT);
    subject::release(subject::allocate(1));
    thread_heap->guard = {};
    thread_heap->guard.random = 20240302;
    size_t before = guards().samples + guards().missed;
    set_mean(MEAN);
    for (void *&object : objects) {
        object = subject::allocate(SIZE);
        subject::trim();
    }
    set_mean(0);
    expect_about(guards().samples + guards().missed - before,
                 COUNT * (1 - std::exp(-static_cast<double>(BLOCK) / MEAN)));
    for (void *object : objects) subject::release(object);
}
#endif

} // namespace
