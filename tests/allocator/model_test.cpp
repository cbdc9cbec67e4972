// Random calls of one thread against the model.
#include "model.h"

namespace
{

// A program's heap grows and shrinks: in turn mostly allocating, level, and mostly freeing.
constexpr unsigned GROWTH_PERCENT[] = {80, 50, 20};
constexpr int STEPS_PER_PHASE = 3000;

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

} // namespace
