// Statistics: hf_stats_get and its kin, and glibc's mallinfo, malloc_info, malloc_stats, malloc_trim and mallopt.

#include <regex>

#include <sys/types.h>

#include "heapfit/heapfit.h"
#include "json.h"
#include "system.h"

namespace
{

hf_stats stats_now()
{
    hf_stats stats;
    EXPECT_EQ(hf_stats_get(&stats, sizeof stats), 0);
    return stats;
}

constexpr size_t mib = size_t{1} << 20;

TEST(Stats, CountLiveObjectsExactly)
{
    std::vector<void *> objects(1000);
    for (void *&object : objects) object = malloc(100);
    hf_stats before = stats_now();
    size_t bytes = 0;
    for (size_t i = 0; i < 500; i++) {
        bytes += malloc_usable_size(objects[i]);
        free(objects[i]);
    }
    hf_stats after = stats_now();
    EXPECT_EQ(before.live_objects - after.live_objects, 500u);
    EXPECT_EQ(before.live_bytes - after.live_bytes, bytes);
    for (size_t i = 500; i < 1000; i++) free(objects[i]);
}

// Of a large one the pages behind those that were asked for are not the program's.
TEST(Stats, CountOfALargeObjectWhatTheProgramMayUse)
{
    hf_stats before = stats_now();
    void *object = malloc(40'000);
    hf_stats after = stats_now();
    EXPECT_EQ(after.large_objects - before.large_objects, 1u);
    EXPECT_EQ(after.large_bytes - before.large_bytes, malloc_usable_size(object));
    EXPECT_EQ(after.live_bytes - before.live_bytes, malloc_usable_size(object));
    free(object);
}

TEST(Stats, StayPossibleWhileOtherThreadsWork)
{
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; t++)
        threads.emplace_back([&stop] {
            std::vector<void *> live;
            for (unsigned i = 1; !stop; i = i * 1103515245 + 12345) {
                if (live.size() < 1000) live.push_back(malloc((i >> 16) % 50000));
                else {
                    free(live.back());
                    live.pop_back();
                    free(live.back());
                    live.pop_back();
                }
            }
            for (void *object : live) free(object);
        });
    for (int i = 0; i < 300; i++) {
        hf_stats stats = stats_now();
        EXPECT_LE(stats.live_bytes, stats.reserved);
        EXPECT_LE(stats.large_bytes, stats.live_bytes);
        EXPECT_LT(stats.live_objects, 100000u);
    }
    stop = true;
    for (std::thread &each : threads) each.join();
}

TEST(Stats, ServeOlderAndNewerCallers)
{
    unsigned char room[sizeof(hf_stats) + 16];
    memset(room, 0xEE, sizeof room);
    ASSERT_EQ(hf_stats_get(reinterpret_cast<hf_stats *>(room), 2 * sizeof(size_t)), 0);
    EXPECT_EQ(room[2 * sizeof(size_t)], 0xEE) << "not a byte more than the caller knows of";
    ASSERT_EQ(hf_stats_get(reinterpret_cast<hf_stats *>(room), sizeof room), 0);
    EXPECT_EQ(room[sizeof room - 1], 0) << "what this library does not know is zero";
    errno = 0;
    EXPECT_EQ(hf_stats_get(nullptr, sizeof(hf_stats)), -1);
    EXPECT_EQ(errno, EINVAL);
}

} // namespace

TEST(Json, AgreesWithTheFigures)
{
    void *large = malloc(mib);
    std::vector<hf_class_stats> classes(hf_stats_classes(nullptr, 0));
    std::vector<hf_heap_stats> heaps(64);
    int file = memfd_create("statistics", MFD_CLOEXEC);
    heaps.resize(hf_stats_heaps(heaps.data(), heaps.size()));
    hf_stats_classes(classes.data(), classes.size());
    hf_stats total = stats_now();
    hf_stats_json(file);
    hf_stats again = stats_now();
    EXPECT_EQ(memcmp(&total, &again, sizeof total), 0) << "writing it changes nothing";
    std::string text(size_t{1} << 20, '\0');
    text.resize(static_cast<size_t>(pread(file, text.data(), text.size(), 0)));
    close(file);

    ASSERT_EQ(text.find('\n'), text.size() - 1) << "one line";
    text.pop_back();
    rapidjson::Document stats = parse_json(text);
    EXPECT_STREQ(stats["format"].GetString(), "heapfit-stats/1");
    EXPECT_STREQ(stats["version"].GetString(), hf_version());
    EXPECT_EQ(stats["pid"].GetInt(), getpid());
    EXPECT_GT(stats["time_ms"].GetUint64(), 0u);
    EXPECT_FALSE(stats["shrunk"].GetBool());
    EXPECT_EQ(stats["total"].MemberCount(), sizeof total / sizeof(size_t));
    EXPECT_EQ(stats["total"]["live_objects"].GetUint64(), total.live_objects);
    EXPECT_EQ(stats["total"]["live_bytes"].GetUint64(), total.live_bytes);
    EXPECT_EQ(stats["total"]["footprint"].GetUint64(), total.footprint);
    EXPECT_EQ(stats["total"]["resident"].GetUint64(), total.resident);
    EXPECT_EQ(stats["total"]["refills"].GetUint64(), total.refills);
    EXPECT_EQ(stats["total"]["nodes"].GetUint64(), total.nodes);
    ASSERT_EQ(stats["classes"].Size(), classes.size());
    for (unsigned i = 0; i < classes.size(); i++) {
        const rapidjson::Value &row = stats["classes"][i];
        EXPECT_EQ(row["block_size"].GetUint64(), classes[i].block_size);
        EXPECT_EQ(row["live_objects"].GetUint64(), classes[i].live_objects);
        EXPECT_EQ(row["free_objects"].GetUint64(), classes[i].free_objects);
        EXPECT_EQ(row["spans"].GetUint64(), classes[i].spans);
    }
    ASSERT_EQ(stats["heaps"].Size(), heaps.size());
    for (unsigned i = 0; i < heaps.size(); i++) {
        const rapidjson::Value &heap = stats["heaps"][i];
        EXPECT_EQ(heap.MemberCount(), sizeof(hf_heap_stats) / sizeof(size_t));
        EXPECT_EQ(heap["number"].GetUint64(), heaps[i].number);
        EXPECT_EQ(heap["thread"].GetInt64(), heaps[i].thread);
        EXPECT_EQ(heap["spans"].GetUint64(), heaps[i].spans);
        EXPECT_EQ(heap["live_bytes"].GetUint64(), heaps[i].live_bytes);
    }
    EXPECT_EQ(stats["nodes"].Size(), hf_stats_nodes(nullptr, 0));
    free(large);
}

TEST(Trim, GivesFreeMemoryBack)
{
    ASSERT_EQ(hf_option_set("decay_ms", "unlimited"), 0); // else such a block goes back at once
    hf_trim();
    void *object = malloc(10 * mib);
    memset(object, 1, 10 * mib);
    free(object);
    EXPECT_GE(stats_now().dirty_bytes, 10 * mib);
    EXPECT_GE(hf_trim(), 10 * mib);
    EXPECT_EQ(stats_now().dirty_bytes, 0u);
    EXPECT_EQ(hf_trim(), 0u);
    ASSERT_EQ(hf_option_set("decay_ms", "500"), 0);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations" // the older form is what is tested

TEST(Mallinfo, SaysTheSameAsFarAsItCan)
{
    void *object = malloc(size_t{3} << 30); // does not fit into an int; never touched
    struct mallinfo2 wide = mallinfo2();
    struct mallinfo narrow = mallinfo();
    EXPECT_EQ(static_cast<size_t>(narrow.uordblks), wide.uordblks);
    EXPECT_EQ(static_cast<size_t>(narrow.hblks), wide.hblks);
    EXPECT_EQ(narrow.hblkhd, object == nullptr ? static_cast<int>(wide.hblkhd) : INT_MAX);
    free(object);
}

#pragma GCC diagnostic pop

namespace
{

std::string malloc_info_text()
{
    char *text = nullptr;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    EXPECT_EQ(malloc_info(0, stream), 0);
    fclose(stream);
    std::string copy(text, size);
    free(text);
    return copy;
}

} // namespace

TEST(MallocInfo, IsInGlibcsShape)
{
    std::vector<void *> objects(100);
    for (void *&object : objects) object = malloc(200);
    for (void *object : objects) free(object);
    std::string text = malloc_info_text();
    EXPECT_NE(text.find("<heap nr=\"0\">"), std::string::npos);
    EXPECT_NE(text.find("<heap nr=\"1\">"), std::string::npos);
    EXPECT_NE(text.find("<malloc version=\"1\">"), std::string::npos);
    EXPECT_NE(text.find("<total type=\"mmap\""), std::string::npos);
    EXPECT_NE(text.find("<system type=\"current\""), std::string::npos);
}

TEST(MallocStats, WritesToTheStreamThatStderrIs)
{
    char *text = nullptr;
    size_t length = 0;
    FILE *before = stderr;
    stderr = open_memstream(&text, &length);
    std::fputs("first ", stderr);
    malloc_stats();
    std::fclose(stderr);
    stderr = before;
    EXPECT_TRUE(std::regex_search(text, std::regex("^first heapfit [0-9.]+, process [0-9]+\n"))) << text;
    EXPECT_NE(std::string(text).find("block size"), std::string::npos);
    free(text);
}

TEST(Mallopt, AcceptsAPatternAndDoesNotWriteIt)
{
    EXPECT_EQ(mallopt(M_PERTURB, 0xAA), 1);
    auto *zeros = static_cast<unsigned char *>(calloc(1, 100));
    for (int i = 0; i < 100; i++) EXPECT_EQ(zeros[i], 0);
    free(zeros);
    EXPECT_EQ(mallopt(M_PERTURB, 0), 1);
}

TEST(Mallopt, RefusesWhatItDoesNotKnow)
{
    EXPECT_EQ(mallopt(12345, 1), 0);
}
