// The trace format's encoder: what it writes is what format.h says, whatever the numbers. The decoder here is written from that
// text alone.
#include "stress_seed.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

extern "C" {
#include "record/format.h"
size_t trace_encode(trace_coder *coder, const trace_event *event, uint8_t *out);
uint32_t trace_crc(uint32_t crc, const void *bytes, size_t size);
size_t trace_workspace_size(void);
size_t trace_block_bound(size_t raw);
size_t trace_block_make(trace_block_header *header, const void *raw, size_t raw_size, void *workspace, uint8_t *out);
}

namespace
{

using Bytes = std::vector<uint8_t>;

class Decoder
{
  public:
    explicit Decoder(const Bytes &bytes, uint64_t first_tick) : bytes_(bytes)
    {
        state_.tick = first_tick;
    }

    bool ended() const
    {
        return at_ == bytes_.size();
    }

    trace_event next()
    {
        trace_event event = {};
        first_ = bytes_.at(at_++);
        event.kind = first_ & TRACE_KIND_MASK;
        event.tick = state_.tick += varint();
        if (event.kind == TRACE_FREE || event.kind == TRACE_DELETE) {
            event.address = state_.freed = old();
        } else if (event.kind == TRACE_REALLOC) {
            event.old = old();
            block(event);
            if (succeeded()) {
                state_.freed = event.old;
                allocated(event, event.old + static_cast<uint64_t>(zigzag()));
            }
            event.lasted = varint();
        } else {
            if (event.kind == TRACE_ALIGNED || event.kind == TRACE_NEW_ALIGNED)
                event.alignment = static_cast<uint8_t>(varint());
            block(event);
            if (succeeded()) {
                uint64_t usual = state_.addresses[trace_context(event.size)];
                allocated(event, distant((first_ & TRACE_OTHER) != 0 ? state_.freed : usual));
            }
        }
        return event;
    }

  private:
    const Bytes &bytes_;
    size_t at_ = 0;
    uint8_t first_ = 0;
    trace_coder state_ = {};

    bool succeeded() const
    {
        return (first_ & TRACE_FAILED) == 0;
    }
    uint64_t varint()
    {
        uint64_t number = 0;
        unsigned shift = 0;
        uint8_t byte;
        do {
            byte = bytes_.at(at_++);
            number |= static_cast<uint64_t>(byte & 127) << shift;
            shift += 7;
        } while (byte >= 128);
        return number;
    }
    int64_t zigzag()
    {
        uint64_t number = varint();
        return static_cast<int64_t>(number >> 1) ^ -static_cast<int64_t>(number & 1);
    }
    uint64_t distant(uint64_t prediction)
    {
        uint64_t unit = (first_ & TRACE_UNIT_BYTE) != 0 ? 1 : 8;
        return prediction + static_cast<uint64_t>(zigzag()) * unit;
    }
    uint64_t old()
    {
        return distant((first_ & TRACE_OTHER) != 0 ? state_.allocated : state_.freed);
    }
    void block(trace_event &event)
    {
        event.size = varint();
        if (succeeded()) event.usable = event.size + varint();
        uint32_t &site = state_.sites[trace_context(event.size)];
        if ((first_ & TRACE_SITE_FOLLOWS) != 0) site = static_cast<uint32_t>(varint());
        event.site = site;
    }
    void allocated(trace_event &event, uint64_t address)
    {
        event.address = state_.allocated = state_.addresses[trace_context(event.size)] = address;
    }
};

std::string shown(const trace_event &event)
{
    std::string text = std::to_string(event.kind);
    for (uint64_t number : {event.tick, event.address, event.old, event.size, event.usable, event.lasted,
                            uint64_t{event.site}, uint64_t{event.alignment}})
        text += " " + std::to_string(number);
    return text;
}

// Of any size up to 64 bits: small ones as often as large ones.
uint64_t any_number(std::mt19937_64 &random)
{
    return random() >> random() % 64;
}

trace_event any_event(std::mt19937_64 &random, const std::vector<uint64_t> &addresses)
{
    auto address = [&] {
        return random() % 4 == 0 ? any_number(random) | 1 : addresses[random() % addresses.size()] + random() % 4 * 8;
    };
    trace_event event = {};
    event.kind = static_cast<uint8_t>(random() % (TRACE_DELETE + 1));
    event.tick = any_number(random); // backward as often as forward
    bool failed = random() % 8 == 0, frees = event.kind == TRACE_FREE || event.kind == TRACE_DELETE;
    if (frees || !failed) event.address = address();
    if (frees) return event;
    if (event.kind == TRACE_REALLOC) {
        event.old = address();
        event.lasted = any_number(random);
    }
    event.size = random() % 2 != 0 ? random() % 1100 : any_number(random);
    if (!failed) event.usable = event.size + any_number(random);
    event.site = static_cast<uint32_t>(random() % 2 != 0 ? 1 : any_number(random));
    if (event.kind == TRACE_ALIGNED || event.kind == TRACE_NEW_ALIGNED) event.alignment = random() % 64;
    return event;
}

TEST(RecordFormat, GivesBackEveryEvent)
{
    SCOPED_TRACE(stress::how_to_repeat());
    std::mt19937_64 random(stress::seed());
    for (int round = 0; round < 200; round++) {
        std::vector<uint64_t> addresses(1 + random() % 50);
        for (uint64_t &address : addresses) address = (any_number(random) & ~UINT64_C(7)) + 8;
        std::vector<trace_event> events(500);
        for (trace_event &event : events) event = any_event(random, addresses);
        trace_coder coder = {};
        coder.tick = events[0].tick;
        Bytes bytes;
        for (const trace_event &event : events) {
            uint8_t encoded[TRACE_EVENT_MAX];
            size_t size = trace_encode(&coder, &event, encoded);
            ASSERT_LE(size, sizeof encoded);
            bytes.insert(bytes.end(), encoded, encoded + size);
        }
        Decoder decoder(bytes, events[0].tick);
        for (const trace_event &event : events) ASSERT_EQ(shown(event), shown(decoder.next()));
        ASSERT_TRUE(decoder.ended());
    }
}

TEST(RecordFormat, NeedsNoMoreThanItsLimitForTheLargestNumbers)
{
    trace_event event = {};
    event.kind = TRACE_REALLOC;
    event.tick = event.size = event.lasted = UINT64_MAX;
    event.old = UINT64_C(1) << 63 | 1;
    event.address = 2;
    event.usable = event.size - 1;
    event.site = UINT32_MAX;
    trace_coder coder = {};
    uint8_t encoded[TRACE_EVENT_MAX];
    EXPECT_LE(trace_encode(&coder, &event, encoded), sizeof encoded);
}

TEST(RecordFormat, WritesAFreeOfTheLastBlockInThreeBytes)
{
    trace_coder coder = {};
    trace_event allocation = {}, release = {};
    allocation.kind = TRACE_MALLOC;
    allocation.tick = release.tick = 5;
    allocation.address = release.address = UINT64_C(0x1fedcba987654320);
    allocation.size = allocation.usable = 24;
    release.kind = TRACE_FREE;
    uint8_t encoded[TRACE_EVENT_MAX];
    trace_encode(&coder, &allocation, encoded);
    EXPECT_EQ(3U, trace_encode(&coder, &release, encoded));
}

TEST(RecordFormat, HasTheUsualChecksum)
{
    EXPECT_EQ(0xCBF43926U, trace_crc(0, "123456789", 9));
    EXPECT_EQ(0U, trace_crc(0, "", 0));
    std::string text = "the quick brown fox jumps over the lazy dog, twice";
    for (size_t cut = 0; cut <= text.size(); cut++)
        EXPECT_EQ(trace_crc(0, text.data(), text.size()),
                  trace_crc(trace_crc(0, text.data(), cut), text.data() + cut, text.size() - cut));
}

struct Block {
    trace_block_header header = {};
    Bytes payload;
};

Block block_of(const Bytes &raw, bool compress)
{
    Block block;
    Bytes workspace(trace_workspace_size() + 64), out(trace_block_bound(raw.size()));
    void *aligned = workspace.data() + (-reinterpret_cast<uintptr_t>(workspace.data()) & 63);
    block.header.type = TRACE_EVENTS;
    block.header.thread = 7;
    block.header.sequence = 9;
    size_t size = trace_block_make(&block.header, raw.data(), raw.size(), compress ? aligned : nullptr, out.data());
    EXPECT_LE(size, out.size());
    EXPECT_EQ(0, memcmp(&block.header, out.data(), sizeof block.header));
    block.payload.assign(out.begin() + sizeof block.header, out.begin() + static_cast<ptrdiff_t>(size));
    EXPECT_EQ(block.payload.size(), block.header.stored);
    EXPECT_EQ(raw.size(), block.header.raw);
    trace_block_header unsigned_header = block.header;
    unsigned_header.checksum = 0;
    EXPECT_EQ(block.header.checksum, trace_crc(trace_crc(0, &unsigned_header, sizeof unsigned_header),
                                               block.payload.data(), block.payload.size()));
    return block;
}

TEST(RecordFormat, CompressesABlockWhereThatMakesItSmaller)
{
    Block block = block_of(Bytes(TRACE_RAW_MAX, 3), true);
    EXPECT_EQ(1, block.header.codec);
    EXPECT_LT(block.header.stored, 1000U);
}

TEST(RecordFormat, StoresWhatDoesNotCompress)
{
    SCOPED_TRACE(stress::how_to_repeat());
    std::mt19937_64 random(stress::seed());
    Bytes noise(TRACE_RAW_MAX);
    for (uint8_t &byte : noise) byte = static_cast<uint8_t>(random());
    for (const Bytes &raw : {Bytes{}, Bytes{1}, noise}) {
        Block block = block_of(raw, true);
        EXPECT_EQ(0, block.header.codec);
        EXPECT_EQ(raw, block.payload);
    }
}

TEST(RecordFormat, StoresWhereThereIsNoMemoryToCompress)
{
    Block block = block_of(Bytes(1000, 3), false);
    EXPECT_EQ(0, block.header.codec);
    EXPECT_EQ(Bytes(1000, 3), block.payload);
}

} // namespace
