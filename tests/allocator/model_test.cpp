// Random calls of one thread against the model.
#include "model.h"
#include "system.h"

namespace
{

// A program's heap grows and shrinks: in turn mostly allocating, level, and mostly freeing.
constexpr unsigned GROWTH_PERCENT[] = {80, 50, 20};
constexpr int STEPS_PER_PHASE = 3000;
// Freed memory goes back at once, or is there for the next allocation a while.
constexpr unsigned DECAY_MS[] = {0, 1, 2};

void run_model(size_t budget, unsigned seconds)
{
    SCOPED_TRACE(stress::how_to_repeat());
    model::Blocks blocks(stress::seed(), budget);
    stress::Deadline deadline(seconds);
    do {
        for (unsigned growth : GROWTH_PERCENT)
            for (int i = 0; i < STEPS_PER_PHASE && !stress::failed(); i++) blocks.step(growth);
        if (blocks.random().chance(20)) blocks.check_all();
        if (blocks.random().chance(5)) blocks.release_all();
        if (blocks.random().chance(10)) subject::trim();
    } while (!deadline.passed() && !stress::failed());
    blocks.release_all();
}

TEST(Model, ManyBlocksKeepTheirContentsAndStayApart)
{
    run_model(256 * model::MIB, 6);
}

TEST(Model, AFewBlocksThatComeAndGo)
{
    run_model(model::MIB, 3);
}

// Blocks that grow step by step next to each other: realloc in place, by copy and by moving pages, whose mappings are
// then in pieces.
TEST(Model, GrowingBlocksKeepTheirContents)
{
    SCOPED_TRACE(stress::how_to_repeat());
    stress::Random random(stress::seed());
    stress::Deadline deadline(4);
    constexpr size_t LARGEST = 48 * model::MIB;
    constexpr int COLUMNS = 4;
    do {
        model::Block column[COLUMNS] = {};
        for (int step = 0; step < 80 && !stress::failed(); step++) {
            model::Block &block = column[random.below(COLUMNS)];
            size_t size = block.size * (10 + random.below(20)) / 10 + random.below(model::MIB) + 1;
            if (size > LARGEST) size %= LARGEST;
            void *resized = block.start == nullptr ? subject::allocate(size) : subject::resize(block.start, size + 1);
            ASSERT_NE(nullptr, resized);
            block.start = static_cast<unsigned char *>(resized);
            size_t kept = std::min(block.size, size);
            ASSERT_EQ(kept, model::first_difference(block, kept)) << "from " << block.size << " to " << size;
            block = {block.start, size, subject::usable_size(resized), random.next()};
            model::fill(block);
        }
        for (model::Block &block : column) subject::release(block.start);
    } while (!deadline.passed() && !stress::failed());
}

// Memory that was written comes back in many ways: as the same block, in another size class, in a span that was given back,
// from pages that were purged while their span lives on, by another thread. Whichever it was, calloc clears it.
class Reuse
{
  public:
    explicit Reuse(uint64_t seed) : random_(seed) {}

    void step()
    {
        switch (random_.below(8)) {
        case 0:
            free_some();
            break;
        case 1:
            std::thread([this] { free_some(); }).join();
            break;
        case 2:
            if (random_.chance(5)) std::this_thread::sleep_for(std::chrono::milliseconds(3)); // beyond the decay time
            if (random_.chance(5)) subject::trim();
            break;
        default:
            allocate_some();
            break;
        }
    }

    void free_all()
    {
        while (!dirty_.empty()) free_last();
    }

  private:
    static constexpr size_t LARGEST = 3 * model::MIB, LIVE_MAX = 20'000;

    // Many of one size, so that whole pages and spans become free again.
    void allocate_some()
    {
        size_t size = model::random_size(random_, LARGEST);
        size_t count = std::min<size_t>(random_.below(300), 4 * model::MIB / (size + 1)) + 1;
        for (size_t i = 0; i < count && dirty_.size() < LIVE_MAX; i++) {
            auto *block = static_cast<unsigned char *>(subject::allocate_zeroed(size));
            ASSERT_NE(nullptr, block);
            model::expect_zeroed(block, size);
            std::memset(block, 0xA5, subject::usable_size(block));
            dirty_.push_back(block);
        }
    }

    // Neighbours most often, sometimes blocks from all over.
    void free_some()
    {
        if (random_.chance(20)) {
            for (size_t i = dirty_.size(); i-- > 1;) std::swap(dirty_[i], dirty_[random_.below(i + 1)]);
        }
        for (size_t count = random_.below(dirty_.size() + 1); count > 0; count--) free_last();
    }

    void free_last()
    {
        subject::release(dirty_.back());
        dirty_.pop_back();
    }

    stress::Random random_;
    std::vector<unsigned char *> dirty_;
};

TEST(Model, ZeroedBlocksAreZeroWhereverTheirMemoryWasBefore)
{
    SCOPED_TRACE(stress::how_to_repeat());
    stress::Deadline deadline(4);
    Reuse reuse(stress::seed());
    do {
        for (unsigned decay : DECAY_MS) {
            subject::set_decay_ms(decay);
            for (int i = 0; i < 20 && !stress::failed(); i++) reuse.step();
        }
    } while (!deadline.passed() && !stress::failed());
    reuse.free_all();
    subject::reset_options();
}

} // namespace
