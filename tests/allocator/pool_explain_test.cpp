// What was decided about groups, as the file that `heapfit pools explain` reads.
#include "json_reader.h"
#include "pool_program.h"

#include <unistd.h>

#include <fstream>
#include <iterator>

extern "C" void explain_at_exit(void);

namespace
{

using pool_program::Group;

struct Pair {
    Pair *next;
    void *payload;
    uint64_t rest[4];
};

// What this process explains, in the file that `path` comes to.
json::Value explained(const std::string &wanted, const std::string &path)
{
    EXPECT_LT(wanted.copy(pool_settings.explain, sizeof pool_settings.explain - 1), sizeof pool_settings.explain - 1);
    explain_at_exit();
    std::ifstream file(path);
    EXPECT_TRUE(file.is_open()) << path;
    std::string text{std::istreambuf_iterator<char>(file), {}};
    unlink(path.c_str());
    EXPECT_EQ('\n', text.empty() ? '\0' : text.back());
    return json::read(text.substr(0, text.size() - 1));
}

std::string own_path()
{
    return testing::TempDir() + "heapfit-explain-" + std::to_string(getpid());
}

json::Value explained()
{
    return explained(own_path(), own_path());
}

TEST(PoolExplain, NamesTheProcessItsSettingsAndWhatIsMapped)
{
    isolated::expect_passes([] {
        heap_free(heap_malloc(1));
        json::Value all = explained();
        EXPECT_EQ("heapfit-pools/1", all["format"].text);
        EXPECT_EQ(getpid(), all["pid"].number);
        EXPECT_NE(std::string::npos, all["program"].text.find("pool_explain"));
        EXPECT_EQ("pool_chain", all["settings"]["chain"].text) << "the value of that option";
        EXPECT_EQ(100, all["settings"]["min_objects"].number);
        EXPECT_TRUE(all["settings"]["merge"].truth);
        auto here = reinterpret_cast<int64_t>(&own_path);
        bool found = false;
        for (const json::Value &module : all["modules"].elements) {
            if (here < module["base"].number || here >= module["end"].number) continue;
            EXPECT_EQ(all["program"].text, module["path"].text);
            found = true;
        }
        EXPECT_TRUE(found);
        EXPECT_TRUE(all["groups"].elements.empty());
        EXPECT_TRUE(all["counters"]["fallback"].has("no_unwind"));
    });
}

TEST(PoolExplain, TellsOfEachGroupWhatBecameOfItAndWhy)
{
    isolated::expect_passes([] {
        Group few, pairs, payloads;
        few.make(40);
        few.make(24);
        few.make(24);
        Pair *last = nullptr;
        for (int i = 0; i < 2000; i++) {
            Pair *pair = pairs.make<Pair>();
            pair->payload = payloads.make(80);
            pair->next = last;
            last = pair;
            for (size_t unwatched = 16; unwatched <= 96; unwatched += 16)
                for (int times = 0; times < 4; times++) EXPECT_NE(nullptr, heap_malloc(unwatched));
        }
        json::Value all = explained();
        const std::vector<json::Value> &groups = all["groups"].elements;
        ASSERT_EQ(3U, groups.size());
        EXPECT_EQ("watched", groups[0]["state"].text);
        EXPECT_EQ("min_objects", groups[0]["threshold"].text);
        EXPECT_EQ(json::Value::NOTHING, groups[0]["pool"].kind);
        ASSERT_EQ(2U, groups[0]["sizes"].elements.size());
        EXPECT_EQ(24, groups[0]["sizes"].elements[1]["size"].number);
        EXPECT_EQ(2, groups[0]["sizes"].elements[1]["objects"].number);
        ASSERT_EQ(1U, groups[0]["chain"].elements.size());
        EXPECT_EQ(static_cast<int64_t>(few.seen().chain[0]), groups[0]["chain"].elements[0].number);

        const json::Value &first = pairs.is(GROUP_MIXED) ? groups[1] : groups[2];
        const json::Value &joined = pairs.is(GROUP_MIXED) ? groups[2] : groups[1];
        EXPECT_EQ("mixed", first["state"].text);
        EXPECT_EQ(0, first["pool"].number);
        EXPECT_LT(950, first["linked_share"].number * 1000 + first["linked_share"].thousandths);
        EXPECT_EQ(0U, first["freed_share"].thousandths);
        EXPECT_EQ("merged", joined["state"].text);
        EXPECT_EQ("together", joined["merged_by"].text);
        EXPECT_EQ(first["id"].number, joined["merged_into"].number);

        bool found = false;
        for (const json::Value &edge : all["edges"].elements)
            if (edge["from"].number == 1 && edge["to"].number == 2)
                found = edge["offset"].number == 8 && edge["adjacent"].number == edge["count"].number;
        EXPECT_TRUE(found);
        ASSERT_EQ(1U, all["pools"].elements.size());
        EXPECT_EQ("mixed", all["pools"].elements[0]["kind"].text);
        EXPECT_LT(2000, all["pools"].elements[0]["objects"].number);
    });
}

TEST(PoolExplain, ThePathMayHaveTheProcessesNumber)
{
    isolated::expect_passes([] {
        heap_free(heap_malloc(1));
        std::string before = testing::TempDir() + "heapfit-explain-";
        EXPECT_EQ(getpid(), explained(before + "%p.json", before + std::to_string(getpid()) + ".json")["pid"].number);
    });
}

TEST(PoolExplain, AFileThatCannotBeWrittenIsSaidSo)
{
    isolated::expect_passes([] {
        heap_free(heap_malloc(1));
        std::strcpy(pool_settings.explain, "/nowhere/at/all");
        testing::internal::CaptureStderr();
        explain_at_exit();
        EXPECT_EQ("heapfit: HEAPFIT_POOLS_EXPLAIN: cannot write /nowhere/at/all\n",
                  testing::internal::GetCapturedStderr());
    });
}

} // namespace
