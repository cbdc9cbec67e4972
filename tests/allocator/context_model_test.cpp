// Random calls on several contexts by several threads, with every object's contents verified: objects are allocated in any
// way, resized, freed by their owner or by another thread, forgotten by free_all, and contexts change hands.
#include "context_subject.h"
#include "stress_seed.h"
#include "system.h"

using namespace contexts;

namespace
{

constexpr size_t LIVE_MAX = 24 * MIB; // of a context

struct Object {
    unsigned char *start;
    size_t size;
    unsigned char pattern;
    std::atomic<size_t>
        *underway; // once another thread is to free it: of how many its context must still wait for that

    void expect_intact() const
    {
        ASSERT_TRUE(holds(start, size, pattern)) << size << " bytes at " << static_cast<void *>(start);
    }
};

size_t random_size(stress::Random &random)
{
    switch (random.below(8)) {
    case 0:
        return random.below(20 * KIB);
    case 1:
        return random.chance(20) ? random.below(3 * MIB) : random.below(200 * KIB);
    default:
        return random.below(600);
    }
}

// A context and what lives in it. One thread at a time has it.
class Transactions
{
  public:
    Transactions(unsigned number, const hf_context_config &config)
        : region_(config.kind == HF_REGION), alignment_(config.alignment == 0 ? 16 : config.alignment),
          random_(stress::seed() + number), context_(make(config))
    {
        hf_context_leave(context_.get());
    }

    // Some random calls of a thread's, which may take over objects that others have to free.
    void step(std::vector<Object> &for_others)
    {
        hf_context_enter(context_.get());
        for (uint64_t i = random_.below(300); i > 0 && !stress::failed(); i--) one(for_others);
        check_figures();
        // Acquire: pairs with the release in free_elsewhere.
        if (random_.chance(15) && underway_.load(std::memory_order_acquire) == 0) {
            forget_all();
            hf_context_free_all(context_.get());
        }
        hf_context_leave(context_.get());
    }

  private:
    void one(std::vector<Object> &for_others)
    {
        if (objects_.empty() || (live_ < LIVE_MAX && random_.chance(55))) return add(allocate(random_size(random_)));
        size_t place = random_.below(objects_.size());
        if (random_.chance(20)) return resize(objects_[place]);
        Object object = take(place);
        if (!random_.chance(10)) return release(object);
        underway_++;
        object.underway = &underway_;
        for_others.push_back(object);
    }

    Object allocate(size_t size)
    {
        size_t alignment = alignment_;
        void *start = nullptr;
        switch (random_.below(5)) {
        case 0:
            start = hf_context_calloc(context_.get(), 1, size);
            EXPECT_TRUE(holds(start, size, 0)) << "calloc";
            break;
        case 1:
            alignment = size_t{1} << random_.below(random_.chance(95) ? 13 : 22);
            start = hf_context_aligned_alloc(context_.get(), alignment, size);
            break;
        case 2: {
            hf_context *before = hf_context_switch(context_.get());
            start = hf_malloc(size);
            hf_context_switch(before);
            alignment = 16;
            break;
        }
        default:
            start = hf_context_malloc(context_.get(), size);
            break;
        }
        EXPECT_NE(nullptr, start);
        EXPECT_TRUE(is_aligned(start, alignment)) << size << ", " << alignment;
        EXPECT_TRUE(hf_context_owns(context_.get(), start));
        return {static_cast<unsigned char *>(start), size, 0, nullptr};
    }

    void add(Object object)
    {
        object.pattern = static_cast<unsigned char>(random_.next());
        fill(object.start, object.size, object.pattern);
        if (!region_) {
            ASSERT_GE(hf_usable_size(object.start), object.size);
        }
        live_ += object.size;
        objects_.push_back(object);
    }

    Object take(size_t place)
    {
        Object object = objects_[place];
        object.expect_intact();
        objects_[place] = objects_.back();
        objects_.pop_back();
        live_ -= object.size;
        return object;
    }

    void resize(Object &object)
    {
        object.expect_intact();
        size_t size = random_size(random_) + 1;
        void *start = random_.chance(50) ? hf_context_realloc(context_.get(), object.start, size)
                                         : hf_realloc(object.start, size);
        ASSERT_NE(nullptr, start);
        ASSERT_TRUE(holds(start, std::min(size, object.size), object.pattern)) << object.size << " to " << size;
        live_ += size - object.size;
        object = {static_cast<unsigned char *>(start), size, object.pattern, nullptr};
        fill(start, size, object.pattern);
    }

    void release(const Object &object)
    {
        if (random_.chance(50)) hf_context_free(context_.get(), object.start);
        else hf_free(object.start);
    }

    void forget_all()
    {
        for (const Object &object : objects_) object.expect_intact();
        objects_.clear();
        live_ = 0;
    }

    void check_figures() const
    {
        size_t usable = 0;
        if (objects_.size() > 2000) return; // takes too long
        for (const Object &object : objects_) usable += hf_usable_size(object.start);
        hf_context_stats stats = figures(context_);
        if (!region_) {
            ASSERT_GE(stats.live_bytes, usable);
        }
        if (!region_ && underway_.load(std::memory_order_acquire) == 0) {
            ASSERT_EQ(stats.live_bytes, usable);
        }
        ASSERT_LE(stats.live_bytes, stats.used_bytes);
        ASSERT_LE(stats.used_bytes, stats.footprint);
        ASSERT_LE(stats.footprint, stats.footprint_peak);
    }

    bool region_;
    size_t alignment_;
    stress::Random random_;
    std::vector<Object> objects_;
    size_t live_ = 0;
    std::atomic<size_t> underway_{0};
    Context context_;
};

hf_context_config configuration(unsigned number)
{
    static const std::array<uint32_t, 4> sizes{24, 64, 200, 4000};
    hf_context_config config{};
    switch (number % 5) {
    case 0:
        break;
    case 1:
        config.kind = HF_REGION;
        config.chunk_size = MIB;
        break;
    case 2:
        config.alignment = 8;
        config.segment_size = 8 * KIB;
        config.chunk_size = 192 * KIB;
        config.retain = SIZE_MAX;
        break;
    case 3:
        config.sizes = sizes.data();
        config.sizes_count = sizes.size();
        config.segment_size = 256 * KIB;
        config.chunk_size = 4 * MIB;
        break;
    default:
        config.huge_pages = 1;
        break;
    }
    return config;
}

void free_elsewhere(std::vector<Object> &objects)
{
    for (const Object &object : objects) {
        object.expect_intact();
        hf_free(object.start);
        object.underway->fetch_sub(1, std::memory_order_release); // its context may be emptied now
    }
    objects.clear();
}

// Contexts that wait for a thread, and objects that wait to be freed by one.
class Exchange
{
  public:
    explicit Exchange(unsigned contexts)
    {
        for (unsigned i = 0; i < contexts; i++) waiting_.push_back(std::make_unique<Transactions>(i, configuration(i)));
    }

    // One turn of a thread's: `choice` is random.
    void turn(uint64_t choice)
    {
        std::vector<Object> objects;
        std::unique_ptr<Transactions> mine;
        {
            std::lock_guard<std::mutex> guard(mutex_);
            std::swap(waiting_[choice % waiting_.size()], waiting_.back());
            mine = std::move(waiting_.back());
            waiting_.pop_back();
            std::swap(objects, objects_);
        }
        free_elsewhere(objects);
        mine->step(objects);
        std::lock_guard<std::mutex> guard(mutex_);
        waiting_.push_back(std::move(mine));
        objects_.insert(objects_.end(), objects.begin(), objects.end());
    }

    ~Exchange()
    {
        free_elsewhere(objects_);
    }

  private:
    std::mutex mutex_;
    std::vector<std::unique_ptr<Transactions>> waiting_; // more than there are threads
    std::vector<Object> objects_;
};

void run(unsigned threads)
{
    SCOPED_TRACE(stress::how_to_repeat());
    stress::Deadline deadline(4);
    Exchange exchange(threads + 4);
    std::vector<std::thread> others;
    for (unsigned i = 0; i < threads; i++)
        others.emplace_back([&, i] {
            stress::Random random(stress::seed() * 31 + i);
            while (!deadline.passed() && !stress::failed()) exchange.turn(random.next());
        });
    for (std::thread &thread : others) thread.join();
}

} // namespace

TEST(ContextModel, OneThread)
{
    run(1);
}

TEST(ContextModel, SeveralThreads)
{
    run(4);
}
