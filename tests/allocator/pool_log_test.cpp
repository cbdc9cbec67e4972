// What is written down about objects, and reading the heap while others change it: bounded, never waiting, never a
// fault.
#include "actor.h"
#include "pool_program.h"
#include "stress_seed.h"

#include <sys/wait.h>

#include <atomic>
#include <thread>

namespace
{

using isolated::expect_passes;
using pool_program::Group;
using pool_program::has_state;

uintptr_t address(const void *object)
{
    return reinterpret_cast<uintptr_t>(object);
}

// ---- the log -------------------------------------------------------------------------------------------------------

TEST(PoolLog, FindsTheNewestObservationOfAnObject)
{
    expect_passes([] {
        uint32_t first = log_add(0x1000, 1, 16, LOG_NONE);
        uint32_t second = log_add(0x2000, 1, 16, first);
        uint32_t again = log_add(0x1000, 2, 32, LOG_NONE);
        EXPECT_EQ(again, log_find(0x1000));
        EXPECT_EQ(second, log_find(0x2000));
        EXPECT_EQ(uint32_t{LOG_NONE}, log_find(0x3000));
        ASSERT_NE(nullptr, log_at(first)) << "the older one is still there";
        EXPECT_EQ(1, log_at(first)->group);
        EXPECT_EQ(2U, log_age(first));
    });
}

TEST(PoolLog, ForgetsTheOldestAndNothingElse)
{
    expect_passes([] {
        std::vector<uint32_t> numbers;
        constexpr uintptr_t FIRST = 0x100000;
        for (uintptr_t i = 0; i < 3 * LOG_ENTRIES; i++)
            numbers.push_back(log_add(FIRST + i * 16, 0, 16, i == 0 ? uint32_t{LOG_NONE} : numbers.back()));
        size_t found = 0;
        for (uintptr_t i = 0; i < numbers.size(); i++) {
            bool kept = i >= numbers.size() - LOG_ENTRIES;
            EXPECT_EQ(kept, log_at(numbers[i]) != nullptr) << i;
            uint32_t number = log_find(FIRST + i * 16);
            if (number == LOG_NONE) continue;
            EXPECT_EQ(numbers[i], number);
            found++;
        }
        EXPECT_LE(found, size_t{LOG_ENTRIES});
        EXPECT_GE(found, size_t{LOG_ENTRIES} * 9 / 10) << "few are lost where many share a bucket";
    });
}

TEST(PoolLog, SamplesAreSpreadOverWhatIsLeftOfAGroup)
{
    expect_passes([] {
        pool_settings.min_objects = 1U << 30; // no look
        Group group;
        for (int i = 0; i < 10000; i++) group.make(32);
        uint32_t samples[SAMPLES_MAX];
        unsigned count = log_samples(&group.seen(), samples);
        EXPECT_GE(count, SAMPLES_MAX / 2U);
        EXPECT_LT(log_age(samples[0]), 300U);
        EXPECT_GT(log_age(samples[count - 1]), 9000U);
        for (unsigned i = 1; i < count; i++) EXPECT_LT(log_age(samples[i - 1]), log_age(samples[i]));
    });
}

TEST(PoolLog, ObjectsThatAreFreedOrHandedOutAgainAreNoLongerLive)
{
    expect_passes([] {
        Group group;
        struct block block;
        void *object = group.make(48);
        uint32_t number = log_find(address(object));
        EXPECT_TRUE(observation_is_live(number, log_at(number), &block));
        EXPECT_EQ(address(object), block.start);
        EXPECT_EQ(48U, block.size);
        heap_free(object);
        EXPECT_FALSE(observation_is_live(number, log_at(number), &block));
        void *again = nullptr;
        while (again != object) again = group.make(48);
        EXPECT_FALSE(observation_is_live(number, log_at(number), &block));
        number = log_find(address(object));
        EXPECT_TRUE(observation_is_live(number, log_at(number), &block));
    });
}

// ---- blocks --------------------------------------------------------------------------------------------------------

TEST(PoolLog, AnyAddressAtAllMayBeAskedAbout)
{
    expect_passes([] {
        heap_free(heap_malloc(1));
        stress::Random random(stress::seed());
        SCOPED_TRACE(stress::how_to_repeat());
        struct block block;
        for (int i = 0; i < 1000000; i++) {
            uintptr_t any = random.next();
            if (i % 2 == 0) any = space.base + any % space.size;
            if (i % 4 == 0) any = space.base + any % (64 * SPAN_SIZE);
            if (block_of(any, &block)) {
                EXPECT_LE(block.start, any);
                EXPECT_LT(any - block.start, block.size);
                block_is_live(&block);
            }
        }
        EXPECT_FALSE(block_of(0, &block));
        EXPECT_FALSE(block_of(space.base - 1, &block));
        EXPECT_FALSE(block_of(space.base + space.size, &block));
        EXPECT_FALSE(block_of(UINTPTR_MAX, &block));
    });
}

TEST(PoolLog, InsideAnObjectIsTheObject)
{
    expect_passes([] {
        uintptr_t object = address(heap_malloc(112));
        struct block block;
        ASSERT_TRUE(block_of(object + 111, &block));
        EXPECT_EQ(object, block.start);
        struct block beside;
        ASSERT_TRUE(block_beside(&block, 1, &beside));
        EXPECT_EQ(object + block.size, beside.start);
        ASSERT_TRUE(block_beside(&beside, -1, &block));
        EXPECT_EQ(object, block.start);
    });
}

TEST(PoolLog, LargeObjectsAndTheirTailsAreNoBlocks)
{
    expect_passes([] {
        char *large = static_cast<char *>(heap_malloc(10 * SPAN_SIZE));
        struct block block;
        for (size_t at = 0; at < 10 * SPAN_SIZE; at += 4096) EXPECT_FALSE(block_of(address(large + at), &block));
        heap_free(large);
        EXPECT_FALSE(block_of(address(large), &block));
    });
}

// What is given back between an observation and the look is not there to be read.
TEST(PoolLog, SamplesWhoseSpansAreGoneAreOnlyFreed)
{
    expect_passes([] {
        pool_settings.min_objects = 2000;
        Group group;
        std::vector<void *> objects;
        for (int i = 0; i < 1990; i++) objects.push_back(group.make(128));
        for (void *object : objects) heap_free(object);
        heap_trim();
        space_purge_all();
        for (int i = 0; i < 20; i++) group.make(128);
        EXPECT_TRUE(has_state(group, GROUP_WATCHED)) << "few are alive, so that was no time to decide";
        EXPECT_LT(900U, group.seen().shares.freed);
    });
}

// ---- threads -------------------------------------------------------------------------------------------------------

TEST(PoolLog, NobodyWaitsForTheJudge)
{
    expect_passes([] {
        Group group;
        group.make(32);
        group_lock();
        group.make(32); // or this would wait for ever
        Actor other;
        other([&] { group.make(32); });
        group_unlock();
        EXPECT_EQ(1U, group.seen().objects);
        group.make(32);
        EXPECT_EQ(2U, group.seen().objects);
    });
}

TEST(PoolLog, AChildOfAForkGoesOn)
{
    expect_passes([] {
        Group group;
        group.make(32);
        pid_t child = fork();
        if (child == 0) group_fork_child();
        group.make(32);
        if (child == 0) _exit(group.seen().objects == 2 ? 0 : 1);
        int status = -1;
        waitpid(child, &status, 0);
        EXPECT_EQ(0, status);
    });
}

// Objects full of words that lead anywhere, made, freed and handed over by several threads, among purges and looks.
TEST(PoolLog, ReadingFreedAndForeignMemoryNeverFails)
{
    expect_passes([] {
        SCOPED_TRACE(stress::how_to_repeat());
        pool_settings.min_objects = 20;
        constexpr int THREADS = 4, KINDS = 300, SLOTS = 4096;
        std::vector<Group> kinds(KINDS);
        std::vector<std::atomic<uintptr_t *>> slots(SLOTS);
        std::vector<std::thread> threads;
        stress::Deadline deadline(2);
        for (int thread = 0; thread < THREADS; thread++) {
            threads.emplace_back([&, thread] {
                stress::Random random(stress::seed() + static_cast<uint64_t>(thread));
                while (!deadline.passed()) {
                    for (int i = 0; i < 1000; i++) {
                        size_t words = random.between(1, 24);
                        auto *object = kinds[random.below(KINDS)].make<uintptr_t>(words * 8);
                        uintptr_t near = space.base + random.below(256 * SPAN_SIZE);
                        for (size_t word = 0; word < words; word++) {
                            // The first must not decode to a link by chance or by what freed memory held.
                            uintptr_t any = word % 3 == 0   ? near
                                            : word % 3 == 1 ? random.next()
                                                            : space.base + random.below(space.size);
                            __atomic_store_n(&object[word], any, __ATOMIC_RELAXED);
                        }
                        heap_free(slots[random.below(SLOTS)].exchange(object));
                    }
                    if (random.chance(5)) heap_trim();
                    if (random.chance(5)) space_purge_all();
                }
            });
        }
        for (std::thread &thread : threads) thread.join();
        for (auto &slot : slots) heap_free(slot.load());
    });
}

} // namespace
