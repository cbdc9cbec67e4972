// The stock of cleared memory and the thread that fills it. Each case runs in a process of its own. The program is
// linked with --wrap, so that the housekeeper runs at the usual priority: on a machine that is busy
// with other tests it would otherwise get no time.
#include "figures.h"
#include "heap_isolated.h"
#include "patience.h"
#include "space_walker.h"
#include "stress_seed.h"
#include "system.h"

extern "C" {
bool __real_platform_thread_start(const char *name, void (*run)(void *), void *argument, bool low_priority);
bool __wrap_platform_thread_start(const char *name, void (*run)(void *), void *argument, bool low_priority)
{
    return __real_platform_thread_start(name, run, argument, low_priority && false);
}
}

namespace
{

using patience::comes_true;

constexpr size_t KIB = 1024, MIB = size_t{1} << 20;

void set_reserve(size_t bytes)
{
    space_settings.zeroed_reserve = bytes;
    space_zeroed_adjust();
}

template <typename Body> void with_reserve(size_t bytes, Body body)
{
    isolated::expect_passes([&] {
        space_settings.zeroed_reserve = bytes;
        space_settings.decay_ms = DECAY_NEVER;
        space_zeroed_allow();
        heap_free(heap_malloc(1));
        body();
    });
}

bool is_zero(const void *start, size_t size)
{
    auto bytes = static_cast<const unsigned char *>(start);
    return size == 0 || (bytes[0] == 0 && std::memcmp(bytes, bytes + 1, size - 1) == 0);
}

unsigned char *calloc_checked(size_t size)
{
    auto block = static_cast<unsigned char *>(heap_calloc(size));
    EXPECT_NE(nullptr, block);
    EXPECT_TRUE(is_zero(block, size)) << size << " bytes from calloc are not zero";
    std::memset(block, 0xA5, heap_usable_size(block));
    return block;
}

// So many at once, written to and freed.
void burst(size_t size, size_t count)
{
    std::vector<unsigned char *> blocks;
    for (size_t i = 0; i < count; i++) blocks.push_back(calloc_checked(size));
    for (auto block : blocks) heap_free(block);
}

// Goes on with bursts until so many callocs found cleared memory.
bool bursts_hit(size_t size, size_t count, size_t wanted)
{
    return comes_true([&] {
        burst(size, count);
        return figures::of_heaps().zeroed_hits >= wanted;
    });
}

// The kernel's number of the housekeeper; 0: there is none.
pid_t housekeeper()
{
    pid_t found = 0;
    DIR *folder = opendir("/proc/self/task");
    while (struct dirent *entry = readdir(folder)) {
        std::string name;
        std::ifstream(std::string("/proc/self/task/") + entry->d_name + "/comm") >> name;
        if (name == "heapfit-zero") found = std::atoi(entry->d_name);
    }
    closedir(folder);
    return found;
}

bool housekeeper_is_there()
{
    return housekeeper() != 0;
}

TEST(Zeroed, BurstsOfEverySizeFindClearedMemory)
{
    for (size_t size : {4 * KIB, 10 * KIB, 32 * KIB, 64 * KIB, 200 * KIB, MIB, 3 * MIB})
        with_reserve(64 * MIB, [size] { EXPECT_TRUE(bursts_hit(size, 24 * MIB / size, 200 * MIB / size)) << size; });
}

// Threads that calloc, write, and free their own blocks and those of others, whatever the sizes.
void calloc_at_random(uint64_t seed, std::atomic<bool> &stop, std::mutex &mutex, std::vector<void *> &shared)
{
    stress::Random random(seed);
    std::vector<void *> own;
    while (!stop && !stress::failed()) {
        size_t size = random.chance(50) ? random.between(KIB, 40 * KIB) : random.between(1, 64) * 16 * KIB;
        own.push_back(calloc_checked(size));
        if (random.chance(20)) own.push_back(std::memset(heap_malloc(size), 0x5A, size));
        while (own.size() > 40 || (!own.empty() && random.chance(45))) {
            std::swap(own[random.below(own.size())], own.back());
            void *block = own.back();
            own.pop_back();
            if (random.chance(30)) {
                std::lock_guard<std::mutex> guard(mutex);
                shared.push_back(block);
                std::swap(shared[random.below(shared.size())], shared.back());
                block = shared.size() > 50 ? shared.back() : nullptr;
                if (block != nullptr) shared.pop_back();
            }
            heap_free(block);
        }
        if (random.chance(2)) heap_trim();
        if (random.chance(1)) set_reserve(random.chance(50) ? 0 : random.below(32) * MIB);
    }
    for (void *block : own) heap_free(block);
}

TEST(ZeroedRandom, EveryCallocIsZeroWhateverThreadsDo)
{
    SCOPED_TRACE(stress::how_to_repeat());
    with_reserve(8 * MIB, [] {
        std::atomic<bool> stop{false};
        std::mutex mutex;
        std::vector<void *> shared;
        std::vector<std::thread> threads;
        for (uint64_t i = 0; i < 4; i++)
            threads.emplace_back([&, i] { calloc_at_random(stress::seed() + i, stop, mutex, shared); });
        stress::Deadline deadline(2);
        while (!deadline.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
        stop = true;
        for (auto &thread : threads) thread.join();
        for (void *block : shared) heap_free(block);
        set_reserve(0);
        EXPECT_TRUE(comes_true([] {
            space_zeroed_adjust();
            return figures_now().zeroed == 0 && !housekeeper_is_there();
        }));
        space_walker::check();
    });
}

TEST(Zeroed, TheStockGoesBackBeforeAnAllocationFails)
{
    isolated::expect_passes([] {
        space_settings.reservation = 64 * MIB;
        space_settings.decay_ms = DECAY_NEVER;
        space_settings.zeroed_reserve = 40 * MIB;
        space_zeroed_allow();
        heap_free(heap_malloc(58 * MIB));
        EXPECT_TRUE(bursts_hit(MIB, 50, 200));
        EXPECT_TRUE(comes_true([] { return figures_now().zeroed > 20 * MIB || (burst(MIB, 50), false); }));
        void *block = heap_malloc(55 * MIB);
        // One run may be in the housekeeper's hands at the first try.
        if (block == nullptr) {
            EXPECT_TRUE(comes_true([&] { return (block = heap_malloc(55 * MIB)) != nullptr; }));
        }
        heap_free(block);
        space_walker::check();
    });
}

#if !HEAPFIT_TEST_SANITIZED && !HEAPFIT_TEST_EMULATED // neither survives a fork among threads

TEST(Zeroed, AChildMissesNothingOfWhatWasBeingCleared)
{
    with_reserve(24 * MIB, [] {
        for (int i = 0; i < 100; i++) {
            burst(MIB, 20);
            heap_fork_begin();
            pid_t child = fork();
            if (child != 0) heap_fork_end();
            if (child == 0) {
                heap_fork_end_in_child();
                space_zeroed_release();
                space_walker::check();
                struct space_figures figures = figures_now();
                // Nothing lives, so what is handed out is the heaps' own and what they keep for themselves.
                EXPECT_LE(figures.handed_out, MIB);
                _exit(testing::Test::HasFailure() ? isolated::FAILED : isolated::PASSED);
            }
            int status = -1;
            EXPECT_EQ(child, waitpid(child, &status, 0));
            ASSERT_EQ(isolated::PASSED, status) << "child " << i;
        }
    });
}

#endif

} // namespace
