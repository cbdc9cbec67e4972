// Statistics: hf_stats_get and its kin, and glibc's mallinfo, malloc_info, malloc_stats, malloc_trim and mallopt.

#include <gtest/gtest.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include <sys/types.h>

#include "heapfit/heapfit.h"
#include "json_reader.h"

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

// ---- heaps, nodes ------------------------------------------------------------------------------------------------------------

namespace
{

std::vector<hf_heap_stats> heaps_now()
{
    std::vector<hf_heap_stats> heaps(hf_stats_heaps(nullptr, 0));
    EXPECT_EQ(hf_stats_heaps(heaps.data(), heaps.size()), heaps.size());
    return heaps;
}

long thread_number()
{
    return syscall(SYS_gettid);
}

const hf_heap_stats *heap_of(const std::vector<hf_heap_stats> &heaps, long thread)
{
    for (const hf_heap_stats &heap : heaps)
        if (heap.thread == thread) return &heap;
    return nullptr;
}

} // namespace

TEST(Heaps, AddUpToTheTotal)
{
    std::vector<void *> objects(1000);
    for (void *&object : objects) object = malloc(1000);
    std::vector<hf_heap_stats> heaps(10);
    heaps.resize(hf_stats_heaps(heaps.data(), heaps.size()));
    hf_stats total = stats_now();
    size_t live = total.large_bytes, cached = 0, refills = 0, number = 0;
    for (const hf_heap_stats &heap : heaps) {
        EXPECT_EQ(heap.number, number++);
        EXPECT_LE(heap.live_bytes + heap.free_bytes, heap.spans << 16);
        live += heap.live_bytes;
        cached += heap.cached_bytes;
        refills += heap.refills;
    }
    EXPECT_GE(live, total.live_bytes) << "blocks that are kept for the next malloc are counted here";
    EXPECT_LE(live, total.live_bytes + mib);
    EXPECT_EQ(cached, total.cached_bytes);
    EXPECT_EQ(refills, total.refills);
    for (void *object : objects) free(object);
}

TEST(Heaps, NameTheirThreads)
{
    std::atomic<bool> allocated{false}, seen{false};
    std::atomic<long> number{0};
    void *left = nullptr;
    std::thread other([&] {
        std::vector<void *> objects(1000);
        for (void *&object : objects) object = malloc(1000);
        left = malloc(1000);
        number = thread_number();
        allocated = true;
        while (!seen) std::this_thread::yield();
        for (void *object : objects) free(object);
    });
    while (!allocated) std::this_thread::yield();
    std::vector<hf_heap_stats> during = heaps_now();
    seen = true;
    other.join();
    const hf_heap_stats *own = heap_of(during, thread_number()), *others = heap_of(during, number);
    ASSERT_NE(own, nullptr);
    ASSERT_NE(others, nullptr);
    EXPECT_GE(others->live_bytes, size_t{1000} * 1000);
    EXPECT_GE(others->spans, 15u);
    std::vector<hf_heap_stats> after = heaps_now();
    EXPECT_EQ(heap_of(after, number), nullptr) << "it is idle";
    EXPECT_EQ(after[0].number, 0u);
    EXPECT_GE(after[0].live_bytes, 1000u) << "what the thread has left";
    free(left);
}

TEST(Nodes, AreOneOrMore)
{
    std::vector<hf_node_stats> nodes(hf_stats_nodes(nullptr, 0));
    ASSERT_GE(nodes.size(), 1u);
    ASSERT_EQ(hf_stats_nodes(nodes.data(), nodes.size()), nodes.size());
    size_t dirty = 0;
    for (const hf_node_stats &node : nodes) dirty += node.dirty_bytes;
    EXPECT_EQ(dirty, stats_now().dirty_bytes);
    EXPECT_EQ(stats_now().nodes, nodes.size());
}

// ---- JSON --------------------------------------------------------------------------------------------------------------------

namespace
{

size_t member(const json::Value &object, const char *name)
{
    return static_cast<size_t>(object[name].number);
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
    json::Value stats = json::read(text);
    EXPECT_EQ(stats["format"].text, "heapfit-stats/1");
    EXPECT_EQ(stats["version"].text, hf_version());
    EXPECT_EQ(stats["pid"].number, getpid());
    EXPECT_GT(stats["time_ms"].number, 0);
    EXPECT_FALSE(stats["shrunk"].truth);
    EXPECT_EQ(stats["total"].members.size(), sizeof total / sizeof(size_t));
    EXPECT_EQ(member(stats["total"], "live_objects"), total.live_objects);
    EXPECT_EQ(member(stats["total"], "live_bytes"), total.live_bytes);
    EXPECT_EQ(member(stats["total"], "footprint"), total.footprint);
    EXPECT_EQ(member(stats["total"], "resident"), total.resident);
    EXPECT_EQ(member(stats["total"], "refills"), total.refills);
    EXPECT_EQ(member(stats["total"], "nodes"), total.nodes);
    ASSERT_EQ(stats["classes"].elements.size(), classes.size());
    for (size_t i = 0; i < classes.size(); i++) {
        EXPECT_EQ(member(stats["classes"].elements[i], "block_size"), classes[i].block_size);
        EXPECT_EQ(member(stats["classes"].elements[i], "live_objects"), classes[i].live_objects);
        EXPECT_EQ(member(stats["classes"].elements[i], "free_objects"), classes[i].free_objects);
        EXPECT_EQ(member(stats["classes"].elements[i], "spans"), classes[i].spans);
    }
    ASSERT_EQ(stats["heaps"].elements.size(), heaps.size());
    for (size_t i = 0; i < heaps.size(); i++) {
        const json::Value &heap = stats["heaps"].elements[i];
        EXPECT_EQ(heap.members.size(), sizeof(hf_heap_stats) / sizeof(size_t));
        EXPECT_EQ(member(heap, "number"), heaps[i].number);
        EXPECT_EQ(heap["thread"].number, heaps[i].thread);
        EXPECT_EQ(member(heap, "spans"), heaps[i].spans);
        EXPECT_EQ(member(heap, "live_bytes"), heaps[i].live_bytes);
    }
    EXPECT_EQ(stats["nodes"].elements.size(), hf_stats_nodes(nullptr, 0));
    free(large);
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

// ---- mallinfo ---------------------------------------------------------------------------------------------------------------

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
    EXPECT_EQ(std::count(elements.begin(), elements.end(), "heap"), static_cast<long>(hf_stats_heaps(nullptr, 0)));
    EXPECT_GE(std::count(elements.begin(), elements.end(), "size"), 1);
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
