// space/: runs of spans. Each case runs in a process of its own, because there is one reservation in each.
#include "heap_internals.h"
#include "space_runs.h"
#include "stress_seed.h"

#define _Atomic(type) std::atomic<type>
#define _Static_assert static_assert
extern "C" {
#include "space/state.h"
}
#undef _Atomic
#undef _Static_assert

#include <sys/mman.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace
{

using namespace space_runs;

uint32_t space_index_in_unit(const struct span *span)
{
    return span_index(span) % (PLATFORM_HUGE_PAGE / SPAN_SIZE);
}

TEST(Space, StartsOnceAndKnowsForeignPointers)
{
    in_new_space([] {
        uintptr_t base = space.base;
        EXPECT_TRUE(space_start());
        EXPECT_EQ(base, space.base);
        int local = 0;
        EXPECT_TRUE(space_offset_is_foreign(space_offset(&local)));
        EXPECT_TRUE(space_offset_is_foreign(space_offset(nullptr)));
        EXPECT_TRUE(space_offset_is_foreign(space_offset(reinterpret_cast<void *>(base - 1))));
        struct span *run = acquire(1);
        EXPECT_FALSE(space_offset_is_foreign(space_offset(bytes_of(run))));
        EXPECT_EQ(run, span_of_offset(space_offset(bytes_of(run) + SPAN_SIZE - 1)));
    });
}

TEST(Space, NeighboursMergeWhateverTheOrderInWhichTheyAreReleased)
{
    in_new_space([] {
        const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
        for (const auto &order : orders) {
            struct span *run[3] = {acquire(3), acquire(40), acquire(5)};
            struct span *fence = acquire(1);
            for (int i : order) {
                space_release(run[i]);
                space_walker::check();
            }
            EXPECT_EQ(48 * SPAN_SIZE, figures_now().dirty);
            struct span *whole = acquire(48);
            EXPECT_EQ(run[0], whole) << "the three did not become one run";
            space_release(whole);
            space_release(fence);
        }
    });
}

TEST(Space, CleanAndDirtyRunsMergeOnceBothAreClean)
{
    in_new_space([] {
        struct span *first = acquire(4);
        struct span *second = acquire(4);
        struct span *fence = acquire(1);
        space_release(first);
        space_purge_all();
        space_release(second);
        EXPECT_EQ(4 * SPAN_SIZE, figures_now().clean);
        EXPECT_EQ(4 * SPAN_SIZE, figures_now().dirty);
        space_walker::check();
        space_purge_all();
        EXPECT_EQ(8 * SPAN_SIZE, figures_now().clean);
        EXPECT_EQ(first, acquire(8));
        (void)fence;
    });
}

TEST(Space, ARunIsZeroedExactlyWhenItSaysSo)
{
    in_new_space([] {
        bool zeroed = false;
        struct span *run = space_acquire(4, 1, SPAN_LARGE, &zeroed);
        EXPECT_TRUE(zeroed);
        EXPECT_TRUE(reads_as_zeros(run));
        std::memset(bytes_of(run), 0xA5, 4 * SPAN_SIZE);
        space_release(run);
        EXPECT_EQ(run, space_acquire(4, 1, SPAN_LARGE, &zeroed)) << "resident memory is preferred";
        EXPECT_FALSE(zeroed);
        space_release(run);
        space_purge_all();
        EXPECT_EQ(run, space_acquire(4, 1, SPAN_LARGE, &zeroed));
        EXPECT_TRUE(zeroed);
        EXPECT_TRUE(reads_as_zeros(run));
    });
}

TEST(Space, AlignedRunsAreAlignedInAddressAndLeaveTheRestUsable)
{
    in_new_space([] {
        for (uint32_t alignment = 1; alignment <= 256; alignment *= 2) {
            struct span *odd = acquire(1); // so that the next free span is at no round address
            struct span *run = space_acquire(3, alignment, SPAN_LARGE, nullptr);
            ASSERT_NE(nullptr, run);
            EXPECT_EQ(0u, span_start(run) % (alignment * SPAN_SIZE));
            space_walker::check();
            space_release(run);
            space_release(odd);
            space_walker::check();
        }
    });
}

TEST(Space, ARunGrowsIntoFreeCleanAndNewSpansAndShrinksInPlace)
{
    in_new_space([] {
        struct span *run = acquire(2);
        struct span *dirty = acquire(3);
        struct span *clean = acquire(3);
        space_release(clean);
        space_purge_all();
        space_release(dirty);
        uint32_t goal = 2 + 3 + 3 + 7; // the last seven from beyond the frontier
        std::memset(bytes_of(run), 0x11, 2 * SPAN_SIZE);
        ASSERT_TRUE(space_resize(run, goal));
        EXPECT_EQ(goal, run->run_spans);
        space_walker::check();
        std::memset(bytes_of(run) + 2 * SPAN_SIZE, 0x22, (goal - 2) * SPAN_SIZE);
        EXPECT_EQ(0x11, bytes_of(run)[2 * SPAN_SIZE - 1]);
        ASSERT_TRUE(space_resize(run, 1));
        EXPECT_EQ((goal - 1) * SPAN_SIZE, figures_now().dirty);
        space_walker::check();
    });
}

TEST(Space, ARunDoesNotGrowIntoItsNeighbourNorBeyondTheReservation)
{
    in_new_space([] {
        struct span *run = acquire(2);
        struct span *gap = acquire(1);
        struct span *neighbour = acquire(1);
        space_release(gap);
        EXPECT_TRUE(space_resize(run, 3));
        EXPECT_FALSE(space_resize(run, 4));
        EXPECT_EQ(3u, run->run_spans);
        EXPECT_FALSE(space_resize(neighbour, UINT32_MAX));
        EXPECT_FALSE(space_resize(neighbour, SMALL_RESERVATION / SPAN_SIZE));
        EXPECT_EQ(1u, neighbour->run_spans);
    });
}

TEST(Space, AReleasedObjectLeavesNothingThatLooksLikeOne)
{
    in_new_space([] {
        struct span *run[4];
        for (auto &each : run) each = acquire(3);
        for (auto &each : run) {
            space_release(each);
            space_walker::check();
        }
        for (auto &each : run) EXPECT_EQ(SPAN_FREE, each->kind) << "its address could be freed a second time";
        struct span *whole = acquire(12);
        for (uint32_t i = 1; i < 11; i++) EXPECT_EQ(SPAN_FREE, (whole - i)->kind);
    });
}

TEST(Space, AnExhaustedReservationRefusesAndWorksAgainOnceRunsAreReleased)
{
    in_new_space([] {
        std::vector<struct span *> runs;
        while (struct span *run = acquire(7)) runs.push_back(run);
        EXPECT_GE(runs.size(), SMALL_RESERVATION / SPAN_SIZE / 7 - 1);
        EXPECT_EQ(nullptr, acquire(7));
        EXPECT_EQ(nullptr, acquire(UINT32_MAX));
        EXPECT_EQ(nullptr, space_acquire(1, 1u << 31, SPAN_LARGE, nullptr));
        space_walker::check();
        for (auto *run : runs) space_release(run);
        EXPECT_NE(nullptr, acquire(static_cast<uint32_t>(7 * runs.size())));
    });
}

TEST(Space, DirtyAndCleanPartsAreJoinedBeforeARequestIsRefused)
{
    in_new_space([] {
        uint32_t all = SMALL_RESERVATION / SPAN_SIZE;
        struct span *first = acquire(all / 2);
        struct span *second = acquire(all / 2);
        ASSERT_NE(nullptr, second);
        space_release(first);
        space_purge_all();
        space_release(second);
        EXPECT_NE(nullptr, acquire(all));
    });
}

TEST(Space, OldDirtyRunsArePurgedAndYoungOnesAreNot)
{
    in_new_space([] {
        struct span *run = acquire(20);
        std::memset(bytes_of(run), 1, 20 * SPAN_SIZE);
        space_release(run);
        space_purge_old();
        EXPECT_EQ(20 * SPAN_SIZE, figures_now().dirty);
        space_settings.decay_ms = 0;
        space_purge_old();
        EXPECT_EQ(0u, figures_now().dirty);
        EXPECT_EQ(20 * SPAN_SIZE, figures_now().purged);
        EXPECT_EQ(1u, figures_now().purge_calls);
    });
}

TEST(Space, LittleDirtyMemoryIsNotWorthASystemCall)
{
    in_new_space([] {
        space_settings.decay_ms = 0;
        struct span *run = acquire(4);
        space_release(run);
        EXPECT_FALSE(space_purge_old());
        EXPECT_EQ(4 * SPAN_SIZE, figures_now().dirty);
        EXPECT_EQ(0u, figures_now().purge_calls);
        space_purge_all();
        EXPECT_EQ(0u, figures_now().dirty);
    });
}

// Whether the kernel is told to use huge pages at this address ("hg" among the mapping's flags).
bool huge_pages_are_advised(const void *address)
{
    std::ifstream maps("/proc/self/smaps");
    bool here = false;
    for (std::string line; std::getline(maps, line);) {
        unsigned long start, end;
        if (std::sscanf(line.c_str(), "%lx-%lx ", &start, &end) == 2)
            here = start <= reinterpret_cast<uintptr_t>(address) && reinterpret_cast<uintptr_t>(address) < end;
        if (here && line.rfind("VmFlags:", 0) == 0) return line.find(" hg") != std::string::npos;
    }
    return false;
}

// An emulator makes up what it shows of a program's mappings.
bool advice_can_be_seen()
{
    void *memory = mmap(nullptr, PLATFORM_HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool seen = memory != MAP_FAILED && madvise(memory, PLATFORM_HUGE_PAGE, MADV_HUGEPAGE) == 0 &&
                huge_pages_are_advised(memory);
    if (memory != MAP_FAILED) munmap(memory, PLATFORM_HUGE_PAGE);
    return seen;
}

TEST(Space, AUnitOfWhichAPartIsPurgedIsNotAdvisedUntilItIsWholeAgain)
{
    if (!advice_can_be_seen()) GTEST_SKIP() << "the kernel, or an emulator, does not show what it was advised";
    in_new_space([] {
        const uint32_t unit = PLATFORM_HUGE_PAGE / SPAN_SIZE;
        space_settings.huge_page_price = UINT32_MAX;
        acquire(8 * unit);                                       // small pages at first
        for (uint32_t i = 0; i < unit; i++) acquire(1);          // up to the end of what is accessible by now
        while (space_index_in_unit(acquire(1)) != unit - 1) {
        }   // and to that of a unit
        std::vector<struct span *> spans;
        for (uint32_t i = 0; i < unit; i++) spans.push_back(acquire(1));
        acquire(unit); // what follows is in use
        EXPECT_TRUE(huge_pages_are_advised(bytes_of(spans[0])));

        for (uint32_t i = 4; i < 8; i++) space_release(spans[i]);
        space_purge_all();
        EXPECT_FALSE(huge_pages_are_advised(bytes_of(spans[0])));
        EXPECT_FALSE(huge_pages_are_advised(bytes_of(spans[unit - 1])));

        for (uint32_t i = 0; i < unit; i++)
            if (i < 4 || i >= 8) space_release(spans[i]);
        space_purge_all();
        EXPECT_TRUE(huge_pages_are_advised(bytes_of(spans[0])));
    });
}

TEST(Space, HugePagesThatCostTooMuchAreForgone)
{
    in_new_space([] {
        const uint32_t unit = PLATFORM_HUGE_PAGE / SPAN_SIZE;
        space_settings.huge_page_price = 0; // any costs more
        acquire(8 * unit);
        struct span *last = acquire(8 * unit);
        EXPECT_FALSE(huge_pages_are_advised(bytes_of(last) + 7 * PLATFORM_HUGE_PAGE)) << "beyond those that were tried";
    });
}

TEST(Space, OnlyTheAllocatorsOwnMemoryCountsAsMetadata)
{
    in_new_space([] {
        size_t before = figures_now().metadata;
        space_release(space_acquire(1, 1, SPAN_METADATA, nullptr)); // as heap/ acquires spans for blocks
        EXPECT_EQ(before, figures_now().metadata);
        ASSERT_NE(nullptr, space_metadata(100));
        EXPECT_EQ(before + SPAN_SIZE, figures_now().metadata);
    });
}

TEST(Space, MetadataIsZeroedAlignedAndApart)
{
    in_new_space([] {
        space_release(acquire(2)); // leaves a dirty run, which metadata must not take
        char *before = nullptr;
        for (size_t size : {size_t{1}, size_t{64}, size_t{65}, 3 * SPAN_SIZE, size_t{4096}}) {
            char *memory = static_cast<char *>(space_metadata(size));
            ASSERT_NE(nullptr, memory);
            EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(memory) % CACHE_LINE);
            for (size_t i = 0; i < size; i++) ASSERT_EQ(0, memory[i]);
            std::memset(memory, 0xFF, size);
            EXPECT_NE(before, memory);
            before = memory;
        }
        EXPECT_EQ(nullptr, space_metadata(2 * SMALL_RESERVATION));
    });
}

TEST(Space, VisitsEveryRunInUseInTheOrderOfAddresses)
{
    in_new_space([] {
        struct span *run[3] = {acquire(1), acquire(9), acquire(2)};
        space_release(run[1]);
        std::vector<const struct span *> seen;
        space_visit([](const struct span *span,
                       void *argument) { static_cast<std::vector<const struct span *> *>(argument)->push_back(span); },
                    &seen);
        EXPECT_EQ((std::vector<const struct span *>{run[0], run[2]}), seen);
    });
}

// As a fork's child may find it: another thread had raised the frontier, and not yet described what it took there.
TEST(Space, VisitsWhatLiesBehindRunsThatNobodyDescribed)
{
    isolated::expect_passes([] {
        ASSERT_TRUE(space_start());
        const struct span *before = acquire(3);
        space_state.frontier += 5;
        const struct span *behind = acquire(2);
        std::vector<const struct span *> seen;
        space_visit([](const struct span *span,
                       void *argument) { static_cast<std::vector<const struct span *> *>(argument)->push_back(span); },
                    &seen);
        EXPECT_EQ((std::vector<const struct span *>{before, behind}), seen);
        uint32_t spans = 0;
        space_visit_runs(
            0, UINT32_MAX,
            [](const struct space_run *run, void *argument) { *static_cast<uint32_t *>(argument) += run->spans; },
            &spans);
        EXPECT_EQ(10u, spans);
    });
}

// ---- a random walk against a model ---------------------------------------------------------------------------------

class RandomWalk
{
  public:
    explicit RandomWalk(uint64_t seed) : random_(seed) {}

    void step()
    {
        switch (random_.below(10)) {
        case 0:
        case 1:
        case 2:
        case 3:
            acquire_one();
            break;
        case 4:
        case 5:
        case 6:
            release_one();
            break;
        case 7:
        case 8:
            resize_one();
            break;
        default:
            purge();
            break;
        }
    }

    void purge()
    {
        if (random_.chance(20)) space_purge_all();
        else space_purge_old();
    }

    void release_all()
    {
        while (!runs_.empty()) release_one();
    }

  private:
    uint32_t random_length()
    {
        return static_cast<uint32_t>(random_.chance(70) ? random_.between(1, 8) : random_.between(1, 120));
    }

    // Marks each span with its run, so that two runs that share one are noticed.
    static void mark(struct span *run, uint32_t from, uint64_t tag)
    {
        for (uint32_t i = from; i < run->run_spans; i++)
            *reinterpret_cast<uint64_t *>(bytes_of(run) + i * SPAN_SIZE) = tag + i;
    }

    static void expect_marked(struct span *run, uint32_t spans, uint64_t tag)
    {
        for (uint32_t i = 0; i < spans; i++)
            ASSERT_EQ(tag + i, *reinterpret_cast<uint64_t *>(bytes_of(run) + i * SPAN_SIZE)) << "span " << i;
    }

    void acquire_one()
    {
        uint32_t spans = random_length();
        uint32_t alignment = random_.chance(80) ? 1 : 1u << random_.below(8);
        bool zeroed;
        struct span *run = space_acquire(spans, alignment, SPAN_LARGE, &zeroed);
        if (run == nullptr) return;
        ASSERT_EQ(spans, run->run_spans);
        ASSERT_EQ(0u, span_start(run) % (alignment * SPAN_SIZE));
        if (zeroed) {
            ASSERT_TRUE(reads_as_zeros(run));
        }
        uint64_t tag = random_.next();
        mark(run, 0, tag);
        ASSERT_TRUE(runs_.emplace(run, tag).second);
    }

    std::map<struct span *, uint64_t>::iterator any_run()
    {
        auto place = runs_.begin();
        std::advance(place, random_.below(runs_.size()));
        return place;
    }

    void release_one()
    {
        if (runs_.empty()) return;
        auto place = any_run();
        expect_marked(place->first, place->first->run_spans, place->second);
        space_release(place->first);
        runs_.erase(place);
    }

    void resize_one()
    {
        if (runs_.empty()) return;
        auto [run, tag] = *any_run();
        uint32_t old = run->run_spans;
        uint32_t wanted = random_length();
        bool done = space_resize(run, wanted);
        ASSERT_EQ(done ? wanted : old, run->run_spans);
        ASSERT_TRUE(done || wanted > old) << "shrinking always succeeds";
        expect_marked(run, done && wanted < old ? wanted : old, tag);
        if (done && wanted > old) mark(run, old, tag);
    }

    stress::Random random_;
    std::map<struct span *, uint64_t> runs_;
};

// Another library's handler may take its time, while other threads go on.
TEST(Space, RunsThatAreReleasedDuringAForkAreUsedAgainWhateverTheirLength)
{
    in_new_space([] {
        space_fork_begin();
        for (uint32_t spans : {1, 2, 3, 5, 17}) {
            struct span *runs[2] = {acquire(spans), acquire(spans)};
            size_t before = figures_now().handed_out;
            for (int i = 0; i < 100; i++) {
                for (auto &run : runs) {
                    space_release(run);
                    bool zeroed = true; // as calloc asks
                    run = space_acquire(spans, 1, SPAN_LARGE, &zeroed);
                    ASSERT_NE(nullptr, run);
                    EXPECT_EQ(spans, run->run_spans);
                    EXPECT_FALSE(zeroed) << "it holds what its last user left";
                }
            }
            EXPECT_EQ(before, figures_now().handed_out);
            for (auto *run : runs) space_release(run);
        }
        space_fork_end();
        EXPECT_EQ(0u, figures_now().handed_out);
    });
}

// One that is too short stands before it, and stays.
TEST(Space, ALongEnoughRunIsFoundBehindShorterOnesDuringAFork)
{
    in_new_space([] {
        space_fork_begin();
        struct span *runs[] = {acquire(7), acquire(4), acquire(5)};
        size_t before = figures_now().handed_out;
        for (auto *run : runs) space_release(run);
        EXPECT_EQ(runs[0], acquire(6));
        EXPECT_EQ(runs[2], acquire(5));
        EXPECT_EQ(runs[1], acquire(4));
        EXPECT_EQ(before, figures_now().handed_out);
        space_fork_end();
    });
}

TEST(Space, ARandomWalkKeepsRunsApartAndTheTableSound)
{
    SCOPED_TRACE(stress::how_to_repeat());
    in_new_space([] {
        RandomWalk walk(stress::seed());
        stress::Deadline deadline(3);
        do {
            for (int i = 0; i < 50 && !testing::Test::HasFatalFailure(); i++) walk.step();
            space_walker::check();
        } while (!deadline.passed() && !testing::Test::HasFailure());
        walk.release_all();
        space_purge_all();
        EXPECT_EQ(0u, figures_now().handed_out);
    });
}

} // namespace
