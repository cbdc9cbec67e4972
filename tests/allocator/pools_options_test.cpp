// The options of the library with pools, and how they reach the layer.
#include "pools_internals.h"
#include "system.h"

#include "heapfit/heapfit.h"

namespace
{

std::string value_of(const char *name)
{
    char value[64] = "";
    EXPECT_EQ(0, hf_option_get(name, value, sizeof value)) << name;
    return value;
}

// Some are set in the environment when this program runs a second time.
bool environment_sets_options()
{
    const char *options = std::getenv("HEAPFIT_OPTIONS");
    return options != nullptr && std::string(options).find("pools:all") != std::string::npos;
}

TEST(PoolsOptions, HaveTheirValuesFromTheStart)
{
    bool set = environment_sets_options();
    EXPECT_EQ(set ? "all" : "judged", value_of("pools"));
    EXPECT_EQ(set ? "full" : "adaptive", value_of("pool_chain"));
    EXPECT_EQ(set ? "0" : "1", value_of("pool_merge"));
    EXPECT_EQ(set ? "1" : "0", value_of("pool_headers"));
    EXPECT_EQ(set ? "65536" : "4096", value_of("pool_segment_size"));
    EXPECT_EQ(set ? "7" : "100", value_of("pool_min_objects"));
    EXPECT_EQ(set ? "1024" : "128", value_of("pool_max_size"));
}

TEST(PoolsOptions, AreSetAtTheStartOnly)
{
    std::free(std::malloc(1));
    for (const char *name : {"pools", "pool_chain", "pool_merge", "pool_headers", "pool_segment_size",
                             "pool_min_objects", "pool_max_size"}) {
        EXPECT_EQ(-1, hf_option_set(name, value_of(name).c_str())) << name;
        EXPECT_EQ(EBUSY, errno) << name;
    }
}

} // namespace
