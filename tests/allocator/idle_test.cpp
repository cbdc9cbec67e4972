// What resting threads hold is taken from them, also when they rest for microseconds only: another thread claims their heaps as
// often as it can while they go on. Under ThreadSanitizer this says little, since what orders the two is a system call.
#include "figures.h"
#include "heap_internals.h"
#include "heap_isolated.h"
#include "heap_subject.h"
#include "heap_walker.h"
#include "sleepers.h"
#include "stress_seed.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <iterator>
#include <mutex>
#include <thread>
#include <vector>

static unsigned barriers_granted = UINT_MAX; // before the kernel refuses

extern "C" {
bool __real_platform_barrier_everywhere(void);
bool __wrap_platform_barrier_everywhere(void)
{
    if (barriers_granted == 0) return false;
    if (barriers_granted != UINT_MAX) barriers_granted--;
    return __real_platform_barrier_everywhere();
}
}

namespace
{

constexpr uint32_t NO_AGE = 0;

size_t purged()
{
    struct space_figures now;
    space_figures(&now);
    return now.purged;
}

// Looks twice: first whether they rest.
void take_from_resting_heaps()
{
    heap_all_release_old(platform_clock_ms(), NO_AGE, RESTING_CLAIMED);
    while (heap_all_release_old(platform_clock_ms(), NO_AGE, RESTING_CLAIMED) == CHORES_NOW) {
    }
}

// `body` runs where the kernel has the barrier, which emulators have not, and where what it orders is known to be ordered.
template <typename Body> void with_claims(Body body)
{
    if (HEAPFIT_TEST_THREAD_SANITIZER) GTEST_SKIP() << "ThreadSanitizer knows nothing of membarrier(2)";
    if (!platform_barrier_prepare()) GTEST_SKIP() << "membarrier(2) is missing";
    isolated::expect_passes([&] {
        ASSERT_TRUE(platform_barrier_prepare());
        space_settings.decay_ms = DECAY_NEVER; // nothing goes back by itself
        heap_free(heap_malloc(1));
        body();
    });
}

TEST(ARestingHeap, GivesAwayTheSpansThatItsBinsKeepForTheNextNeed)
{
    with_claims([] {
        for (size_t size = 16; size <= SMALL_MAX; size *= 2) {
            std::vector<void *> blocks(2 * SPAN_SIZE / size);
            for (auto &block : blocks) block = heap_malloc(size);
            for (void *block : blocks) heap_free(block);
        }
        heap_return_blocks(thread_heap);
        EXPECT_GE(figures::in_use(), 10 * SPAN_SIZE);
        take_from_resting_heaps();
        EXPECT_EQ(0u, figures::in_use());
        heap_free(heap_malloc(100));
        heap_walker::check(thread_heap);
    });
}

TEST(ARestingHeap, GivesPagesOfSparseSpansBackAndKeepsItsBlocks)
{
    with_claims([] {
        constexpr size_t BYTES = 512, SPANS = 100, IN_A_SPAN = SPAN_SIZE / BYTES;
        std::vector<void *> blocks(SPANS * IN_A_SPAN);
        for (auto &block : blocks) {
            block = heap_malloc(BYTES);
            std::memset(block, 0x5A, BYTES);
        }
        std::vector<void *> live;
        for (size_t i = 0; i < blocks.size(); i++) {
            if (i % (IN_A_SPAN / 2) == 7) live.push_back(blocks[i]);
            else heap_free(blocks[i]);
        }
        size_t before = purged();
        take_from_resting_heaps();
        EXPECT_GE(purged() - before, SPANS * SPAN_SIZE / 2);
        heap_walker::check(thread_heap);
        for (void *block : live)
            for (size_t i = 0; i < BYTES; i++) ASSERT_EQ(0x5A, static_cast<char *>(block)[i]);
        for (auto &block : blocks) block = heap_malloc(BYTES); // what was taken can be had again
        for (void *block : blocks) heap_free(block);
        for (void *block : live) heap_free(block);
        heap_trim();
        EXPECT_EQ(0u, figures::in_use());
    });
}

TEST(ARestingHeap, IsLookedAtOnceUntilItsThreadGoesOn)
{
    with_claims([] {
        take_from_resting_heaps();
        EXPECT_EQ(CHORES_NONE, heap_all_release_old(platform_clock_ms(), NO_AGE, RESTING_CLAIMED));
        for (int i = 0; i < 1000; i++) heap_malloc(1000);
        EXPECT_EQ(CHORES_LATER, heap_all_release_old(platform_clock_ms(), 1000, RESTING_CLAIMED));
    });
}

// ---- what others have freed for threads that sleep -----------------------------------------------------------------------

constexpr size_t MIB = size_t{1} << 20;
constexpr size_t OWNERS = 9;

// Blocks of mixed sizes that sleeping threads have allocated, and another frees, in an order that is none of theirs.
class Inheritance
{
  public:
    explicit Inheritance(size_t bytes_each)
        : owners_(OWNERS, [this, bytes_each] {
              std::vector<void *> own;
              stress::Random random(stress::seed());
              for (size_t bytes = 0; bytes < bytes_each;) {
                  size_t size = random.between(16, 3000);
                  own.push_back(std::memset(heap_malloc(size), 1, size));
                  bytes += size;
              }
              std::lock_guard<std::mutex> lock(mutex_);
              blocks_.insert(blocks_.end(), own.begin(), own.end());
          })
    {
    }

    void free_all()
    {
        stress::Random random(stress::seed() + 1);
        for (size_t left = blocks_.size(); left > 0; left--) {
            std::swap(blocks_[left - 1], blocks_[left - 1 - random.below(std::min<size_t>(left, 1000))]);
            heap_free(blocks_[left - 1]);
        }
        blocks_.clear();
    }

    void wake()
    {
        owners_.wake();
    }

  private:
    std::mutex mutex_;
    std::vector<void *> blocks_;
    Sleepers owners_;
};

// A span for each bin whose blocks an owner holds, for it to allocate from next.
constexpr size_t HELD_BY_BINS = OWNERS * BIN_COUNT * SPAN_SIZE;

TEST(ASleepingOwnersInbox, IsGivenBackByATrim)
{
    with_claims([] {
        Inheritance inheritance(16 * MIB);
        inheritance.free_all();
        EXPECT_GE(figures::in_use(), OWNERS * 16 * MIB);
        heap_trim();
        EXPECT_LE(figures::in_use(), HELD_BY_BINS);
        inheritance.wake();
        heap_trim();
        EXPECT_EQ(0u, figures::in_use());
    });
}

TEST(ASleepingOwnersInbox, IsLookedAtOnceUntilMoreComes)
{
    with_claims([] {
        Inheritance inheritance(MIB);
        inheritance.free_all();
        heap_free(heap_malloc(1));
        take_from_resting_heaps();
        barriers_granted = 0; // whoever would claim a heap is refused, and says so
        EXPECT_EQ(CHORES_NONE, heap_all_release_old(platform_clock_ms(), NO_AGE, RESTING_CLAIMED));
        barriers_granted = UINT_MAX;
    });
}

// What lies there is as good as free. Else a program could run out of memory of which it uses nothing.
TEST(ASleepingOwnersInbox, IsUsedBeforeMemoryRunsOut)
{
    constexpr size_t EACH = 16 * MIB;
    space_settings.reservation = OWNERS * EACH * 3 / 2;
    with_claims([] {
        Inheritance inheritance(EACH);
        inheritance.free_all();
        for (size_t bytes = 0; bytes < OWNERS * EACH * 3 / 4; bytes += MIB / 2)
            ASSERT_NE(nullptr, heap_malloc(MIB / 2)) << bytes;
    });
    with_claims([] {
        Inheritance inheritance(EACH);
        inheritance.free_all();
        for (size_t bytes = 0; bytes < OWNERS * EACH; bytes += 1000) ASSERT_NE(nullptr, heap_malloc(1000)) << bytes;
    });
    space_settings.reservation = 0;
}

// Or when a thread waits for the registry, to start or to end: each waits for a few messages, not for millions.
TEST(ASleepingOwnersInbox, IsLeftWhenTheOwnerWakes)
{
    with_claims([] {
        Inheritance inheritance(16 * MIB);
        inheritance.free_all();
        struct heap *owner = nullptr;
        for (const struct heap *heap = heap_youngest(); heap != nullptr; heap = heap->made_before)
            if (heap != thread_heap) owner = const_cast<struct heap *>(heap);
        ASSERT_NE(nullptr, owner);
        uintptr_t before = owner->inbox;
        uint32_t spans;
        EXPECT_FALSE(remote_inbox_hold(owner, [](const struct heap *) { return true; }, &spans));
        EXPECT_EQ(0u, spans);
        EXPECT_EQ(0u, owner->inbox);
        EXPECT_EQ(before, remote_inbox_put_back(owner)) << "as it was";
        EXPECT_EQ(before, owner->inbox);
        inheritance.wake();
        heap_trim();
        EXPECT_EQ(0u, figures::in_use());
    });
}

// ---- refusals ----------------------------------------------------------------------------------------------------------

// Nobody tries again without end: what refuses the first one refuses all, most likely.
TEST(ARestingHeap, IsLeftAsItIsWhenTheKernelRefusesABarrier)
{
    with_claims([] {
        for (int i = 0; i < 100; i++) heap_free(heap_malloc(1000));
        heap_return_blocks(thread_heap);
        size_t before = figures::in_use();
        for (unsigned granted : {0U, 1U}) {
            barriers_granted = granted;
            EXPECT_EQ(granted == 0 ? CHORES_NONE : CHORES_LATER,
                      heap_all_release_old(platform_clock_ms(), NO_AGE, RESTING_CLAIMED));
            EXPECT_EQ(0U, barriers_granted);
            EXPECT_EQ(before, figures::in_use());
        }
        barriers_granted = UINT_MAX;
        take_from_resting_heaps();
        EXPECT_GT(before, figures::in_use());
    });
}

// Objects that say what they are, so that nobody else's write goes unnoticed.
struct Object {
    char *start = nullptr;
    size_t size = 0;
    char mark = 0;
};

class Worker
{
  public:
    Worker(uint64_t seed, std::mutex &mutex, std::vector<Object> &common)
        : random_(seed), mutex_(mutex), common_(common)
    {
    }

    void step()
    {
        if (random_.chance(2)) burst_ = !burst_;
        if (random_.chance(burst_ ? 70 : 30)) allocate();
        else if (!objects_.empty()) release();
        if (random_.below(2000) == 0) std::this_thread::sleep_for(std::chrono::microseconds(random_.below(300)));
    }

    void end()
    {
        while (!objects_.empty()) release();
    }

  private:
    void allocate()
    {
        if (objects_.size() > 3000) return;
        Object object;
        object.size = random_.chance(1) ? random_.between(1, 100'000) : random_.between(1, 700);
        object.mark = static_cast<char>(random_.below(256));
        object.start = static_cast<char *>(subject::allocate(object.size));
        std::memset(object.start, object.mark, object.size);
        objects_.push_back(object);
    }

    void check_and_free(const Object &object)
    {
        for (size_t i = 0; i < object.size; i++) ASSERT_EQ(object.mark, object.start[i]) << "at " << i;
        heap_free(object.start);
    }

    void release()
    {
        std::swap(objects_[random_.below(objects_.size())], objects_.back());
        Object object = objects_.back();
        objects_.pop_back();
        if (random_.chance(20)) { // to another thread, and one of another's instead
            std::lock_guard<std::mutex> lock(mutex_);
            common_.push_back(object);
            if (common_.size() < 100) return;
            std::swap(common_[random_.below(common_.size())], common_.back());
            object = common_.back();
            common_.pop_back();
        }
        check_and_free(object);
    }

    stress::Random random_;
    std::mutex &mutex_;
    std::vector<Object> &common_;
    std::vector<Object> objects_;
    bool burst_ = true;
};

// Three threads allocate, free and rest, while another takes from their heaps all the time.
void go_on_at_any_moment(enum resting resting)
{
    with_claims([resting] {
        constexpr unsigned THREADS = 3;
        space_settings.decay_ms = 1;
        std::atomic<unsigned> working{THREADS};
        std::mutex mutex;
        std::vector<Object> common;
        std::thread background([&working, resting] {
            while (working != 0) heap_all_release_old(platform_clock_ms(), NO_AGE, resting);
        });
        std::vector<std::thread> threads;
        for (unsigned i = 0; i < THREADS; i++) {
            threads.emplace_back([&, i] {
                stress::Deadline deadline(3);
                for (unsigned life = 0; !deadline.passed(); life++) {
                    Worker worker(stress::seed() + 100 * i + life, mutex, common);
                    for (int step = 0; step < 100'000 && !deadline.passed(); step++) worker.step();
                    worker.end();
                }
                working--;
            });
        }
        for (auto &thread : threads) thread.join();
        background.join();
        for (const Object &object : common) heap_free(object.start);
        heap_trim();
        EXPECT_EQ(0u, figures::in_use());
    });
}

TEST(RestingHeaps, MayGoOnAtAnyMoment)
{
    go_on_at_any_moment(RESTING_CLAIMED);
}

TEST(HeapsThatAreLent, MayBeWantedBackAtAnyMoment)
{
    go_on_at_any_moment(RESTING_LENT);
}

// Allocates and frees without a pause, until it is told to stop: a signal most often comes in the midst of that.
void allocate_and_free(std::atomic<bool> &done)
{
    struct Block {
        size_t *start = nullptr;
        size_t mark = 0;
    } blocks[16];
    for (size_t mark = 1; !done; mark++) {
        Block &block = blocks[mark % std::size(blocks)];
        if (block.start != nullptr && block.start[1] != block.mark) ADD_FAILURE() << "a block was handed out twice";
        if (block.start != nullptr) heap_free(block.start);
        block = {static_cast<size_t *>(heap_malloc(64)), mark};
        block.start[1] = mark;
    }
    for (Block &block : blocks) heap_free(block.start);
}

// Whoever is interrupted in malloc looks asleep while the handler sleeps.
TEST(HeapsThatAreLent, AreNotTheirsWhomASignalHasInterrupted)
{
    with_claims([] {
        struct sigaction action = {};
        action.sa_handler = [](int) { usleep(2000); };
        ASSERT_EQ(0, sigaction(SIGUSR1, &action, nullptr));
        std::atomic<bool> done{false};
        std::thread thread([&done] { allocate_and_free(done); });
        for (stress::Deadline deadline(2); !deadline.passed();) {
            pthread_kill(thread.native_handle(), SIGUSR1);
            for (int i = 0; i < 20; i++) heap_all_release_old(platform_clock_ms(), NO_AGE, RESTING_LENT);
        }
        done = true;
        thread.join();
        heap_trim();
        EXPECT_EQ(0u, figures::in_use());
    });
}

// ---- threads that sleep after a burst ------------------------------------------------------------------------------------

constexpr size_t POOL = 50, BURST = 2 * MIB, KIB = 1024;
constexpr size_t HELD_EACH = 20 * KIB, THREAD_ITSELF = 40 * KIB; // its stack, and what the C library has of it

size_t resident()
{
    size_t bytes = 0;
    std::FILE *file = std::fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    size_t kib = 0;
    while (file != nullptr && std::fgets(line, sizeof line, file) != nullptr)
        if (std::sscanf(line, "Anonymous: %zu kB", &kib) == 1) bytes = kib << 10;
    if (file != nullptr) std::fclose(file);
    return bytes;
}

// Whether this kernel tells who sleeps.
bool is_told_who_sleeps()
{
    bool told = false;
    for (const struct heap *heap = heap_youngest(); heap != nullptr; heap = heap->made_before)
        if (heap != thread_heap && heap_sleep(heap) == THREAD_SLEEPS) told = true;
    return told;
}

// As the background thread does, until there is nothing left: what one heap had for another, that one has then.
void take_from_sleeping_heaps()
{
    for (int round = 0; round < 5; round++) heap_all_release_old(platform_clock_ms(), NO_AGE, RESTING_LENT);
    space_purge_all();
}

// Each frees all that it allocates, one of 64 blocks through a neighbour; but for a block whose bytes it knows.
class Pool
{
  public:
    Pool() : kept_(POOL), given_(POOL), sleepers_(POOL, [this] { work(number_++); }, [this] { check(checked_++); }) {}

    void wake()
    {
        sleepers_.wake();
    }

  private:
    void work(size_t self)
    {
        stress::Random random(stress::seed() + self);
        std::vector<void *> own;
        own.reserve(1000);
        for (size_t bytes = 0; bytes < BURST;) {
            size_t size = size_t{16} << random.below(10);
            own.push_back(std::memset(subject::allocate(size), 1, size));
            bytes += size;
            if (own.size() < 256 && bytes < BURST) continue;
            for (void *block : own) {
                if (random.below(64) != 0) heap_free(block);
                else give(self, block);
            }
            own.clear();
        }
        kept_[self] = static_cast<char *>(heap_malloc(KEPT));
        std::memset(kept_[self], static_cast<int>(self), KEPT);
        heap_free(heap_malloc(1)); // a bin is filled for it, of which the rest is held
    }

    void give(size_t self, void *block)
    {
        std::vector<void *> taken;
        {
            std::lock_guard<std::mutex> lock(mutex_);
            given_[(self + 1) % POOL].push_back(block);
            taken.swap(given_[self]);
        }
        for (void *one : taken) heap_free(one);
    }

    // By whichever thread: it uses its heap again, and frees the block of another.
    void check(size_t self)
    {
        for (size_t i = 0; i < KEPT; i++) ASSERT_EQ(static_cast<char>(self), kept_[self][i]);
        heap_free(kept_[self]);
        for (void *block : given_[self]) heap_free(block);
        void *blocks[100];
        for (auto &block : blocks) block = std::memset(heap_malloc(500), 2, 500);
        for (void *block : blocks) heap_free(block);
    }

    static constexpr size_t KEPT = 100;
    std::atomic<size_t> number_{0}, checked_{0};
    std::mutex mutex_;
    std::vector<char *> kept_;
    std::vector<std::vector<void *>> given_;
    Sleepers sleepers_;
};

TEST(HeapsOfThreadsThatSleep, HoldWhatLivesAlone)
{
    with_claims([] {
        size_t before = resident();
        Pool pool;
        if (!is_told_who_sleeps()) GTEST_SKIP() << "the kernel does not tell what threads do";
        EXPECT_GE(figures::in_use(), POOL * MIB / 2);
        take_from_sleeping_heaps();
        // Of each a span for the block that it keeps, and those given but not freed: a few more.
        EXPECT_LE(figures::in_use(), POOL * 8 * SPAN_SIZE);
        if (!HEAPFIT_TEST_SANITIZED && before != 0) {
            EXPECT_LE(resident(), before + POOL * (HELD_EACH + THREAD_ITSELF));
        }
        pool.wake();
        heap_trim();
        EXPECT_EQ(0u, figures::in_use());
    });
}

TEST(RestingHeaps, GoOnInAForksChildThoughTheirClaimerDoesNot)
{
    with_claims([] {
        constexpr unsigned HANGS_S = 60;
        void *blocks[200];
        heap_fork_begin();
        thread_heap->claimed = 1; // by a thread that has yet to find the owner inside
        pid_t child = fork();
        if (child == 0) {
            alarm(HANGS_S);
            heap_fork_end_in_child();
            for (auto &block : blocks) block = heap_malloc(700);
            for (void *block : blocks) heap_free(block);
            _exit(0);
        }
        thread_heap->claimed = 0; // it has given up
        heap_fork_end();
        int status = -1;
        EXPECT_EQ(child, waitpid(child, &status, 0));
        EXPECT_EQ(0, status) << "the child waits for a thread that it does not have";
    });
}

} // namespace
