// The model that the random tests compare the allocator with: each live block is filled with a pattern of its own over
// all its usable bytes, and is checked before it is resized or freed. Two blocks that overlap spoil each other's
// pattern; within one thread their address ranges are compared as well.
#ifndef HEAPFIT_TESTS_MODEL_H
#define HEAPFIT_TESTS_MODEL_H

#include "heap_subject.h"
#include "stress_seed.h"
#include "system.h"

namespace model
{

struct Block {
    unsigned char *start;
    size_t size;   // as requested
    size_t usable; // as reported
    uint64_t tag;
};

// ---- patterns --------------------------------------------------------------------------------------------------------

// Above this only the first and last words of every page are written and read: else large blocks take all the time.
constexpr size_t FILLED_WHOLLY_MAX = 64 * 1024;
constexpr size_t SAMPLED_PAGE = 4096;

inline uint64_t word_of(uint64_t tag, size_t offset)
{
    return (tag + offset) * UINT64_C(0x9E3779B97F4A7C15);
}

// Calls visit(offset) for each word that carries the pattern. Usable sizes are multiples of 16.
template <typename Visit> void for_each_word(size_t bytes, Visit visit)
{
    if (bytes <= FILLED_WHOLLY_MAX) {
        for (size_t offset = 0; offset + sizeof(uint64_t) <= bytes; offset += sizeof(uint64_t)) visit(offset);
        return;
    }
    for (size_t page = 0; page < bytes; page += SAMPLED_PAGE) {
        visit(page);
        if (page + SAMPLED_PAGE <= bytes) visit(page + SAMPLED_PAGE - sizeof(uint64_t));
    }
}

inline void fill(const Block &block)
{
    for_each_word(block.usable, [&](size_t offset) {
        uint64_t word = word_of(block.tag, offset);
        std::memcpy(block.start + offset, &word, sizeof word);
    });
}

// The first offset below `bytes` that does not carry the pattern; `bytes` when all do. `samples` is the size with which
// the block was filled.
inline size_t first_difference(const Block &block, size_t bytes)
{
    size_t found = bytes;
    for_each_word(block.usable, [&](size_t offset) {
        uint64_t word;
        if (offset + sizeof word > bytes || found != bytes) return;
        std::memcpy(&word, block.start + offset, sizeof word);
        if (word != word_of(block.tag, offset)) found = offset;
    });
    return found;
}

inline void expect_intact(const Block &block)
{
    size_t offset = first_difference(block, block.usable);
    ASSERT_EQ(block.usable, offset) << "block of " << block.size << " at " << static_cast<void *>(block.start)
                                    << " was overwritten at offset " << offset;
}

inline void expect_zeroed(const unsigned char *start, size_t size)
{
    const unsigned char *end = start + size;
    const unsigned char *dirty = std::find_if(start, end, [](unsigned char byte) { return byte != 0; });
    ASSERT_EQ(end, dirty) << "calloc(" << size << ") is not zero at offset " << dirty - start;
}

// ---- requests ----------------------------------------------------------------------------------------------------------

constexpr size_t SPAN = 64 * 1024;
constexpr size_t MIB = 1024 * 1024;

inline size_t around(stress::Random &random, size_t edge)
{
    return edge - 1 + random.below(3);
}

inline size_t random_size(stress::Random &random, size_t largest)
{
    size_t size = 0;
    switch (random.below(10)) {
    case 0:
    case 1:
    case 2:
        size = random.below(128);
        break;
    case 3:
    case 4:
        size = random.below(1024);
        break;
    case 5:
    case 6:
        size = around(random, size_class_bytes(static_cast<unsigned>(random.below(BIN_COUNT))));
        break;
    case 7:
        size = random.below(2 * SMALL_MAX);
        break;
    case 8:
        size = around(random, SPAN * random.between(1, 20));
        break;
    default:
        size = random.below(size_t{1} << random.between(10, 26));
        break;
    }
    return size < largest ? size : size % largest;
}

inline size_t random_alignment(stress::Random &random)
{
    unsigned highest = random.chance(90) ? 13 : 23; // 8 KiB, rarely 8 MiB
    return size_t{1} << random.between(4, highest);
}

// ---- what is left -----------------------------------------------------------------------------------------------------------

// Made before anything is allocated; at the end, when all has been freed and its threads have ended, that nothing lives on: so
// every block that another thread freed has arrived.
class NothingIsLost
{
  public:
    ~NothingIsLost()
    {
        if (stress::failed()) return;
        EXPECT_LE(subject::living(), before_ + subject::LIVING_TOLERATED);
    }

  private:
    size_t before_ = subject::living();
};

// ---- a set of live blocks, owned by one thread -------------------------------------------------------------------------

class Blocks
{
  public:
    // At most `budget` usable bytes live at a time.
    Blocks(uint64_t seed, size_t budget) : random_(seed), budget_(budget) {}

    stress::Random &random()
    {
        return random_;
    }

    bool empty() const
    {
        return blocks_.empty();
    }

    // One random call. `growth` in percent: how often a step allocates rather than frees.
    void step(unsigned growth)
    {
        if (blocks_.empty() || (bytes_ < budget_ && random_.chance(growth))) allocate();
        else if (random_.chance(25)) resize(any());
        else release(any());
    }

    void allocate()
    {
        size_t size = random_size(random_, budget_ / 4);
        size_t alignment = 16;
        unsigned char *start;
        switch (random_.below(6)) {
        case 0:
            start = static_cast<unsigned char *>(subject::allocate_zeroed(size));
            if (start != nullptr) expect_zeroed(start, size);
            break;
        case 1:
            alignment = random_alignment(random_);
            start = static_cast<unsigned char *>(subject::allocate_aligned(size, alignment));
            break;
        default:
            start = static_cast<unsigned char *>(subject::allocate(size));
            break;
        }
        ASSERT_NE(nullptr, start) << size << " bytes, alignment " << alignment;
        ASSERT_EQ(0u, reinterpret_cast<uintptr_t>(start) % alignment) << size << " bytes";
        adopt(new_block(start, size));
    }

    // Takes any block out of the set, for another thread; only when not empty.
    Block give()
    {
        size_t place = any();
        Block block = blocks_[place];
        forget(place);
        return block;
    }

    void adopt(const Block &block)
    {
        expect_apart(block);
        ranges_[block.start] = block.usable;
        bytes_ += block.usable;
        blocks_.push_back(block);
    }

    void release_all()
    {
        while (!blocks_.empty()) release(blocks_.size() - 1);
    }

    void check_all() const
    {
        for (const Block &block : blocks_) expect_intact(block);
    }

  private:
    Block new_block(unsigned char *start, size_t size)
    {
        Block block{start, size, subject::usable_size(start), random_.next()};
        EXPECT_GE(block.usable, size);
        bool is_whole = (block.usable + subject::TAIL) % 16 == 0 || block.usable % 4096 == 0;
        EXPECT_TRUE(is_whole || block.usable == size) << block.usable; // a guarded one is no longer
        fill(block);
        return block;
    }

    size_t any()
    {
        return random_.below(blocks_.size());
    }

    void expect_apart(const Block &block) const
    {
        auto after = ranges_.lower_bound(block.start);
        if (after != ranges_.end()) {
            ASSERT_LE(block.start + block.usable, after->first) << "overlaps the block behind";
        }
        if (after != ranges_.begin()) {
            auto before = std::prev(after);
            ASSERT_LE(before->first + before->second, block.start) << "overlaps the block before";
        }
    }

    void forget(size_t place)
    {
        ranges_.erase(blocks_[place].start);
        bytes_ -= blocks_[place].usable;
        blocks_[place] = blocks_.back();
        blocks_.pop_back();
    }

    void release(size_t place)
    {
        Block block = blocks_[place];
        forget(place);
        expect_intact(block);
        subject::release(block.start);
    }

    void resize(size_t place)
    {
        Block block = blocks_[place];
        expect_intact(block);
        size_t size =
            random_.chance(50) ? random_size(random_, budget_ / 4) : random_.below(block.size + block.size / 2 + 1);
        if (size == 0) size = 1; // realloc(p, 0) frees
        auto *start = static_cast<unsigned char *>(subject::resize(block.start, size));
        ASSERT_NE(nullptr, start) << "from " << block.size << " to " << size;
        ASSERT_EQ(0u, reinterpret_cast<uintptr_t>(start) % 16);
        forget(place);
        size_t kept = std::min(block.size, size);
        block.start = start;
        size_t offset = first_difference(block, kept);
        ASSERT_EQ(kept, offset) << "realloc from " << block.size << " to " << size << " lost the contents";
        adopt(new_block(start, size));
    }

    stress::Random random_;
    size_t budget_;
    size_t bytes_ = 0;
    std::vector<Block> blocks_;
    std::map<unsigned char *, size_t> ranges_;
};

} // namespace model

#endif
