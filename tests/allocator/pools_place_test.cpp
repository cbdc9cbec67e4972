// Pools as places, whoever decides what comes there: blocks of one size apart from others, and objects of many sizes one
// behind the other.
#include "heap_isolated.h"
#include "heap_walker.h"
#include "pools_internals.h"

#include "heapfit/heapfit.h"

#include <algorithm>
#include <map>
#include <set>
#include <thread>
#include <vector>

namespace
{

constexpr size_t GRANULE = MALLOC_ALIGNMENT;

struct verdict new_pool(uint32_t block_size)
{
    uint32_t pool;
    EXPECT_TRUE(place_pool(&pool, block_size));
    return place_verdict(pool);
}

struct verdict new_mixed()
{
    uint32_t pool;
    EXPECT_TRUE(place_mixed(&pool));
    return place_verdict(pool);
}

// A caller of malloc whose objects go there.
class Site
{
  public:
    explicit Site(struct verdict verdict) : bin_(verdict.bin), pool_(verdict.pool)
    {
        static uintptr_t made = 0x1000;
        caller_.return_address = made += sizeof(struct site);
        site_put(caller_.return_address, verdict_word(verdict));
        if (verdict.kind != VERDICT_ORDINARY) open();
    }

    char *allocate(size_t size) const
    {
        void *object = pools_pop(size, thread_heap, caller_.return_address);
        if (object == nullptr) object = pools_malloc_at(size, thread_heap, &caller_);
        EXPECT_NE(nullptr, object);
        return static_cast<char *>(object);
    }

    std::vector<char *> allocate_many(size_t count, size_t size) const
    {
        std::vector<char *> objects;
        for (size_t i = 0; i < count; i++) objects.push_back(allocate(size));
        return objects;
    }

    struct place_figures figures() const
    {
        struct place_figures all[POOL_BINS];
        EXPECT_LT(pool_, place_figures(all));
        return all[pool_];
    }

  private:
    // The thread's first objects of a pool are ordinary: let them be behind it.
    void open() const
    {
        thread_heap->bins[bin_].borrowed = BORROWED_MAX;
    }

    struct frame caller_ = {};
    unsigned bin_;
    uint32_t pool_;
};

const struct span *span_of(const void *object)
{
    return span_of_offset(space_offset(object));
}

uint32_t pool_of(const void *object)
{
    return place_of(span_of(object));
}

void release(const std::vector<char *> &objects)
{
    for (char *object : objects) heap_free(object);
}

// The test's thread has a heap from the first object on; before, nothing is placed.
void start()
{
    heap_free(heap_malloc(1));
}

// ---- blocks of one size ----------------------------------------------------------------------------------------------

TEST(Pool, ItsBlocksAreApartFromThoseOfOtherPoolsAndOfOrdinaryBins)
{
    isolated::expect_passes([] {
        start();
        Site orders(new_pool(48)), trades(new_pool(48));
        std::set<const struct span *> spans[3];
        for (int i = 0; i < 10000; i++) {
            spans[0].insert(span_of(orders.allocate(40)));
            spans[1].insert(span_of(trades.allocate(40)));
            spans[2].insert(span_of(heap_malloc(40)));
        }
        std::set<const struct span *> all;
        for (const auto &each : spans) all.insert(each.begin(), each.end());
        EXPECT_EQ(spans[0].size() + spans[1].size() + spans[2].size(), all.size());
        heap_walker::check(thread_heap);
    });
}

TEST(Pool, WhatIsAllocatedOneAfterAnotherStandsSideBySide)
{
    isolated::expect_passes([] {
        start();
        Site site(new_pool(48));
        std::vector<char *> objects;
        for (int i = 0; i < 1000; i++) {
            objects.push_back(site.allocate(48));
            heap_malloc(48);
        }
        int beside = 0;
        for (size_t i = 1; i < objects.size(); i++) beside += objects[i] == objects[i - 1] + 48;
        EXPECT_GT(beside, 980); // but where a span ends
    });
}

TEST(Pool, ObjectsOfAnotherSizeFromTheSamePlaceAreOrdinary)
{
    isolated::expect_passes([] {
        start();
        Site site(new_pool(48));
        EXPECT_EQ(0u, pool_of(site.allocate(33)));
        EXPECT_EQ(POOL_NONE, pool_of(site.allocate(32)));
        EXPECT_EQ(POOL_NONE, pool_of(site.allocate(49)));
        EXPECT_EQ(POOL_NONE, pool_of(site.allocate(100000)));
    });
}

TEST(Pool, AThreadWithoutAHeapOfItsOwnAllocatesInTheOrdinaryHeap)
{
    isolated::expect_passes([] {
        start();
        Site pool(new_pool(48)), mixed(new_mixed());
        heap_settings.lockless_threads = 1;
        std::thread([&] {
            for (int i = 0; i < 1000; i++) {
                EXPECT_EQ(POOL_NONE, pool_of(pool.allocate(48)));
                EXPECT_EQ(POOL_NONE, pool_of(mixed.allocate(48)));
            }
        }).join();
    });
}

TEST(Pool, AThreadsFirstObjectsAreOrdinarySoThatFewDoNotCostAPage)
{
    isolated::expect_passes([] {
        start();
        std::vector<Site> sites;
        for (unsigned i = 0; i < 20; i++) sites.emplace_back(i % 2 == 0 ? new_pool(64) : new_mixed());
        std::thread([&] {
            start();
            for (const Site &site : sites)
                for (char *object : site.allocate_many(32, 64)) EXPECT_EQ(POOL_NONE, pool_of(object));
            for (const Site &site : sites) EXPECT_NE(POOL_NONE, pool_of(site.allocate(64)));
        }).join();
    });
}

TEST(Pool, OfADivertedThreadNothingIsPlaced)
{
    isolated::expect_passes([] {
        start();
        Site site(new_pool(48));
        hf_context *context = hf_context_create(nullptr);
        hf_context_switch(context);
        char *object = site.allocate(48);
        EXPECT_TRUE(hf_context_owns(context, object));
        hf_context_switch(nullptr);
        EXPECT_EQ(0u, pool_of(site.allocate(48)));
    });
}

TEST(Pool, WhenAllAreFreedItsMemoryGoesBack)
{
    isolated::expect_passes([] {
        start();
        Site pool(new_pool(64)), mixed(new_mixed());
        for (const Site *site : {&pool, &mixed}) {
            release(site->allocate_many(100000, 64));
            heap_trim();
            EXPECT_EQ(0u, site->figures().footprint);
            EXPECT_EQ(0u, site->figures().objects);
        }
        heap_walker::check(thread_heap);
    });
}

TEST(Pool, WhatAThreadLeavesIsAdoptedByTheNextThatHasTheSamePool)
{
    isolated::expect_passes([] {
        start();
        Site pool(new_pool(64)), mixed(new_mixed());
        for (const Site *site : {&pool, &mixed}) {
            std::vector<char *> objects;
            std::thread([&] {
                objects = site->allocate_many(10000, 64);
                for (size_t i = 0; i < objects.size(); i += 2) heap_free(objects[i]);
            }).join();
            size_t footprint = site->figures().footprint;
            std::thread([&] { site->allocate_many(5000, 64); }).join();
            EXPECT_LE(site->figures().footprint, footprint + SPAN_SIZE);
            for (size_t i = 1; i < objects.size(); i += 2) heap_free(objects[i]);
        }
    });
}

TEST(Pool, ObjectsAreFreedByOtherThreads)
{
    isolated::expect_passes([] {
        start();
        Site pool(new_pool(64)), mixed(new_mixed());
        for (const Site *site : {&pool, &mixed}) {
            for (int round = 0; round < 20; round++) {
                std::vector<char *> objects = site->allocate_many(5000, 64);
                std::thread([&] { release(objects); }).join();
            }
            EXPECT_LE(site->figures().footprint, 5000 * 64 * 3);
        }
        heap_walker::check(thread_heap);
    });
}

TEST(Pool, ThereAreAsManyAsThereCanBe)
{
    isolated::expect_passes([] {
        start();
        uint32_t pool;
        for (unsigned i = 0; i < POOL_BINS; i++) {
            ASSERT_TRUE(i % 2 == 0 ? place_pool(&pool, 48) : place_mixed(&pool));
            EXPECT_EQ(i, pool);
            Site site(place_verdict(pool));
            for (int j = 0; j < 100; j++) EXPECT_EQ(i, pool_of(site.allocate(48)));
        }
        EXPECT_FALSE(place_pool(&pool, 48));
        EXPECT_FALSE(place_mixed(&pool));
        heap_walker::check(thread_heap);
    });
}

TEST(Pool, PassingThroughPlacesNothing)
{
    isolated::expect_passes([] {
        start();
        pool_settings.placing = POOL_PLACING_NONE;
        EXPECT_EQ(VERDICT_ORDINARY, new_pool(48).kind);
        EXPECT_EQ(VERDICT_ORDINARY, new_mixed().kind);
    });
}

TEST(Pool, HeadersTakeRoomInFrontOfNobody)
{
    isolated::expect_passes([] {
        start();
        pool_settings.headers = true;
        Site pool(new_pool(48)), mixed(new_mixed());
        char *first = pool.allocate(48);
        EXPECT_EQ(first + 64, pool.allocate(48));
        first = mixed.allocate(48);
        EXPECT_EQ(first + 64, mixed.allocate(48));
    });
}

TEST(Pool, ItTakesMemoryBySegments)
{
    isolated::expect_passes([] {
        start();
        heap_settings.pool_carve_units = 4;
        Site site(new_pool(64));
        const struct span *span = span_of(site.allocate(64));
        EXPECT_EQ(0xFFF0, span->uncarved);
    });
}

TEST(Pool, TheFiguresAreThoseOfItsObjects)
{
    isolated::expect_passes([] {
        start();
        Site pool(new_pool(64)), mixed(new_mixed());
        std::vector<char *> in_pool = pool.allocate_many(3000, 64);
        mixed.allocate_many(1000, 100);
        heap_return_blocks(thread_heap);
        EXPECT_EQ(3000u, pool.figures().objects);
        EXPECT_EQ(3000u * 64, pool.figures().bytes);
        EXPECT_EQ(1000u, mixed.figures().objects);
        EXPECT_EQ(1000u * 112, mixed.figures().bytes);
        release(in_pool);
        EXPECT_EQ(0u, pool.figures().objects);
    });
}

// ---- objects of many sizes ---------------------------------------------------------------------------------------------

TEST(MixedPool, ObjectsStandOneBehindTheOtherWhateverTheirSize)
{
    isolated::expect_passes([] {
        start();
        Site cells(new_mixed());
        char *previous = cells.allocate(24);
        size_t before = 32;
        for (size_t size : {56, 24, 100, 1, 0, 1024, 16, 17}) {
            char *object = cells.allocate(size);
            EXPECT_EQ(previous + before, object);
            before = std::max(GRANULE, (size + GRANULE - 1) / GRANULE * GRANULE);
            EXPECT_EQ(before, heap_usable_size(object));
            previous = object;
        }
        heap_walker::check(thread_heap);
    });
}

TEST(MixedPool, NeighboursThatAreFreedMakeRoomForALargerOne)
{
    isolated::expect_passes([] {
        start();
        Site site(new_mixed());
        std::vector<char *> objects = site.allocate_many(4000, 48); // some spans full
        std::set<const struct span *> before;
        for (char *object : objects) before.insert(span_of(object));
        for (size_t i = 0; i < objects.size(); i++)
            if (i % 4 < 2) heap_free(objects[i]);
        std::set<const struct span *> after;
        for (char *object : site.allocate_many(800, 96)) after.insert(span_of(object));
        EXPECT_TRUE(std::includes(before.begin(), before.end(), after.begin(), after.end()));
        heap_walker::check(thread_heap);
    });
}

TEST(MixedPool, ObjectsKeepTheirContentsWhileOthersComeAndGo)
{
    isolated::expect_passes([] {
        start();
        Site site(new_mixed());
        stress::Random random(stress::seed());
        std::map<char *, size_t> live;
        for (int step = 0; step < 200000; step++) {
            if (live.size() < 3000 || random.chance(50)) {
                size_t size = random.below(200);
                char *object = site.allocate(size);
                size_t usable = heap_usable_size(object);
                EXPECT_GE(usable, size);
                auto next = live.lower_bound(object);
                if (next != live.end()) {
                    ASSERT_LE(object + usable, next->first);
                }
                if (next != live.begin()) {
                    ASSERT_LE(std::prev(next)->first + std::prev(next)->second, object);
                }
                live[object] = usable;
                std::memset(object, static_cast<int>(usable), usable);
            } else {
                auto victim = live.lower_bound(live.begin()->first + random.below(1 << 18));
                if (victim == live.end()) victim = live.begin();
                EXPECT_EQ(victim->second, heap_usable_size(victim->first));
                for (size_t i = 0; i < victim->second; i++)
                    ASSERT_EQ(static_cast<char>(victim->second), victim->first[i]);
                heap_free(victim->first);
                live.erase(victim);
            }
            if (step % 20000 == 0) heap_walker::check(thread_heap);
            if (random.below(5000) == 0) heap_trim();
        }
    });
}

TEST(MixedPool, ReallocKeepsWhatFitsAndMovesTheRest)
{
    isolated::expect_passes([] {
        start();
        Site site(new_mixed());
        char *object = site.allocate(60);
        site.allocate(60);
        std::strcpy(object, "contents");
        EXPECT_EQ(object, heap_realloc(object, 64));
        EXPECT_EQ(object, heap_realloc(object, 33));
        char *moved = static_cast<char *>(heap_realloc(object, 65));
        EXPECT_NE(object, moved);
        EXPECT_STREQ("contents", moved);
        EXPECT_EQ(POOL_NONE, pool_of(moved));
    });
}

TEST(MixedPool, AnObjectsSizeIsKnownToOtherThreads)
{
    isolated::expect_passes([] {
        start();
        Site site(new_mixed());
        char *object = site.allocate(60);
        std::thread([object] {
            EXPECT_EQ(64u, heap_usable_size(object));
            heap_free_sized(object, 60);
        }).join();
    });
}

TEST(MixedPool, PagesInWhichNothingLivesGoBackAndAreUsedAgain)
{
    isolated::expect_passes([] {
        start();
        Site site(new_mixed());
        std::vector<char *> objects = site.allocate_many(20000, 100);
        for (size_t i = 0; i < objects.size(); i++)
            if (i % 500 != 0) heap_free(objects[i]);
        struct space_figures before, after;
        space_figures(&before);
        heap_trim();
        space_figures(&after);
        EXPECT_GT(after.purged, before.purged + 1500000);
        size_t footprint = site.figures().footprint;
        site.allocate_many(18000, 100);
        EXPECT_LE(site.figures().footprint, footprint + SPAN_SIZE);
        heap_walker::check(thread_heap);
    });
}

using MixedPoolDeathTest = testing::Test;

TEST(MixedPoolDeathTest, FreeOfAnInteriorPointerEndsTheProgram)
{
    EXPECT_DEATH(
        {
            start();
            Site site(new_mixed());
            std::vector<char *> objects = site.allocate_many(100, 64);
            for (char *object : objects) heap_free(object + 16);
            site.allocate_many(5000, 64);
        },
        "free of .*, which is not allocated");
}

TEST(MixedPoolDeathTest, FreeingTwiceEndsTheProgram)
{
    EXPECT_DEATH(
        {
            start();
            Site site(new_mixed());
            char *object = site.allocate(64);
            heap_free(object);
            heap_free(object);
        },
        "double free");
}

TEST(MixedPoolDeathTest, AStatedSizeAboveTheObjectsEndsTheProgram)
{
    EXPECT_DEATH(
        {
            start();
            Site site(new_mixed());
            heap_free_sized(site.allocate(60), 65);
        },
        "with size 65, but only 64 bytes were allocated");
}

} // namespace
