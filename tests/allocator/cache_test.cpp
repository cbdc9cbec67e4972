// Free spans that a heap keeps: what they save, how many there are, when they go back, and what becomes of them when
// threads sleep, exit and fork. The program is linked with --wrap for the calls that are counted.
#include "model.h"
#include "new_heap.h"
#include "sleepers.h"
#include "system.h"

#include <linux/filter.h>
#include <linux/seccomp.h>

namespace
{
std::atomic<size_t> space_calls, kernel_calls;
} // namespace

extern "C" {
struct span *__real_space_acquire(uint32_t spans, uint32_t alignment, enum span_kind kind, bool *zeroed);
void __real_space_release(struct span *first);
bool __real_space_resize(struct span *first, uint32_t spans, bool filled);
bool __real_platform_commit(void *start, size_t size);
bool __real_platform_purge(void *start, size_t size);

struct span *__wrap_space_acquire(uint32_t spans, uint32_t alignment, enum span_kind kind, bool *zeroed)
{
    space_calls++;
    return __real_space_acquire(spans, alignment, kind, zeroed);
}
void __wrap_space_release(struct span *first)
{
    space_calls++;
    __real_space_release(first);
}
bool __wrap_space_resize(struct span *first, uint32_t spans, bool filled)
{
    space_calls++;
    return __real_space_resize(first, spans, filled);
}
bool __wrap_platform_commit(void *start, size_t size)
{
    kernel_calls++;
    return __real_platform_commit(start, size);
}
bool __wrap_platform_purge(void *start, size_t size)
{
    kernel_calls++;
    return __real_platform_purge(start, size);
}
}

namespace
{

constexpr size_t MIB = model::MIB;
constexpr uint32_t UNLIMITED = 1u << 30; // spans, as api/options_table.c has it

void set_threshold(uint32_t spans)
{
    heap_settings.thread_spans_cached = spans;
}

uint32_t kept()
{
    return static_cast<uint32_t>(cache_bytes(thread_heap) / SPAN_SIZE);
}

using figures::in_use;

size_t cached_figure()
{
    return figures::of_heaps().cached;
}

void touch(void *object, size_t size)
{
    for (size_t offset = 0; offset < size; offset += 4096) static_cast<volatile char *>(object)[offset] = 1;
}

void allocate_and_free(size_t size)
{
    void *object = heap_malloc(size);
    touch(object, size);
    heap_free(object);
}

// What a cache needs to grow: another thread, and that a background thread may be started.
class Company
{
  public:
    Company()
    {
        heap_settings.background = BACKGROUND_AUTO;
        heap_background_allow();
    }

  private:
    Sleepers other_{1, [] { allocate_and_free(100); }};
};

TEST(Cache, AnObjectThatComesAndGoesAsksNobody)
{
    in_new_heap([] {
        space_settings.decay_ms = DECAY_NEVER; // however long the machine is busy with something else
        Company company;
        for (uint32_t threshold : {1u, 4u, 64u, UNLIMITED}) {
            set_threshold(threshold);
            for (size_t spans : {1, 2, 4, 5, 16, 17, 63, 64, 65}) {
                size_t size = spans * SPAN_SIZE - 100;
                for (int i = 0; i < 1000; i++) { // until the cache has grown
                    space_calls = 0;
                    allocate_and_free(size);
                    if (space_calls == 0 || spans > threshold) break;
                }
                space_calls = kernel_calls = 0;
                for (int i = 0; i < 1000; i++) allocate_and_free(size);
                if (spans <= threshold) {
                    EXPECT_EQ(0u, space_calls) << spans << " spans, threshold " << threshold;
                } else {
                    EXPECT_EQ(2000u, space_calls) << spans << " spans, threshold " << threshold;
                }
                EXPECT_EQ(0u, kernel_calls);
            }
            heap_trim();
        }
    });
}

// Blocks of so many spans together, allocated and then freed.
void swing(uint32_t spans)
{
    std::vector<void *> blocks(spans / 2);
    for (void *&block : blocks) block = heap_malloc(2 * SPAN_SIZE - 100);
    for (void *block : blocks) heap_free(block);
}

constexpr uint32_t LEAST = 4, THRESHOLD = 64; // spans

// However slow the machine is: it grows where this happens often enough.
void swing_until_kept(uint32_t spans)
{
    for (int i = 0; i < 10000 && kept() < spans; i++) swing(spans);
}

TEST(Cache, TogetherGrowByAMeasureAlone)
{
    in_new_heap([] {
        space_settings.decay_ms = DECAY_NEVER;
        set_threshold(THRESHOLD);
        Company company;
        static std::atomic<uint32_t> all;
        static std::mutex turn; // or half of what others have in use would be the measure
        constexpr int THREADS = 40;
        Sleepers sleepers(THREADS, [] {
            for (int i = 0; i < 200; i++) {
                std::lock_guard<std::mutex> mine(turn);
                swing(2 * THRESHOLD);
            }
            all += kept();
        });
        // There is no least: on a slow machine runs are missed too seldom for caches to grow.
        EXPECT_LE(all, 64 * MIB / SPAN_SIZE + (THREADS + 1) * LEAST);
    });
}

TEST(Cache, DoesNotGrowForAWhileWhenAllHaveBeenEmptied)
{
    in_new_heap([] {
        space_settings.decay_ms = DECAY_NEVER;
        set_threshold(THRESHOLD);
        Company company;
        swing_until_kept(LEAST + 16);
        heap_caches_empty();
        for (uint32_t i = 0; i < THRESHOLD; i++) swing(LEAST + 16);
        EXPECT_EQ(LEAST, kept());
    });
}

TEST(Cache, GrowsByWhatWasMissingAndNoFurther)
{
    in_new_heap([] {
        space_settings.decay_ms = DECAY_NEVER;
        set_threshold(THRESHOLD);
        Company company;
        for (int i = 0; i < 10; i++) swing(LEAST + 16);
        EXPECT_EQ(LEAST, kept()) << "too seldom to matter";
        swing_until_kept(LEAST + 16);
        EXPECT_EQ(LEAST + 16, kept());
        space_calls = 0;
        swing(LEAST + 16);
        EXPECT_EQ(0u, space_calls);
        for (int i = 0; i < 1000 && kept() < THRESHOLD; i++) swing(2 * THRESHOLD);
        EXPECT_EQ(THRESHOLD, kept());
    });
}

// Its countdown is as the last of its blocks that was freed, by another thread, has left it.
TEST(Cache, IsNotSaidToHaveASpanThatIsGivenAway)
{
    in_new_heap([] {
        struct heap *heap = thread_heap_own();
        void *block = heap_malloc(1000);
        heap_flush(heap);
        struct span *span = span_of_offset(space_offset(block));
        ASSERT_NE(RUN_ON_ITS_WAY, run_use(span));
        uint32_t chain = SPAN_NONE;
        span_give_away(heap, span, &chain);
        EXPECT_EQ(RUN_ON_ITS_WAY, run_use(span));
        cache_release(chain);
    });
}

TEST(Cache, OfAnOnlyThreadDoesNotGrow)
{
    in_new_heap([] {
        space_settings.decay_ms = DECAY_NEVER;
        set_threshold(THRESHOLD);
        heap_settings.background = BACKGROUND_AUTO;
        heap_background_allow();
        for (uint32_t i = 0; i < THRESHOLD; i++) swing(LEAST + 16);
        EXPECT_EQ(LEAST, kept());
    });
}

TEST(Cache, DoesNotGrowWhereNobodyWouldEmptyThoseOfSleepers)
{
    in_new_heap([] {
        space_settings.decay_ms = DECAY_NEVER;
        set_threshold(THRESHOLD);
        Company company;
        heap_settings.background = BACKGROUND_OFF;
        for (uint32_t i = 0; i < THRESHOLD; i++) swing(LEAST + 16);
        EXPECT_EQ(LEAST, kept());
    });
}

TEST(Cache, WhatNobodyAskedForMakesItSmallerAgain)
{
    in_new_heap([] {
        space_settings.decay_ms = 100'000;
        set_threshold(THRESHOLD);
        Company company;
        swing_until_kept(LEAST + 16);
        EXPECT_EQ(LEAST + 16, kept());
        struct heap *heap = thread_heap_own();
        uint64_t now = platform_clock_ms();
        EXPECT_EQ(CHORES_LATER, cache_release_old(heap, now + 100'000, 100'000));
        EXPECT_EQ(2u * CACHE_DEPTH, kept()); // stood in front, and begin to age
        EXPECT_EQ(CHORES_NONE, cache_release_old(heap, now + 200'000, 100'000));
        EXPECT_EQ(0u, kept());
        swing(LEAST + 16);
        EXPECT_EQ(LEAST, kept());
    });
}

TEST(Cache, WhatOthersTookFromTheFrontMakesRoomThere)
{
    in_new_heap([] {
        space_settings.decay_ms = DECAY_NEVER;
        set_threshold(THRESHOLD);
        struct heap *heap = thread_heap_own();
        uint64_t now = platform_clock_ms();
        // One of each length: where there is so little room, no two of one stand there.
        auto come_and_go = [] {
            void *one = heap_malloc(SPAN_SIZE), *two = heap_malloc(2 * SPAN_SIZE);
            heap_free(one);
            heap_free(two);
        };
        come_and_go(); // before, the room is not known
        cache_release_old(heap, now, 0);
        for (int round = 0; round < 3; round++) {
            come_and_go();
            EXPECT_EQ(3u, kept());
            EXPECT_EQ(SPAN_NONE, heap->cache.youngest) << "all stand in front, round " << round;
            cache_release_old(heap, now, 100'000); // as another thread's chores do
            EXPECT_NE(SPAN_NONE, heap->cache.youngest) << "all are in the lists, round " << round;
            cache_release_old(heap, now + 200'000, 100'000);
            EXPECT_EQ(0u, kept());
        }
    });
}

void check_everything(uint32_t threshold)
{
    space_walker::check();
    EXPECT_LE(kept(), threshold);
    EXPECT_EQ(size_t{kept()} * SPAN_SIZE, cached_figure());
}

class CacheModel : public testing::TestWithParam<uint32_t>
{
};

TEST_P(CacheModel, HoldsAtEveryThreshold)
{
    SCOPED_TRACE(stress::how_to_repeat());
    isolated::expect_passes([] {
        heap_settings.thread_spans_cached = GetParam();
        model::Blocks blocks(stress::seed(), 64 * MIB);
        stress::Deadline deadline(2);
        do {
            space_settings.decay_ms = blocks.random().chance(50) ? 1 : 100'000;
            heap_settings.free_page_threshold = blocks.random().chance(50) ? 0 : SIZE_MAX;
            unsigned growth = blocks.random().chance(50) ? 75 : 25;
            for (int i = 0; i < 300 && !stress::failed(); i++) blocks.step(growth);
            check_everything(GetParam());
        } while (!deadline.passed() && !stress::failed());
        blocks.release_all();
        heap_trim();
        check_everything(0);
        EXPECT_EQ(0u, in_use());
    });
}

INSTANTIATE_TEST_SUITE_P(Thresholds, CacheModel, testing::Values(0, 1, 16, UNLIMITED));

TEST(Cache, CachesOfSleepingThreadsCanBeEmptied)
{
    in_new_heap([] {
        set_threshold(UNLIMITED);
        Sleepers sleepers(3, [] { allocate_and_free(10 * SPAN_SIZE); });
        allocate_and_free(5 * SPAN_SIZE);
        EXPECT_EQ(35 * SPAN_SIZE, in_use());
        heap_caches_empty();
        EXPECT_EQ(0u, in_use());
        EXPECT_EQ(0u, cached_figure());
    });
}

TEST(Cache, WhatSleepingThreadsKeepServesWhenMemoryHasRunOut)
{
    isolated::expect_passes([] {
        space_settings.reservation = 64 * MIB;
        set_threshold(UNLIMITED);
        Sleepers sleepers(1, [] { allocate_and_free(40 * MIB); });
        void *object = heap_malloc(39 * MIB);
        EXPECT_NE(nullptr, object);
        heap_free(object);
    });
}

TEST(Cache, ThresholdsAndTrimsMayComeAnyTime)
{
    SCOPED_TRACE(stress::how_to_repeat());
    in_new_heap([] {
        static std::atomic<bool> stop{false};
        std::vector<std::thread> threads;
        for (uint64_t i = 0; i < 3; i++) {
            threads.emplace_back([i] {
                model::Blocks blocks(stress::seed() + i, 8 * MIB);
                while (!stop && !stress::failed()) blocks.step(50);
                blocks.release_all();
            });
        }
        threads.emplace_back([] { // heaps come and go
            while (!stop) std::thread([] { allocate_and_free(3 * SPAN_SIZE); }).join();
        });
        stress::Random random(stress::seed());
        stress::Deadline deadline(3);
        while (!deadline.passed() && !stress::failed()) {
            set_threshold(static_cast<uint32_t>(random.chance(30) ? 0 : random.below(200)));
            heap_settings.free_page_threshold = random.chance(50) ? 0 : MIB;
            space_settings.decay_ms = static_cast<uint32_t>(random.below(3));
            heap_trim_everywhere();
            std::this_thread::sleep_for(std::chrono::microseconds(random.below(2000)));
        }
        stop = true;
        for (auto &thread : threads) thread.join();
        heap_trim_everywhere();
        EXPECT_EQ(0u, in_use());
    });
}

#if !HEAPFIT_TEST_SANITIZED && !HEAPFIT_TEST_EMULATED

TEST(Cache, AChildMayEmptyCachesWhoseThreadsItDoesNotHave)
{
    in_new_heap([] {
        pthread_atfork(heap_fork_begin, heap_fork_end, heap_fork_end_in_child);
        set_threshold(UNLIMITED);
        static std::atomic<bool> stop{false};
        std::vector<std::thread> threads;
        for (int i = 0; i < 3; i++) {
            threads.emplace_back([] { // their locks are held much of the time
                while (!stop) heap_free(heap_malloc(SPAN_SIZE));
            });
        }
        for (int i = 0; i < 300 && !HasFailure(); i++) {
            pid_t child = fork();
            if (child == 0) {
                alarm(isolated::TIMEOUT_SECONDS);
                allocate_and_free(7 * SPAN_SIZE);
                std::thread([] { allocate_and_free(9 * SPAN_SIZE); }).join();
                heap_trim_everywhere();
                _exit(kept() == 0 ? isolated::PASSED : isolated::FAILED);
            }
            int status = -1;
            waitpid(child, &status, 0);
            EXPECT_EQ(isolated::PASSED, status) << "signal " << WTERMSIG(status);
        }
        stop = true;
        for (auto &thread : threads) thread.join();
    });
}

// From now on a call that maps, unmaps or gives back memory ends the process.
void forbid_memory_calls()
{
    constexpr unsigned NUMBERS[] = {SYS_madvise, SYS_mmap, SYS_munmap, SYS_mprotect, SYS_mremap, SYS_brk};
    constexpr unsigned char COUNT = sizeof NUMBERS / sizeof *NUMBERS;
    std::vector<sock_filter> filter = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
    for (unsigned char i = 0; i < COUNT; i++)
        filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NUMBERS[i], static_cast<unsigned char>(COUNT - i), 0));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
    sock_fprog program = {static_cast<unsigned short>(filter.size()), filter.data()};
    ASSERT_EQ(0, prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    ASSERT_EQ(0, prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

// Requests of a server: each allocates objects of all sizes and frees them again.
void serve(stress::Random random, int requests)
{
    constexpr size_t OBJECTS = 300;
    void *objects[OBJECTS];
    for (int i = 0; i < requests; i++) {
        for (size_t k = 0; k < OBJECTS; k++)
            objects[k] = heap_malloc(k % 20 == 0 ? random.between(SMALL_MAX, MIB) : random.below(2000));
        for (void *object : objects) heap_free(object);
    }
}

TEST(Cache, ASteadyStateMakesNoSystemCallWithEverythingUnlimited)
{
    int status = isolated::run_child([] {
        set_threshold(UNLIMITED);
        space_settings.decay_ms = DECAY_NEVER;
        space_settings.shared_dirty_max = SIZE_MAX;
        stress::Random random(stress::seed());
        for (int i = 0; i < 3; i++) serve(random, 300);
        forbid_memory_calls();
        serve(random, 300); // the same again
        _exit(isolated::PASSED); // what is at the end of a test maps memory
    });
    EXPECT_EQ(isolated::PASSED, status) << "signal " << WTERMSIG(status);
}

size_t resident_pages(void *start, size_t size)
{
    std::vector<unsigned char> pages(size / 4096);
    auto address = reinterpret_cast<uintptr_t>(start) & ~uintptr_t{4095};
    EXPECT_EQ(0, mincore(reinterpret_cast<void *>(address), pages.size() * 4096, pages.data()));
    return static_cast<size_t>(std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; }));
}

TEST(Cache, NothingIsKeptWithEverythingAtZero)
{
    in_new_heap([] {
        set_threshold(0);
        heap_settings.free_page_threshold = 0;
        space_settings.decay_ms = 0;
        space_settings.shared_dirty_max = 0;
        space_settings.huge_pages = HUGE_PAGES_NEVER;
        for (int i = 0; i < 10; i++) {
            void *object = heap_malloc(4 * MIB);
            touch(object, 4 * MIB);
            EXPECT_EQ(1024u, resident_pages(object, 4 * MIB));
            heap_free(object);
            EXPECT_EQ(0u, resident_pages(object, 4 * MIB));
        }
    });
}

#endif

} // namespace
