// Pools as places, whoever decides what comes there: blocks of one size apart from others, and objects of many sizes one
// behind the other.
#include "heap_isolated.h"
#include "pools_internals.h"
#include "system.h"

#include "heapfit/heapfit.h"

namespace
{

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

// The test's thread has a heap from the first object on; before, nothing is placed.
void start()
{
    heap_free(heap_malloc(1));
}

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
