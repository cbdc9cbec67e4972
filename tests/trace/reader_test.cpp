// What the reader makes of files that are not as a recorder leaves them: a clear word, and the readable part.
#include "trace_file.hpp"

#include <random>

namespace
{

// Two passes of two threads, sites, names, modules, an end.
TraceFile whole_file(bool compressed = false)
{
    TraceFile file;
    file.compressed = compressed;
    file.info().mark(0, 0).thread(0, 100, "main").thread(1, 101, "worker").modules("400000 500000 0 /bin/x\n");
    file.sites(1, {{0, 0x400100}, {1, 0x400200}});
    for (uint64_t pass = 0; pass < 2; pass++) {
        uint64_t tick = 1000 * pass;
        for (uint32_t thread = 0; thread < 2; thread++) {
            std::vector<trace_event> events;
            for (uint64_t i = 1; i <= 50; i++)
                events.push_back(
                    allocation(tick + 10 * i, 0x1000 * (thread + 1) + 16 * (100 * pass + i), 8, 1 + thread));
            file.events(thread, events);
        }
        file.mark(tick + 900, tick + 800);
    }
    return file.end();
}
constexpr size_t whole_events = 200;

size_t count_objects(trace_reader *reader)
{
    return all_objects(reader).size();
}

std::string refusal(const std::vector<uint8_t> &bytes)
{
    std::string why;
    Reader reader = open_bytes(bytes, &why);
    EXPECT_EQ(reader, nullptr);
    return why;
}

std::vector<uint8_t> bytes_of(const std::string &text)
{
    return {text.begin(), text.end()};
}

// ---- files that are refused -----------------------------------------------------------------------------------------

TEST(TraceReader, WhatIsNoTraceIsRefusedWithAReason)
{
    EXPECT_EQ(refusal({}), "it is empty: nothing has been recorded, or not yet written");
    EXPECT_EQ(refusal(bytes_of("\177ELF and so on, for quite a while")), "it is not a trace of heapfit");
    EXPECT_EQ(refusal(bytes_of("heap")), "it is cut short: not even a trace's header is there");
    std::string why = refusal(TraceFile().bytes);
    EXPECT_NE(why.find("no whole block"), std::string::npos) << why;
    std::string newer = refusal(TraceFile(7).info().end().bytes);
    EXPECT_NE(newer.find("version 7"), std::string::npos) << newer;
}

// ---- files that are read as far as they go --------------------------------------------------------------------------

TEST(TraceReader, AWholeFileHasNothingWrongWithIt)
{
    for (bool compressed : {false, true}) {
        TraceFile file = whole_file(compressed);
        Reader reader = open_file(file);
        EXPECT_EQ(count_objects(reader.get()), whole_events);
        struct trace_problems problems = trace_problems(reader.get());
        EXPECT_EQ(problems.damaged_bytes + problems.damaged_blocks + problems.missing_blocks + problems.unknown_blocks,
                  0);
        EXPECT_EQ(problems.late_events + problems.backward_clocks + problems.lost_events, 0);
        EXPECT_FALSE(problems.cut_short);
        EXPECT_EQ(problems.error, 0);
        EXPECT_EQ(trace_position(reader.get()), file.bytes.size());
        EXPECT_STREQ(trace_info(reader.get()), nanosecond_info);
        EXPECT_STREQ(trace_end(reader.get()), R"({"reason": "exit"})");
        EXPECT_STREQ(trace_modules(reader.get()), "400000 500000 0 /bin/x\n");
        const struct trace_thread *threads;
        ASSERT_EQ(trace_threads(reader.get(), &threads), 2);
        EXPECT_EQ(threads[1].tid, 101);
        EXPECT_STREQ(threads[1].name, "worker");
        const struct trace_site *sites;
        ASSERT_EQ(trace_sites(reader.get(), &sites), 3);
        EXPECT_EQ(sites[2].caller, 1);
        EXPECT_EQ(sites[2].address, 0x400200);
    }
}

TEST(TraceReader, AFileIsReadUpToWhereItIsCut)
{
    for (bool compressed : {false, true}) {
        TraceFile file = whole_file(compressed);
        size_t before = 0;
        for (size_t size = 0; size < file.bytes.size(); size++) {
            std::string why;
            Reader reader = open_bytes({file.bytes.begin(), file.bytes.begin() + static_cast<ptrdiff_t>(size)}, &why);
            if (reader == nullptr) {
                EXPECT_NE(why, "");
                continue;
            }
            size_t objects = count_objects(reader.get());
            EXPECT_GE(objects, before) << "cut at " << size;
            EXPECT_TRUE(trace_problems(reader.get()).cut_short);
            before = objects;
        }
        EXPECT_EQ(before, whole_events);
    }
}

TEST(TraceReader, AFlippedBitCostsItsBlockAndIsToldOf)
{
    for (bool compressed : {false, true}) {
        TraceFile file = whole_file(compressed);
        for (size_t bit = 8 * TRACE_FILE_HEADER; bit < 8 * file.bytes.size(); bit += 11) {
            std::vector<uint8_t> bytes = file.bytes;
            bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
            Reader reader = open_bytes(bytes);
            ASSERT_NE(reader, nullptr);
            size_t objects = count_objects(reader.get());
            EXPECT_GE(objects, whole_events - 50) << "bit " << bit;
            struct trace_problems problems = trace_problems(reader.get());
            EXPECT_GT(problems.damaged_bytes, 0) << "bit " << bit;
            EXPECT_TRUE(problems.missing_blocks == 1 || problems.cut_short) << "bit " << bit;
        }
    }
}

TEST(TraceReader, ALostBlockOfSitesChangesNoOthersNumber)
{
    TraceFile file;
    file.info().sites(1, {{0, 0xA0}}).sites(2, {{1, 0xB0}});
    size_t damaged = file.bytes.size() - 1;
    file.sites(3, {{2, 0xC0}})
        .events(0, {allocation(1, 0x10, 8, 2), allocation(2, 0x20, 8, 3), allocation(3, 0x30, 8, 4)})
        .end();
    file.bytes[damaged] ^= 1;
    Reader reader = open_file(file);
    std::vector<Object> objects = all_objects(reader.get());
    EXPECT_EQ(objects[1].site, 3);
    EXPECT_EQ(objects[2].site, 0); // no block has told of a site 4
    const struct trace_site *sites;
    ASSERT_EQ(trace_sites(reader.get(), &sites), 4);
    EXPECT_EQ(sites[2].address, 0);
    EXPECT_EQ(sites[3].address, 0xC0);
    EXPECT_EQ(sites[3].caller, 2);
}

TEST(TraceReader, UnknownBlocksArePassedOverAndCounted)
{
    TraceFile file;
    file.info().block(77, "what may come").events(0, {allocation(1, 0x10, 8)}).end();
    Reader reader = open_file(file);
    EXPECT_EQ(count_objects(reader.get()), 1);
    EXPECT_EQ(trace_problems(reader.get()).unknown_blocks, 1);
    EXPECT_EQ(trace_problems(reader.get()).damaged_blocks, 0);
}

TEST(TraceReader, AThreadsIndexCannotBeBeyondWhatAFileHolds)
{
    TraceFile file;
    file.info()
        .events(5000, {allocation(1, 0x10, 8)})
        .thread(4000000000, 1, "x")
        .events(4000, {allocation(1, 0x20, 8)})
        .end();
    Reader reader = open_file(file);
    EXPECT_EQ(count_objects(reader.get()), 1);
    EXPECT_EQ(trace_problems(reader.get()).damaged_blocks, 2);
    const struct trace_thread *threads;
    EXPECT_EQ(trace_threads(reader.get(), &threads), 4001);
}

TEST(TraceReader, ThreadsMayShareABlock)
{
    TraceFile file;
    file.info()
        .shared(500, {{2, {allocation(700, 0x10, 8), release(710, 0x10)}},
                      {0, {allocation(400, 0x20, 8)}}, // before the block's first tick
                      {2, {allocation(720, 0x10, 24)}}})
        .end();
    Reader reader = open_file(file);
    std::vector<Event> events = all_events(reader.get());
    ASSERT_EQ(events.size(), 4);
    EXPECT_EQ(events[0].thread, 0);
    EXPECT_EQ(events[0].ns, 400);
    EXPECT_EQ(events[2].ns, 710);
    EXPECT_EQ(events[3].thread, 2);
    EXPECT_EQ(events[3].size, 24);
    EXPECT_EQ(trace_problems(reader.get()).damaged_blocks, 0);
}

TEST(TraceReader, ASharedBlockIsTakenUpToTheSectionThatIsNone)
{
    const std::string huge("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10);
    for (const std::string &bad :
         {std::string("\x01"), std::string("\x01\x00\x09\x01", 4), std::string("\xff"),
          huge + std::string("\x00\x00", 2), std::string("\x01\x00", 2) + huge, std::string(11, '\xff')}) {
        TraceFile file;
        file.info().shared(1, {{0, {allocation(1, 0x10, 8)}}}, bad).events(1, {allocation(9, 0x20, 8)}).end();
        Reader reader = open_file(file);
        EXPECT_EQ(count_objects(reader.get()), 2);
        EXPECT_EQ(trace_problems(reader.get()).damaged_blocks, 1);
    }
}

TEST(TraceReader, FilesOfTheFirstVersionAreRead)
{
    TraceFile file(1);
    Reader reader = open_file(file.info().events(0, {allocation(1, 0x10, 8)}).end());
    EXPECT_EQ(count_objects(reader.get()), 1);
}

TEST(TraceReader, EventsAreTakenUpToTheOneThatIsNone)
{
    std::string good = TraceFile::encoded({allocation(1, 0x10, 8), release(2, 0x10)});
    for (const std::string &bad : {std::string("\x08\x01\x01"), std::string("\x40\x01\x01"), std::string("\x01\x01"),
                                   std::string("\x01"), std::string("\x81\x01\x08\x00\xff\xff\xff\xff\xff\x0f\x02", 11),
                                   std::string("\x04\x01\x7f\x08\x00\x02", 6), std::string(12, '\xff')}) {
        TraceFile file;
        file.info().block(TRACE_EVENTS, good + bad, 0, 1).events(0, {allocation(9, 0x20, 8)}).mark(10, 10).end();
        Reader reader = open_file(file);
        EXPECT_EQ(count_objects(reader.get()), 2);
        EXPECT_EQ(trace_problems(reader.get()).damaged_blocks, 1);
    }
}

TEST(TraceReader, ThatTheRecorderHadTooManySitesIsToldOf)
{
    const std::pair<const char *, uint8_t> said[] = {
        {R"({"sites": "innermost"})", TRACE_SITES_INNERMOST},
        {R"({"sites": "none"})", TRACE_SITES_NONE},
        {R"({"sites": "innermost"})", TRACE_SITES_NONE}, // the worst counts
        {R"({"other": 1})", TRACE_SITES_NONE}};
    TraceFile file;
    file.info();
    EXPECT_EQ(trace_problems(open_file(file).get()).sites_limit, TRACE_SITES_ALL);
    for (auto [text, limit] : said) {
        file.block(TRACE_LIMIT, text);
        Reader reader = open_file(file);
        count_objects(reader.get());
        EXPECT_EQ(trace_problems(reader.get()).sites_limit, limit);
        EXPECT_EQ(trace_problems(reader.get()).unknown_blocks, 0);
    }
}

// ---- files made to do harm ------------------------------------------------------------------------------------------

constexpr uint64_t MIB = 1 << 20;

// Bytes of a varint each: a free at the address 0, or a site without caller and address.
TraceFile zeros(uint8_t type, int blocks)
{
    TraceFile file;
    file.compressed = true;
    file.info();
    for (int i = 0; i < blocks; i++) file.block(type, std::string(3 << 18, '\0'));
    return file.end();
}

TEST(TraceReader, WhatUnpacksToFarMoreThanItsSizeIsStoppedAndSaysWhatToDo)
{
    char why[256] = "";
    TraceFile file = zeros(TRACE_EVENTS, 40);
    ASSERT_LT(file.bytes.size(), 10000);
    Reader reader = open_file(file);
    size_t events = all_events(reader.get(), 1 << 16).size();
    EXPECT_LT(events, 9 * MIB / 3);
    ASSERT_TRUE(trace_stopped(reader.get(), why));
    EXPECT_STREQ(why, "it unpacks to more than 100 times its size, as no recording does; if you trust it, set "
                      "HEAPFIT_TRACE_EXPANSION higher");
    EXPECT_EQ(trace_problems(reader.get()).damaged_blocks, 0);
    setenv("HEAPFIT_TRACE_EXPANSION", "100k", 1);
    reader = open_file(file);
    unsetenv("HEAPFIT_TRACE_EXPANSION");
    EXPECT_EQ(all_events(reader.get(), 1 << 16).size(), 40 * (1 << 18));
    EXPECT_FALSE(trace_stopped(reader.get(), why));
}

TEST(TraceReader, MoreMemoryThanIsAllowedStopsTheReadingAndSaysWhatToDo)
{
    char why[256] = "";
    TraceFile file;
    file.info();
    std::vector<trace_event> events;
    for (uint64_t i = 1; i <= 100000; i++) events.push_back(allocation(i, 16 * i, 8));
    file.events(0, events).end();
    setenv("HEAPFIT_TRACE_MEMORY", "2m", 1);
    Reader reader = open_file(file);
    unsetenv("HEAPFIT_TRACE_MEMORY");
    EXPECT_LT(count_objects(reader.get()), 2 * MIB / 64);
    EXPECT_LE(memory_used(reader.get()), 2 * MIB);
    ASSERT_TRUE(trace_stopped(reader.get(), why));
    EXPECT_STREQ(why, "reading it takes more than 2 MiB of memory; read a part of it (heapfit trace cut), or set "
                      "HEAPFIT_TRACE_MEMORY higher");
}

TEST(TraceReader, RandomBytesDoNoHarm)
{
    std::mt19937_64 random(1);
    for (int i = 0; i < 300; i++) {
        TraceFile file;
        file.info();
        for (int block = 0; block < 10; block++) {
            std::string payload(random() % 400, ' ');
            for (char &byte : payload) byte = static_cast<char>(random() >> random() % 64);
            file.block(static_cast<uint8_t>(random() % 9), payload, static_cast<uint32_t>(random() % 3),
                       random() >> random() % 64);
        }
        count_objects(open_file(file).get());
        all_events(open_file(file).get());
    }
}

} // namespace
