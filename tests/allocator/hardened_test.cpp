// What libheapfit-hardened does against errors that an attacker could use: each ends the process with a line that names it, or
// comes to nothing. What of it stands against what is said in docs/security.md.

#include "heap_isolated.h"
#include "heapfit/heapfit.h"
#include "system.h"

// Called while memory is cleared that becomes a large object's.
static thread_local void (*before_clearing)();

extern "C" {
int __real_madvise(void *start, size_t size, int advice);
int __wrap_madvise(void *start, size_t size, int advice)
{
    if (before_clearing != nullptr && advice == MADV_DONTNEED) before_clearing();
    return __real_madvise(start, size, advice);
}
}

namespace
{

// Hides where a pointer comes from: compilers warn of what these tests do.
char *hidden(void *pointer)
{
    void *volatile copy = pointer;
    return static_cast<char *>(copy);
}

char *make(size_t size)
{
    return hidden(malloc(size));
}

// Objects of one size, among which one is spoilt.
class Neighbours
{
  public:
    explicit Neighbours(size_t size) : size_(size) {}
    // The block before it is in use: one that was never handed out has no canary. It lives in the same page where pages have
    // room for two, so that the page stays. So many are made that there is one.
    char *one()
    {
        for (;;) {
            for (int i = 0; i < 64; i++) all_.push_back(make(size_));
            std::sort(all_.begin(), all_.end());
            size_t block_size = malloc_usable_size(all_.front()) + 8, unit = block_size <= 2048 ? 4096 : 65536;
            auto found = std::adjacent_find(all_.begin(), all_.end(), [=](const char *before, const char *object) {
                auto first = reinterpret_cast<uintptr_t>(before), second = reinterpret_cast<uintptr_t>(object);
                return second == first + block_size && first / unit == second / unit;
            });
            if (found != all_.end()) return found[1];
        }
    }
    void release()
    {
        for (char *each : all_) free(each);
        all_.clear();
    }

  private:
    size_t size_;
    std::vector<char *> all_;
};

// So often that each that was freed is handed out again: one free in 64 passes a block through a common quarantine of 256 places, and
// what is there has to leave, too. It stays for all of this in one case of 10^15.
void use_all_again(size_t size)
{
    for (int round = 0; round < 1700; round++) {
        std::vector<char *> objects;
        for (int i = 0; i < 300; i++) objects.push_back(make(size));
        for (char *object : objects) free(object);
    }
}

void expect_not_handed_out_next(size_t size)
{
    char *last = nullptr, *before = nullptr;
    for (int i = 0; i < 1000; i++) {
        char *object = make(size);
        EXPECT_TRUE(object != last && object != before) << i;
        free(object);
        before = last;
        last = object;
    }
}

bool is_clear(const char *object, size_t size)
{
    return std::all_of(object, object + size, [](char byte) { return byte == 0; });
}

void in_thread(void (*act)(char *), char *object)
{
    std::thread(act, object).join();
}

const size_t SMALL = 40, MEDIUM = 6000, LARGE = 300000;

// Large objects are then only cleared, and neither stand between inaccessible pages nor become inaccessible (docs/security.md).
bool mappings_are_limited()
{
    auto limited = [](auto what) {
        rlimit limit;
        return getrlimit(what, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    };
    return limited(RLIMIT_AS) || limited(RLIMIT_DATA);
}

class GuardedLarge : public testing::Test
{
  protected:
    void SetUp() override
    {
        if (mappings_are_limited()) GTEST_SKIP() << "the address space is limited";
    }
};

class Sizes : public testing::TestWithParam<size_t>
{
};

INSTANTIATE_TEST_SUITE_P(Hardened, Sizes, testing::Values(SMALL, MEDIUM, LARGE));

class BlockSizes : public testing::TestWithParam<size_t>
{
};

INSTANTIATE_TEST_SUITE_P(Hardened, BlockSizes, testing::Values(1, SMALL, 1000, MEDIUM, 32000));

} // namespace

TEST_P(BlockSizes, AByteBehindAnObjectIsFoundWhenItIsFreed)
{
    EXPECT_DEATH(
        {
            char *object = make(GetParam());
            object[malloc_usable_size(object)] ^= 1;
            free(object);
        },
        "^heapfit: overflow: what stands behind the object at 0x[0-9a-f]+ of [0-9]+ bytes was overwritten, found "
        "by free\n");
}

TEST_P(BlockSizes, WhatStandsBeforeAnObjectIsFoundWhenItIsFreed)
{
    Neighbours neighbours(GetParam());
    char *object = neighbours.one();
    EXPECT_DEATH(
        {
            memset(object - 8, 'A', 8);
            free(object);
        },
        "^heapfit: underflow or overflow: what stands before the object at 0x[0-9a-f]+ of ");
    neighbours.release();
}

// 11000 bytes leave room at a span's end, and those of 16 KiB do not.
TEST(Hardened, WhatStandsBeforeASpansFirstObjectIsFoundToo)
{
    const uintptr_t SPAN = 65536;
    for (size_t size : {size_t{11000}, size_t{16376}}) {
        std::set<uintptr_t> spans;
        std::vector<char *> objects;
        char *first = nullptr;
        for (int i = 0; i < 400; i++) {
            char *object = objects.emplace_back(make(size));
            auto at = reinterpret_cast<uintptr_t>(object);
            spans.insert(at / SPAN);
            if (at % SPAN == 0 && spans.count(at / SPAN - 1) != 0) first = object;
        }
        ASSERT_NE(nullptr, first);
        EXPECT_DEATH(
            {
                memset(first - 8, 'A', 8);
                free(first);
            },
            "^heapfit: underflow or overflow: ");
        for (char *object : objects) free(object);
    }
}

TEST(Hardened, ACanaryIsAnotherOneForEachAddressAndBeginsWithAZero)
{
    std::set<uint64_t> canaries;
    for (int i = 0; i < 1000; i++) {
        uint64_t canary;
        char *object = make(24);
        memcpy(&canary, object + malloc_usable_size(object), sizeof canary);
        canaries.insert(canary);
        EXPECT_EQ(0, object[malloc_usable_size(object)]) << "where a string ends that has no end";
    }
    EXPECT_EQ(1000u, canaries.size());
}

TEST_F(GuardedLarge, EndsAtAnInaccessiblePage)
{
    char *object = make(LARGE);
    EXPECT_DEATH(
        object[malloc_usable_size(object)] = 1,
        "^heapfit: overflow: access to 0x[0-9a-f]+, 1 bytes behind the object at 0x[0-9a-f]+ of 303104 bytes\n");
    free(object);
}

// A process has a limited number of mappings, and needs some for its threads and files.
TEST(Hardened, SoManyLargeObjectsLeaveMappingsToTheProgram)
{
    std::vector<char *> objects(40000);
    for (char *&object : objects) ASSERT_NE(nullptr, object = make(65536));
    int started = 0;
    for (int i = 0; i < 50; i++) std::thread([&started] { started++; }).join();
    EXPECT_EQ(50, started);
    std::ifstream maps("/proc/self/maps");
    EXPECT_NE(-1, maps.peek()) << "there is memory for a file's buffer";
    for (char *object : objects) free(object);
}

// The neighbours live on: memory in which nothing lives may go back, and is cleared before it comes again.
TEST_P(BlockSizes, AWriteToAFreeBlockIsFoundWhenItIsHandedOutAgain)
{
    for (size_t place : {0, 1, 2, 3}) {
        EXPECT_DEATH(
            {
                Neighbours neighbours(GetParam());
                char *object = neighbours.one();
                size_t size = malloc_usable_size(object);
                free(object);
                object[place * (size - 1) / 3] = 1;
                use_all_again(GetParam());
            },
            "^heapfit: (use after free: the free block at 0x[0-9a-f]+ of [0-9]+ bytes was written to at 0x|corrupted)");
    }
}

TEST_F(GuardedLarge, IsInaccessibleWhenItIsFreed)
{
    char *object = make(LARGE);
    free(object);
    EXPECT_DEATH(object[1000] = 1, "^heapfit: use after free: access to 0x[0-9a-f]+, in the object at 0x[0-9a-f]+ of "
                                   "303104 bytes, which was freed\n");
}

TEST_P(BlockSizes, WhatIsFreedIsNotHandedOutNext)
{
    expect_not_handed_out_next(GetParam());
}

TEST_P(BlockSizes, AFreedObjectHoldsNothing)
{
    char *object = make(GetParam());
    size_t size = malloc_usable_size(object);
    memset(object, 's', size);
    free(object);
    EXPECT_TRUE(is_clear(object, size));
}

TEST(Hardened, ProcessesHaveOrdersOfTheirOwn)
{
    auto order_in_child = [](int pipe_end) {
        uint64_t mixed = 0;
        for (int i = 0; i < 20000; i++) mixed = mixed * 31 + reinterpret_cast<uintptr_t>(make(48));
        return write(pipe_end, &mixed, sizeof mixed) == sizeof mixed ? 0 : 1;
    };

    uint64_t mixed[2];
    for (uint64_t &each : mixed) {
        int ends[2], status;
        ASSERT_EQ(0, pipe(ends));
        pid_t child = fork();
        if (child == 0) _exit(order_in_child(ends[1]));
        ASSERT_EQ(child, waitpid(child, &status, 0));
        ASSERT_EQ(static_cast<ssize_t>(sizeof each), read(ends[0], &each, sizeof each));
        close(ends[0]);
        close(ends[1]);
    }
    EXPECT_NE(mixed[0], mixed[1]);
}

TEST_P(BlockSizes, ASecondFreeIsFoundAtOnce)
{
    auto freed = [] {
        char *object = make(GetParam());
        free(object);
        return object;
    };
    EXPECT_DEATH(free(freed()), "^heapfit: double free of 0x[0-9a-f]+\n");
    EXPECT_DEATH(in_thread([](char *given) { free(given); }, freed()), "^heapfit: double free of 0x[0-9a-f]+\n");
    EXPECT_DEATH(hidden(realloc(freed(), 10)), "^heapfit: realloc of 0x[0-9a-f]+, which is not allocated");
    EXPECT_DEATH(malloc_usable_size(freed()), "^heapfit: malloc_usable_size of 0x[0-9a-f]+, which is not allocated");
}

TEST_P(Sizes, WhatStandsInsideAnObjectIsNotFreed)
{
    char *object = make(GetParam());
    EXPECT_DEATH(free(object + 16), "^heapfit: free of an interior pointer: ");
    free(object);
}

// Where two threads free an object, one of them is told, whichever comes first.
void free_in_two_threads(char *object)
{
    std::atomic<int> ready{0};
    auto release = [&] {
        free(make(1));
        for (ready++; ready < 2;) {
        }
        free(object);
    };
    std::thread other(release);
    release();
    other.join();
}

TEST_P(Sizes, OfTwoFreesAtTheSameTimeOneIsFound)
{
    for (int round = 0; round < 40; round++)
        EXPECT_DEATH(free_in_two_threads(make(GetParam())),
                     "^heapfit: (double free of |free of 0x[0-9a-f]+, which is not allocated)");
}

#if defined(__x86_64__)
// The processor stops after each instruction of a free, and the handler frees another object at one of them. Eight such blocks are
// in quarantine, so that both often come to the same place.
namespace stepping
{
const unsigned long TRAP_FLAG = 0x100;
const size_t SIZE = 1900;
const int FIRST = 150; // the block is not clear earlier
int until;
char *other;

void step(int)
{
    if (--until == 0) free(other);
}

// Whether the other one was freed meanwhile.
bool free_both(char *object, int at)
{
    until = at;
    __asm__ volatile("pushfq\n\torq %0, (%%rsp)\n\tpopfq" ::"i"(TRAP_FLAG) : "cc", "memory");
    free(object);
    __asm__ volatile("pushfq\n\tandq %0, (%%rsp)\n\tpopfq" ::"i"(~TRAP_FLAG) : "cc", "memory");
    return until <= 0;
}
} // namespace stepping

TEST(Hardened, AHandlerMayFreeAtEachInstructionOfAFree)
{
    signal(SIGTRAP, stepping::step);
    for (int round = 0; round < 12; round++) {
        for (int at = stepping::FIRST; at < 500; at++) {
            char *object = make(stepping::SIZE);
            stepping::other = make(stepping::SIZE);
            if (!stepping::free_both(object, at)) {
                free(stepping::other);
                break;
            }
            std::set<char *> objects;
            for (int i = 0; i < 8; i++) EXPECT_TRUE(objects.insert(make(stepping::SIZE)).second);
            for (char *each : objects) free(each);
        }
    }
    signal(SIGTRAP, SIG_DFL);
}
#endif

TEST(Hardened, AnObjectOfNoBytesCannotBeAccessed)
{
    char *object = make(0);
    EXPECT_EQ(0u, malloc_usable_size(object));
    EXPECT_DEATH(object[0] = 1, "^heapfit: access to 0x[0-9a-f]+, an object of no bytes\n");
    EXPECT_DEATH(
        {
            free(object);
            free(object);
        },
        "^heapfit: double free of ");
    free(object);
}

TEST(Hardened, ObjectsOfNoBytesAreAsAlignedAsIsAskedFor)
{
    for (size_t alignment = 16; alignment <= 65536; alignment *= 2) {
        char *object = hidden(aligned_alloc(alignment, 0));
        EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(object) % alignment);
        EXPECT_EQ(0u, malloc_usable_size(object));
        EXPECT_DEATH(object[0] = 1, "^heapfit: access to 0x[0-9a-f]+, an object of no bytes\n") << alignment;
        free(object);
    }
}

// Its descriptor does not say yet how large it is, but what it had of a span of blocks: the address of one.
TEST(Hardened, StatisticsOfALargeObjectInTheMakingAreOfNoMoreThanThereIs)
{
    static const int LOOKS = 20; // at all spans there are
    static int looks;
    std::vector<char *> objects;
    ASSERT_EQ(0, hf_option_set("decay_ms", "unlimited")); // nothing is given back, with a lock that statistics want
    for (int i = 0; i < 4000; i++) objects.push_back(make(30000));
    for (char *object : objects) free(object);
    before_clearing = [] {
        hf_stats stats;
        ASSERT_EQ(0, hf_stats_get(&stats, sizeof stats));
        EXPECT_LE(stats.large_bytes, stats.committed);
        looks++;
    };
    for (char *&object : objects) {
        object = make(60000);
        if (looks >= LOOKS) before_clearing = nullptr;
    }
    before_clearing = nullptr;
    EXPECT_GE(looks, LOOKS);
    for (char *object : objects) free(object);
}
