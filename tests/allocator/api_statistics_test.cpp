// Statistics: hf_stats_get and its kin, and glibc's mallinfo, malloc_info, malloc_stats, malloc_trim and mallopt.

#include <gtest/gtest.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <malloc.h>

#include <atomic>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "heapfit/heapfit.h"

namespace
{

hf_stats stats_now()
{
    hf_stats stats;
    EXPECT_EQ(hf_stats_get(&stats, sizeof stats), 0);
    return stats;
}

constexpr size_t mib = size_t{1} << 20;

} // namespace

// ---- hf_stats ------------------------------------------------------------------------------------------------------------

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

TEST(Stats, CountLargeObjectsExactly)
{
    hf_stats before = stats_now();
    void *object = malloc(10 * mib);
    hf_stats during = stats_now();
    free(object);
    hf_stats after = stats_now();
    EXPECT_EQ(during.large_objects - before.large_objects, 1u);
    EXPECT_EQ(during.large_bytes - before.large_bytes, 10 * mib);
    EXPECT_EQ(during.live_bytes - before.live_bytes, 10 * mib);
    EXPECT_EQ(after.large_objects, before.large_objects);
    EXPECT_EQ(after.live_bytes, before.live_bytes);
}

TEST(Stats, AddUp)
{
    hf_stats stats = stats_now();
    EXPECT_EQ(stats.footprint, stats.live_bytes + stats.free_bytes + stats.dirty_bytes + stats.own_bytes);
    EXPECT_LE(stats.large_bytes, stats.live_bytes);
    EXPECT_LE(stats.committed, stats.reserved);
    EXPECT_GT(stats.own_bytes, 0u);
    EXPECT_GE(stats.heaps, 1u);
}

TEST(Stats, AddUpOverTheClasses)
{
    free(malloc(1)); // the heap is at work
    hf_stats total = stats_now();
    std::vector<hf_class_stats> classes(hf_stats_classes(nullptr, 0));
    ASSERT_EQ(hf_stats_classes(classes.data(), classes.size()), classes.size());
    size_t live = total.large_objects, size = 0;
    for (const hf_class_stats &each : classes) {
        EXPECT_GT(each.block_size, size) << "classes stand in the order of their size";
        size = each.block_size;
        live += each.live_objects;
        EXPECT_LE((each.live_objects + each.free_objects) * each.block_size, each.spans << 16);
    }
    EXPECT_NEAR(static_cast<double>(live), static_cast<double>(total.live_objects), 4)
        << "the vector itself lies between";
}

TEST(Stats, SeeOtherThreadsObjects)
{
    std::vector<void *> objects(1000);
    std::atomic<bool> allocated{false}, seen{false};
    hf_stats before = stats_now();
    std::thread other([&] {
        for (void *&object : objects) object = malloc(1000);
        allocated = true;
        while (!seen) std::this_thread::yield();
        for (void *object : objects) free(object);
    });
    while (!allocated) std::this_thread::yield();
    hf_stats during = stats_now();
    seen = true;
    other.join();
    EXPECT_GE(during.live_objects, before.live_objects + 1000);
    EXPECT_GE(during.heaps - during.heaps_idle, 2u);
    EXPECT_LT(stats_now().live_objects, before.live_objects + 100) << "what the thread freed is not live";
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

// ---- giving back ------------------------------------------------------------------------------------------------------------

TEST(Trim, GivesFreeMemoryBack)
{
    ASSERT_EQ(hf_option_set("decay_ms", "1000000"), 0);
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

TEST(Trim, IsMallocTrimToo)
{
    ASSERT_EQ(hf_option_set("decay_ms", "1000000"), 0);
    free(memset(malloc(mib), 1, mib));
    EXPECT_EQ(malloc_trim(0), 1);
    EXPECT_EQ(malloc_trim(0), 0);
    ASSERT_EQ(hf_option_set("decay_ms", "500"), 0);
}

TEST(Decay, GivesMemoryBackWithoutBeingAsked)
{
    ASSERT_EQ(hf_option_set("decay_ms", "0"), 0);
    size_t before = stats_now().purged;
    free(memset(malloc(10 * mib), 1, 10 * mib));
    EXPECT_GE(stats_now().purged - before, 10 * mib);
    ASSERT_EQ(hf_option_set("decay_ms", "500"), 0);
}

// ---- mallinfo ---------------------------------------------------------------------------------------------------------------

TEST(Mallinfo2, AddsUpAsInGlibc)
{
    void *small = malloc(1000), *large = malloc(mib);
    struct mallinfo2 info = mallinfo2();
    EXPECT_EQ(info.arena, info.uordblks + info.fordblks);
    EXPECT_GE(info.uordblks, 1000u);
    EXPECT_GE(info.hblks, 1u);
    EXPECT_GE(info.hblkhd, mib);
    EXPECT_LE(info.keepcost, info.fordblks);
    free(small);
    free(large);
}

TEST(Mallinfo2, FollowsAllocationAndFree)
{
    std::vector<void *> objects(1000);
    free(malloc(500));
    struct mallinfo2 before = mallinfo2();
    for (void *&object : objects) object = malloc(500);
    struct mallinfo2 during = mallinfo2();
    for (void *object : objects) free(object);
    struct mallinfo2 after = mallinfo2();
    EXPECT_GE(during.uordblks, before.uordblks + 1000 * 500);
    EXPECT_EQ(after.uordblks, before.uordblks);
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

// ---- malloc_info, malloc_stats, mallopt ----------------------------------------------------------------------------------------

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

// The names of elements in the order of their start tags; empty when the text is not well-formed XML of elements,
// attributes and white space.
std::vector<std::string> elements_of(const std::string &xml)
{
    static const std::regex tag(R"(<(/?)([a-z]+)((?: [a-z]+="[^"<&]*")*)(/?)>)");
    std::vector<std::string> elements, open;
    auto place = xml.cbegin();
    std::smatch match;
    while (std::regex_search(place, xml.cend(), match, tag)) {
        std::string between = match.prefix(), name = match[2];
        if (between.find_first_not_of(" \n") != std::string::npos) return {};
        if (open.empty() && !elements.empty()) return {}; // a second root
        if (match[1].length() != 0) {
            if (open.empty() || open.back() != name || match[3].length() != 0 || match[4].length() != 0) return {};
            open.pop_back();
        } else {
            elements.push_back(name);
            if (match[4].length() == 0) open.push_back(name);
        }
        place = match[0].second;
    }
    if (std::string(place, xml.cend()) != "\n" || !open.empty()) return {};
    return elements;
}

} // namespace

TEST(MallocInfo, IsWellFormedAndInGlibcsShape)
{
    std::vector<void *> objects(100);
    for (void *&object : objects) object = malloc(200);
    for (void *object : objects) free(object);
    std::string text = malloc_info_text();
    std::vector<std::string> elements = elements_of(text);
    ASSERT_GE(elements.size(), 5u) << text;
    EXPECT_EQ(elements[0], "malloc");
    EXPECT_EQ(elements[1], "heap");
    EXPECT_EQ(elements[2], "sizes");
    EXPECT_EQ(elements[3], "size");
    EXPECT_NE(text.find("<malloc version=\"1\">"), std::string::npos);
    EXPECT_NE(text.find("<total type=\"mmap\""), std::string::npos);
    EXPECT_NE(text.find("<system type=\"current\""), std::string::npos);
}

TEST(MallocInfo, KnowsNoOptions)
{
    errno = 0;
    EXPECT_EQ(malloc_info(1, stdout), EINVAL);
    EXPECT_EQ(errno, 0) << "the error is returned";
}

TEST(MallocStats, WritesToStderr)
{
    void *object = malloc(3000000);
    testing::internal::CaptureStderr();
    malloc_stats();
    std::string text = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(std::regex_search(text, std::regex("^heapfit [0-9.]+, process [0-9]+\n"))) << text;
    EXPECT_NE(text.find("footprint"), std::string::npos);
    EXPECT_NE(text.find("block size"), std::string::npos);
    free(object);
}

TEST(Mallopt, AcceptsWhatIsOnlyAHint)
{
    EXPECT_EQ(mallopt(M_TRIM_THRESHOLD, 1 << 20), 1);
    EXPECT_EQ(mallopt(M_MMAP_THRESHOLD, 1 << 20), 1);
    EXPECT_EQ(mallopt(M_ARENA_MAX, 1), 1);
    EXPECT_EQ(mallopt(M_MXFAST, 64), 1);
}

TEST(Mallopt, RefusesWhatItWouldBreak)
{
    EXPECT_EQ(mallopt(M_PERTURB, 0xAA), 0);
    EXPECT_EQ(mallopt(12345, 1), 0);
}
