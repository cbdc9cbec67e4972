// Trace files for tests, made block by block: what they say, and what of it is wrong, is up to the test.
#ifndef HEAPFIT_TESTS_TRACE_FILE_HPP
#define HEAPFIT_TESTS_TRACE_FILE_HPP

extern "C" {
#include "trace.h"

// record/record.h is for C alone.
size_t trace_encode(struct trace_coder *coder, const struct trace_event *event, uint8_t *out);
size_t trace_section(uint32_t thread, uint64_t ticks, const void *raw, size_t size, uint8_t *out);
uint32_t trace_crc(uint32_t crc, const void *bytes, size_t size);
size_t trace_workspace_size(void);
size_t trace_block_bound(size_t raw);
size_t trace_block_make(struct trace_block_header *header, const void *raw, size_t raw_size, void *workspace,
                        uint8_t *out);

// limits.c
void limit_held(struct trace_reader *reader, size_t bytes);
void limit_live(struct trace_reader *reader, uint32_t blocks);
void limit_memory(struct trace_reader *reader, uint64_t bytes);
uint64_t memory_used(const struct trace_reader *reader);
}

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

// Ticks of these files are nanoseconds.
inline const char *const nanosecond_info = R"({"pid": 7, "ticks_per_second_guess": 1000000000})";

class TraceFile
{
  public:
    std::vector<uint8_t> bytes;
    uint32_t sequence = 0;
    bool compressed = false;

    explicit TraceFile(uint16_t version = TRACE_VERSION)
    {
        trace_file_header header = {};
        std::memcpy(header.magic, TRACE_MAGIC, sizeof header.magic);
        header.version = version;
        header.size = TRACE_FILE_HEADER;
        append(&header, sizeof header);
    }

    TraceFile &block(uint8_t type, const std::string &payload, uint32_t thread = 0, uint64_t first_tick = 0)
    {
        trace_block_header header = {};
        header.type = type;
        header.thread = thread;
        header.first_tick = header.last_tick = first_tick;
        header.sequence = sequence++;
        std::vector<uint8_t> out(trace_block_bound(payload.size()));
        size_t size =
            trace_block_make(&header, payload.data(), payload.size(), compressed ? workspace() : nullptr, out.data());
        append(out.data(), size);
        return *this;
    }

    TraceFile &info(const std::string &text = nanosecond_info, uint64_t origin = 0)
    {
        return block(TRACE_INFO, text, 0, origin);
    }

    TraceFile &end(const std::string &text = R"({"reason": "exit"})")
    {
        return block(TRACE_END, text);
    }

    TraceFile &thread(uint32_t index, int tid, const std::string &name)
    {
        return block(TRACE_THREAD, "{\"thread\": " + std::to_string(index) + ", \"tid\": " + std::to_string(tid) +
                                       ", \"name\": \"" + name + "\"}");
    }

    TraceFile &mark(uint64_t tick, uint64_t complete, uint64_t resident = 0, uint64_t lost = 0)
    {
        trace_mark mark = {tick, tick, complete, resident, resident / 2, lost};
        return block(TRACE_MARK, std::string(reinterpret_cast<const char *>(&mark), sizeof mark));
    }

    TraceFile &modules(const std::string &lines)
    {
        return block(TRACE_MODULES, lines);
    }

    TraceFile &sites(uint32_t first, const std::vector<std::pair<uint64_t, uint64_t>> &callers_and_addresses)
    {
        std::string payload;
        for (auto [caller, address] : callers_and_addresses) payload += varint(caller) + varint(address);
        return block(TRACE_SITES, payload, first);
    }

    TraceFile &events(uint32_t thread, const std::vector<trace_event> &events)
    {
        return block(TRACE_EVENTS, encoded(events), thread, events.empty() ? 0 : events.front().tick);
    }

    // A section for each thread, and perhaps bytes behind them that are none.
    TraceFile &shared(uint64_t first_tick, const std::vector<std::pair<uint32_t, std::vector<trace_event>>> &sections,
                      const std::string &rest = "")
    {
        std::string payload;
        for (const auto &[thread, events] : sections) {
            std::string raw = encoded(events);
            std::vector<uint8_t> out(raw.size() + TRACE_SECTION_MAX);
            size_t size = trace_section(thread, events.front().tick - first_tick, raw.data(), raw.size(), out.data());
            payload.append(reinterpret_cast<const char *>(out.data()), size);
        }
        return block(TRACE_SHARED, payload + rest, 0, first_tick);
    }

    static std::string encoded(const std::vector<trace_event> &events)
    {
        trace_coder coder = {};
        if (!events.empty()) coder.tick = events.front().tick;
        std::string payload;
        for (const trace_event &event : events) {
            uint8_t out[TRACE_EVENT_MAX];
            payload.append(reinterpret_cast<const char *>(out), trace_encode(&coder, &event, out));
        }
        return payload;
    }

    static std::string varint(uint64_t number)
    {
        std::string bytes;
        for (; number >= 0x80; number >>= 7) bytes += static_cast<char>(number | 0x80);
        return bytes + static_cast<char>(number);
    }

    static void *workspace()
    {
        static std::vector<uint64_t> memory(trace_workspace_size() / sizeof(uint64_t) + 1);
        return memory.data();
    }

    void append(const void *data, size_t size)
    {
        const auto *from = static_cast<const uint8_t *>(data);
        bytes.insert(bytes.end(), from, from + size);
    }
};

struct ReaderClose {
    void operator()(trace_reader *reader) const
    {
        trace_close(reader);
    }
};
using Reader = std::unique_ptr<trace_reader, ReaderClose>;

// What trace_open says of a file of these bytes.
inline Reader open_bytes(const std::vector<uint8_t> &bytes, std::string *why = nullptr)
{
    char path[] = "/tmp/heapfit-trace-test-XXXXXX";
    int descriptor = mkstemp(path);
    EXPECT_EQ(write(descriptor, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    close(descriptor);
    char text[256] = "";
    Reader reader(trace_open(path, text));
    unlink(path);
    if (why != nullptr) *why = text;
    return reader;
}

inline Reader open_file(const TraceFile &file)
{
    std::string why;
    Reader reader = open_bytes(file.bytes, &why);
    EXPECT_NE(reader, nullptr) << why;
    return reader;
}

struct Object {
    uint64_t id, previous, address, size, usable, born_ns, died_ns, born_bytes, died_bytes;
    uint32_t born_thread, died_thread, site;
    uint8_t born_kind, died_kind, alignment;
    bool operator==(const Object &other) const
    {
        return id == other.id && previous == other.previous && address == other.address && size == other.size &&
               usable == other.usable && born_ns == other.born_ns && died_ns == other.died_ns &&
               born_bytes == other.born_bytes && died_bytes == other.died_bytes && born_thread == other.born_thread &&
               died_thread == other.died_thread && site == other.site && born_kind == other.born_kind &&
               died_kind == other.died_kind && alignment == other.alignment;
    }
};

inline std::ostream &operator<<(std::ostream &out, const Object &object)
{
    return out << "object " << object.id << " (previous " << object.previous << ") at " << std::hex << object.address
               << std::dec << ", " << object.size << "/" << object.usable << " bytes, born " << object.born_ns << " ns "
               << object.born_bytes << " bytes thread " << object.born_thread << " kind " << int(object.born_kind)
               << ", died " << object.died_ns << " ns " << object.died_bytes << " bytes thread " << object.died_thread
               << " kind " << int(object.died_kind) << ", site " << object.site << ", alignment "
               << int(object.alignment);
}

inline std::vector<Object> all_objects(trace_reader *reader, size_t capacity = 64)
{
    std::vector<uint64_t> u64[9];
    std::vector<uint32_t> u32[3];
    std::vector<uint8_t> u8[3];
    for (auto &column : u64) column.resize(capacity);
    for (auto &column : u32) column.resize(capacity);
    for (auto &column : u8) column.resize(capacity);
    trace_objects columns = {capacity,      u64[0].data(), u64[1].data(), u64[2].data(), u64[3].data(), u64[4].data(),
                             u64[5].data(), u64[6].data(), u64[7].data(), u64[8].data(), u32[0].data(), u32[1].data(),
                             u32[2].data(), u8[0].data(),  u8[1].data(),  u8[2].data()};
    std::vector<Object> objects;
    while (size_t count = trace_next_objects(reader, &columns))
        for (size_t i = 0; i < count; i++)
            objects.push_back({u64[0][i], u64[1][i], u64[2][i], u64[3][i], u64[4][i], u64[5][i], u64[6][i], u64[7][i],
                               u64[8][i], u32[0][i], u32[1][i], u32[2][i], u8[0][i], u8[1][i], u8[2][i]});
    return objects;
}

struct Event {
    uint64_t ns, address, old, size, usable, lasted_ns;
    uint32_t thread, site;
    uint8_t kind, alignment;
    bool operator==(const Event &other) const
    {
        return ns == other.ns && address == other.address && old == other.old && size == other.size &&
               usable == other.usable && lasted_ns == other.lasted_ns && thread == other.thread && site == other.site &&
               kind == other.kind && alignment == other.alignment;
    }
};

inline std::ostream &operator<<(std::ostream &out, const Event &event)
{
    return out << event.ns << " ns: kind " << int(event.kind) << " of thread " << event.thread << " at " << std::hex
               << event.address << " (old " << event.old << std::dec << "), " << event.size << "/" << event.usable
               << " bytes, lasted " << event.lasted_ns << " ns, site " << event.site << ", alignment "
               << int(event.alignment);
}

inline std::vector<Event> all_events(trace_reader *reader, size_t capacity = 64)
{
    std::vector<uint64_t> u64[6];
    std::vector<uint32_t> u32[2];
    std::vector<uint8_t> u8[2];
    for (auto &column : u64) column.resize(capacity);
    for (auto &column : u32) column.resize(capacity);
    for (auto &column : u8) column.resize(capacity);
    trace_events columns = {capacity,      u64[0].data(), u64[1].data(), u64[2].data(), u64[3].data(), u64[4].data(),
                            u64[5].data(), u32[0].data(), u32[1].data(), u8[0].data(),  u8[1].data()};
    std::vector<Event> events;
    while (size_t count = trace_next_events(reader, &columns))
        for (size_t i = 0; i < count; i++)
            events.push_back({u64[0][i], u64[1][i], u64[2][i], u64[3][i], u64[4][i], u64[5][i], u32[0][i], u32[1][i],
                              u8[0][i], u8[1][i]});
    return events;
}

// ---- events ---------------------------------------------------------------------------------------------------------

inline trace_event allocation(uint64_t tick, uint64_t address, uint64_t size, uint32_t site = 0,
                              uint8_t kind = TRACE_MALLOC)
{
    trace_event event = {};
    event.tick = tick;
    event.address = address;
    event.size = size;
    event.usable = address == 0 ? 0 : (size + 15) / 16 * 16;
    event.site = site;
    event.kind = kind;
    return event;
}

inline trace_event release(uint64_t tick, uint64_t address, uint8_t kind = TRACE_FREE)
{
    trace_event event = {};
    event.tick = tick;
    event.address = address;
    event.kind = kind;
    return event;
}

inline trace_event reallocation(uint64_t tick, uint64_t old, uint64_t address, uint64_t size, uint64_t lasted,
                                uint32_t site = 0)
{
    trace_event event = allocation(tick, address, size, site, TRACE_REALLOC);
    event.old = old;
    event.lasted = lasted;
    return event;
}

#endif
